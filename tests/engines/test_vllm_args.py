"""The echo of the flags: values that are no literals, and names that are there twice."""

from __future__ import annotations

import pytest

from probes.engines import _vllm_args as args
from probes.engines import engine, parse

ECHO = (
    "non-default args: {'model_tag': 'm/target', 'model': 'm/target', 'max_num_seqs': 16, 'speculative_config': "
    "{'method': 'draft_model', 'num_speculative_tokens': 5, 'model': 'm/draft'}, 'compilation_config': {'mode': "
    "<CompilationMode.NONE: 0>, 'cudagraph_mode': <CUDAGraphMode.FULL: 2>, 'backend': 'inductor'}}"
)
"""vLLM 0.20.2 with a draft model and a compilation config, shortened."""


def test_members_of_enumerations_do_not_hide_the_rest() -> None:
    found = args.args(ECHO)
    assert found["speculative_config"] == {"method": "draft_model", "num_speculative_tokens": 5, "model": "m/draft"}
    assert found["compilation_config"]["cudagraph_mode"] == "CUDAGraphMode.FULL"
    assert found["max_num_seqs"] == 16


@pytest.mark.parametrize("text", [ECHO, ECHO[:-30], ECHO.replace("<CUDAGraphMode.FULL: 2>", "<object at 0x7f>")])
def test_the_model_is_the_target_even_where_the_line_is_no_literal(text: str) -> None:
    facts = args.facts(args.args(text))
    assert (facts["model"], facts["lanes"], facts["draft_depth"]) == ("m/target", 16, 5)


def test_a_boot_record_tells_target_and_draft() -> None:
    line = f"(APIServer pid=13155) INFO 11-30 21:21:48 [utils.py:233] {ECHO}"
    (boot,) = parse("vllm", [line])
    assert {k: boot.fields[k] for k in ("model", "draft_model", "draft_depth", "spec_algorithm")} == {
        "model": "m/target", "draft_model": "m/draft", "draft_depth": 5, "spec_algorithm": "draft_model",
    }  # fmt: skip


def test_an_overridden_number_of_blocks_takes_its_share_of_the_bytes() -> None:
    lines = [
        "INFO 11-30 21:28:33 [utils.py:233] non-default args: {'kv_cache_memory_bytes': 2147483648}",
        *["INFO 11-30 21:29:22 [kv_cache_utils.py:1996] Overriding num_gpu_blocks=5825 with num_gpu_blocks_override=64"]
        * 2,
        "INFO 11-30 21:29:22 [kv_cache_utils.py:1708] GPU KV cache size: 1,024 tokens",
    ]
    reader = engine("vllm").reader()
    for number, text in enumerate(lines, 1):
        reader.feed(number, text)
    capacity = reader.capacity
    # A token of this model takes 23,040 bytes: keys and values of 30 layers, 3 heads of 64 each, in bf16.
    assert (capacity.pages, capacity.kv_pool_tokens) == (64, 1024)
    assert capacity.kv_bytes == pytest.approx(1024 * 23_040, rel=1e-3)
    assert capacity.lines["kv_bytes"] == 2
