"""What holds now, against what held earlier: the same records, judged at several moments."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.events import Capacity, Record, RequestSent
from probes.stats.present import Present, is_near
from probes.stats.windows import Traits

VLLM = Traits("vllm", reserving=False, report_s=10.0)
SGLANG = Traits("sglang", reserving=False, report_s=1.0, estimate_tokens=4096, delays=True)
LANES = {"running": 4, "waiting": 3, "kv_usage": 0.2}
POOL = {"running": 2, "waiting": 3, "kv_usage": 0.99}
FREE = {"running": 1, "waiting": 0, "kv_usage": 0.1}
IDLE = {"running": 0, "waiting": 0, "kv_usage": 0.0}


def present(traits: Traits = VLLM, **about: Any) -> Present:
    out = Present(traits, **about)
    out.capacity(Capacity(lanes=4, kv_pool_tokens=4096))
    out.turn(0.0)
    return out


def feed(judge: Present, first_s: int, count: int, fields: dict[str, Any], every_s: int = 2) -> str:
    """So many reports, turning the judge at each; the stamp of the last one."""
    at = ""
    for n in range(count):
        second = first_s + n * every_s
        at = f"2026-05-04T10:{second // 60:02d}:{second % 60:02d}"
        judge.turn(float(second))
        judge.see(Record(second + 1, "throughput", fields, at, text=f"report at {at}"), at)
    return at


def test_a_queue_that_is_over_is_told_as_over() -> None:
    judge = present()
    last = feed(judge, 0, 5, LANES)
    assert (judge.verdict().verdict, judge.verdict().until) == ("lanes", None)
    feed(judge, 10, 2, IDLE)
    assert judge.verdict().until is None, "two reports without a queue are not its end"
    feed(judge, 14, 1, IDLE)
    found = judge.verdict()
    assert (found.verdict, found.until) == ("lanes", last)
    assert found.evidence, "why it was stays one key away"


def test_another_limit_is_named_as_soon_as_its_queue_can_be_judged() -> None:
    """Minutes of one queue must not outvote the one that there is now."""
    judge = present()
    feed(judge, 0, 60, LANES)
    feed(judge, 120, 3, FREE)
    feed(judge, 126, 3, POOL)
    assert judge.whole.verdict().verdict == "lanes"
    found = judge.verdict()
    assert (found.verdict, found.until) == ("kv_pool", None)


def test_a_queue_whose_cause_changes_is_judged_by_its_newest_part() -> None:
    judge = present()
    feed(judge, 0, 90, LANES)
    feed(judge, 180, 60, POOL)
    assert judge.verdict().verdict == "kv_pool"


def test_silence_ends_a_queue_too() -> None:
    """SGLang prints nothing while it idles: the last report of a burst shows a queue."""
    judge = present(SGLANG)
    last = feed(judge, 0, 5, LANES, every_s=1)
    assert judge.verdict().until is None
    assert judge.turn(30.0)
    assert judge.turn(60.0)
    assert (judge.verdict().verdict, judge.verdict().until) == ("lanes", last)
    judge.turn(600.0)
    feed(judge, 601, 3, POOL, every_s=1)
    assert (judge.verdict().verdict, judge.verdict().until) == ("kv_pool", None)


def test_a_queue_too_short_to_judge_does_not_wipe_out_what_is_known() -> None:
    judge = present()
    feed(judge, 0, 5, LANES)
    feed(judge, 10, 3, FREE)
    last = feed(judge, 16, 1, POOL)
    assert judge.verdict().verdict == "lanes"
    feed(judge, 18, 3, FREE)
    assert (judge.verdict().verdict, judge.verdict().until) == ("lanes", last)


def test_a_simulated_servers_time_runs_out_sooner() -> None:
    judge = present(SGLANG, speed=20.0)
    feed(judge, 0, 5, LANES, every_s=0)
    assert not judge.turn(0.9)
    assert judge.turn(1.1)


def test_forgetting_keeps_what_the_start_announced_and_what_is_on_the_wire() -> None:
    judge = Present(Traits("ninfer", reserving=True, report_s=5.0, omits_zero=True), requested=3)
    judge.see(Record(1, "boot", {"capped_by": "memory"}, text="lanes capped"), "10:00:00")
    judge.capacity(Capacity(lanes=3, kv_pool_tokens=64_000, pages=1000, page_tokens=64))
    for name in "abc":
        judge.sent(RequestSent(name, 1.0, name, "code", 31_000, 0, 1000))
    feed(judge, 0, 3, {"running": 3, "waiting": 2})
    judge.forget(None)
    assert judge.verdict().verdict == "unknown"
    feed(judge, 10, 4, {"running": 2, "waiting": 1})
    found = judge.verdict()
    assert (found.verdict, found.confidence) == ("kv_pool", "high"), found.sentence


def test_a_server_that_begins_anew_has_no_queue_of_before() -> None:
    judge = present()
    feed(judge, 0, 5, LANES)
    judge.see(Record(90, "boot", {"version": "0.30.0"}, text="boot"), "10:00:20")
    assert judge.verdict().verdict == "unknown"
    assert judge.verdict().until is None


def test_a_log_that_was_there_before_is_history_unless_its_queue_is_new() -> None:
    judge = present()
    last = feed(judge, 0, 5, LANES)
    judge.caught_up("2026-05-04T10:00:12")
    assert judge.verdict().until is None
    judge.caught_up("2026-05-04T10:07:12")
    assert (judge.verdict().verdict, judge.verdict().until) == ("lanes", last)


@pytest.mark.parametrize(
    ("stamp", "near"),
    [
        ("2026-05-04T10:00:05", True),
        ("2026-05-04T08:00:05", True),
        ("2026-05-04T15:30:05", True),
        ("2026-05-04T09:55:00", False),
        ("2026-05-02T10:00:05", False),
        ("whenever", True),
        (None, False),
    ],
)
def test_nearness_knows_no_time_zone(stamp: str | None, near: bool) -> None:
    assert is_near(stamp, "2026-05-04T10:00:10", 20.0) is near


@settings(deadline=None)
@given(st.lists(st.sampled_from([LANES, POOL, FREE, IDLE]), max_size=60), st.integers(1, 40))
def test_never_both_free_for_long_and_held_now(reports: list[dict[str, Any]], every_s: int) -> None:
    judge = present()
    for n, fields in enumerate(reports):
        feed(judge, n * every_s, 1, fields)
        found = judge.verdict()
        newest = [r["waiting"] for r in reports[max(0, n - 2) : n + 1]]
        if n >= 2 and not any(newest) and found.verdict not in {"none", "unknown"}:
            assert found.until is not None
        if n >= 2 and all(newest):
            assert found.until is None
