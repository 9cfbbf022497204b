"""Streams as servers really send them, and the figures read from each; then any bytes at all."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from probes.events import RequestDone
from probes.load.facts import Stream, burst_gap_ms, bursts, standard
from probes.load.jobs import line
from probes.load.record import TEXT_MOST, Request, digest
from probes.load.wire import End, Reply

REQUEST = Request("r1", "code-1", "hash", "code", b"", max_tokens=8, depth=2, restart=3, block=1)


def event(obj: Any) -> bytes:
    return b"data: " + json.dumps(obj).encode() + b"\n\n"


def said(text: str | None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "id": "c1",
        "model": "m",
        "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}],
        **more,
    }


ROLE = {
    "id": "c1",
    "model": "m",
    "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}],
    "usage": None,
}
DONE = b"data: [DONE]\n\n"


def usage(tokens: int, **more: Any) -> dict[str, Any]:
    return {"id": "c1", "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": tokens}, **more}


def record(
    *parts: tuple[float, bytes], status: int | None = 200, end: End = "complete", kind: str = "text/event-stream"
) -> RequestDone:
    reply = Reply(10.0, REQUEST, status, {"content-type": kind}, list(parts), end=end)
    reply.done = parts[-1][0] if parts else 11.0
    found = [one for one in digest(REQUEST, reply, None) if one is not None]
    assert len(found) == 1
    return found[0]


def test_the_role_chunk_and_comments_do_not_stop_the_clock() -> None:
    # ninfer and OpenAI: an empty string with the role; ninfer: comments while nothing comes.
    found = record(
        (10.01, event(ROLE)), (10.02, b": keep-alive\n\n"), (10.10, event(said("a"))), (10.20, event(said("b"))),
        (10.21, event(said("", "length")) + event(usage(2)) + DONE),
    )  # fmt: skip
    assert found.outcome == "ok"
    assert (found.first, found.last, found.chunks) == (10.10, 10.20, 2)
    assert found.ttft_ms == pytest.approx(100)
    assert (found.prompt_tokens, found.completion_tokens, found.finish_reason) == (5, 2, "length")
    assert (found.depth, found.restart, found.block, found.category) == (2, 3, 1, "code")
    assert found.text == "ab"


def test_llamacpp_null_content_in_the_role_chunk() -> None:
    role = {"choices": [{"finish_reason": None, "index": 0, "delta": {"role": "assistant", "content": None}}]}
    assert record((10.1, event(role)), (10.3, event(said("x")) + event(usage(1)) + DONE)).first == 10.3


def test_reasoning_is_output_too() -> None:
    thought = {"choices": [{"delta": {"reasoning_content": "hm", "content": None}, "finish_reason": None}]}
    newer = {"choices": [{"delta": {"reasoning": "so"}, "finish_reason": None}]}
    found = record((10.1, event(ROLE)), (10.2, event(thought)), (10.3, event(newer)), (10.4, event(said("x"))),
                   (10.5, event(usage(3)) + DONE))  # fmt: skip
    assert (found.first, found.last, found.text) == (10.2, 10.4, "hmsox")


def test_drafts_in_the_first_chunk_are_not_paid_for_later() -> None:
    # Three tokens arrive at once with the first, as running counts say: five more in 0.5 s are 100 ms each.
    def chunk(text: str, count: int) -> bytes:
        return event(said(text, timings={"predicted_n": count}))

    found = record(
        (10.0, event(ROLE)), (10.1, chunk("a", 3) + chunk("b", 3) + chunk("c", 3)), (10.4, chunk("d", 6)),
        (10.4001, chunk("e", 6)), (10.6, chunk("f", 8)),
        (10.7, event(said("", "length")) + event(usage(8, timings={"predicted_ms": 700, "predicted_n": 8})) + DONE),
    )  # fmt: skip
    assert (found.first_tokens, found.tpot_exact) == (3, True)
    assert found.tpot_ms == pytest.approx(100)
    assert found.decode_tps == pytest.approx(10)
    assert found.server_tpot_ms == pytest.approx(100)
    assert found.raw["tpot_source"] == "running counts"


def test_counts_from_continuous_usage() -> None:
    found = record(
        (10.1, event(said("ab", usage={"completion_tokens": 2}))),
        (10.2, event(said("c", usage={"completion_tokens": 3}))),
        (10.3, event(usage(3)) + DONE),
    )  # fmt: skip
    assert (found.first_tokens, found.tpot_exact) == (2, True)
    assert found.tpot_ms == pytest.approx(100)


def test_counts_from_token_ids() -> None:
    def chunk(text: str, ids: list[int]) -> bytes:
        return event({"choices": [{"delta": {"content": text}, "finish_reason": None, "token_ids": ids}]})

    found = record(
        (10.1, event(ROLE)), (10.2, chunk("ab", [1, 2])), (10.4, chunk("cd", [3, 4])), (10.5, event(usage(4)) + DONE)
    )
    assert found.first_tokens == 2
    assert found.tpot_ms == pytest.approx(100)


def test_one_token_a_chunk_needs_no_counts() -> None:
    parts = [(10.0 + place / 10, event(said("x"))) for place in range(1, 5)]
    found = record(*parts, (10.5, event(usage(4)) + DONE))
    assert (found.first_tokens, found.tpot_exact, found.raw["tpot_source"]) == (1, True, "one token a chunk")
    assert found.tpot_ms == pytest.approx(100)


def test_a_stop_token_that_shows_nothing_is_not_divided_by() -> None:
    parts = [(10.0 + place / 10, event(said("x"))) for place in range(1, 5)]
    found = record(*parts, (10.6, event(said("", "stop")) + event(usage(5)) + DONE))
    assert found.completion_tokens == 5
    assert found.tpot_ms == pytest.approx(100)
    assert found.raw["shown_tokens"] == 4


def test_without_counts_several_tokens_a_chunk_is_about() -> None:
    found = record((10.1, event(said("ab"))), (10.4, event(said("cd"))), (10.5, event(usage(4)) + DONE))
    assert (found.first_tokens, found.tpot_exact) == (None, False)
    assert found.tpot_ms == pytest.approx(100)
    assert found.raw["tpot_source"] == "one token assumed"


def test_without_counts_the_server_time_tells_how_many_came_first() -> None:
    final = usage(7, timings={"predicted_ms": 600, "predicted_n": 7})
    found = record((10.1, event(said("abc"))), (10.5, event(said("defg"))), (10.6, event(final) + DONE))
    assert (found.first_tokens, found.tpot_exact, found.raw["tpot_source"]) == (3, True, "server timings")


def test_usage_in_the_finish_chunk() -> None:
    last = said("", "stop", usage={"completion_tokens": 1, "prompt_tokens": 9})
    assert record((10.1, event(said("x"))), (10.2, event(last) + DONE)).completion_tokens == 1


def test_tokens_are_never_counted_from_chunks() -> None:
    found = record((10.1, event(said("a"))), (10.2, event(said("b"))), (10.3, event(said("", "stop")) + DONE))
    assert found.outcome == "ok"
    assert (found.completion_tokens, found.tpot_ms, found.decode_tps, found.chunks) == (None, None, None, 2)


@pytest.mark.parametrize(("end", "want"), [("complete", "aborted"), ("lost", "disconnected"), ("timeout", "timeout")])
def test_a_stream_without_its_end_mark_has_no_speed(end: End, want: str) -> None:
    found = record((10.1, event(said("a", usage={"completion_tokens": 1}))), (10.2, event(said("b"))), end=end)
    assert found.outcome == want
    assert found.error
    assert (found.completion_tokens, found.tpot_ms) == (None, None)
    assert found.text == "ab"


def test_the_end_mark_makes_a_lost_connection_good() -> None:
    assert record((10.1, event(said("a")) + event(usage(1)) + DONE), end="lost").outcome == "ok"


@pytest.mark.parametrize(
    "frame",
    [
        {"error": {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}},
        {"object": "error", "message": "boom", "code": 500},
    ],
)
def test_an_error_frame_inside_a_200(frame: dict[str, Any]) -> None:
    found = record((10.1, event(said("a"))), (10.2, event(frame) + DONE))
    assert found.outcome == "aborted"
    assert "500" in str(found.error)


def test_a_record_stays_small_whatever_is_sent() -> None:
    long = "h" * 300_000
    parts = [(10.0 + n, event(said(long))) for n in range(5)]
    odd = event({"weird": "w" * 100_000, "timings": {"predicted_n": 5}})
    found = record(*parts, (16.0, odd + event(usage(5)) + DONE))
    assert found.outcome == "ok"
    assert len(found.text) == TEXT_MOST + 1
    assert found.text_hash == hashlib.sha256((long * 5).encode()).hexdigest()
    assert set(found.raw) >= {"timings", "usage", "id"}
    assert "weird" not in found.raw


def test_a_stream_that_ends_at_once_is_no_success() -> None:
    assert record((10.1, event(ROLE) + DONE)).outcome == "aborted"
    assert record((10.1, event(said("a")) + event(said("", "abort")) + event(usage(1)) + DONE)).outcome == "aborted"


@pytest.mark.parametrize(
    ("status", "want"), [(400, "rejected"), (429, "overloaded"), (503, "queue_timeout"), (500, "aborted")]
)
def test_statuses_are_outcomes_with_their_message(status: int, want: str) -> None:
    body = b'{"error":{"code":"request_queue_timeout","message":"too late"}}'
    found = record((10.1, body), status=status, kind="application/json")
    assert (found.outcome, found.status, found.first, found.chunks) == (want, status, None, None)
    assert found.error == f"HTTP {status}: request_queue_timeout too late"


def test_an_answer_that_was_not_streamed_has_text_and_no_stamps() -> None:
    body = {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}], "usage": {"completion_tokens": 2}}
    found = record((10.1, json.dumps(body).encode()), kind="application/json")
    assert (found.outcome, found.text, found.first, found.completion_tokens) == ("ok", "hi", None, 2)


def test_llamacpp_timings() -> None:
    timings = {
        "prompt_ms": 40.0,
        "predicted_n": 5,
        "predicted_ms": 200.0,
        "cache_n": 3,
        "draft_n": 8,
        "draft_n_accepted": 3,
    }
    assert standard({"timings": timings}) == {
        "cached_tokens": 3, "server_ttft_ms": 40.0, "server_tpot_ms": 50.0, "drafted": 8, "accepted": 3,
    }  # fmt: skip


def test_no_drafts_stated_is_unknown_not_zero() -> None:
    assert record((10.1, event(said("x")) + event(usage(1, timings={"predicted_n": 1})) + DONE)).drafted is None


def test_an_engine_reads_its_own_figures_and_may_fail() -> None:
    reply = Reply(
        10.0, REQUEST, 200, {}, [(10.1, event(said("x")) + event(usage(1, meta_info={"d": 6})) + DONE)], done=10.1
    )
    found = list(
        digest(REQUEST, reply, lambda final: {"drafted": final["meta_info"]["d"], "per_position": (0.5, 0.25)})
    )[-1]
    assert found is not None
    assert (found.drafted, found.per_position) == (6, (0.5, 0.25))
    broken = list(digest(REQUEST, reply, lambda final: {"drafted": final["none"]}))[-1]
    assert broken is not None
    assert broken.outcome == "ok"
    assert "KeyError" in broken.raw["unread"]


def test_a_stream_tells_the_drafts_of_a_server_that_does_not() -> None:
    """SGLang 0.5.11: usage in every chunk, and not a word of drafts."""
    parts = [(10.0 + n / 100, event({**usage(n), **said("x")})) for n in (1, 3, 4, 8)]
    parts.append((10.1, event(said("", "length")) + event(usage(8)) + DONE))
    for each, source, counts in ((3, "chunks", (3, 9, 4)), (None, None, (None, None, None))):
        request = dataclasses.replace(REQUEST, step_drafts=each)
        reply = Reply(10.0, request, 200, {"content-type": "text/event-stream"}, list(parts), end="complete")
        reply.done = 10.1
        found = list(digest(request, reply, None))[-1]
        assert found is not None
        assert (found.steps, found.drafted, found.accepted) == counts
        assert found.raw.get("drafts_source") == source
    told = list(digest(dataclasses.replace(REQUEST, step_drafts=3), reply, lambda _: {"drafted": 6, "accepted": 2}))[-1]
    assert told is not None
    assert (told.drafted, told.accepted) == (6, 2), "its own word comes first"


CHUNKS = (
    b'{"id":"a","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}',
    b'{"id":"a","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}',
    b'{"id":"a","choices":[{"delta":{"reasoning_content":"so","content":"said"}}],"timings":{"predicted_n":7}}',
    b'{"id":"a","choices":[{"delta":{"reasoning":"hm"}}],"timings":{"predicted_n":-1}}',
    b'{"id":"a","choices":[{"delta":{},"finish_reason":"length"}]}',
    b'{"id":"b","choices":[],"usage":{"completion_tokens":9}}',
    b'{"choices":[{"delta":{"content":" y"}}],"usage":{"completion_tokens":3}}',
    b'{"error":{"message":"no"}}', b"[DONE]", b"no json", b"[1]",
)  # fmt: skip


@given(st.lists(st.sampled_from(CHUNKS)))
def test_the_short_way_reads_what_the_long_one_does(said: list[bytes]) -> None:
    short, full = Stream(), Stream()
    short.take((float(n), data) for n, data in enumerate(said))
    for n, data in enumerate(said):
        full.add(float(n), data)
    for name in ("stamps", "counts", "text", "done", "error", "bad", "token_ids", "finish_reason"):
        assert getattr(short, name) == getattr(full, name)


def test_bursts_are_steps() -> None:
    stamps = [0.0, 0.0002, 0.02, 0.0201, 0.0202, 0.041, 0.0411, 0.06]
    assert bursts(stamps) == [0.0, 0.02, 0.041, 0.06]
    assert burst_gap_ms(bursts(stamps)) == pytest.approx(20.0)
    assert burst_gap_ms(bursts([0.0, 0.02])) is None
    slow = [0.0, 0.003, 0.4, 0.404, 0.409, 0.8]
    assert bursts(slow) == [0.0, 0.4, 0.8]
    assert burst_gap_ms(bursts([])) is None


bits = st.sampled_from(
    [event(ROLE), event(said("a")), event(said("b", timings={"predicted_n": 2})), event(usage(3)), DONE, event([]),
     event({"choices": [None]}), event({"choices": [{"delta": 3, "finish_reason": {"type": "abort"}}]}),
     event({"usage": 4}),
     event({"timings": {"predicted_n": -1, "predicted_ms": "x"}, "choices": {}}), event({"error": [1]}), b"data: {\n\n",
     b"data: \xff\n\n", b"data: " + b"[" * 9000 + b"\n\n",
     event({"usage": {"completion_tokens": 1e300}}), event({"a": 10**30}),
     b'data: {"choices":[{"delta":{"content":"\\ud800"}}]}\n\n', event({"choices": [{"delta": {"content": ["x"]}}]})]
)  # fmt: skip


@given(
    st.lists(st.tuples(st.floats(10, 20), st.one_of(bits, st.binary(max_size=40))), max_size=12),
    st.sampled_from([200, 200, 200, 404, 503, None]),
    st.sampled_from(["complete", "lost", "garbage", "refused", "timeout", "cancelled"]),
    st.sampled_from(["text/event-stream", "application/json", "x"]),
)
@example([(10.0, b'{"choices":[{"message":{"content":3}}],"usage":[]}')], 200, "complete", "application/json")
def test_any_bytes_make_one_record_that_can_be_written(
    parts: list[tuple[float, bytes]], status: int | None, end: End, kind: str
) -> None:
    found = record(*sorted(parts, key=lambda part: part[0]), status=status, end=end, kind=kind)
    assert (found.outcome == "ok") == (found.error is None)
    written = line(found)
    assert written.count(b"\n") == 1
    assert msgspec.json.decode(written)["kind"] == "done"
