"""SGLang's command lines, refusals, counters, replies, flags in force and failed starts."""
# ruff: noqa: E501  (command lines and log lines stand as they are)

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes import preset
from probes.engines import Engine, engine
from probes.events import Record
from probes.recipe import Dial, Recipe, Refused

ENGINE = engine("sglang")
HEAD = ["sglang", "serve", "--model-path", "m", "--host", "127.0.0.1", "--port", "30001"]
TAIL = ["--enable-metrics", "--decode-log-interval", "10"]


def recipe(kind: str = "EAGLE", drafting: dict[str, Any] | None = None, **more: Any) -> Recipe:
    dial = Dial(kind, (0, 1, 2, 3, 5), flags=drafting or {})
    return Recipe(**{"name": "p", "engine": "sglang", "binary": "sglang", "model": "m", "dial": dial, **more})


def argv(found: Recipe, depth: int | None, **settings: Any) -> list[str]:
    return ENGINE.command(found, settings, depth, 30001)


def test_it_is_an_engine() -> None:
    assert isinstance(ENGINE, Engine)
    assert ENGINE.ready_path() == "/health"
    assert len({k.name for k in ENGINE.knobs}) == len(ENGINE.knobs)
    assert len({k.flag for k in ENGINE.knobs}) == len(ENGINE.knobs)


@pytest.mark.parametrize(
    ("kind", "flags", "depth", "words"),
    [
        ("EAGLE", {}, 3, "--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"),
        ("nextn", {}, 1, "--speculative-algorithm NEXTN --speculative-num-steps 1 --speculative-eagle-topk 1 --speculative-num-draft-tokens 2"),
        ("EAGLE3", {"--speculative-draft-model-path": "d"}, 2, "--speculative-draft-model-path d --speculative-algorithm EAGLE3 --speculative-num-steps 2 --speculative-eagle-topk 1 --speculative-num-draft-tokens 3"),
        ("EAGLE", {"--speculative-eagle-topk": 4, "--speculative-num-draft-tokens": 16}, 5, "--speculative-eagle-topk 4 --speculative-num-draft-tokens 16 --speculative-algorithm EAGLE --speculative-num-steps 5"),
        ("DSPARK", {}, 3, "--speculative-algorithm DSPARK --speculative-dspark-block-size 3"),
        ("DFLASH", {"--speculative-draft-model-path": "d"}, 7, "--speculative-draft-model-path d --speculative-algorithm DFLASH --speculative-dflash-block-size 8"),
        ("NGRAM", {}, 5, "--speculative-algorithm NGRAM --speculative-num-draft-tokens 6"),
        ("NGRAM", {}, 0, ""),
        ("EAGLE3", {"--speculative-draft-model-path": "d"}, 0, ""),
    ],
)  # fmt: skip
def test_the_exact_command_line_of_a_depth(kind: str, flags: dict[str, Any], depth: int, words: str) -> None:
    assert argv(recipe(kind, flags), depth) == [*HEAD, *words.split(), *TAIL]


def test_without_a_dial_the_fixed_flags_stand() -> None:
    found = recipe(binary="/opt/venv/bin/python3", flags={"--speculative-algorithm": "NGRAM"})
    assert argv(found, None) == [
        "/opt/venv/bin/python3", "-m", "sglang.launch_server", *HEAD[2:], "--speculative-algorithm", "NGRAM", *TAIL,
    ]  # fmt: skip


def test_knobs_replace_fixed_flags_and_lists_and_bare_flags_are_spelled() -> None:
    found = recipe(
        "NGRAM",
        flags={"--mem-fraction-static": 0.9, "--cuda-graph-bs-decode": [1, 2, 4], "--trust-remote-code": True},
        settings={"max_running_requests": 8},
    )
    words = argv(found, 0, mem_fraction_static=0.8, disable_radix_cache=True, enable_mixed_chunk=False)
    assert words[len(HEAD) : -len(TAIL)] == [
        "--cuda-graph-bs-decode", "1", "2", "4", "--trust-remote-code", "--max-running-requests", "8",
        "--mem-fraction-static", "0.8", "--disable-radix-cache",
    ]  # fmt: skip


def test_speculation_knobs_are_left_out_at_depth_0() -> None:
    assert argv(recipe(), 0, draft_window_size=64) == [*HEAD, *TAIL]
    assert "--speculative-draft-window-size" in argv(recipe(), 2, draft_window_size=64)


@pytest.mark.parametrize(
    ("kind", "flags", "depth", "settings", "says"),
    [
        ("EAGLE", {}, -1, {}, "nearest 0"),
        ("EAGLE3", {}, 2, {}, "--speculative-draft-model-path"),
        ("EAGLE", {"--speculative-eagle-topk": 4}, 2, {}, "--speculative-num-draft-tokens"),
        ("EAGLE", {"--speculative-eagle-topk": 4, "--speculative-num-draft-tokens": 3}, 3, {}, "legal from 4"),
        ("EAGLE", {"--speculative-num-draft-tokens": 8}, 3, {}, "forces 4"),
        ("EAGLE", {"--speculative-eagle-topk": 2, "--speculative-num-draft-tokens": 8}, 3, {"attention_backend": "trtllm_mha"}, "flashinfer"),
        ("DSPARK", {"--speculative-num-draft-tokens": 9}, 3, {}, "needs 4"),
        ("DSPARK", {"--speculative-dspark-block-size": 3}, 3, {}, "what the dial sets"),
        ("DSPARK", {"--pp": 2}, 3, {}, "pipeline size 1"),
        ("DSPARK", {"--attn-dp-size": 2}, 3, {}, "--enable-dp-lm-head"),
        ("NGRAM", {"--attn-dp-size": 2}, 3, {}, "attention data parallelism"),
        ("NGRAM", {"--attn-dp-size": 2, "--dp-size": 2}, 3, {}, "does not combine"),
        ("DFLASH", {"--speculative-draft-model-path": "d"}, 7, {"draft_window_size": 4}, "8"),
        ("NGRAM", {}, 2, {"use_rejection_sampling": True}, "top-k 1"),
        ("NGRAM", {}, 2, {"use_block_verification": True}, "DSPARK"),
        ("EAGLE", {}, 2, {"chunked_prefill_size": 1000, "page_size": 64}, "nearest 960"),
        ("EAGLE", {}, 2, {"mem_fraction_static": 1.5}, "nearest 0.999"),
        ("EAGLE", {}, 2, {"max_running_requests": 0}, "nearest 1"),
        ("EAGLE", {}, 2, {"max_running_requests": 4.5}, "whole number"),
        ("EAGLE", {}, 2, {"kv_cache_dtype": "int3"}, "fp8_e4m3"),
        ("EAGLE", {}, 2, {"disable_radix_cache": "yes"}, "true or false"),
        ("EAGLE", {}, 2, {"warp": 9}, "no knob 'warp'"),
        ("EAGLE", {}, 2, {"cuda_graph_max_bs": 8, "cuda_graph_max_bs_old": 8}, "give one"),
        ("EAGLE", {}, 2, {"mamba_radix_cache_strategy": "no_buffer", "page_size": 64}, "page size 1"),
        ("medusa", {}, 2, {}, "no speculation whose depth"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_in_one_line(
    kind: str, flags: dict[str, Any], depth: int, settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(Refused) as refused:
        ENGINE.command(recipe(kind, flags), settings, depth, 30001)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("option", ["--port", "--model", "--speculative-num-steps", "--speculative-adaptive"])
def test_flags_that_others_own_are_refused(option: str) -> None:
    with pytest.raises(Refused, match="take it out"):
        argv(recipe(flags={option: 1}), 2)


def test_faked_acceptance_is_refused() -> None:
    assert ENGINE.environment(recipe(), {}, 1)["SGLANG_LOG_MS"] == "1"
    assert ENGINE.environment(recipe(env={"SGLANG_SIMULATE_ACC_LEN": "-1"}), {}, 1)
    with pytest.raises(Refused, match="SGLANG_SIMULATE_ACC_LEN"):
        ENGINE.environment(recipe(env={"SGLANG_SIMULATE_ACC_LEN": "3"}), {}, 1)


@given(st.integers(1, 64), st.sampled_from(["EAGLE", "NEXTN", "DSPARK", "NGRAM"]))
def test_the_window_is_one_more_than_the_depth(depth: int, kind: str) -> None:
    words = argv(recipe(kind), depth)
    options = dict(pairwise(words))
    window = options.get("--speculative-num-draft-tokens") or str(int(options["--speculative-dspark-block-size"]) + 1)
    assert int(window) == depth + 1


@pytest.mark.parametrize("name", ["sglang-eagle3", "sglang-dspark"])
def test_shipped_presets_build_every_depth(name: str) -> None:
    found = preset.load(name)
    for depth in found.dial.values:
        words = ENGINE.command(found, {}, depth, 30001)
        assert any(w.startswith("--speculative-") for w in words) == (depth > 0)
    assert ENGINE.dial_range(found.dial) is None


# ---------------------------------------------------------------------------------------------------------- counters

METRICS = """# HELP sglang:num_running_reqs The number of running requests.
sglang:num_running_reqs{dp_rank="0",tp_rank="0",pp_rank="0",model_name="m"} 5.0
sglang:num_running_reqs{dp_rank="0",tp_rank="1",pp_rank="0",model_name="m"} 5.0
sglang:num_running_reqs{dp_rank="1",tp_rank="2",pp_rank="0",model_name="m"} 3.0
sglang:num_queue_reqs{dp_rank="0",tp_rank="0",pp_rank="0",model_name="m"} 2.0
sglang:token_usage{dp_rank="0",tp_rank="0",pp_rank="0",model_name="m"} 0.97
sglang:full_token_usage{dp_rank="0",tp_rank="0",pp_rank="0",model_name="m"} 0.25
sglang:full_token_usage{dp_rank="1",tp_rank="2",pp_rank="0",model_name="m"} 0.5
sglang:mamba_usage{dp_rank="0",tp_rank="0",pp_rank="0",model_name="m"} 0.97
sglang:swa_token_usage{dp_rank="0",tp_rank="0",pp_rank="0",model_name="m"} 0.0
sglang:gen_throughput{dp_rank="0",tp_rank="0",pp_rank="0",model_name="m"} 100.5
sglang:spec_accept_length{dp_rank="0",tp_rank="0",pp_rank="0",model_name="m"} 2.5
sglang:generation_tokens_total{model_name="m"} 120
sglang:prompt_tokens{model_name="m"} 40
sglang:cached_tokens_total{cache_source="device",model_name="m"} 7
sglang:cached_tokens_total{cache_source="host",model_name="m"} 3
sglang:num_retracted_requests_total{dp_rank="0",tp_rank="0",model_name="m"} 1
sglang:max_total_num_tokens{dp_rank="0",tp_rank="0",model_name="m"} 1.013732e+06
sglang:time_to_first_token_seconds_sum{model_name="m"} NaN
vllm:num_requests_running 99
"""


def test_counters_count_copies_once_and_replicas_together() -> None:
    assert ENGINE.metrics(METRICS) == {
        "running": 8, "waiting": 2, "busiest_pool_usage": 0.97, "kv_usage": 0.5, "state_usage": 0.97, "gen_tps": 100.5,
        "accept_len": 2.5, "total_output_tokens": 120, "total_prompt_tokens": 40, "total_cached_tokens": 10,
        "total_retracted": 1, "kv_pool_tokens": 1013732,
    }  # fmt: skip


def test_an_idle_gauge_of_acceptance_is_not_an_acceptance() -> None:
    assert ENGINE.metrics('sglang:spec_accept_length{tp_rank="0"} 0.0\nsglang:token_usage{tp_rank="0"} 0.5\n') == {
        "busiest_pool_usage": 0.5,
        "kv_usage": 0.5,
    }


@given(st.text(max_size=300))
def test_any_metrics_text_is_read(text: str) -> None:
    assert isinstance(ENGINE.metrics(text), dict)
    assert isinstance(ENGINE.metrics("sglang:num_running_reqs{" + text), dict)


# ----------------------------------------------------------------------------------------------------------- replies


@pytest.mark.parametrize(
    ("final", "facts"),
    [
        ({"usage": {"prompt_tokens": 5, "completion_tokens": 9}}, {}),
        ({"meta_info": {"spec_verify_ct": 12, "completion_tokens": 30}}, {"steps": 12}),
        (
            {"meta_info": {"spec_verify_ct": 10, "spec_accept_token_num": 18, "spec_draft_token_num": 30}},
            {"steps": 10, "accepted": 18, "drafted": 30},
        ),
        (
            {"sglext": {"spec_tokens_details": {
                "spec_verify_ct": 10, "spec_num_correct_drafts": 15, "spec_num_proposed_drafts": 30,
                "spec_correct_drafts_histogram": [2, 3, 3, 2]}}},
            {"steps": 10, "accepted": 15, "drafted": 30, "per_position": (0.8, 0.5, 0.2)},
        ),
        (
            {"choices": [{"meta_info": {"spec_verify_ct": 4, "decode_throughput": 50.0, "first_token_latency": 0.2,
                                        "cached_tokens": 3, "prompt_tokens": 8}}]},
            {"steps": 4, "server_tpot_ms": 20.0, "server_ttft_ms": 200.0, "cached_tokens": 3},
        ),
        ({"usage": {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}}, {"cached_tokens": 4}),
        ({"usage": {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 9}}}, {}),
        ({"meta_info": {"spec_num_correct_drafts": 9, "spec_num_proposed_drafts": 3}}, {}),
        ({"choices": [], "usage": None, "meta_info": [], "sglext": 3}, {}),
    ],
)  # fmt: skip
def test_what_a_finished_request_tells(final: dict[str, Any], facts: dict[str, Any]) -> None:
    assert ENGINE.reply(final) == facts


def test_per_position_is_a_survival_that_sums_to_the_accept_length_less_one() -> None:
    histogram = [2, 3, 3, 2]
    found = ENGINE.reply({"meta_info": {"spec_correct_drafts_histogram": histogram}})["per_position"]
    assert list(found) == sorted(found, reverse=True)
    assert sum(found) == pytest.approx(sum(i * n for i, n in enumerate(histogram)) / sum(histogram))


def test_a_request_asks_for_drafts_and_tokens_a_chunk() -> None:
    sent = ENGINE.request({"model": "m", "stream": True, "stream_options": {"x": 1}}, recipe(), 2)
    assert sent == {
        "model": "m", "stream": True, "return_spec_tokens_details": True,
        "stream_options": {"continuous_usage_stats": True, "include_usage": True, "x": 1},
    }  # fmt: skip
    assert "stream_options" not in ENGINE.request({"model": "m", "stream_options": {}}, recipe(), 2)


# ----------------------------------------------------------------------------------------------------- flags in force


def info(**more: Any) -> dict[str, Any]:
    base = {
        "speculative_algorithm": "EAGLE", "speculative_num_steps": 3, "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 4, "max_running_requests": 32, "version": "0.5.19",
    }  # fmt: skip
    return {"/server_info": {**base, **more}}


def force(replies: dict[str, Any], depth: int | None = 3, *records: Record, **settings: Any) -> Any:
    return ENGINE.in_force(recipe(), settings, depth, replies, records)


def test_flags_that_took_are_proven() -> None:
    found = force(info())
    assert found.proven
    assert found.in_force["depth"] == 3
    assert found.in_force["version"] == "0.5.19"


def test_an_effective_limit_counts_and_not_the_requested_one() -> None:
    state = [{"effective_max_running_requests_per_dp": 9}]
    found = force(info(internal_states=state), max_running_requests=32)
    assert not found.proven
    assert found.in_force["max_running_requests"] == 9


def test_a_limit_shared_by_ranks_is_the_same_limit() -> None:
    state = [{"effective_max_running_requests_per_dp": 12}] * 4
    found = force(info(internal_states=state, max_running_requests=48, attn_dp_size=4), max_running_requests=48)
    assert found.proven


def test_another_window_in_force_is_not_proven() -> None:
    assert not force(info(speculative_num_draft_tokens=8)).proven


def test_depth_0_is_proven_by_no_algorithm() -> None:
    assert force(info(speculative_algorithm=None), 0).proven
    assert not force(info(), 0).proven


def test_steps_longer_than_the_depth_disprove_it() -> None:
    found = force(info(), 3, Record(9, "decode", {"accept_len": 4.6}))
    assert not found.proven


def test_the_starts_own_line_stands_in_for_a_reply() -> None:
    boot = Record(1, "boot", {"speculative_algorithm": "DSPARK", "speculative_dspark_block_size": 3})
    runner = Record(2, "capacity", {"num_draft_tokens": 4})
    found = ENGINE.in_force(recipe("DSPARK"), {}, 3, {}, [boot, runner])
    assert found.proven
    assert found.in_force["depth"] == 3
    assert not ENGINE.in_force(recipe("DSPARK"), {}, 3, {}, []).proven


# ------------------------------------------------------------------------------------------------------ failed starts


@pytest.mark.parametrize(
    ("lines", "code", "reason", "hint"),
    [
        (["RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: 0.2"], 1, "Not enough memory", "raise --mem-fraction-static"),
        (["ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.88. Raise --mem-fraction-static above 0.9 (minimum viable = 0.91)"], 1, "leave no GPU memory", "raise --mem-fraction-static"),
        (["Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 448.00 MiB."], -9, "Capture cuda graph failed", "lower --mem-fraction-static"),
        (["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "[2026-01-01 00:00:00] SIGQUIT received. signum=None, frame=None. It usually means one child failed."], -9, "OutOfMemoryError", "lower --mem-fraction-static"),
        (["[2026-01-01 00:00:00] Received sigquit from a child process. It usually means the child failed."], -9, "sigquit", "exception above"),
        (["usage: launch_server.py [-h]", "launch_server.py: error: argument --speculative-algorithm: invalid choice: 'NOSUCH' (choose from EAGLE)"], 2, "invalid choice", "choose one"),
        (["launch_server.py: error: ambiguous option: --cuda-graph-max-bs could match --cuda-graph-max-bs-decode, --cuda-graph-max-bs-prefill"], 2, "ambiguous", "0.5.20"),
        (["ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): address already in use"], 1, "address already in use", "another one"),
        (["OSError: models/none is not a local folder and is not a valid model identifier listed on the hub"], 1, "not a local folder", "path or name"),
        (["ValueError: DSpark requires --speculative-dspark-block-size to be positive, got 0."], 1, "got 0", "at least 1"),
        (["Traceback (most recent call last):", '  File "x.py", line 1, in <module>', "AssertionError"], 1, "AssertionError", None),
        (["all fine"], 3, "exit code 3", None),
        (["all fine"], -9, None, None),
        ([], None, None, None),
    ],
)  # fmt: skip
def test_why_a_start_failed(lines: list[str], code: int | None, reason: str | None, hint: str | None) -> None:
    found, cure = ENGINE.failure(lines, code)
    assert (reason is None and found is None) or (found is not None and reason is not None and reason in found)
    assert (hint is None and cure is None) or (cure is not None and hint is not None and hint in cure)


@given(st.lists(st.text(max_size=80), max_size=8), st.none() | st.integers(-64, 255))
def test_any_lines_of_a_failed_start_are_read(lines: list[str], code: int | None) -> None:
    assert len(ENGINE.failure(lines, code)) == 2


@pytest.mark.parametrize(
    ("kind", "drafting", "flags", "depth", "found"),
    [
        ("EAGLE", {}, {}, 3, 3),
        ("NGRAM", {}, {}, 5, 5),
        ("DSPARK", {}, {}, 2, 2),
        ("EAGLE", {"--speculative-eagle-topk": 4, "--speculative-num-draft-tokens": 16}, {}, 5, 15),
        ("EAGLE", {}, {}, 0, None),
        ("EAGLE", {}, {}, None, None),
        ("EAGLE", {}, {"--stream-interval": 8}, 3, None),  # a chunk holds eight steps
        ("EAGLE", {}, {"--stream-interval": "1"}, 3, 3),
        ("as started", {}, {}, 3, None),
    ],
)
def test_a_chunk_is_a_step_where_the_server_sends_each_at_once(
    kind: str, drafting: dict[str, Any], flags: dict[str, Any], depth: int | None, found: int | None
) -> None:
    assert ENGINE.step_drafts(recipe(kind, drafting, flags=flags), depth) == found
