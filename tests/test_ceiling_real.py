"""Queues on a real llama-server: more requests than slots, and more tokens than a shared pool has cells."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from probes import engines, preset, store
from probes.events import CeilingChanged, Event, RequestDone
from probes.lab import Lab
from probes.measure.steps import Measure, Measured, Plan
from probes.reading import read

pytestmark = pytest.mark.llama


def load(run: store.Run, settings: dict[str, Any], concurrency: int, max_tokens: int) -> list[Event]:
    """One start with these settings under this load, and what was told."""
    recipe = preset.load("llamacpp-smollm2-draft")
    work = dataclasses.replace(recipe.workload, prompts_per_category=2, max_tokens=max_tokens, concurrency=concurrency)
    recipe = dataclasses.replace(recipe, workload=work, settings={**recipe.settings, **settings})
    seen: list[Event] = []

    def plan() -> Plan:
        outcome: Measured = yield Measure(depth=0, block=0, concurrency=concurrency, why="a queue")
        assert outcome.step.concurrency == concurrency

    async def whole() -> None:
        lab = Lab(recipe, run, seen.append, (0,))
        await lab.open()
        try:
            await lab.carry_out("queue", plan(), 1)
        finally:
            await lab.close()

    asyncio.run(whole())
    return seen


def test_more_requests_than_slots_is_lanes(tmp_path: Path) -> None:
    seen = load(store.create(tmp_path), {"parallel": 1, "ctx": 2048}, concurrency=4, max_tokens=96)
    told = [e.ceiling for e in seen if isinstance(e, CeilingChanged)]
    assert told[-1].verdict == "lanes"
    assert all(c.verdict in {"lanes", "none", "unknown"} for c in told), [c.verdict for c in told]
    assert {r.outcome for r in seen if isinstance(r, RequestDone)} == {"ok"}


def test_a_shared_pool_that_overflows_is_the_kv_pool(tmp_path: Path) -> None:
    run = store.create(tmp_path)
    seen = load(run, {"parallel": 4, "ctx": 512, "kv_unified": True}, concurrency=4, max_tokens=400)
    told = [e.ceiling for e in seen if isinstance(e, CeilingChanged)]
    assert "kv_pool" in [c.verdict for c in told]
    assert "lanes" not in [c.verdict for c in told if c.confidence == "high"]
    lost = [r for r in seen if isinstance(r, RequestDone) and r.outcome != "ok"]
    assert lost, "a full unified pool ends the requests that run"
    assert read(run.server_log, engine=engines.engine("llamacpp").name).ceiling.verdict == "kv_pool"
