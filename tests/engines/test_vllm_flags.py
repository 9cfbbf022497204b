"""vLLM's command line at a depth, and what is refused before a start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes import preset
from probes.engines import _vllm_flags as flags
from probes.engines import engine
from probes.engines._vllm_knobs import KNOBS
from probes.engines.vllm import ENGINE
from probes.recipe import Dial, Recipe, Refused

PRESETS = Path(__file__).resolve().parents[2] / "presets"
SPEC = "--speculative-config"


def recipe(kind: str = "ngram", dial: dict[str, Any] | None = None, **rest: Any) -> Recipe:
    return Recipe(
        name="t", engine="vllm", binary=rest.pop("binary", "vllm"), model="/m",
        dial=Dial(kind=kind, values=(0, 1, 2, 3, 5), flags=dial or {}), **rest,
    )  # fmt: skip


def spec_of(argv: list[str]) -> dict[str, Any]:
    assert argv.count(SPEC) == 1
    assert not any(word.startswith(SPEC + ".") for word in argv)
    found = json.loads(argv[argv.index(SPEC) + 1])
    assert isinstance(found, dict)
    return found


def test_exact_argv_with_and_without_speculation() -> None:
    made = recipe(
        dial={f"{SPEC}.prompt_lookup_max": 4, "--per-request-spec-decode-metrics": "summary"},
        flags={"--no-enable-prefix-caching": True, "--seed": 7},
        settings={"lanes": 8},
    )
    head = ["vllm", "serve", "/m", "--host", "127.0.0.1", "--port", "8100", "--no-enable-prefix-caching", "--seed", "7"]
    assert ENGINE.command(made, {}, 0, 8100) == [*head, "--max-num-seqs", "8"]
    assert ENGINE.command(made, {"gpu_memory": 0.5}, 3, 8100) == [
        *head, "--per-request-spec-decode-metrics", "summary", "--max-num-seqs", "8", "--gpu-memory-utilization", "0.5",
        SPEC, '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}',
    ]  # fmt: skip


def test_a_python_runs_the_module() -> None:
    argv = ENGINE.command(recipe(binary="/opt/py/bin/python3"), {}, 0, 1)
    assert argv[:5] == ["/opt/py/bin/python3", "-m", "vllm.entrypoints.cli.main", "serve", "/m"]


@pytest.mark.parametrize("kind", ["ngram", "ngram_gpu", "suffix", "mtp", "deepseek_mtp"])
def test_methods_without_a_draft_model(kind: str) -> None:
    assert spec_of(ENGINE.command(recipe(kind), {}, 2, 1)) == {"method": kind, "num_speculative_tokens": 2}


@pytest.mark.parametrize("kind", ["eagle", "eagle3", "draft_model", "dflash", "dspark"])
def test_methods_with_a_draft_model(kind: str) -> None:
    with pytest.raises(Refused, match="needs a draft model"):
        ENGINE.command(recipe(kind), {}, 2, 1)
    argv = ENGINE.command(recipe(kind, {f"{SPEC}.model": "/d"}), {}, 2, 1)
    assert spec_of(argv) == {"method": kind, "num_speculative_tokens": 2, "model": "/d"}
    assert "/d" not in ENGINE.command(recipe(kind, {f"{SPEC}.model": "/d"}), {}, 0, 1)


def test_json_and_dotted_keys_end_in_one_json() -> None:
    made = recipe("eagle3", {SPEC: '{"model": "/d", "draft-tensor-parallel-size": 1}', f"{SPEC}.enforce-eager": True})
    assert spec_of(ENGINE.command(made, {"verify": "block"}, 1, 1)) == {
        "method": "eagle3", "num_speculative_tokens": 1, "model": "/d", "draft_tensor_parallel_size": 1,
        "enforce_eager": True, "rejection_sample_method": "block",
    }  # fmt: skip


def test_a_preset_without_a_dial_keeps_its_own_config() -> None:
    made = recipe(flags={SPEC: '{"method": "ngram", "num_speculative_tokens": 3}'})
    assert spec_of(ENGINE.command(made, {}, None, 1))["num_speculative_tokens"] == 3
    assert SPEC not in ENGINE.command(recipe(), {}, None, 1)


def test_booleans_have_a_twin_and_a_setting_replaces_the_fixed_flag() -> None:
    made = recipe(flags={"--no-enable-prefix-caching": True, "--max_num_seqs": 4})
    argv = ENGINE.command(made, {"prefix_cache": True, "lanes": 9, "eager": False, "async_scheduling": False}, 0, 1)
    assert "--enable-prefix-caching" in argv
    assert "--no-enable-prefix-caching" not in argv
    assert argv.count("--max-num-seqs") == 1
    assert argv[argv.index("--max-num-seqs") + 1] == "9"
    assert "--no-async-scheduling" in argv
    assert not any("enforce-eager" in word for word in argv)


@pytest.mark.parametrize(
    ("made", "settings", "depth", "says"),
    [
        (recipe(), {}, 4, "nearest is 3"),
        (recipe("no_such"), {}, 0, "no speculation method of vLLM"),
        (recipe(), {"gpu_memory": 1.2}, 0, "nearest is 1"),
        (recipe(), {"gpu_memory": "much"}, 0, "is no number"),
        (recipe(), {"lanes": 0}, 0, "nearest is 1"),
        (recipe(), {"lanes": 1.5}, 0, "no whole number"),
        (recipe(), {"lanes": True}, 0, "no whole number"),
        (recipe(), {"kv_dtype": "fp7"}, 0, "none of auto"),
        (recipe(), {"eager": "maybe"}, 0, "neither true nor false"),
        (recipe(), {"kv_bytes": "25.6 Q"}, 0, "no size"),
        (recipe(), {"turbo": 1}, 0, "no knob 'turbo'"),
        (recipe(), {"lanes": 16, "batch_tokens": 8}, 0, "greater than or equal to --max-num-seqs"),
        (recipe(), {"lanes": 16, "active_lanes": 17}, 0, "nearest is 16"),
        (recipe(), {"chunked_prefill": False, "batch_tokens": 2048, "ctx": 4096}, 0, "without chunked prefill"),
        (recipe(), {"lookup_min": 5, "lookup_max": 3}, 1, "nearest is 3"),
        (recipe(), {"verify": "fly"}, 1, "nearest is 2"),
        (recipe(), {"verify": "synthetic", "synthetic_len": 3.5}, 2, "outside 1 to 3"),
        (recipe(), {"synthetic_len": 2.0}, 2, "only taken with"),
        (recipe(flags={"--port": 1}), {}, 0, "port:"),
        (recipe(flags={SPEC: "{}"}), {}, 1, "set by the dial"),
        (recipe(flags={f"{SPEC}.method": "ngram"}), {}, 1, "set by the dial"),
        (recipe(flags={"--spec-tokens": 2}), {}, 1, "set by the dial"),
        (recipe(flags={"--per-request-spec-decode-metrics": "summary"}), {}, 0, "belongs in `dial.flags`"),
        (recipe(flags={"--max-num-seqs": 1, "--max_num_seqs": 2}), {}, 0, "given twice"),
        (recipe(dial={SPEC: "not json"}), {}, 1, "is no JSON"),
        (recipe(dial={SPEC: "[1]"}), {}, 1, "must be a JSON object"),
        (recipe(dial={f"{SPEC}.num_speculative_tokens": 9}), {}, 1, "leave method and num_speculative_tokens"),
        (recipe(dial={"--spec-model": "/d"}), {}, 1, "exclude each other"),
        (recipe(), {"version": "soon"}, 0, "is no version"),
        (recipe(), {"version": "0.29.1", "request_drafts": "summary"}, 1, "needs vLLM 0.30 or newer"),
        (recipe(), {"version": "0.30.0", "active_lanes": 3}, 0, "needs vLLM 0.31 or newer"),
        (recipe("medusa"), {"version": "0.33.0"}, 1, "removed method medusa"),
        (recipe("dspark", {f"{SPEC}.model": "/d"}), {"version": "0.25.0"}, 1, "needs vLLM 0.26"),
    ],
)
def test_what_vllm_would_refuse_is_refused_before_a_start(
    made: Recipe, settings: dict[str, Any], depth: int, says: str
) -> None:
    with pytest.raises(Refused) as caught:
        ENGINE.command(made, settings, depth, 1)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_request_drafts_are_asked_only_with_speculation() -> None:
    wanted = {"version": "0.32.0", "request_drafts": "detailed"}
    assert "--per-request-spec-decode-metrics" in ENGINE.command(recipe(), wanted, 1, 1)
    assert "--per-request-spec-decode-metrics" not in ENGINE.command(recipe(), wanted, 0, 1)
    ENGINE.command(recipe(), {"version": "0.20.2", "request_drafts": "summary"}, 0, 1)


@pytest.mark.parametrize(
    ("text", "value"), [("32k", 32_000), ("32K", 32_768), ("8G", 8 * 2**30), ("12", 12), ("x", None), ("1.5k", None)]
)
def test_sizes_are_read_as_vllm_reads_them(text: str, value: int | None) -> None:
    assert flags.size(text) == value


@given(st.sampled_from(KNOBS), st.one_of(st.integers(), st.floats(), st.text(max_size=20), st.booleans(), st.none()))
def test_any_value_of_any_knob_is_taken_or_refused(knob: Any, value: Any) -> None:
    try:
        argv = ENGINE.command(recipe(), {knob.name: value}, 0, 1)
    except Refused:
        return
    assert all(isinstance(word, str) for word in argv)


def test_knobs_have_names_of_their_own_and_flags_that_exist() -> None:
    assert len({k.name for k in KNOBS}) == len(KNOBS)
    assert all(k.flag.startswith("--") or k.name == "version" for k in KNOBS)
    assert all(k.choices for k in KNOBS if k.type == "choice")


@pytest.mark.parametrize("name", ["vllm-ngram", "vllm-eagle3", "vllm-mtp"])
def test_shipped_presets_start_at_every_depth(name: str) -> None:
    made = preset.load(str(PRESETS / f"{name}.yaml"))
    assert engine(made.engine).name == ENGINE.name
    for depth in made.dial.values:
        argv = ENGINE.command(made, {}, depth, 8000)
        assert (SPEC in argv) is (depth > 0)
        if depth:
            assert spec_of(argv)["num_speculative_tokens"] == depth


def test_environment_keeps_the_log_readable_and_the_preset_has_the_last_word() -> None:
    env = ENGINE.environment(recipe(env={"VLLM_LOG_STATS_INTERVAL": "5", "A": "b"}), {}, 1)
    assert env["NO_COLOR"] == "1"
    assert env["VLLM_LOG_STATS_INTERVAL"] == "5"
    assert env["A"] == "b"
    assert float(ENGINE.environment(recipe(), {}, None)["VLLM_LOG_STATS_INTERVAL"]) > 0
