"""What newer builds of ninfer print: pauses, mixed speculation, faults of the engine while the process lives on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from probes.engines._ninfer_log import Reader, sniff
from probes.engines._ninfer_trouble import failure
from probes.events import Record
from probes.reading import Log
from probes.stats.ceiling_words import advice


def stamped(*messages: str, level: str = "INFO ") -> list[str]:
    return [f"2026-10-02 09:01:{n:02}.000  {level} {text}" for n, text in enumerate(messages)]


def read(lines: list[str]) -> tuple[Reader, list[Record]]:
    reader = Reader()
    found: list[Record] = []
    for number, text in enumerate(lines, 1):
        found.extend(reader.feed(number, text))
    return reader, found + reader.close()


def report(tail: str) -> str:
    return f"throughput | 5.0s | decode 150.0 tok/s (750 tok) | {tail} | batch 2.00 | host 3.0% (150 ms)"


POOL = "capacity | KV 6,400 tokens, fp8, explicit | pages 100/300 | runtime 2.00 GiB | free 1.80 GiB"
STATES = "context | history {} | 3 active + 3 extra device states | host 8.64 GiB"


@pytest.mark.parametrize("history", ["on", "off"])
def test_a_pausing_build_tells_its_lanes_with_or_without_history(history: str) -> None:
    reader, records = read(stamped("starting engine", POOL, STATES.format(history)))
    assert (reader.dialect, reader.capacity.lanes, reader.capacity.kv_pool_tokens) == ("P", 3, 6400)
    assert reader.capacity.reserving is False
    assert records[-1].fields["prefix_cache"] is (history == "on")
    assert any("is paused" in text for text in reader.capacity.explain)


def test_pauses_are_the_pool_and_the_cure_is_not_to_ask_for_less() -> None:
    log = Log()
    reports = [report("running 2 (decode-ready 2) | waiting 1 | paused 1") for _ in range(4)]
    log.feed(stamped("starting engine", POOL, STATES.format("on"), *reports))
    log.close()
    ceiling = log.reading().ceiling
    assert ceiling.verdict == "kv_pool"
    assert "max_tokens" not in ceiling.advice
    assert "max_tokens" in advice("kv_pool", "ninfer", reserving=True)


DONE = "req#7 done | decide | tool calls 1 | prompt 30,956 | output 16,121 | cache 0 (0.0%) | TTFT 12.9s | total 37.5s"
MIXED = f"{DONE} | mixed speculation accepted 14,959/15,854 (94.4%) | ngram 14,539/14,825 accepted, 989 rounds"


def test_mixed_speculation_is_read_with_its_share_of_copies() -> None:
    reader, (record,) = read(stamped(MIXED))
    fields = record.fields
    assert (fields["drafted"], fields["accepted"], fields["spec_backend"]) == (15_854, 14_959, "mixed")
    assert (fields["ngram_accepted"], fields["ngram_drafted"], fields["ngram_rounds"]) == (14_539, 14_825, 989)
    assert fields["protocol"] == "decide"
    assert reader.warnings == ()


TAILS = [
    "trees 12 rounds, 30 side-branch drafts",
    "archive unbound",
    "archive bound 40/50 accepted, gen 3, 5 sources",
    "thinking 16,000/16,000, control 25 vision_offload_ms=12.5 vision_offload_evicted_mib=300",
]


@pytest.mark.parametrize("tail", TAILS)
def test_clauses_behind_the_drafts_cost_nothing(tail: str) -> None:
    reader, (record,) = read(stamped(f"{MIXED} | {tail}"))
    assert record.fields["drafted"] == 15_854
    assert reader.warnings == ()


@pytest.mark.parametrize("message", [MIXED, f"{MIXED} | {TAILS[2]}", STATES.format("on")])
def test_a_line_cut_anywhere_gives_no_wrong_number(message: str) -> None:
    whole = read(stamped(message))[1][0].fields
    for end in range(12, len(message)):
        for record in read(stamped(message[:end]))[1]:
            assert {k: v for k, v in record.fields.items() if whole.get(k) != v} == {}, message[:end]


def test_a_crashed_worker_is_a_crash_although_the_process_lives() -> None:
    (record,) = read(stamped("engine | worker crash: pages were promised twice", level="ERROR"))[1]
    assert (record.kind, record.fields["reason"]) == ("crash", "worker crash: pages were promised twice")
    assert "restart" in record.fields["hint"]


ABORT = "./src/core/x.cu:40: CUDA_CHECK(cudaGraphLaunch(a, b)) failed: {}"


def test_a_failed_cuda_call_is_told_past_the_logger() -> None:
    _, records = read([*stamped(report("running 1 (decode-ready 1)")), ABORT.format("cudaErrorX: an illegal access")])
    assert [(r.line, r.kind) for r in records] == [(1, "throughput"), (2, "crash")]
    assert "driver" in records[1].fields["hint"]
    assert [r.kind for r in read([ABORT.format("cudaErrorMemoryAllocation: out of memory")])[1]] == ["oom"]


def test_a_client_that_hung_up_while_its_answer_was_sent_is_no_fault_of_the_server() -> None:
    (record,) = read(stamped("req#7 response failed during transport | HTTP 499 | client disconnected"))[1]
    assert (record.kind, record.fields["outcome"]) == ("reject", "disconnected")
    assert "nothing broke" in record.fields["hint"]


@pytest.mark.parametrize(
    ("phase", "code"),
    [("rejected during prepare", "unsupported json schema"), ("failed during generation", "constraint dead end")],
)
def test_a_request_whose_own_grammar_is_wrong_is_turned_away(phase: str, code: str) -> None:
    (record,) = read(stamped(f"req#7 {phase} | openai-chat | HTTP 400 | {code}"))[1]
    assert (record.kind, record.fields["outcome"]) == ("reject", "rejected")
    assert "not the server" in record.fields["hint"]


REFUSED = [
    ("planning runtime", "requires 12320728576 bytes, but only 12056834048 bytes are available", "--kv-capacity"),
    ("pinning host KV", "cudaMallocHost failed: cudaErrorMemoryAllocation", "--host-kv-mib"),
    ("loading weights", "cudaMalloc failed: out of memory", "smaller artifact"),
]


@pytest.mark.parametrize(("phase", "why", "cure"), REFUSED)
def test_memory_that_lacks_at_start_up_has_the_cure_of_its_kind(phase: str, why: str, cure: str) -> None:
    lines = [
        *stamped(f"startup failed | {phase} | 120 ms", level="ERROR"),
        *stamped(f"server failed during startup | {why}", level="FATAL"),
    ]
    (record,) = read(lines)[1]
    assert (record.kind, record.line) == ("oom", 2)
    assert cure in record.fields["hint"]
    reason, hint = failure(lines, 1)
    assert reason is not None
    assert why in reason
    assert cure in (hint or "")


def event(name: str, **more: Any) -> str:
    head = {"artifact_type": "ninfer_serve_request_log", "schema_version": 25, "event": name}
    return json.dumps(head | {"timestamp_unix_ms": 1790000000000, "request": {"request_id": 5}} | more)


def test_a_pause_in_the_request_log_is_a_preemption() -> None:
    steps = ("pause_started", "paused", "restore_started", "restored", "terminal")
    reader, records = read([event("request_scheduling", transition=step) for step in steps])
    assert [(r.line, r.kind, r.fields["request_id"]) for r in records] == [(2, "preempt", 5)]
    assert reader.warnings == ()


def test_mixed_drafts_in_the_request_log_have_no_length_a_round() -> None:
    spec = {"backend": "mtp", "draft_window": 3, "rounds": 10, "drafted_tokens": 130, "accepted_tokens": 120,
            "ngram_rounds": 2, "ngram_drafted_tokens": 100, "ngram_accepted_tokens": 98,
            "accepted_per_position": [9, 8, 5]}  # fmt: skip
    reader, (record,) = read([event("request_done", speculative=spec, result={"completion_tokens": 140})])
    assert (record.fields["drafted"], record.fields["accepted"], record.fields["ngram_accepted"]) == (130, 120, 98)
    assert not {"accept_len", "per_position", "rounds"} & record.fields.keys()
    assert reader.warnings == ()


def test_a_few_lines_among_many_others_are_not_sure_to_be_the_logs_own() -> None:
    own = stamped(*[report("running 1 (decode-ready 1)")] * 20)
    assert sniff(own) == 1.0
    assert sniff([*own, *["slot print_timing: id  0 | task 0 | n_decoded = 140"] * 500]) == 0.9
