"""llama-server's logs as records, capacity and warnings: fixtures, the corpus, wrappings, and hostile text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.engines._llamacpp_lines import sniff
from probes.engines._llamacpp_log import Reader
from probes.events import FIELDS, Capacity, Record

DATA = Path(__file__).resolve().parent.parent / "data" / "logs" / "llamacpp"
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
    return reader, sorted(found, key=lambda record: record.line)


def close_to(want: Any, got: Any, tolerance: float | None = None) -> bool:
    if isinstance(want, list) and isinstance(got, list):
        return len(want) == len(got) and all(close_to(w, g, tolerance) for w, g in zip(want, got, strict=True))
    if isinstance(want, bool) or not isinstance(want, (int, float)):
        return bool(want == got)
    return isinstance(got, (int, float)) and abs(want - got) <= max(tolerance or 0.0, 1e-6 * abs(want))


def misses(expected: dict[str, Any], records: Sequence[Record], capacity: Capacity) -> list[str]:
    """What a reading lacks of an expectation file of the corpus's shape."""
    found: list[str] = []
    for want in expected["records"]:
        kinds = want["kind"] if isinstance(want["kind"], list) else [want["kind"]]
        last = want.get("to", want["line"])
        here = [r for r in records if want["line"] <= r.line <= last and r.kind in kinds]
        if not here:
            found.append(f"line {want['line']}: no {kinds}")
            continue
        fields = {k: v for r in reversed(here) for k, v in r.fields.items()}
        if "to" not in want:
            fields = next((dict(r.fields) for r in here if want["fields"].items() <= r.fields.items()), fields)
        for key, value in want.get("fields", {}).items():
            if not close_to(value, fields.get(key), want.get("tol", {}).get(key)):
                found.append(f"line {want['line']}: {key} want {value}, got {fields.get(key)}")
    for key, value in (expected["capacity"] or {}).items():
        if not close_to(value, getattr(capacity, key)):
            found.append(f"capacity.{key}: want {value}, got {getattr(capacity, key)}")
    return found


@pytest.mark.parametrize("path", FIXTURES, ids=lambda p: p.stem)
def test_reads_its_fixtures(path: Path) -> None:
    expected = json.loads(path.with_suffix(".json").read_text())
    reader, records = read(split(path))
    assert misses(expected, records, reader.capacity) == []
    assert [(r.line, r.kind) for r in records] == [(w["line"], w["kind"]) for w in expected["records"]]
    assert [{"line": w.line, "text": w.text} for w in reader.warnings] == expected["warnings"]
    assert reader.dialect == expected["dialect"]
    if expected["capacity"] is None:
        assert reader.capacity == Capacity()
    else:
        assert set(expected["capacity"]) <= set(reader.capacity.lines)
    assert sniff(split(path)) > 0.6


def test_there_are_fixtures() -> None:
    assert len(FIXTURES) >= 11


def test_reads_the_corpus(corpus: Path) -> None:
    wrong: list[str] = []
    paths = sorted((corpus / "llamacpp").glob("*.log"))
    for path in paths:
        reader, records = read(split(path))
        expected = json.loads(path.with_suffix(".json").read_text())
        wrong += [f"{path.stem}: {text}" for text in misses(expected, records, reader.capacity)]
        if sniff(split(path)) < 0.5:
            wrong.append(f"{path.stem}: not recognised")
    assert paths
    assert wrong == []


def test_is_told_from_other_engines(corpus: Path) -> None:
    others = [p for p in sorted(corpus.glob("*/*.log")) if p.parent.name != "llamacpp"]
    assert others
    assert [p.name for p in others if sniff(split(p)) > 0.1] == []


# ------------------------------------------------------------------------------------------------- wrappings

STAMPED = re.compile(r"^(\[\d+\] )?(\d+\.\d\d\.\d{3}\.\d{3}) ([IWED]) ")


def coloured(text: str) -> str:
    return STAMPED.sub(lambda m: f"{m[1] or ''}\x1b[34m{m[2]}\x1b[0m \x1b[32m{m[3]} \x1b[0m", text)


WRAPPINGS: dict[str, Callable[[str], str]] = {
    "compose": lambda t: f"llama-1  | {t}",
    "kubernetes": lambda t: f"2026-03-14T04:59:11.123456789Z stderr F {t}",
    "journald": lambda t: f"Mar 14 04:59:11 box llama-server[123]: {t}",
    "docker json": lambda t: json.dumps({"log": t + "\n", "stream": "stderr", "time": "2026-03-14T04:59:11Z"}),
    "carriage return": lambda t: t + "\r",
    "no prefix": lambda t: STAMPED.sub(r"\1", t),
    "no timestamps": lambda t: STAMPED.sub(r"\1\3 ", t),
    "colours": coloured,
    "jsonl": lambda t: json.dumps({"type": "log", "time": 1, "level": "info", "msg": t + "\n"}),
}
MODERN = [p for p in FIXTURES if p.stem in {"self-draft-depth-4", "ngram-that-never-drafts", "hybrid-mtp-router-child"}]


def facts(records: Sequence[Record]) -> list[tuple[int, str, dict[str, Any]]]:
    return [(r.line, r.kind, {k: v for k, v in r.fields.items() if k not in {"t_s", "child"}}) for r in records]


@pytest.mark.parametrize(
    ("path", "name"),
    # A router's own prefix stands outside of its children's JSON, so that pair doesn't exist.
    [(p, n) for p in MODERN for n in WRAPPINGS if (p.stem, n) != ("hybrid-mtp-router-child", "jsonl")],
    ids=lambda value: getattr(value, "stem", value),
)
def test_reads_the_same_through_a_wrapping(path: Path, name: str) -> None:
    lines = split(path)
    wrap = WRAPPINGS[name]
    if name == "jsonl":
        plain = [STAMPED.sub("", line) for line in lines]
        reader, records = read(map(wrap, plain))
    else:
        reader, records = read(map(wrap, lines))
    bare_reader, bare = read(lines)
    assert facts(records) == facts(bare)
    assert reader.capacity == bare_reader.capacity


def test_two_records_on_one_line_are_two() -> None:
    first, second = (REQUEST[0].replace("task 7", f"task {n}") for n in (1, 2))
    _, records = read([first + second])
    assert [r.fields["task"] for r in records] == [1, 2]


# ------------------------------------------------------------------------------------------------- what is not said


def timing(text: str, task: int = 7, at: int = 0) -> str:
    return f"0.05.000.00{at} I slot print_timing: id  0 | task {task} | {text}"


REQUEST = (
    timing("prompt eval time =     400.00 ms /    50 tokens (    8.00 ms per token,   125.00 tokens per second)"),
    timing("       eval time =    2000.00 ms /   101 tokens (   19.80 ms per token,    50.50 tokens per second)", at=1),
    timing("      total time =    2400.00 ms /   151 tokens", at=2),
    timing("draft acceptance = 0.60000 (   60 accepted /   100 generated), mean len =  2.50", at=3),
    timing("     acc per pos = (0.900, 0.600)", at=4),
    "0.05.000.005 I slot      release: id  0 | task 7 | stop processing: n_tokens = 151, truncated = 0",
)


def test_a_request_is_one_record_with_its_own_numbers() -> None:
    _, records = read(REQUEST)
    assert len(records) == 1
    fields = records[0].fields
    assert (records[0].line, records[0].kind, fields["task"], fields["steps"]) == (1, "request", 7, 40)
    assert fields["tpot_ms"] == pytest.approx(20.0)
    assert fields["accept_rate"] == pytest.approx(0.6)
    assert fields["accept_len"] == 2.5
    assert sum(fields["per_position"]) == pytest.approx(fields["accept_len"] - 1)
    assert "prompt_tokens" not in fields, "how much came from the cache is not in these lines"


@pytest.mark.parametrize("cut", range(60, len(REQUEST[3]), 7))
def test_a_clipped_line_gives_no_number_and_is_counted(cut: int) -> None:
    lines = [*REQUEST[:3], REQUEST[3][:cut], REQUEST[5]]
    reader, records = read(lines)
    whole = cut >= REQUEST[3].index(", mean") and REQUEST[3][cut:].startswith(", mean")
    assert ("drafted" in records[0].fields) == whole
    if cut > REQUEST[3].index("draft acceptance") + len("draft acceptance"):
        assert [w.line for w in reader.warnings] == ([] if whole else [4])


def test_nothing_drafted_is_no_rate() -> None:
    _, records = read([*REQUEST[:3], REQUEST[5]])
    assert not {"drafted", "accepted", "accept_rate", "accept_len"} & set(records[0].fields)


def test_one_token_has_no_decode_rate() -> None:
    text = REQUEST[1].replace("101 tokens", "  1 tokens").replace("50.50", "inf")
    _, records = read([REQUEST[0], text, REQUEST[5]])
    assert records[0].fields["output_tokens"] == 1
    assert not {"gen_tps", "tpot_ms"} & set(records[0].fields)


def test_interleaved_requests_keep_their_lines() -> None:
    other = [text.replace("id  0 | task 7", "id  1 | task 8").replace("2000.00", "4000.00") for text in REQUEST]
    mixed = [line for pair in zip(REQUEST, other, strict=True) for line in pair]
    _, records = read(mixed)
    assert [(r.fields["task"], r.fields["eval_ms"]) for r in records] == [(7, 2000.0), (8, 4000.0)]


def test_deferred_tasks_wait_until_they_are_taken() -> None:
    _, records = read(
        [
            "0.00.700.000 I srv    load_model: initializing, n_slots = 2, n_ctx_slot = 1024, kv_unified = 'false'",
            "0.01.000.000 D srv  process_sing: no slot is available, defer task, id_task = 3",
            "0.01.000.001 D que         defer: defer task, id = 3",
            "0.01.000.002 D srv  process_sing: no slot is available, defer task, id_task = 4",
            "0.02.000.000 D que  pop_deferred: pop deferred task, id_task = 3",
        ]
    )
    assert [(r.kind, r.fields.get("waiting"), r.fields.get("running")) for r in records[1:]] == [
        ("throughput", 1, 2), ("throughput", 2, 2), ("throughput", 1, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        '0.01.000.000 D Parsed message: {"content":"0.00.1 CUDA error: out of memory"}',
        '0.01.000.000 D srv  log_server_r: request:  {"prompt":"initializing, n_slots = 9, n_ctx_slot = 9"}',
        "0.01.000.000 I slot launch_slot_: id  0 | task 1 | out of memory, GGML_ASSERT(x) failed",
        "model loaded\nlistening on http://x",
        "draft acceptance = 0.60000 (   60 accepted /   100 generated)",
        "the cleaning up before exit... of a story",
        REQUEST[0].replace("slot print_timing: id  0 | task 7 | ", "llama_perf_context_print: "),
    ],
)
def test_text_of_models_and_dumps_is_no_event(text: str) -> None:
    started = "0.00.700.000 I srv    load_model: initializing, n_slots = 1, n_ctx_slot = 1024, kv_unified = 'false'"
    reader, records = read([started, *text.split("\n")])
    assert [r.kind for r in records] == ["capacity"]
    assert reader.capacity.lanes == 1


# ------------------------------------------------------------------------------------------------- sizes


@pytest.mark.parametrize(
    ("unified", "cells", "pool"),
    [("false", "   512 cells,  30 layers,  4/4 seqs", 2048), ("true", "  2048 cells,  30 layers,  4/1 seqs", 2048)],
)
def test_a_pool_is_not_multiplied_when_it_is_shared(unified: str, cells: str, pool: int) -> None:
    each = 512 if unified == "false" else 2048
    reader, _ = read(
        [
            "0.00.100.000 I llama_context: constructing llama_context",
            f"0.00.200.000 I llama_kv_cache: size =   45.00 MiB ({cells}), K (f16):   22.50 MiB, V (f16):   22.50 MiB",
            f"0.00.300.000 I srv load_model: initializing, n_slots = 4, n_ctx_slot = {each}, kv_unified = '{unified}'",
        ]
    )
    assert (reader.capacity.kv_pool_tokens, reader.capacity.lanes, reader.capacity.max_context) == (pool, 4, each)
    assert reader.capacity.kv_bytes == 45 << 20
    assert reader.warnings == []
    assert reader.capacity.explain


def test_sizes_that_contradict_each_other_are_a_warning() -> None:
    reader, _ = read(
        [
            "0.00.100.000 I llama_context: constructing llama_context",
            "0.00.150.000 I llama_kv_cache:        CPU KV buffer size =    30.00 MiB",
            "0.00.200.000 I llama_kv_cache: size =   45.00 MiB (   512 cells,  30 layers,  2/2 seqs), K (f16): x",
            "0.00.300.000 I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 512, kv_unified = 'false'",
        ]
    )
    assert [w.line for w in reader.warnings] == [3, 3]


def test_a_recovered_allocation_is_no_failure() -> None:
    lines = [
        "1.06.520.077 E ggml_cuda_alloc: allocating 5.1 MiB on device 1: cudaMalloc failed: out of memory",
        "1.06.520.086 E graph_reserve: failed to allocate compute buffers",
    ]
    retried = "1.06.520.107 W sched_reserve: compute buffer allocation failed, retrying without pipeline parallelism"
    reader, records = read([*lines, retried])
    assert records == []
    assert [w.line for w in reader.warnings] == [1]
    _, records = read(lines)
    assert [(r.line, r.kind) for r in records] == [(1, "oom")]


# ------------------------------------------------------------------------------------------------- hostile text

SEEDS = [line for path in FIXTURES for line in split(path)]


@given(st.lists(st.text(max_size=200), max_size=20))
def test_any_text_is_survived(lines: list[str]) -> None:
    reader, records = read(lines)
    assert all(1 <= r.line <= len(lines) for r in records)
    assert reader.capacity.explain is not None
    assert len(reader.warnings) <= 200
    assert 0.0 <= sniff(lines) <= 1.0


@settings(max_examples=150)
@given(st.data())
def test_mutated_lines_are_survived_and_never_exceed_what_was_printed(data: st.DataObject) -> None:
    lines = []
    for line in data.draw(st.lists(st.sampled_from(SEEDS), max_size=25)):
        start = data.draw(st.integers(0, len(line)))
        stop = data.draw(st.integers(start, len(line)))
        lines.append(line[:start] + data.draw(st.sampled_from(["", "\r", "\x1b[31m", "…", "9", " | "])) + line[stop:])
    reader, records = read(lines)
    for record in records:
        rate = record.fields.get("accept_rate")
        assert rate is None or rate >= 0
        assert all(value is not None for value in record.fields.values())
    assert len(reader.warnings) <= 200


@given(st.sampled_from(FIXTURES))
def test_lines_one_by_one_or_at_once_are_the_same(path: Path) -> None:
    lines = split(path)
    reader = Reader()
    piecewise: list[Record] = []
    for number, text in enumerate(lines, 1):
        piecewise.extend(reader.feed(number, text))
        assert reader.capacity is not None
    piecewise.extend(reader.close())
    assert sorted(piecewise, key=lambda r: r.line) == read(lines)[1]


def test_canonical_names_carry_canonical_values() -> None:
    for path in FIXTURES:
        for record in read(split(path))[1]:
            for name in FIELDS & set(record.fields):
                assert isinstance(record.fields[name], (int, float, list)), (path.name, record)


@pytest.mark.parametrize(
    "text",
    [
        "llama_kv_cache: size = " + "1" * 3000 + " MiB (" + " " * 3000,
        "load_tensors: " + "x " * 5000 + "buffer size =",
        "load_tensors:" + " " * 9000 + "buffer",
        "slot print_timing: id  0 | task 0 | prompt eval time = " + "1" * 9000,
        "slot print_timing: id  0 | task 0 | draft acceptance = 0.5 (" + " " * 9000 + "1 accepted",
        "slot print_timing: id  0 | task " + "9" * 6000 + " | prompt eval time",
        "srv load_model: initializing, n_slots = " + "7" * 6000,
        "0.00.000.000 I " * 900,
        "llama_kv_cache: size = 1.2.3 MiB (  8 cells,  1 layers,  1/1 seqs)",
        'error while handling argument "' + "a" * 9000,
    ],
    ids=range(10),
)
def test_lines_made_to_hurt_are_read_in_bounded_work(text: str) -> None:
    # A pattern that backtracks on one of these takes minutes; the suite's own limit would be the first to tell.
    reader, records = read([text])
    assert not any(record.kind in {"request", "pool", "capacity"} for record in records)
    assert reader.capacity.lanes is None


def test_one_line_gives_one_warning() -> None:
    reader, _ = read(["0.00.834.488 W srv          init: --cache-idle-slots requires --cache-ram, disabling"])
    said = [w for w in reader.warnings if "requires --cache-ram" in w.text]
    assert [w.line for w in said] == [1]
