from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from probes import preset, store
from probes.abtest import Pools, compare, judgment, lab_for
from probes.events import Capacity, CapacityRead, Notice, PlanProgress
from probes.measure.ab import Arm, Design, budgets
from probes.measure.costs import costs
from probes.recipe import Dial, Recipe

MISSING = Recipe("gone", "llamacpp", "/nonexistent/llama-server", "/nonexistent/m.gguf", Dial("ngram-simple", (0, 3)))
ARMS = (Arm(0, {}), Arm(3, {}))


def step(text: str) -> PlanProgress:
    return PlanProgress(1.0, "ab", 0, 4, text)


def test_pools_that_differ_between_the_arms_are_told_with_their_sizes(tmp_path: Path) -> None:
    pools = Pools()
    for text, tokens in (("A/A restart 1 of 3", 7), ("block 1 of 2, arm A", 4096), ("block 1 of 2, arm B", 2048)):
        pools.see(step(text))
        pools.see(CapacityRead(1, Capacity(kv_pool_tokens=tokens)))
    told = judgment(MISSING, store.create(tmp_path), ARMS, pools)([])
    assert told["warnings"] == [
        "the KV pools differ (4,096 against 2,048 tokens): this compares two memory budgets as well"
    ]
    assert told["differs"] == ["depth: 0 against 3"]


def test_a_knob_that_moves_memory_is_another_budget() -> None:
    recipe = preset.load("sim-vllm")
    speed, memory = (Arm(3, {"request_drafts": "detailed"}), Arm(3, {"gpu_memory": 0.5}))
    plain = Arm(3, {"gpu_memory": recipe.settings["gpu_memory"]})
    assert budgets(recipe, plain, speed) == []
    assert budgets(recipe, plain, memory) == [
        "gpu_memory changes the memory budget: this compares two memory budgets as well"
    ]


def test_equal_pools_and_pools_of_one_arm_alone_are_no_warning() -> None:
    pools = Pools()
    for text in ("block 1 of 2, arm A", "block 1 of 2, arm B"):
        pools.see(step(text))
        assert pools.warnings() == []
        pools.see(CapacityRead(1, Capacity(kv_pool_tokens=4096)))
    assert pools.warnings() == []


def test_a_server_that_never_starts_is_named_for_every_point(tmp_path: Path) -> None:
    run = store.create(tmp_path)
    seen: list[object] = []

    async def whole() -> dict[str, object]:
        lab = lab_for(MISSING, run, ARMS, seen.append)
        await lab.open()
        try:
            return await compare(lab, ARMS, Design(1, 2, 0))
        finally:
            await lab.close()

    result = asyncio.run(whole())
    assert result["verdict"] == "NO_CLAIM"
    points: Any = result["failed_points"]
    assert [(p["arm"], p["block"]) for p in points] == [("a-", 0), ("b-", 0)]
    assert points[0]["why"].startswith("the server did not start: binary /nonexistent/llama-server: no such program")
    assert points[1]["why"].startswith("the server did not start: ")
    assert json.loads(run.result_file.read_text())["failed_points"] == result["failed_points"]
    assert any(isinstance(e, Notice) and "given up" in e.text for e in seen)


def test_costs_are_those_of_the_latest_run_of_the_preset_and_none_of_a_ceiling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAFTDIAL_RUNS", str(tmp_path))
    assert costs("gone") == (None, None)
    for boots, more in (([3.0, 5.0, 4.0], {}), ([90.0], {"what": "ceiling"})):
        run = store.create(tmp_path)
        run.open()
        run.describe(MISSING, {})
        run.write_result({"boot_s": boots, **more})
        run.close()
    assert costs("gone") == (4.0, None)
    assert costs("another") == (None, None)
