from __future__ import annotations

from probes.events import Record, RequestDone
from probes.stats.match import enrich


def request(name: str, drafted: int, accepted: int, tokens: int = 50) -> RequestDone:
    return RequestDone(
        name, name, "h", "code", 4, 1, 0, "ok", 0.0, drafted=drafted, accepted=accepted, completion_tokens=tokens
    )


def record(drafted: int, accepted: int, per: tuple[float, ...], tokens: int = 50) -> Record:
    fields = {"drafted": drafted, "accepted": accepted, "output_tokens": tokens, "per_position": per, "steps": 20}
    return Record(1, "request", fields)


def test_equal_counters_join() -> None:
    got = enrich([request("a", 80, 30), request("b", 76, 31)], [record(76, 31, (0.9, 0.5)), record(80, 30, (0.8, 0.4))])
    assert {r.id: r.per_position for r in got} == {"a": (0.8, 0.4), "b": (0.9, 0.5)}
    assert [r.steps for r in got] == [None, None], "a log counts the steps that drafted, not all of them"


def test_plain_steps_count_too() -> None:
    """49 decode tokens, 9 of them accepted drafts: 40 steps, of which the log saw only the 10 that drafted."""
    (got,) = enrich([request("a", 40, 9)], [record(40, 9, (0.6, 0.3))])
    assert got.per_position is not None
    assert abs(sum(got.per_position) - 9 / 40) < 1e-9


def test_no_guess_where_two_could_be_meant() -> None:
    two = [request("a", 80, 30), request("b", 80, 30)]
    assert enrich(two, [record(80, 30, (0.8,)), record(80, 30, (0.7,))]) == []
    assert enrich(two, [record(80, 30, (0.8,))]) == []
    assert [r.per_position for r in enrich(two, [record(80, 30, (0.8,))] * 2)] == [(0.8,), (0.8,)]


def test_unknown_counters_join_nothing() -> None:
    assert (
        enrich([request("a", 80, 30)], [record(80, 31, (0.8,)), Record(1, "request", {"per_position": (1.0,)})]) == []
    )
