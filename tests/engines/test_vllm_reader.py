"""The vLLM reader on single lines, on cut and mixed ones, and on anything at all."""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.engines import _vllm_stats as stats
from probes.engines._vllm_text import pieces
from probes.engines.vllm import ENGINE
from probes.events import FIELDS, Record

OWN = Path(__file__).resolve().parent.parent / "data" / "logs" / "vllm"
LINES = [line for path in sorted(OWN.glob("*.log")) for line in path.read_text(encoding="utf-8").split("\n")]
ENGINE_LINE = (
    "Engine 000: Avg prompt throughput: 12.5 tokens/s, Avg generation throughput: 48.0 tokens/s, Running: 3 reqs, "
    "Waiting: 14 reqs, GPU KV cache usage: 87.5%, Prefix cache hit rate: 1.5%"
)
SPEC_LINE = (
    "SpecDecoding metrics: Mean acceptance length: 2.10, Accepted throughput: 22.00 tokens/s, Drafted throughput: "
    "60.00 tokens/s, Accepted: 220 tokens, Drafted: 600 tokens, Per-position acceptance rate: 0.700, 0.300, 0.100, "
    "Avg Draft acceptance rate: 36.7%"
)
OLD_SPEC_LINE = (
    "SpecDecoding metrics: Draft acceptance rate: 36.7%, Mean acceptance length: {}, Accepted: 220 tokens, "
    "Drafted: 600 tokens, Per-position acceptance rate: 0.700, 0.300, 0.100"
)
HEAD = "(APIServer pid=7) INFO 11-30 17:21:05 [loggers.py:335] "


def parse(*lines: str) -> list[Record]:
    reader = ENGINE.reader()
    out: list[Record] = []
    for number, text in enumerate(lines, 1):
        out.extend(reader.feed(number, text))
    return [*out, *reader.close()]


def test_a_record_says_when_who_and_what() -> None:
    (record,) = parse(HEAD + ENGINE_LINE)
    assert record.at == "11-30T17:21:05"
    assert record.rank == {"DP": 0}
    assert record.text == ENGINE_LINE
    assert record.fields == {
        "prompt_tps": 12.5, "gen_tps": 48.0, "running": 3, "waiting": 14, "kv_usage": 0.875, "prefix_hit_rate": 0.015,
    }  # fmt: skip


@pytest.mark.parametrize("cut", range(30, len(ENGINE_LINE)))
def test_an_engine_line_cut_anywhere_gives_no_wrong_number(cut: int) -> None:
    """Cut right behind a percent sign it is whole; anywhere else it is left out."""
    found = stats.throughput(ENGINE_LINE[:cut])
    whole = ENGINE_LINE[:cut].endswith("%")
    assert (found is not None) is whole
    if found is not None:
        assert found["kv_usage"] == 0.875


@pytest.mark.parametrize("cut", range(25, len(SPEC_LINE)))
def test_a_spec_line_cut_anywhere_is_left_out(cut: int) -> None:
    assert stats.spec(SPEC_LINE[:cut], None) == (None, None)


@pytest.mark.parametrize("line", [ENGINE_LINE, SPEC_LINE])
def test_the_fast_way_reads_as_the_careful_one(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = stats.throughput(line) if line is ENGINE_LINE else stats.spec(line, None)
    monkeypatch.setattr(stats, "_USUAL", lambda _: None)
    monkeypatch.setattr(stats, "_USUAL_SPEC", lambda _: None)
    assert fast == (stats.throughput(line) if line is ENGINE_LINE else stats.spec(line, None))


@pytest.mark.parametrize(("printed", "length"), [("2.10", 2.1), ("1.10", 2.1)])
def test_length_always_has_the_bonus_token(printed: str, length: float) -> None:
    """0.9 prints it with the bonus token, 0.8 without: Σ per-position = 1.1 tells which."""
    fields, remark = stats.spec(OLD_SPEC_LINE.format(printed), None)
    assert remark is None
    assert fields is not None
    assert fields["accept_len"] == pytest.approx(length)
    assert fields["accept_rate"] == pytest.approx(220 / 600)
    assert fields["accept_rate_printed"] == pytest.approx(0.367)


def test_a_length_that_contradicts_its_positions_is_remarked() -> None:
    reader = ENGINE.reader()
    reader.feed(1, HEAD + SPEC_LINE.replace("2.10", "2.60"))
    assert [w.line for w in reader.warnings] == [1]
    assert "2.60" in reader.warnings[0].text


def test_spec_line_belongs_to_the_engine_line_of_its_own_process() -> None:
    records = parse(
        HEAD.replace("pid=7", "pid=8") + ENGINE_LINE.replace("000", "003"),
        HEAD + ENGINE_LINE.replace("000", "001"),
        HEAD.replace("pid=7", "pid=8") + SPEC_LINE,
        HEAD + SPEC_LINE,
    )
    assert [r.rank for r in records] == [{"DP": 3}, {"DP": 1}, {"DP": 3}, {"DP": 1}]


def test_a_clean_stop_is_no_crash() -> None:
    records = parse(
        "(APIServer pid=7) INFO 11-30 17:21:52 [launcher.py:254] [shutdown] API server: shutdown triggered",
        "(APIServer pid=7) WARNING 11-30 17:21:52 [utils.py:653] [shutdown] Process manager: force killing process 9",
        "(APIServer pid=7) ERROR 11-30 17:21:52 [async_llm.py:906] AsyncLLM output_handler failed.",
        "(APIServer pid=7) ERROR 11-30 17:21:52 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: dead",
        "INFO:     Shutting down",
    )
    assert [(r.line, r.kind) for r in records] == [(1, "exit")]


def test_a_failure_without_its_cause_is_still_told() -> None:
    records = parse(
        "(EngineCore pid=9) ERROR 11-13 11:03:06 [core.py:708] EngineCore failed to start.",
        '(EngineCore pid=9) ERROR 11-13 11:03:06 [core.py:708]   File "/x/core.py", line 1, in run',
    )
    assert [(r.line, r.kind, r.fields["cause"]) for r in records] == [(1, "error", "consequence")]


def test_a_validation_block_is_one_error_with_every_field() -> None:
    (record,) = parse(
        "pydantic_core._pydantic_core.ValidationError: 2 validation errors for SchedulerConfig",
        "max_num_batched_tokens",
        "  Input should be greater than or equal to 1 [type=greater_than_equal, input_value=0, input_type=int]",
        "    For further information visit https://errors.pydantic.dev/2.14/v/greater_than_equal",
        "max_num_seqs",
        "  Input should be greater than or equal to 1 [type=greater_than_equal, input_value=0, input_type=int]",
        "    For further information visit https://errors.pydantic.dev/2.14/v/greater_than_equal",
        HEAD + "something else",
    )
    assert (record.line, record.kind, record.fields["cause"]) == (1, "error", "bad_flag")
    assert record.fields["reason"] == (
        "max_num_batched_tokens: Input should be greater than or equal to 1; "
        "max_num_seqs: Input should be greater than or equal to 1"
    )


def test_a_line_behind_a_validation_block_is_not_swallowed() -> None:
    records = parse(
        "ValidationError: 1 validation error for SpeculativeConfig",
        "num_speculative_tokens",
        "  Input should be greater than 0 [type=greater_than, input_value=0, input_type=int]",
        HEAD + ENGINE_LINE,
    )
    assert [r.kind for r in records] == ["error", "throughput"]
    assert "depth 0 means no speculative config" in records[0].fields["hint"]


def test_no_secret_leaves_the_reader() -> None:
    for path in OWN.glob("*.log"):
        for record in parse(*path.read_text(encoding="utf-8").split("\n")):
            assert "sk-not-for-anyone" not in repr(record)
            assert "hf_nor_this" not in repr(record)


@pytest.mark.parametrize("path", sorted(OWN.glob("*.log")), ids=lambda p: p.stem)
def test_records_leave_in_order_and_say_only_what_they_know(path: Path) -> None:
    records = parse(*path.read_text(encoding="utf-8").split("\n"))
    assert [r.line for r in records] == sorted(r.line for r in records)
    for record in records:
        assert record.text
        assert record.text.isprintable()
        assert None not in record.fields.values()
        assert all(0 <= record.fields[k] <= 1 for k in ("kv_usage", "accept_rate") if k in record.fields)
        if record.kind in {"reject", "preempt", "oom", "crash", "error", "exit"}:
            assert record.fields["reason"]


def test_names_of_fields_are_the_shared_ones() -> None:
    seen = {k for r in parse(*LINES) if r.kind in {"throughput", "spec"} for k in r.fields}
    assert {"running", "waiting", "kv_usage", "accept_len", "per_position", "drafted"} <= seen & FIELDS


def test_dialects_tell_themselves_apart() -> None:
    for line, name in (
        (HEAD + SPEC_LINE, "0.10.2+"),
        (HEAD + OLD_SPEC_LINE.format("2.10"), "0.9-0.10.1"),
        (HEAD + OLD_SPEC_LINE.format("1.10"), "0.8"),
    ):
        reader = ENGINE.reader()
        reader.feed(1, line)
        assert reader.dialect == name


WRAPPERS: dict[str, Callable[[str], str]] = {
    "docker compose": lambda s: f"vllm-1  | {s}",
    "kubernetes": lambda s: f"2026-11-13T11:03:10.123456789Z stdout F {s}",
    "journald": lambda s: f"Nov 13 11:03:20 host vllm[123]: {s}",
    "docker json": lambda s: json.dumps({"log": s + "\n", "stream": "stderr", "time": "2026-11-13T11:03:00.1Z"}),
    "ray": lambda s: f"(ServeReplica:default:LLM pid=123, ip=10.0.0.3) {s}",
    "colour": lambda s: f"\x1b[36m{s}\x1b[0m",
    "dos": lambda s: f"{s}\r",
    "srun": lambda s: f"0: {s}",
    "mail": lambda s: f"> {s}",
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("path", sorted(OWN.glob("[!w]*.log")), ids=lambda p: p.stem)
def test_what_others_put_around_lines_changes_nothing(path: Path, wrapper: str) -> None:
    lines = path.read_bytes().decode().split("\n")
    bare = parse(*lines)
    wrapped = parse(*[WRAPPERS[wrapper](text) if text.strip() else text for text in lines])
    assert [(r.line, r.kind, r.fields, r.ranks) for r in wrapped] == [(r.line, r.kind, r.fields, r.ranks) for r in bare]


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("INFO 10-16 19:00:01 api_server.py:528] vLLM API server version 0.6.3", "0.6.3"),
        (" ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0", "0.32.0"),
        (HEAD + "Initializing a V1 LLM engine (v0.20.2) with config: model='m'", "0.20.2"),
    ],
)
def test_the_version_is_the_dialect(line: str, version: str) -> None:
    reader = ENGINE.reader()
    reader.feed(1, line)
    assert reader.dialect == version


def _summary(records: Sequence[Record]) -> list[tuple[int, str, str]]:
    return [(r.line, r.kind, r.text) for r in records]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(st.text(max_size=200), st.sampled_from(LINES)), max_size=25))
def test_nothing_raises_and_lines_stay_in_range(lines: list[str]) -> None:
    reader = ENGINE.reader()
    out: list[Record] = []
    for number, text in enumerate(lines, 1):
        out.extend(reader.feed(number, text))
        assert reader.capacity is not None
    out.extend(reader.close())
    assert all(1 <= r.line <= len(lines) for r in out)
    assert reader.close() == []


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(LINES), st.data())
def test_mutated_lines_do_no_harm(line: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(line)))
    end = data.draw(st.integers(start, len(line)))
    middle = data.draw(st.text(alphabet=string.printable + "\x1b█", max_size=40))
    mixed = line[:start] + middle + line[end:]
    first, second = parse(mixed), parse(mixed)
    assert _summary(first) == _summary(second)
    for record in first:
        usage = record.fields.get("kv_usage")
        assert usage is None or isinstance(usage, float)


@pytest.mark.parametrize(
    "text",
    ["(" * 5000, "Avg prompt throughput: " * 300, "A" * 20000 + "Error: x", HEAD + "Traceback (most recent\n" * 50,
     "non-default args: {" + "'a': [" * 3000, "[" * 4000 + "] " * 4000, HEAD * 100],
)  # fmt: skip
def test_hostile_lines_are_read_in_no_time(text: str) -> None:
    """Each is worst for one of the patterns; a pattern that backtracks would hang here."""
    parse(text, text)
    assert pieces(text) is not None


def test_a_dead_v0_engine_is_a_crash_with_its_cause() -> None:
    head = "ERROR 09-11 17:21:30 async_llm_engine.py:63]"
    records = parse(
        f"{head} Engine background task failed",
        f"{head} Traceback (most recent call last):",
        f'{head}   File "/opt/vllm/engine.py", line 53, in step',
        f"{head} ValueError: max() arg is an empty sequence",
    )
    assert [(r.line, r.kind, r.fields["reason"]) for r in records] == [(4, "crash", "max() arg is an empty sequence")]


def test_the_engines_own_ratio_counts_where_tokens_are_not_alike() -> None:
    reader = ENGINE.reader()
    reader.feed(1, HEAD + "GPU KV cache size: 96,208 tokens, Maximum concurrency for 131,072 tokens per request: 2.90x")
    said = " ".join(reader.capacity.explain)
    assert "2.90 requests of 131,072" in said
    assert "0.73" not in said
