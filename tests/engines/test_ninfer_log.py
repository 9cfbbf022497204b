"""ninfer's logs as records and capacity: fixtures, the corpus, and hostile text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.engines._ninfer_log import MOST_WARNINGS, Reader, sniff
from probes.events import Capacity, Record

DATA = Path(__file__).resolve().parent.parent / "data" / "logs" / "ninfer"
FIXTURES = sorted(DATA.glob("*.log"))


def split(path: Path) -> list[str]:
    lines = path.read_bytes().decode("utf-8", "replace").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def read(lines: Iterable[str]) -> tuple[Reader, list[Record]]:
    reader = Reader()
    found: list[Record] = []
    for number, text in enumerate(lines, 1):
        found.extend(reader.feed(number, text))
    found.extend(reader.close())
    return reader, found


def close_to(want: Any, got: Any, tolerance: float | None) -> bool:
    if isinstance(want, bool) or not isinstance(want, (int, float)):
        return bool(want == got)
    return isinstance(got, (int, float)) and abs(want - got) <= max(tolerance or 0.0, 1e-6 * abs(want), 0.0005)


def misses(expected: dict[str, Any], records: Sequence[Record], capacity: Capacity) -> list[str]:
    """What a reading lacks of an expectation file (same shape as the corpus)."""
    found: list[str] = []
    for want in expected["records"]:
        kinds = want["kind"] if isinstance(want["kind"], list) else [want["kind"]]
        last = want.get("to", want["line"])
        here = [r for r in records if want["line"] <= r.line <= last and r.kind in kinds]
        if not here:
            found.append(f"line {want['line']}: no {kinds}")
            continue
        fields = {k: v for r in here for k, v in r.fields.items()}
        for key, value in want.get("fields", {}).items():
            if not close_to(value, fields.get(key), want.get("tol", {}).get(key)):
                found.append(f"line {want['line']}: {key} want {value}, got {fields.get(key)}")
        found += [f"line {want['line']}: {key} must be absent" for key in want.get("absent", []) if key in fields]
    for key, value in (expected["capacity"] or {}).items():
        if not close_to(value, getattr(capacity, key), expected.get("capacity_tol", {}).get(key)):
            found.append(f"capacity.{key}: want {value}, got {getattr(capacity, key)}")
    for rule in expected.get("must_not", []):
        part, _, key = rule["path"].partition(".")
        if part == "capacity" and not {"value", "values"} & rule.keys() and getattr(capacity, key) is not None:
            found.append(f"{rule['path']}: must be absent, got {getattr(capacity, key)}")
    if not expected["capacity"] and (capacity.lanes or capacity.kv_pool_tokens):
        found.append(f"capacity: want none, got {capacity}")
    return found


@pytest.mark.parametrize("path", FIXTURES, ids=lambda p: p.stem)
def test_reads_its_fixtures(path: Path) -> None:
    expected = json.loads(path.with_suffix(".json").read_text())
    reader, records = read(split(path))
    assert misses(expected, records, reader.capacity) == []
    assert reader.dialect == expected["dialect"]
    lines = {want["line"] for want in expected["records"]} | set(expected.get("more_lines", []))
    assert {r.line for r in records} <= lines | {
        n for w in expected["records"] for n in range(w["line"], w.get("to", 0))
    }
    assert len(reader.warnings) == expected.get("warnings", 0), reader.warnings
    assert sniff(split(path)) > 0.6


def test_there_are_fixtures() -> None:
    assert len(FIXTURES) >= 6


def test_reads_the_corpus(corpus: Path) -> None:
    wrong: list[str] = []
    paths = sorted((corpus / "ninfer").glob("*.log"))
    for path in paths:
        reader, records = read(split(path))
        expected = json.loads(path.with_suffix(".json").read_text())
        wrong += [f"{path.stem}: {text}" for text in misses(expected, records, reader.capacity)]
        if sniff(split(path)) < 0.6:
            wrong.append(f"{path.stem}: not recognised")
    assert paths
    assert wrong == []


def test_is_told_from_other_engines(corpus: Path) -> None:
    others = [p for p in sorted(corpus.glob("*/*.log")) if p.parent.name != "ninfer"]
    assert others
    assert [p.name for p in others if sniff(split(p)) > 0.1] == []


def stamped(*messages: str) -> list[str]:
    return [f"2026-09-14 10:02:{n:02}.346  INFO  {text}" for n, text in enumerate(messages)]


POOL = "capacity | KV 224,000 tokens, int8, explicit | pages 3,500/10,500 | runtime 8.64 GiB | free 3.26 GiB"
STATES = "context cache | 3 active + 2 cached device states | host 8 states, 8.00 GiB KV | private 6"


def test_the_last_start_alone_counts() -> None:
    reader, records = read(
        [
            *stamped("starting engine", POOL, STATES, "listening on http://127.0.0.1:1 | model m | auth disabled"),
            "ninfer-serve: --max-concurrency must be in [1,8]",
            "usage: ninfer-serve ARTIFACT.ninfer [options]",
            "  --max-context N               tokens a request may hold (default 8192)",
        ]
    )
    assert reader.capacity == Capacity()
    assert [r.kind for r in records] == ["boot", "capacity", "pool", "ready", "error"]
    assert records[-1].fields["reason"] == "--max-concurrency must be in [1,8]"


WRAPPERS = [
    "ninfer-1  | {}",
    "2026-09-14T10:02:12.346000001Z stderr F {}",
    "Sep 14 10:02:12 host ninfer-serve[99]: {}",
    "2026-09-14 10:02:13 {}",
    "\x1b[0m{}\x1b[0m\r",
    "  loading weights 45.0% | 8.50 GiB/18.9 GiB\r{}",
    '"{}\\n"',
    "some new wrapper: {}",
]
DONE = (
    "req#7 done | openai-chat | output limit | prompt 1,057 | output 400 | cache 64 (6.1%, shared prefix) | "
    "TTFT 121 ms | total 2m 5.3s | queue 31.0 ms | prefill 2.46k tok/s | decode 188.1 tok/s | "
    "mtp accepted 264/399 (66.2%)"
)


def test_wrappings_change_nothing_in_the_corpus(corpus: Path) -> None:
    paths = sorted((corpus / "ninfer").glob("*.log"))
    assert paths
    for path in [*paths, *FIXTURES]:
        lines = split(path)
        reader, records = read(lines)
        for wrapped in (
            [json.dumps({"log": line + "\n"}) for line in lines],
            [f"(Actor pid=7, ip=10.0.0.1) {line}" for line in lines],
            [f"2026-09-14T10:02:12.3Z stdout F \x1b[1m{line}\x1b[0m\r" for line in lines],
        ):
            again, told = read(wrapped)
            assert [(r.line, r.kind, r.fields) for r in told] == [(r.line, r.kind, r.fields) for r in records], path
            assert again.capacity == reader.capacity


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_reads_through_wrappings(wrapper: str) -> None:
    lines = stamped("starting engine", POOL, STATES, DONE)
    plain_reader, plain_records = read(lines)
    reader, records = read([wrapper.replace("{}", line) for line in lines])
    assert [(r.kind, r.fields, r.at) for r in records] == [(r.kind, r.fields, r.at) for r in plain_records]
    assert reader.capacity == plain_reader.capacity
    assert len(records) == 4


def test_reads_json_wrapped_lines() -> None:
    lines = [json.dumps({"log": line + "\n", "stream": "stderr"}) for line in stamped(DONE)]
    (record,) = read(lines)[1]
    assert record.fields["total_ms"] == 125_300
    assert record.fields["queue_ms"] == 31
    assert record.fields["prompt_tps"] == 2460
    assert record.fields["cache_path"] == "shared prefix"
    assert record.at == "2026-09-14T10:02:00.346"


def test_splits_two_records_on_one_line() -> None:
    first, second = stamped("throughput | 5.0s | running 2 (decode-ready 2) | waiting 1 | batch 2.00", DONE)
    found = read([first + second])[1]
    assert [(r.kind, r.line) for r in found] == [("throughput", 1), ("request", 1)]
    assert found[0].fields["batch"] == 2.0
    assert found[0].fields["waiting"] == 1
    old = "[2026-08-12 09:14:48.431] [info] [ninfer-serve] throughput interval=5.000s running=2 avg_decode_batch=2.00"
    assert [r.fields["batch"] for r in read([old + old])[1]] == [2.0, 2.0]


def test_reads_messages_without_any_stamp() -> None:
    found = read(["throughput | running 2 (decode-ready 2) | waiting 1 | batch 2.00", POOL])[1]
    assert [(r.kind, r.at) for r in found] == [("throughput", None), ("capacity", None)]
    assert found[0].fields == {"running": 2, "decode_ready": 2, "prefilling": 0, "waiting": 1, "batch": 2.0}


REPORT = (
    "throughput | 5.0s | prefill 2.20k tok/s (11,000 tok) | decode 60.0 tok/s (300 tok) | "
    "running 3 (prefill 1, decode-ready 2) | waiting 12 | materializing 1 | paused 2 | batch 1.50 | host 24.0% (1.2s)"
)


OLD_DONE = (
    "ninfer-serve: [req 12] done finish=stop_token prompt=2108 gen=377 cache=640 ttft=612ms prefill=2399.1tok/s "
    "decode=96.8tok/s wall=4.51s speculative=mtp 2.61tok/round (53.7%) reuse=shared_prefix"
)
OLD_REPORT = (
    "ninfer-serve: throughput interval=5.000s prefill=421.6tok/s decode=97.4tok/s running=12 prefilling=1 "
    "decode_ready=11 waiting=10 avg_decode_batch=10.25"
)


@pytest.mark.parametrize("message", [OLD_DONE, OLD_REPORT], ids=["done", "report"])
def test_an_older_line_cut_anywhere_gives_no_wrong_number(message: str) -> None:
    (whole,) = read([message])[1]
    assert len(whole.fields) >= 7
    for end in range(20, len(message)):
        for record in read([message[:end]])[1]:
            assert {k: v for k, v in record.fields.items() if whole.fields.get(k) != v} == {}, message[:end]


REFUSED = "req#3 failed during generation | openai-chat | HTTP 503 | request queue timeout"
LOADED = "weights ready | 18.9 GiB | 2.9s | 6.52 GiB/s"
PHASE = "startup failed | loading weights | 2.1s"


@pytest.mark.parametrize("message", [DONE, REPORT, POOL, REFUSED, LOADED, PHASE, STATES])
def test_a_line_cut_anywhere_gives_no_wrong_number(message: str) -> None:
    whole = read(stamped(message))[1][0].fields
    for end in range(12, len(message)):
        for record in read(stamped(message[:end]))[1]:
            wrong = {k: v for k, v in record.fields.items() if whole.get(k) != v}
            assert wrong == {}, message[:end]


def test_a_count_at_the_very_end_of_the_log_may_be_torn() -> None:
    message = "throughput | 5.0s | prefill 880.0 tok/s (4,400 tok) | running 2 (prefill 1, decode-ready 1) | waiting 1"
    (torn,) = read(stamped(message))[1]
    assert "waiting" not in torn.fields
    first = read(stamped(message, "server stopped"))[1][0]
    assert first.fields["waiting"] == 1


def test_newer_gauges_are_kept_under_their_label() -> None:
    (record,) = read(stamped(REPORT))[1]
    assert record.fields["paused"] == 2
    assert record.fields["waiting"] == 12
    assert record.fields["prompt_tps"] == 2200
    assert record.fields["host_share"] == 0.24


FAILURES = [
    (
        "rejected during prepare | openai-chat stream | HTTP 429 | server overloaded | messages 1",
        "reject",
        "overloaded",
    ),
    ("failed during generation | anthropic | HTTP 504 | request queue timeout", "reject", "queue_timeout"),
    ("failed during generation | openai-chat | HTTP 503 | request queue timeout", "reject", "queue_timeout"),
    (
        "rejected during prepare | openai-chat stream | HTTP 400 | context length exceeded | tools 2",
        "reject",
        "rejected",
    ),
    ("failed during generation | openai-chat | HTTP 500 | internal error", "error", "error"),
    ("failed during generation | openai-chat | HTTP 503 | service unavailable", "error", "error"),
    ("response failed during transport | openai-chat | HTTP 500 | internal error", "error", "error"),
]


@pytest.mark.parametrize(("text", "kind", "outcome"), FAILURES)
def test_tells_a_busy_server_from_a_broken_one(text: str, kind: str, outcome: str) -> None:
    (record,) = read(stamped(f"req#14 {text}"))[1]
    assert (record.kind, record.fields["outcome"], record.fields["request_id"]) == (kind, outcome, 14)
    assert record.fields["reason"]
    if outcome == "queue_timeout":
        assert "the server is alive" in record.fields["hint"]


def test_a_client_that_left_is_no_fault() -> None:
    (record,) = read(stamped("req#14 cancelled during generation | openai-chat stream"))[1]
    assert (record.kind, record.fields["finish"]) == ("request", "cancelled")


def test_a_failure_outside_any_request() -> None:
    (record,) = read(
        ["2026-09-14 10:02:12.346  ERROR HTTP request failed during http | openai-chat | request r-9 | HTTP 500 | boom"]
    )[1]
    assert (record.kind, record.fields["status"], record.fields["code"]) == ("error", 500, "boom")


def test_a_failed_start_is_one_record_with_or_without_its_reason() -> None:
    first = "2026-09-15 08:05:12.102  ERROR startup failed | loading weights | 2.1s"
    second = "2026-09-15 08:05:12.102  FATAL server failed during startup | CUDA error: out of memory"
    assert [(r.line, r.kind) for r in read([first, second])[1]] == [(2, "oom")]
    assert [(r.line, r.kind) for r in read([first])[1]] == [(1, "error")]
    again = read([first, *stamped("starting engine")])[1]
    assert [(r.line, r.kind, r.fields.get("phase")) for r in again] == [
        (1, "error", "loading weights"),
        (2, "boot", None),
    ]


def test_warnings_stay_bounded() -> None:
    reader, records = read(stamped(*["throughput | 5.0s | decode 4"] * 60) * 3)
    assert records == []
    assert len(reader.warnings) == MOST_WARNINGS + 1
    assert "180 lines" in reader.warnings[-1].text


# ------------------------------------------------------------------------------------------------------- hostile text

ALL = [line for path in FIXTURES for line in split(path)]
MESSY = st.sampled_from(ALL or [""]).flatmap(
    lambda line: st.builds(
        lambda a, b, extra: line[:a] + extra + line[b:],
        st.integers(0, len(line)),
        st.integers(0, len(line)),
        st.text(max_size=6),
    )
)


@given(st.lists(st.text() | MESSY, max_size=12))
def test_no_text_makes_it_raise(lines: list[str]) -> None:
    reader, records = read(lines)
    assert all(1 <= r.line <= len(lines) and len(r.text) <= 500 for r in records)
    assert [r.line for r in records] == sorted(r.line for r in records)
    assert reader.capacity == read(lines)[0].capacity


@given(st.lists(st.sampled_from(ALL or [""]), min_size=1, max_size=12), st.integers(0, 12))
def test_what_was_read_does_not_change_with_what_comes_later(lines: list[str], end: int) -> None:
    reader, first = Reader(), []
    for number, text in enumerate(lines[:end], 1):
        first += reader.feed(number, text)
    assert first == read(lines)[1][: len(first)]
    reader.close()
    assert reader.close() == []


def test_long_hostile_lines_end() -> None:
    for unit in ("1 | ", "running 1 (", "2026-09-14 10:02:12.346  INFO  ", "a=b ", "[req 1] ", "9,9", "1h 1m "):
        for head in ("", "throughput | ", "req#1 done | ", "ninfer-serve: [req 1] done ", "capacity | KV "):
            read([*stamped(head + unit * 20_000), head + unit * 20_000])
