"""What a server tells of its capacity over HTTP, for those whose log we may not read."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes import engines, store
from probes.bench import Attached
from probes.events import Capacity, CapacityRead, Event
from probes.lab import Lab
from probes.recipe import SIMULATOR, Dial, Limits, Recipe, Workload

NAMES = ("llamacpp", "ninfer", "sglang", "vllm")
MODELS = {"/v1/models": {"data": [{"id": "m", "max_model_len": 4096}]}}


def test_llama_server_tells_slots_and_the_room_of_each() -> None:
    props = {"/props": {"total_slots": 4, "default_generation_settings": {"n_ctx": 2048}}}
    found = engines.engine("llamacpp").announced(props)
    assert (found.lanes, found.max_context, found.kv_pool_tokens) == (4, 2048, None), "whether slots share is not told"
    assert len(found.explain) == 2


def test_sglang_tells_what_is_in_force_and_not_what_was_asked() -> None:
    info = {
        "max_running_requests": 32, "context_length": 8192, "chunked_prefill_size": 2048,
        "internal_states": [{"effective_max_running_requests_per_dp": 9, "memory_usage": {"token_capacity": 5000}}],
    }  # fmt: skip
    found = engines.engine("sglang").announced({"/server_info": info})
    assert (found.lanes, found.kv_pool_tokens, found.max_context, found.batch_tokens) == (9, 5000, 8192, 2048)
    loads = {"loads": [{"max_running_requests": 7, "max_total_num_tokens": 4000}]}
    found = engines.engine("sglang").announced({"/v1/loads?format=json&include=all": loads})
    assert (found.lanes, found.kv_pool_tokens) == (7, 4000)
    assert engines.engine("sglang").announced({"/server_info": {"internal_states": 5}}) == Capacity()
    asked = engines.engine("sglang").announced({"/server_info": {"max_running_requests": 32}})
    assert asked == Capacity(), "the number that was asked for is no limit in force"


def test_vllm_tells_its_pool_in_its_metrics() -> None:
    page = 'vllm:cache_config_info{block_size="16",num_gpu_blocks="100",kv_cache_size_tokens="1600"} 1.0\n'
    found = engines.engine("vllm").announced({**MODELS, "/metrics": page})
    assert (found.kv_pool_tokens, found.pages, found.max_context, found.lanes) == (1600, 100, 4096, None)


def test_ninfer_tells_its_context() -> None:
    assert engines.engine("ninfer").announced(MODELS).max_context == 4096


@pytest.mark.parametrize("name", NAMES)
def test_nothing_said_is_nothing_known(name: str) -> None:
    engine = engines.engine(name)
    told: list[dict[str, Any]] = [{}, dict.fromkeys(engine.state_paths()), {p: [] for p in engine.state_paths()}]
    for replies in told:
        assert engine.announced(replies) == Capacity()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)
)


@settings(deadline=None)
@given(st.sampled_from(NAMES), st.lists(JSON, min_size=5, max_size=5))
def test_no_reply_raises(name: str, said: list[Any]) -> None:
    engine = engines.engine(name)
    engine.announced(dict(zip(["/v1/models", *engine.state_paths()], said, strict=False)))


def test_an_attached_server_without_a_log_is_judged_by_what_it_tells(tmp_path: Path) -> None:
    """Its lanes are known from `/props`: four run, more wait, and that is the lanes."""
    dial = Dial("ngram-simple", (0,))
    own = Recipe(
        "sim", "llamacpp", SIMULATOR, "m.gguf", dial, simulated=True, simulation={"table": "llamacpp-8b", "speed": 10},
        flags={"-c": 8192, "-np": 2, "--metrics": True}, limits=Limits(boot_s=60),
    )  # fmt: skip
    theirs = Recipe(
        "attached", "llamacpp", "", "", Dial("as started", (0,)), simulated=True, simulation={"speed": 10},
        workload=Workload(prompts_per_category=4, max_tokens=300, concurrency=8),
    )  # fmt: skip
    seen: list[Event] = []

    async def whole() -> str:
        server = Lab(own, store.create(tmp_path), lambda _: None, (0,))
        await server.open()
        assert await server.apply(0, {})
        assert server.bench.server.now is not None
        url = server.bench.server.now.url
        guest = Lab(theirs, store.create(tmp_path), seen.append, attached=Attached(url))
        await guest.open()
        while guest.bench.server.state != "ready" or guest.bench.capacity is None:
            await asyncio.sleep(0.02)
        await guest.probe()
        found = guest.bench.held_back()[0].verdict
        await guest.close()
        await server.close()
        return found

    assert asyncio.run(whole()) == "lanes"
    assert [e.capacity.lanes for e in seen if isinstance(e, CapacityRead)] == [2]
