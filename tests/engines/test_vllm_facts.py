"""vLLM over HTTP: counters, a reply's own figures, flags in force, and why a start failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.engines import _vllm_facts as facts
from probes.engines.vllm import ENGINE
from probes.events import Record
from probes.recipe import Dial, Recipe, Workload

TEXT = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="deferred"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:num_preemptions_total{engine="0",model_name="m"} 5.0
vllm:num_preemptions_created{engine="0",model_name="m"} 1.79e+09
vllm:generation_tokens_total{engine="0",model_name="m"} 100.0
vllm:generation_tokens_total{engine="1",model_name="m"} 60.0
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 40.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 80.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 50.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 20.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 30.0
vllm:iteration_tokens_total_bucket{engine="0",le="1.0",model_name="m"} 7.0
vllm:iteration_tokens_total_count{engine="0",model_name="m"} 90.0
vllm:iteration_tokens_total_sum{engine="0",model_name="m"} 250.0
vllm:inter_token_latency_seconds_count{engine="0",model_name="m"} 120.0
vllm:inter_token_latency_seconds_sum{engine="0",model_name="m"} 1.5
vllm:e2e_request_latency_seconds_sum{engine="0",model_name="m"} NaN
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",gpu_memory_utilization="0.9",\
kv_cache_memory_bytes="None",num_gpu_blocks="118",kv_cache_size_tokens="90000"} 1.0
"""


def test_metrics_of_two_engines() -> None:
    found = ENGINE.metrics(TEXT)
    assert found == {
        "running": 7, "waiting": 2, "deferred": 1, "kv_usage": 0.75, "total_preemptions": 5, "total_output_tokens": 160,
        "total_drafts": 40, "total_drafted": 80, "total_accepted": 50, "total_accepted_per_position": [30, 20],
        "total_steps": 90, "total_step_tokens": 250, "total_request_steps": 120, "total_step_ms": 1500.0,
        "kv_pool_tokens": 90000, "pages": 118, "page_tokens": 16, "gpu_memory_utilization": "0.9",
        "kv_cache_dtype": "auto",
    }  # fmt: skip


def test_counters_without_total_and_the_old_name_of_the_usage() -> None:
    found = ENGINE.metrics(
        'vllm:gpu_cache_usage_perc{model_name="m"} 0.5\nvllm:num_preemptions{model_name="m"} 3\n'
        'vllm:spec_decode_num_draft_tokens{model_name="m"} 8\nvllm:num_requests_waiting 1'
    )
    assert found == {"kv_usage": 0.5, "total_preemptions": 3, "total_drafted": 8, "waiting": 1}


def test_other_text_has_no_metrics() -> None:
    assert ENGINE.metrics("") == {}
    assert ENGINE.metrics('sglang:num_running_reqs{model_name="m"} 3.0') == {}


@given(st.text(max_size=300))
def test_metrics_take_any_text(text: str) -> None:
    ENGINE.metrics(text)
    ENGINE.metrics("vllm:num_requests_running{" + text + "} 1\n" + text)


def test_real_counters_agree_with_themselves(corpus: Path) -> None:
    """A real run, ngram at depth 3: per-position counts add up, and the step histogram counts every request-step."""
    path = corpus.parent / "device" / "logs" / "vllm-run1" / "ngram3.metrics.txt"
    if not path.is_file():
        pytest.skip("no device runs beside this checkout")
    found = ENGINE.metrics(path.read_text(encoding="utf-8"))
    assert found["total_accepted"] == sum(found["total_accepted_per_position"]) == 664
    assert found["total_drafted"] == 3 * found["total_drafts"] == 999
    first = found["total_ttft_count"]
    assert found["total_output_tokens"] - first - found["total_request_steps"] <= found["total_accepted"]
    assert found["pages"] * found["page_tokens"] == 93_200


SPEC = {
    "mean_acceptance_length": 2.5, "draft_acceptance_rate": 0.5, "acceptance_histogram": [2, 3, 1, 4],
    "num_spec_steps": 10, "num_accepted_draft_tokens": 17, "num_draft_tokens": 30, "num_spec_tokens": 3,
}  # fmt: skip


def test_reply_with_drafts_and_times() -> None:
    found = ENGINE.reply(
        {
            "usage": {"completion_tokens": 28, "prompt_tokens_details": {"cached_tokens": 16}},
            "metrics": {
                "time_to_first_token_ms": 20.0, "queue_time_ms": 5.0, "mean_itl_ms": 8.5, "speculative_decoding": SPEC,
            },
        }
    )  # fmt: skip
    assert found == {
        "cached_tokens": 16, "server_ttft_ms": 25.0, "server_tpot_ms": 8.5, "drafted": 30, "accepted": 17,
        "drafted_steps": 10,
        "per_position": (0.8, 0.5, 0.4),
    }  # fmt: skip
    assert sum(found["per_position"]) == pytest.approx(17 / 10)


def test_a_reply_without_drafts_does_not_claim_zero_acceptance() -> None:
    none = SPEC | {
        "num_spec_steps": 0,
        "num_draft_tokens": 0,
        "num_accepted_draft_tokens": 0,
        "acceptance_histogram": [0],
    }
    assert ENGINE.reply({"metrics": {"speculative_decoding": none}}) == {"drafted": 0, "accepted": 0}


@pytest.mark.parametrize("final", [{}, {"usage": None}, {"metrics": None}, {"metrics": {"speculative_decoding": 3}}])
def test_a_reply_that_says_nothing_gives_nothing(final: dict[str, Any]) -> None:
    assert ENGINE.reply(final) == {}


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
)


@given(JSON, JSON)
def test_reply_takes_any_json(first: Any, second: Any) -> None:
    found = ENGINE.reply({"metrics": {"speculative_decoding": first, "mean_itl_ms": second}, "usage": second})
    assert all(v is not None for v in found.values())
    ENGINE.reply(
        {"metrics": {"speculative_decoding": SPEC | {"acceptance_histogram": first, "num_spec_steps": second}}}
    )


def recipe(**rest: Any) -> Recipe:
    return Recipe(name="t", engine="vllm", binary="vllm", model="/m", dial=Dial("ngram", (0, 1, 3)), **rest)


def test_request_asks_for_usage_in_every_chunk() -> None:
    made = recipe(workload=Workload(extra={"ignore_eos": True}))
    sent = ENGINE.request({"stream": True, "messages": []}, made, 3)
    assert sent["stream_options"] == {"continuous_usage_stats": True, "include_usage": True}
    assert sent["ignore_eos"] is True
    assert "stream_options" not in ENGINE.request({"stream": False, "stream_options": {}}, made, 3)


def boot(**fields: Any) -> list[Record]:
    return [Record(1, "boot", {"args": fields.pop("args", {"model": "/m"}), "version": "0.32.0", **fields})]


def test_flags_in_force_are_proven_by_the_boot() -> None:
    args = {"max_num_seqs": 8, "speculative_config": {"method": "ngram", "num_speculative_tokens": 3}}
    found = ENGINE.in_force(
        recipe(flags={"--seed": 0}), {"lanes": 8, "kv_bytes": "64M"}, 3,
        {"/v1/models": {"data": [{"id": "m", "max_model_len": 2048}]}, "/metrics": TEXT},
        boot(draft_depth=3, kv_cache_memory_bytes=67108864, args=args),
    )  # fmt: skip
    assert found.proven
    assert found.notes == ()
    assert found.in_force["draft_depth"] == 3
    assert found.in_force["max_num_seqs"] == 8
    assert found.in_force["kv_pool_tokens"] == 90000


@pytest.mark.parametrize(
    ("depth", "settings", "records", "note"),
    [
        (3, {}, boot(draft_depth=1), "asked for depth 3, in force is 1"),
        (3, {}, boot(), "does not say which depth"),
        (0, {"lanes": 8}, boot(draft_depth=0, args={"max_num_seqs": 4}), "max_num_seqs: asked for 8, in force is 4"),
        (0, {"lanes": 8}, [Record(1, "boot", {"draft_depth": 0})], "no echo of the flags"),
        (0, {"ctx": 4096}, boot(draft_depth=0, max_model_len=1024), "max_model_len: asked for 4096, in force is 1024"),
        (
            3, {"lookup_max": 4},
            boot(draft_depth=3, args={"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}}),
            "prompt_lookup_max: asked for 4",
        ),
    ],
)  # fmt: skip
def test_what_is_not_confirmed_is_not_proven(
    depth: int, settings: dict[str, Any], records: list[Record], note: str
) -> None:
    found = ENGINE.in_force(recipe(), settings, depth, {}, records)
    assert not found.proven
    assert any(note in n for n in found.notes)


def test_real_boots_prove_their_flags(corpus: Path) -> None:
    """`real-h200-draft3` was started with exactly these flags."""
    made = Recipe(
        name="t", engine="vllm", binary="vllm", model="models/smol",
        dial=Dial("draft_model", (0, 3), flags={"--speculative-config.model": "models/draft"}),
        flags={"--served-model-name": "smollm2", "--attention-backend": "FLASH_ATTN", "--kv-cache-memory-bytes": "2G"},
        settings={"lanes": 16, "ctx": 2048},
    )  # fmt: skip
    reader = ENGINE.reader()
    text = (corpus / "vllm" / "real-h200-draft3.log").read_bytes().decode()
    records = [r for n, line in enumerate(text.split("\n"), 1) for r in reader.feed(n, line)]
    found = ENGINE.in_force(made, {}, 3, {}, records)
    assert found.notes == ()
    assert found.proven
    assert not ENGINE.in_force(made, {}, 0, {}, records).proven


HEAD = "(EngineCore pid=9) ERROR 11-13 11:03:06 [core.py:708] "
OOM = (
    HEAD + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.74 GiB. GPU 1 has a total capacity of "
    "23.57 GiB of which 605.88 MiB is free."
)
TOO_LONG = (
    "ValueError: The model's max seq len (29000) is larger than the maximum number of tokens that can be stored in KV "
    "cache (23648). Try increasing `gpu_memory_utilization`"
)
BUSY = (
    HEAD + "ValueError: Free memory on device cuda:0 (7.34/139.72 GiB) on startup is less than desired GPU memory "
    "utilization (0.9, 125.75 GiB). Decrease GPU memory utilization."
)


@pytest.mark.parametrize(
    ("lines", "code", "reason", "cure"),
    [
        (
            [
                BUSY,
                "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
            ],
            1, "7.34 of 139.72 GiB are free", "wait and start again",
        ),
        (
            [HEAD + "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"],
            1, "No available memory", "not lower it",
        ),
        (
            [OOM],
            1, "asking for 1.74 GiB with 605.88 MiB free", "lower --gpu-memory-utilization",
        ),
        (
            [TOO_LONG],
            1, "KV pool of 23648 tokens", "--max-model-len 23648 or less",
        ),
        (["OSError: [Errno 98] Address already in use"], 1, "already in use", "another --port"),
        (["usage: vllm serve [-h]", "vllm serve: error: unrecognized arguments: --bogus"], 2, "--bogus", "--help"),
        (
            ["ImportError: Arctic Inference is required for suffix decoding. Install via pip"],
            1, "Arctic Inference", "arctic-inference",
        ),
        (["nothing of note"], -9, "SIGKILL", "out-of-memory killer"),
    ],
)  # fmt: skip
def test_a_failed_start_has_a_reason_and_a_cure(lines: list[str], code: int, reason: str, cure: str) -> None:
    found, hint = ENGINE.failure(lines, code)
    assert found is not None
    assert hint is not None
    assert reason in found
    assert cure in hint


def test_a_start_that_says_nothing_has_no_reason() -> None:
    assert ENGINE.failure(["INFO 11-13 11:03:06 [x.py:1] hello"], 1) == (None, None)


def test_only_the_last_start_counts() -> None:
    lines = [
        "INFO 11-13 11:00:00 [u.py:1] non-default args: {'model': 'm'}",
        "ERROR 11-13 11:00:01 [c.py:1] ValueError: No available memory for the cache blocks.",
        "INFO 11-13 11:01:00 [u.py:1] non-default args: {'model': 'm'}",
        "OSError: [Errno 98] Address already in use",
    ]
    assert "in use" in str(ENGINE.failure(lines, 1)[0])


def test_protocol_constants() -> None:
    assert ENGINE.ready_path() == "/health"
    assert ENGINE.reserving is False
    assert "/version" in ENGINE.state_paths()
    assert ENGINE.state_paths() == facts.STATE_PATHS
