"""ninfer's command line, refusals, failures, replies and flags in force."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from probes import engines, preset
from probes.engines._ninfer_knobs import KNOBS
from probes.engines.ninfer import ENGINE
from probes.events import Record
from probes.recipe import Dial, Recipe, Refused

MTP = Dial("mtp", (0, 1, 2, 3, 4, 5), 3, flags={"--lm-head-draft": True})


def recipe(dial: Dial = MTP, **more: Any) -> Recipe:
    return Recipe("n", "ninfer", "ninfer-serve", "q.ninfer", dial, **more)


def test_is_an_engine() -> None:
    found: object = engines.engine("ninfer")
    assert found is ENGINE


def test_the_argv_of_a_depth() -> None:
    asked = recipe(flags={"--kv-capacity": "auto", "--cors": True, "--seed": 7}, settings={"max_concurrency": 3})
    assert ENGINE.command(asked, {"kv_dtype": "int8", "temperature": 0.6}, 4, 8123) == [
        "ninfer-serve", "q.ninfer", "--host", "127.0.0.1", "--port", "8123", "--kv-capacity", "auto", "--cors",
        "--seed", "7", "--max-concurrency", "3", "--kv-dtype", "int8", "--temperature", "0.6", "--spec", "mtp",
        "--draft-tokens", "4", "--lm-head-draft",
    ]  # fmt: skip


def test_depth_0_leaves_out_all_three_flags() -> None:
    for asked in (recipe(), recipe(flags={"--lm-head-draft": True}), recipe(Dial("dflash", (0, 7)))):
        argv = ENGINE.command(asked, {"lm_head_draft": True}, 0, 1)
        assert argv == ["ninfer-serve", "q.ninfer", "--host", "127.0.0.1", "--port", "1"]


def test_without_a_dial_the_fixed_flags_speculate() -> None:
    asked = recipe(flags={"--spec": "dflash", "--draft-tokens": 15})
    assert ENGINE.command(asked, {}, None, 1)[-4:] == ["--spec", "dflash", "--draft-tokens", "15"]


@pytest.mark.parametrize("depth", range(1, 16))
def test_every_depth_of_dflash(depth: int) -> None:
    argv = ENGINE.command(recipe(Dial("dflash", (0, depth))), {}, depth, 1)
    assert argv[-4:] == ["--spec", "dflash", "--draft-tokens", str(depth)]


REFUSALS: list[tuple[dict[str, Any], dict[str, Any], int | None, str, str]] = [
    ({}, {}, 6, "--spec mtp requires --draft-tokens in [1,5]", "nearest 5"),
    ({}, {}, -1, "--spec mtp requires --draft-tokens in [1,5]", "nearest 0"),
    ({}, {"max_concurrency": 9}, 0, "--max-concurrency must be in [1,8]", "nearest 8"),
    ({"--max-concurrency": 0}, {}, 0, "--max-concurrency must be in [1,8]", "nearest 1"),
    ({}, {"prefill_chunk": 1000}, 0, "--prefill-chunk must be a positive multiple of 128", "nearest 1024"),
    ({}, {"prefill_chunk": 1}, 0, "--prefill-chunk must be a positive multiple of 128", "nearest 128"),
    ({}, {"max_context": 0}, 0, "--max-context must be positive", "nearest 1"),
    ({}, {"kv_capacity": 8191}, 0, "--kv-capacity must be at least --max-context", "nearest 8192"),
    ({"--max-context": 65536}, {"kv_capacity": 32768}, 0, "--kv-capacity must be at least", "nearest 65536"),
    ({}, {"kv_dtype": "fp16"}, 0, "invalid kv-dtype", "bf16, int8, fp8, nvfp4, k8v4"),
    ({}, {"temperature": 2.5}, 0, "invalid temperature", "nearest 2"),
    ({}, {"max_concurrency": 2.5}, 0, "a whole number", "[1,8]"),
    ({}, {"max_concurrency": True}, 0, "a whole number", "[1,8]"),
    ({}, {"no_cuda_graph": 1}, 0, "true or false", "no_cuda_graph"),
    ({}, {"no_prefix_reuse": True, "host_kv_mib": 1}, 0, "cannot be combined with context-cache", "--host-kv-mib"),
    ({}, {"threads": 4}, 0, "no knob 'threads'", "max_concurrency"),
    ({"--port": 1}, {}, 0, "`port:`", "take it out"),
    ({"--kv-dtype=int8": True}, {}, 0, "`--flag value` only", "unknown argument: --kv-dtype=int8"),
    ({"--draft-tokens": 2}, {}, 2, "set by the dial", "take it out"),
    ({"--seed": [1, 2]}, {}, 0, "once", "--seed"),
    ({"--draft-tokens": 2}, {}, None, "require --spec", "take it out"),
    ({"--lm-head-draft": True}, {}, None, "require --spec", "take it out"),
    ({"--spec": "mtp"}, {}, None, "--spec mtp requires --draft-tokens in [1,5]", "nearest 1"),
    (
        {"--spec": "dflash", "--draft-tokens": 16},
        {},
        None,
        "--spec dflash requires --draft-tokens in [1,15]",
        "nearest 15",
    ),
    ({"--spec": "eagle", "--draft-tokens": 1}, {}, None, "invalid speculative backend", "mtp"),
]


@pytest.mark.parametrize(("fixed", "settings", "depth", "rule", "way_out"), REFUSALS)
def test_refuses_with_the_rule_and_a_way_out(
    fixed: dict[str, Any], settings: dict[str, Any], depth: int | None, rule: str, way_out: str
) -> None:
    with pytest.raises(Refused) as told:
        ENGINE.command(recipe(flags=fixed), settings, depth, 1)
    text = str(told.value)
    assert rule in text
    assert way_out in text
    assert "\n" not in text


def test_a_kind_that_the_server_does_not_know_is_refused() -> None:
    with pytest.raises(Refused, match="mtp, dflash, dflash2"):
        ENGINE.dial_range(Dial("eagle", (0, 1)))
    assert ENGINE.dial_range(MTP) == (1, 5)
    assert ENGINE.dial_range(Dial("dflash2", (0, 1))) == (1, 15)


@given(st.integers(), st.integers(), st.sampled_from([k.name for k in KNOBS]))
def test_an_argv_is_legal_or_refused(depth: int, value: int, knob: str) -> None:
    try:
        argv = ENGINE.command(recipe(), {knob: value}, depth, 1)
    except Refused:
        return
    assert argv[:2] == ["ninfer-serve", "q.ninfer"]
    assert 0 <= depth <= 5
    assert ("--spec" in argv) == (depth > 0)
    assert not any("=" in word for word in argv)


def test_no_knob_pretends_to_set_acceptance(golden: Path) -> None:
    rules = {r["id"]: r for r in yaml.safe_load((golden / "rules_and_cautions.yaml").read_text())}
    assert "accept-threshold" in rules["S2-04"]["test"]
    assert not [k.name for k in KNOBS if "accept" in k.name or "accept" in k.flag]


@pytest.mark.parametrize("name", ["ninfer-mtp", "ninfer-dflash"])
def test_the_presets_start_at_every_depth(name: str) -> None:
    shipped = preset.load(name)
    for depth in shipped.dial.values:
        argv = ENGINE.command(shipped, {}, depth, 8080)
        assert argv[1] == shipped.model
        assert ("--draft-tokens" in argv) == (depth > 0)


# ------------------------------------------------------------------------------------------------------- failed starts

USAGE = ["usage: ninfer-serve ARTIFACT.ninfer [options]", "  --port N     1..65535 (default 8080)"]
FAILED = [
    (["ninfer-serve: --spec mtp requires --draft-tokens in [1,5]", *USAGE], 1, "requires --draft-tokens", "1..5"),
    (["error: failed to bind 127.0.0.1:8080", *USAGE], 1, "failed to bind", "port is taken"),
    (["2026-09-14 10:02:12.346  ERROR cannot bind 127.0.0.1:8080"], 1, "cannot bind", "port is taken"),
    (["ninfer-serve: unknown argument: --port=8080", *USAGE], 1, "unknown argument", "`--flag value`"),
    (["ninfer-serve: artifact path is required", *USAGE], 1, "artifact path", "first argument"),
    (["ninfer-serve: --kv-capacity must be at least --max-context", *USAGE], 1, "at least --max-context", "raise"),
    (["error: DFlash is not supported by this target", *USAGE], 1, "not supported", "--spec mtp"),
    (["n-1  | ninfer-serve: --port needs a value", *USAGE], 1, "needs a value", None),
    (["ninfer-serve: loading model...", "error: Qwen3.6 family runtime requires compute capability 12.0"], 1,
     "compute capability 12.0", "another GPU"),
    (["2026-09-15 08:05:12.102  ERROR startup failed | loading weights | 2.1s",
      "2026-09-15 08:05:12.102  FATAL server failed during startup | CUDA error: out of memory (free 1 GiB)"], 1,
     "out of memory", "weights do not fit"),
    (["2026-09-15 08:05:12.102  ERROR startup failed | reserving runtime | 2.1s",
      "2026-09-15 08:05:12.102  FATAL server failed during startup | CUDA error: out of memory"], 1,
     "while reserving runtime", "lower --kv-capacity"),
    (["2026-09-15 08:05:12.102  INFO  starting engine"], -15, "SIGTERM while still loading", "nothing is wrong"),
    (["2026-09-15 08:05:12.102  INFO  starting engine"], -9, "SIGKILL", "memory"),
    (["2026-09-15 08:05:12.102  INFO  starting engine"], -11, "signal 11", None),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "code", "reason", "cure"), FAILED)
def test_names_the_reason_and_the_cure(lines: list[str], code: int, reason: str, cure: str | None) -> None:
    told, advice = ENGINE.failure(lines, code)
    assert told is not None
    assert reason in told
    assert (advice is None) if cure is None else (advice is not None and cure in advice)


def test_says_nothing_when_nothing_is_known() -> None:
    assert ENGINE.failure(["hello", *USAGE], 1) == (None, None)
    assert ENGINE.failure([], None) == (None, None)


# ------------------------------------------------------------------------------------------------------------- replies


def test_a_reply_with_timings() -> None:
    final = {
        "usage": {"prompt_tokens": 57, "completion_tokens": 129, "prompt_tokens_details": {"cached_tokens": 0}},
        "timings": {
            "cache_n": 0, "prompt_n": 57, "prompt_ms": 93.0, "predicted_n": 129, "predicted_ms": 1140.0,
            "predicted_per_second": 112.2807, "draft_n": 141, "draft_n_accepted": 109,
        },
    }  # fmt: skip
    told = ENGINE.reply(final)
    assert told == {
        "cached_tokens": 0, "server_ttft_ms": 93.0, "server_tpot_ms": pytest.approx(1140 / 128), "drafted": 141,
        "accepted": 109,
    }  # fmt: skip
    assert 1000 / told["server_tpot_ms"] == pytest.approx(112.2807, abs=1e-3)


def test_no_drafts_are_unknown_and_not_zero_percent() -> None:
    told = ENGINE.reply({"timings": {"prompt_ms": 5.0, "predicted_n": 1, "predicted_ms": 0.0}})
    assert told == {"server_ttft_ms": 5.0}
    assert ENGINE.reply({}) == {}


def test_a_reply_from_the_request_log() -> None:
    event: Mapping[str, Any] = {
        "artifact_type": "ninfer_serve_request_log", "event": "request_done",
        "result": {"completion_tokens": 11, "prefix_cache_hit_tokens": 4},
        "timings_seconds": {"ttft": 0.5, "total": 1.5}, "engine_timing": {"queue_wait_seconds": 0.3},
        "speculative": {"draft_window": 2, "rounds": 6, "drafted_tokens": 12, "accepted_tokens": 4,
                        "accepted_per_position": [3, 1]},
    }  # fmt: skip
    told = ENGINE.reply(event)
    assert told["steps"] == 6
    assert told["per_position"] == (0.5, pytest.approx(1 / 6))
    assert told["server_ttft_ms"] == pytest.approx(200)
    assert told["server_tpot_ms"] == pytest.approx(100)


JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["timings", "usage", "speculative", "result", "timings_seconds", "prompt_ms", "predicted_n", "predicted_ms",
         "draft_n", "draft_n_accepted", "rounds", "drafted_tokens", "accepted_tokens", "accepted_per_position",
         "completion_tokens", "ttft", "total", "decode", "draft_window", "cached_tokens", "prompt_tokens_details"]
    ), inner, max_size=5),
    max_leaves=15,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(["timings", "usage", "speculative", "result", "timings_seconds"]), JUNK))
def test_no_reply_makes_it_raise(final: dict[str, Any]) -> None:
    told = ENGINE.reply(final)
    assert set(told) <= {
        "drafted", "accepted", "steps", "per_position", "server_ttft_ms", "server_tpot_ms", "cached_tokens",
    }  # fmt: skip
    assert None not in told.values()


def test_a_stream_asks_for_usage_and_timings() -> None:
    sent = ENGINE.request({"model": "m", "stream": True}, recipe(), 3)
    assert sent["stream_options"] == {"include_usage": True}
    assert sent["timings_per_token"] is True
    assert ENGINE.request({"model": "m"}, recipe(), 3) == {"model": "m"}


# ------------------------------------------------------------------------------------------------------ flags in force

BOOT = [
    Record(1, "boot"),
    Record(2, "capacity", {"kv_pool_tokens": 65_536, "kv_dtype": "int8"}),
    Record(3, "pool", {"lanes": 3}),
    Record(4, "ready", {"model": "m"}),
]
ASKED = {"max_context": 16_384, "kv_capacity": 65_500, "max_concurrency": 3, "kv_dtype": "int8"}
MODELS = {"/v1/models": {"data": [{"id": "m", "max_model_len": 16_384}]}}


def done(drafted: int | None) -> Record:
    return Record(9, "request", {"phase": "done"} | ({"drafted": drafted} if drafted is not None else {}))


def test_flags_that_are_in_force() -> None:
    told = ENGINE.in_force(recipe(), ASKED, 3, MODELS, [*BOOT, done(141), done(9)])
    assert told.proven
    assert told.asked == {"max_context": 16_384, "kv_pool_tokens": 65_536, "lanes": 3, "kv_dtype": "int8", "depth": 3}
    assert told.in_force["depth"] == 3
    assert "whole rounds of 3" in told.notes[-1]
    early = ENGINE.in_force(recipe(), ASKED, 3, MODELS, BOOT)
    assert early.proven
    assert "never clamps" in early.notes[-1]


@pytest.mark.parametrize(
    ("changed", "depth", "extra", "replies", "note"),
    [
        ({}, 3, [done(140)], MODELS, "no whole number of rounds"),
        ({}, 0, [done(3)], MODELS, "asked 0, but 3 tokens were drafted"),
        ({"max_concurrency": 4}, 3, [], MODELS, "lanes: asked 4, in force 3"),
        ({"kv_capacity": 65_537}, 3, [], MODELS, "kv_pool_tokens: asked 65600, in force 65536"),
        ({"kv_dtype": "fp8"}, 3, [], MODELS, "kv_dtype: asked fp8, in force int8"),
        ({"max_context": 8192}, 3, [], MODELS, "max_context: asked 8192, in force 16384"),
        ({}, 3, [], {}, "max_context: asked 16384, the server does not say"),
    ],
)
def test_flags_that_are_not(
    changed: dict[str, Any], depth: int, extra: list[Record], replies: dict[str, Any], note: str
) -> None:
    told = ENGINE.in_force(recipe(), ASKED | changed, depth, replies, [*BOOT, *extra])
    assert not told.proven
    assert any(note in text for text in told.notes), told.notes


def test_the_request_log_proves_the_depth() -> None:
    start = Record(5, "boot", {"spec_backend": "mtp", "depth": 2, "max_concurrency": 3, "max_context": 16_384})
    assert ENGINE.in_force(recipe(), ASKED, 2, {}, [*BOOT, start]).proven
    told = ENGINE.in_force(recipe(), ASKED, 3, {}, [*BOOT, start])
    assert told.notes == ("depth: asked 3, in force 2",)


def test_nothing_known_proves_nothing() -> None:
    told = ENGINE.in_force(recipe(), {}, 3, {}, [])
    assert not told.proven
    assert told.in_force == {}


def test_it_is_frozen_and_has_no_metrics() -> None:
    assert ENGINE.metrics("vllm:num_requests_running 3") == {}
    assert [f.name for f in dataclasses.fields(ENGINE)][:2] == ["name", "title"]
    assert ENGINE.ready_path() == "/health"
