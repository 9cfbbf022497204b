"""SGLang's logs as records and capacity: fixtures, the corpus, foreign wrappings, and hostile text."""
# ruff: noqa: E501  (log lines stand as they are printed)

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.engines import engine
from probes.engines._sglang_log import Reader
from probes.events import FIELDS, Capacity, Record

DATA = Path(__file__).resolve().parent.parent / "data" / "logs" / "sglang"
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


def close_to(want: Any, got: Any, tolerance: float = 0.0) -> bool:
    if isinstance(want, bool) or not isinstance(want, (int, float)):
        return bool(want == got)
    return isinstance(got, (int, float)) and abs(want - got) <= max(tolerance, 1e-6 * abs(want), 0.0005)


def wrong(want: dict[str, Any], record: Record) -> list[str]:
    """What one record lacks of an expected one."""
    tol, fields = want.get("tol", {}), record.fields
    out = [
        f"{key}: want {value}, got {fields.get(key)}"
        for key, value in want.get("fields", {}).items()
        if not close_to(value, fields.get(key), tol.get(key, 0.0))
    ]
    out += [
        f"{key}: want {value} or nothing, got {fields[key]}"
        for key, value in want.get("if_present", {}).items()
        if key in fields and not close_to(value, fields[key], tol.get(key, 0.0))
    ]
    out += [f"{key} must be absent" for key in want.get("absent", []) if key in fields]
    if "rank" in want and want["rank"] != record.rank and want["rank"] not in record.ranks:
        out.append(f"rank: want {want['rank']}, got {record.rank}")
    if "ranks" in want and want["ranks"] != list(record.ranks):
        out.append(f"ranks: want {want['ranks']}, got {record.ranks}")
    if "at" in want and want["at"] != record.at:
        out.append(f"at: want {want['at']}, got {record.at}")
    return out


def misses(expected: dict[str, Any], records: Sequence[Record], capacity: Capacity) -> list[str]:
    """What a reading lacks of an expectation file (same shape as the corpus)."""
    found: list[str] = []
    free = list(records)
    for want in expected["records"]:
        kinds = want["kind"] if isinstance(want["kind"], list) else [want["kind"]]
        lines = {*range(want["line"], want.get("to", want["line"]) + 1), *want.get("also", [])}
        here = [r for r in free if r.line in lines and r.kind in kinds]
        best = min(here, key=lambda r: len(wrong(want, r)), default=None)
        if best is None:
            found.append(f"line {want['line']}: no {kinds}")
            continue
        found += [f"line {want['line']}: {text}" for text in wrong(want, best)]
        free.remove(best)
    for key, value in (expected["capacity"] or {}).items():
        if not close_to(value, getattr(capacity, key), expected.get("capacity_tol", {}).get(key, 0.0)):
            found.append(f"capacity.{key}: want {value}, got {getattr(capacity, key)}")
    return found


@pytest.mark.parametrize("path", FIXTURES, ids=lambda p: p.stem)
def test_reads_its_fixtures(path: Path) -> None:
    expected = json.loads(path.with_suffix(".json").read_text())
    reader, records = read(split(path))
    assert misses(expected, records, reader.capacity) == []
    assert reader.dialect == expected["dialect"]
    assert sorted((r.line, r.kind) for r in records) == sorted((w["line"], w["kind"]) for w in expected["records"])
    assert [r.line for r in records] == sorted(r.line for r in records)
    assert len(reader.warnings) == expected["warnings"], reader.warnings
    assert engine("sglang").sniff(split(path)) >= 0.5
    assert "secret" not in "".join(r.text for r in records)


def test_there_are_fixtures() -> None:
    assert len(FIXTURES) >= 9


def test_reads_the_corpus(corpus: Path) -> None:
    paths = sorted((corpus / "sglang").glob("*.log"))
    found: list[str] = []
    for path in paths:
        expected = json.loads(path.with_suffix(".json").read_text())
        reader, records = read(split(path))
        found += [f"{path.stem}: {text}" for text in misses(expected, records, reader.capacity)]
        if expected.get("autodetect", True) and engine("sglang").sniff(split(path)) < 0.5:
            found.append(f"{path.stem}: not recognised")
        reader.capacity.explain  # noqa: B018  (every capacity can be put in words)
    assert paths
    assert found == []


def test_is_told_from_other_engines(corpus: Path) -> None:
    others = [p for p in sorted(corpus.glob("*/*.log")) if p.parent.name != "sglang"]
    assert others
    assert [p.name for p in others if engine("sglang").sniff(split(p)) > 0.0] == []


# ------------------------------------------------------------------------------------------------ foreign wrappings

WRAPPINGS: dict[str, Callable[[str], str]] = {
    "compose": lambda t: f"sglang-server-1  | {t}",
    "k8s": lambda t: f"2026-05-05T12:00:00.123456789Z stderr F {t}",
    "journald": lambda t: f"Mai 05 12:00:00 gpu-host sglang[411]: {t}".replace("Mai", "May"),
    "json": lambda t: json.dumps({"log": t + "\n", "stream": "stderr"}),
    "colour": lambda t: f"\x1b[36m{t}\x1b[0m",
    "ray": lambda t: f"(SGLangEngine pid=4242, ip=10.0.0.1) {t}",
    "supervisor": lambda t: f"[2026-05-05 12:00:00] {t}",
    "bar": lambda t: f"Loading: 100%|##| 2/2 [00:01<00:00,  1.10it/s]\r{t}",
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize("name", ["swa-dspark-window-6", "tp2-oom-while-serving", "hybrid-radix-tp2-capped"])
def test_wrapping_changes_no_number(name: str, wrapping: str) -> None:
    lines = split(DATA / f"{name}.log")
    plain, records = read(lines)
    reader, wrapped = read([WRAPPINGS[wrapping](text) if text.startswith("[20") else text for text in lines])
    assert [(r.line, r.kind, r.fields, r.at, r.rank, r.ranks) for r in wrapped] == [
        (r.line, r.kind, r.fields, r.at, r.rank, r.ranks) for r in records
    ]
    assert reader.capacity == plain.capacity
    assert reader.dialect == plain.dialect


def test_pythons_own_json_and_levels_behind_the_bracket() -> None:
    body = DECODE.partition("] ")[2]
    own = json.dumps({"asctime": "2026-10-03 11:09:02", "levelname": "INFO", "message": body})
    level = f"[2026-10-03 11:09:02 TP0] INFO scheduler.py:99: {body}"
    bare = f"2026-10-03 11:09:02,001 INFO scheduler.py:99: {body}"
    for text in (own, level, bare):
        assert decode(text)[0].fields == decode(DECODE)[0].fields
        assert decode(text)[0].at == "2026-10-03T11:09:02"


# ------------------------------------------------------------------------------------------------------ single lines

DECODE = (
    "[2026-10-03 11:09:02 TP0] Decode batch, #running-req: 47, #full token: 118784, full token usage: 0.29, mamba num: 47, "
    "mamba usage: 0.98, accept len: 2.55, accept rate: 0.52, cuda graph: True, gen throughput (token/s): 868.20, "
    "#queue-req: 9"
)


def decode(*lines: str) -> list[Record]:
    return [r for r in read(lines)[1] if r.kind == "decode"]


def test_order_of_labels_does_not_matter() -> None:
    head, _, body = DECODE.partition("#running-req")
    pairs = ("#running-req" + body).split(", ")
    moved = head + ", ".join([pairs[0], *reversed(pairs[1:-1]), pairs[-1]])
    assert decode(moved)[0].fields == decode(DECODE)[0].fields


def test_an_unknown_label_is_left_out_and_told() -> None:
    reader, records = read([DECODE.replace("accept len", "shiny new len: 8.75, accept len")])
    assert records[0].fields["accept_len"] == 2.55
    assert 8.75 not in records[0].fields.values()
    assert len(reader.warnings) == 1


@pytest.mark.parametrize("device", ["cuda", "npu", "cpu", "musa", "tpu"])
def test_a_graph_flag_of_any_device(device: str) -> None:
    assert decode(DECODE.replace("cuda graph", f"{device} graph"))[0].fields["graph"] is True


def test_a_line_cut_anywhere_keeps_only_whole_values() -> None:
    whole = decode(DECODE)[0].fields
    reader = Reader()
    reader.feed(1, DECODE)
    for cut in range(len(DECODE)):
        reader = Reader()
        reader.feed(1, DECODE)
        for record in reader.feed(2, DECODE[:cut]):
            for name, value in record.fields.items():
                if name not in {"clipped", "accept_rate"} and not (name == "waiting" and cut == len(DECODE)):
                    assert whole[name] == value, (cut, name)


def test_two_halves_run_together_lose_what_is_doubted() -> None:
    text = "[2026-05-28 02:59:59 TP0] Decode batch, #running-req: 45, #token: 44672, token usaccept rate: 0.32, npu graph: False"
    record = decode(text)[0]
    assert record.fields == {"running": 45, "kv_used_tokens": 44672, "graph": False, "clipped": True}


def test_names_are_canonical_or_told_as_extras() -> None:
    extras = {
        "clipped", "iteration", "cache_hit_rate", "swa_used_tokens", "cap_len", "block_accept_len", "forward_occupancy",
    }  # fmt: skip
    for path in FIXTURES:
        for record in read(split(path))[1]:
            if record.kind in {"prefill", "decode"}:
                assert set(record.fields) <= FIELDS | extras


# ------------------------------------------------------------------------------------------------------ accept rates


def rates(*printed: tuple[float, float], tail: str = ", ", before: str = "") -> list[float | None]:
    sep = "." if tail == ".," else ","
    lines = [before] if before else []
    lines += [
        f"[2025-11-06 16:02:12] Decode batch{sep} #running-req: 6, #token: 5210, token usage: 0.02, accept len: {a:.2f}, "
        f"accept rate: {b:.2f}, cuda graph: True, gen throughput (token/s): 610.35, #queue-req: 0{tail.replace('.', '')}"
        for a, b in printed
    ]
    return [r.fields.get("accept_rate") for r in decode(*lines)]


def test_old_versions_count_the_bonus_token() -> None:
    # 0.5.3.post3: accept_len / (steps + 1); the window of 4 follows from 2.17 / 0.54.
    assert rates((2.17, 0.54), (1.80, 0.45), tail=".,") == [pytest.approx(0.39), pytest.approx(0.8 / 3)]


def test_middle_versions_divide_by_the_window() -> None:
    # 0.5.5-0.5.8 by the comma at the end: accept_len / D.
    assert rates((2.40, 0.60), tail=", ") == [pytest.approx(1.4 / 3)]


def test_new_versions_are_told_by_the_numbers_alone() -> None:
    assert rates((5.06, 0.81), (1.67, 0.13), tail="") == [pytest.approx(4.06 / 5), pytest.approx(0.67 / 5)]


def test_a_rate_that_fits_both_meanings_is_not_claimed() -> None:
    # 1.50 and 0.25: one of two drafts every other step (D 3), or 1.5 of a window of 6.
    assert rates((1.50, 0.25), tail="") == [None]


def test_a_window_from_the_flags_decides() -> None:
    flags = "[2025-11-06 16:00:00] server_args=ServerArgs(model_path='m', speculative_algorithm='EAGLE', speculative_num_draft_tokens=6)"
    assert rates((1.50, 0.25), tail="", before=flags) == [pytest.approx(0.1)]


def test_an_adaptive_window_has_no_rate() -> None:
    flags = (
        "[2025-11-06 16:00:00] server_args=ServerArgs(model_path='m', speculative_algorithm='EAGLE', "
        "speculative_num_draft_tokens=8, speculative_adaptive=True)"
    )
    assert rates((2.40, 0.20), tail="", before=flags) == [None]


@given(st.integers(2, 16), st.lists(st.floats(0.05, 0.95), min_size=4, max_size=12), st.booleans())
def test_an_inferred_rate_is_right_or_absent(window: int, shares: list[float], bonus: bool) -> None:
    printed = [(1 + s * (window - 1), (1 + s * (window - 1)) / window if bonus else s) for s in shares]
    found = rates(*printed, tail=", " if bonus else "")
    for share, rate in zip(shares, found, strict=True):
        # Lengths are rounded to 0.005: over a window of D - 1 drafts and over a printed rate of two decimals.
        assert rate is None or window > 4 or abs(rate - share) < 0.02


# ------------------------------------------------------------------------------------------------- starts and notes


def test_speculation_that_does_not_happen_is_told() -> None:
    flags = "[2026-01-01 00:00:00] server_args=ServerArgs(model_path='m', speculative_algorithm='EAGLE')"
    line = "[2026-01-01 00:00:0{}] Decode batch, #running-req: 1, #token: 5, token usage: 0.00, cuda graph: True, gen throughput (token/s): 9.00, #queue-req: 0"
    reader, _ = read([flags, *(line.format(i) for i in range(1, 4))])
    assert any("speculation is asked for" in w.text for w in reader.warnings)


def test_the_engines_wrong_sentence_about_the_pool_is_contradicted() -> None:
    reader, records = read([
        "[2026-07-11 11:02:30] Mamba Cache is allocated. max_mamba_cache_size: 36, conv_state size: 0.16GB, ssm_state size: 4.38GB ",
        "[2026-07-11 11:02:31] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 609280, K size: 9.31 GB, V size: 9.31 GB",
        "[2026-07-11 11:02:31] max_running_requests was reduced from the requested 64 to 9 (per dp worker) due to the available KV cache capacity.",
    ])  # fmt: skip
    assert records[-1].fields["capped_by"] == "state"
    assert reader.capacity.lanes == 9
    assert reader.capacity.state_slots_per_request == 4
    assert any("blames the KV pool" in w.text for w in reader.warnings)


@pytest.mark.parametrize("drafts", [False, True])
def test_a_draft_models_pool_is_told_where_there_is_one(drafts: bool) -> None:
    """Seen of 0.5.11: --mem-fraction-static 0.2 took 55 of 143 GB, since a STANDALONE draft's pool is not counted in it."""
    at, pool = "[2026-11-30 23:25:25.603] ", "KV Cache is allocated. #tokens: 1281814, K size: {0} GB, V size: {0} GB"
    lines = [at + pool.format("13.75"), at + "Memory pool end. avail mem=111.30 GB"]
    lines += [at + pool.format("12.38"), at + "Memory pool end. avail mem=86.11 GB"] if drafts else []
    reader, _ = read(lines)
    said = reader.capacity.explain[0]
    assert said.startswith("The KV pool holds 1,281,814 tokens in 27.50 GiB")
    assert said.endswith("the draft model's pool for as many takes 24.76 GiB beside it." if drafts else "27.50 GiB.")
    assert reader.capacity.other_bytes == (round(2 * 12.38 * 2**30) if drafts else None)


@pytest.mark.parametrize(("frames", "says"), [
    (["managers/scheduler.py", "speculative/standalone_worker_v2.py", "mem_cache/memory_pool.py"], "pool of its own"),
    (["managers/scheduler.py", "mem_cache/memory_pool.py"], "too little for activations"),
    (["mem_cache/memory_pool.py", "speculative/standalone_worker_v2.py"], "too little for activations"),
])  # fmt: skip
def test_memory_gone_while_the_drafts_pool_is_made_is_told_from_other_want(frames: list[str], says: str) -> None:
    """0.5.11 with a STANDALONE draft and the memory fraction that it chooses by itself never starts."""
    _, records = read([
        "[2026-11-30 23:55:52.845] Scheduler hit an exception: Traceback (most recent call last):",
        *(f'  File "/x/sglang/srt/{frame}", line 9, in __init__' for frame in frames),
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.01 GiB. GPU 0 has a total capacity of 139.80 GiB",
        "",
        "[2026-11-30 23:55:52.845] Received sigquit from a child process. It usually means the child failed.",
    ])  # fmt: skip
    assert records[0].kind == "oom"
    assert says in records[0].fields["hint"]
    assert "lower --mem-fraction-static" in records[0].fields["hint"]


def test_a_cap_that_contradicts_its_own_sum_is_told() -> None:
    reader, _ = read(
        [
            "max_running_requests is capped to 9 by the mamba state cache (max_mamba_cache_size=40, 5 state slots per request)."
        ]
    )
    assert any("40 state slots // 5" in w.text for w in reader.warnings)


def test_a_negative_profiled_value_is_no_pool() -> None:
    reader, _ = read(
        [
            "[2025-07-02 07:41:59] max_total_tokens=131072 is larger than the profiled value -561981. Use the profiled value instead."
        ]
    )
    assert reader.capacity.kv_pool_tokens is None
    assert any("-561,981" in w.text for w in reader.warnings)


def test_a_reservation_of_addresses_is_no_pool() -> None:
    reader, records = read(
        ["[2026-08-01 00:00:00] KV Cache VA upper bound. dtype: torch.bfloat16, #tokens: 9000000, K size: 90.00 GB"]
    )
    assert (records, reader.capacity.kv_pool_tokens) == ([], None)


def test_closing_twice_gives_no_record_twice() -> None:
    reader = Reader()
    line = "[2025-03-07 21:49:33 TP{}] Decode out of memory happened. #retracted_reqs: 1, #new_token_ratio: 0.1474 -> 0.1845"
    first = [*reader.feed(1, line.format(0)), *reader.close()]
    later = [*reader.feed(2, line.format(1)), *reader.close(), *reader.close()]
    assert [r.fields["retracted"] for r in first] == [1]
    assert later == []


# ------------------------------------------------------------------------------------------------------ hostile text

REAL = [text for path in FIXTURES for text in split(path)]


@given(st.lists(st.text(max_size=200) | st.sampled_from(REAL), max_size=30))
def test_any_text_is_read_without_an_error(lines: list[str]) -> None:
    reader, records = read(lines)
    assert all(1 <= r.line <= len(lines) for r in records)
    assert isinstance(reader.capacity, Capacity)
    assert reader.warnings is not None


@given(st.sampled_from(REAL), st.integers(0, 400), st.integers(0, 40), st.text(max_size=12))
def test_a_mutated_line_is_read_without_an_error(text: str, at: int, gone: int, put: str) -> None:
    reader, records = read([text[:at] + put + text[at + gone :], DECODE])
    assert [r for r in records if r.line == 2 and r.kind == "decode"]
    assert all(len(r.text) <= 500 and r.text.isprintable() for r in records)
    assert isinstance(reader.capacity, Capacity)


@given(st.lists(st.sampled_from(REAL), max_size=40), st.data())
def test_the_order_of_records_is_the_order_of_lines(lines: list[str], data: st.DataObject) -> None:
    reader = Reader()
    one_by_one: list[Record] = []
    stops = data.draw(st.sets(st.integers(0, max(len(lines), 1))))
    for number, text in enumerate(lines, 1):
        one_by_one.extend(reader.feed(number, text))
        if number in stops:
            _ = (reader.capacity, reader.warnings, reader.dialect)
    one_by_one.extend(reader.close())
    assert [r.line for r in one_by_one] == sorted(r.line for r in one_by_one)
    assert one_by_one == read(lines)[1]


@pytest.mark.parametrize(
    "text",
    [
        "[2026-01-01 00:00:00 " + "A" * 100_000 + "] Decode batch, #running-req: 1, #token: 2",
        "[" * 100_000 + "] Decode batch, #running-req: 1",
        "server_args=ServerArgs(" + "a='" * 40_000,
        "server_args=ServerArgs(" + "a=[" * 40_000,
        "max_running_requests is capped to 9 by the mamba state cache" + " " * 100_000,
        "Decode batch, #running-req: " + "9" * 100_000,
        "Decode batch, " + "#running-req: 1, " * 20_000,
        "Capture cuda graph bs [" + "1, " * 50_000,
        "KV Cache is allocated. #tokens: " + "1" * 10_000,
    ],
    ids=range(9),
)
def test_no_line_takes_for_ever(text: str) -> None:
    reader, _ = read([text, DECODE])
    assert isinstance(reader.capacity, Capacity)


def test_a_torn_pool_line_tells_no_size() -> None:
    whole = "[2026-03-01 10:00:00 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 295950, K size: 4.52 GB"
    for end in range(whole.index("#tokens"), whole.index(", K size") + 1):
        reader, _ = read([whole[:end]])
        assert reader.capacity.kv_pool_tokens is None
    assert read([whole])[0].capacity.kv_pool_tokens == 295950
