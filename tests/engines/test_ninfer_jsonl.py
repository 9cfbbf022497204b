"""ninfer's request log (JSONL) as records, capacity and checks of its own counters."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.engines._ninfer_log import Reader, sniff
from probes.events import Record


def read(lines: list[str]) -> tuple[Reader, list[Record]]:
    reader = Reader()
    found: list[Record] = []
    for number, text in enumerate(lines, 1):
        found.extend(reader.feed(number, text))
    return reader, found + reader.close()


EVENT = {
    "artifact_type": "ninfer_serve_request_log", "schema_version": 20, "event": "request_done",
    "timestamp_unix_ms": 1790000000000, "request": {"request_id": 5, "protocol": "openai-chat"},
    "result": {"finish_reason": "stop_token", "prompt_tokens": 120, "completion_tokens": 155,
               "computed_prefill_tokens": 100, "prefix_cache_hit_tokens": 20},
    "timings_seconds": {"ttft": 0.25, "prefill": 0.05, "decode": 1.375, "total": 3.75},
    "engine_timing": {"queue_wait_seconds": 0.125},
    "speculative": {"backend": "mtp", "draft_window": 3, "rounds": 47, "drafted_tokens": 141, "accepted_tokens": 109,
                    "fallback_steps": 0, "accepted_per_position": [40, 37, 32]},
}  # fmt: skip


def test_reads_the_request_log() -> None:
    reader, (record,) = read([json.dumps(EVENT)])
    fields = record.fields
    assert (record.kind, reader.dialect) == ("request", "jsonl")
    assert fields["accept_len"] == pytest.approx(1 + 109 / 47)
    assert fields["accept_rate"] == pytest.approx(109 / 141)
    assert sum(fields["per_position"]) == pytest.approx(fields["accept_len"] - 1)
    assert fields["gen_tps"] == pytest.approx(112.0)
    assert fields["tpot_ms"] == pytest.approx(1000 * 3.5 / 154)
    assert (fields["prompt_tps"], fields["queue_ms"], fields["cached_tokens"]) == (2000, 125, 20)
    assert record.at == "2026-09-21T14:13:20.000+00:00"
    assert reader.warnings == ()


def test_the_request_log_is_checked_against_itself() -> None:
    odd = {**EVENT, "speculative": {**EVENT["speculative"], "rounds": 46, "accepted_per_position": [32, 37, 40]}}  # type: ignore[dict-item]
    reader, _ = read([json.dumps(odd)])
    assert [w.text.split(" ")[0] for w in reader.warnings] == ["accepted", "141"]


def test_the_request_log_tells_pool_lanes_and_flags() -> None:
    start = {
        "artifact_type": "ninfer_serve_request_log", "schema_version": 26, "event": "server_start",
        "engine": {"max_context": 224000, "kv_capacity_page_groups": 3500, "kv_capacity_max_page_groups": 10500,
                   "max_concurrency": 3, "prefill_chunk": 1024, "kv_cache": "int8-group64",
                   "kv_capacity_mode": "explicit", "speculative_backend": "mtp", "speculative_draft_window": 3},
        "server": {"public_model_id": "m"},
    }  # fmt: skip
    reader, (record,) = read([json.dumps(start)])
    assert (reader.capacity.lanes, reader.capacity.kv_pool_tokens, reader.capacity.batch_tokens) == (3, 224_000, 1024)
    assert (record.kind, record.fields["depth"], record.fields["model"]) == ("boot", 3, "m")
    assert ["schema 26" in w.text for w in reader.warnings] == [True]


def test_a_torn_event_is_left_out() -> None:
    reader, records = read([json.dumps(EVENT)[:-20]])
    assert records == []
    assert len(reader.warnings) == 1


def test_events_of_a_queue() -> None:
    common = {"artifact_type": EVENT["artifact_type"], "schema_version": 20, "timestamp_unix_ms": 1}
    events: list[dict[str, Any]] = [
        {"event": "request_start", "request": {"request_id": 8, "requested_output_tokens": 100_000, "stream": True}},
        {"event": "throughput", "interval_seconds": 5.0, "tokens": {"committed_decode": 600, "computed_prefill": 0},
         "decode_batch": {"rounds": 300, "average_size": 2.0},
         "scheduler": {"running": 2, "prefilling": 0, "decode_ready": 2, "waiting": 1}},
        {"event": "request_error", "request": {"request_id": 8},
         "error": {"status": 503, "code": "request_queue_timeout", "message": "expired while waiting"}},
        {"event": "request_rejected", "request": {"request_id": 9}, "status": 400, "message": "too long",
         "code": "context_length_exceeded"},
        {"event": "something_newer"},
    ]  # fmt: skip
    reader, found = read([json.dumps(common | event) for event in events])
    assert [(r.line, r.kind) for r in found] == [(1, "request"), (2, "throughput"), (3, "reject"), (4, "reject")]
    assert found[0].fields == {"request_id": 8, "phase": "started", "max_tokens": 100_000, "stream": True}
    assert found[1].fields == {
        "running": 2, "waiting": 1, "decode_ready": 2, "prefilling": 0, "interval_ms": 5000.0, "gen_tps": 120.0,
        "prompt_tps": 0.0, "batch": 2.0,
    }  # fmt: skip
    assert (found[2].fields["outcome"], found[2].fields["reason"]) == ("queue_timeout", "expired while waiting")
    assert (found[3].fields["outcome"], found[3].fields["request_id"]) == ("rejected", 9)
    assert sniff([json.dumps(common | events[0])]) > 0.8
    assert reader.warnings == ()


START = {
    "artifact_type": EVENT["artifact_type"], "schema_version": 25, "event": "server_start",
    "engine": {"max_context": 640, "kv_capacity_page_groups": 10, "kv_capacity_max_page_groups": 20,
               "max_concurrency": 2, "kv_cache": "fp8", "kv_capacity_mode": "explicit"},
}  # fmt: skip


@pytest.mark.parametrize(
    "event",
    [
        {"event": "throughput", "interval_seconds": 5.0, "scheduler": {"running": 2, "waiting": 0, "paused": 0}},
        {"event": "request_scheduling", "request": {"request_id": 3}, "transition": "paused"},
    ],
)
def test_a_build_that_pauses_requests_promises_them_nothing(event: dict[str, Any]) -> None:
    reader, _ = read([json.dumps(START), json.dumps({"artifact_type": EVENT["artifact_type"], **event})])
    assert reader.capacity.reserving is False
    assert (reader.capacity.kv_pool_tokens, reader.capacity.lines["reserving"]) == (640, 2)
    assert "paused" in reader.capacity.explain[-1]


def test_without_word_of_pauses_what_admission_promises_is_not_known() -> None:
    event = {"event": "throughput", "interval_seconds": 5.0, "scheduler": {"running": 2, "waiting": 0}}
    reader, _ = read([json.dumps(START), json.dumps({"artifact_type": EVENT["artifact_type"], **event})])
    assert reader.capacity.reserving is None


def test_a_rotated_request_log_that_repeats_its_start_is_no_restart() -> None:
    first = json.dumps(START | {"server_instance_id": "serve-7-1"})
    reader, records = read([first, json.dumps(EVENT), first, json.dumps(EVENT)])
    assert [record.kind for record in records] == ["boot", "request", "request"]
    assert reader.capacity.lines["lanes"] == 1
    _, records = read([first, json.dumps(START | {"server_instance_id": "serve-8-1"})])
    assert [record.kind for record in records] == ["boot", "boot"]


def test_the_request_log_tells_the_memory() -> None:
    memory = {"weights": {"used_bytes": 4096}, "kv_payload_bytes": 1024, "available_after_startup_bytes": 2**31}
    reader, _ = read([json.dumps(START | {"memory": memory})])
    capacity = reader.capacity
    assert (capacity.weights_bytes, capacity.kv_bytes, capacity.free_bytes) == (4096, 1024, 2**31)
    assert capacity.lines["kv_bytes"] == 1


def test_values_of_the_wrong_kind_are_left_out() -> None:
    odd = {**EVENT, "timings_seconds": {"ttft": 1e308, "total": 1e307, "decode": float("nan")},
           "speculative": {**EVENT["speculative"], "backend": float("nan")}}  # type: ignore[dict-item]  # fmt: skip
    _, (record,) = read([json.dumps(odd)])
    assert not {"ttft_ms", "total_ms", "tpot_ms", "gen_tps", "spec_backend"} & record.fields.keys()
    wild = {**START, "engine": {**START["engine"], "kv_cache": 8, "prefill_chunk": -1, "max_concurrency": 1e300},  # type: ignore[dict-item]
            "server": {"public_model_id": ["m"]}}  # fmt: skip
    reader, (record,) = read([json.dumps(wild)])
    assert not {"model", "prefill_chunk", "max_concurrency"} & record.fields.keys()
    assert (reader.capacity.kv_pool_tokens, reader.capacity.lanes, reader.capacity.batch_tokens) == (640, None, None)
    assert "type" not in reader.capacity.explain[0]


JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(["request_done", "server_start", "throughput", "request_error", "request_start"]), st.data())
def test_no_event_makes_it_raise(name: str, data: st.DataObject) -> None:
    event: dict[str, Any] = json.loads(json.dumps(EVENT)) | {"event": name}
    section = data.draw(st.sampled_from(sorted(event.keys() - {"artifact_type", "event"})))
    if isinstance(event[section], dict) and data.draw(st.booleans()):
        event[section][data.draw(st.sampled_from(sorted(event[section])))] = data.draw(JUNK)
    else:
        event[section] = data.draw(JUNK)
    _, found = read([json.dumps(event)])
    assert len(found) == 1


@pytest.mark.parametrize(
    ("message", "kind", "outcome"),
    [
        ("inference request expired while waiting for admission", "reject", "queue_timeout"),
        ("inference request queue is full", "reject", "overloaded"),
        ("inference engine is unavailable", "error", "error"),
        ("kernel launch failed", "error", "error"),
    ],
)
def test_an_error_without_a_code_is_known_by_its_message(message: str, kind: str, outcome: str) -> None:
    head = {name: EVENT[name] for name in ("artifact_type", "schema_version", "timestamp_unix_ms", "request")}
    event = head | {"event": "request_error", "error": {"message": message}}
    _, (record,) = read([json.dumps(event)])
    assert (record.kind, record.fields["outcome"], record.fields["reason"]) == (kind, outcome, message)
