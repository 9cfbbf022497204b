"""A server that is to stay when the console goes stays, also amid a sweep; a pause holds one plan alone."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import psutil

from probes import preset, store
from probes.events import Event, PlanProgress, RequestSent
from probes.lab import Lab
from probes.measure.sweep import sweep
from probes.recipe import Dial, Recipe


def test_leaving_amid_a_sweep_leaves_its_server(tmp_path: Path) -> None:
    recipe = preset.load("sim-ninfer-5090")
    sent = asyncio.Event()

    def hear(event: Event) -> None:
        if isinstance(event, RequestSent):
            sent.set()

    async def whole() -> psutil.Process:
        lab = Lab(recipe, store.create(tmp_path), hear, (0, 1))
        await lab.open()
        plan = asyncio.create_task(lab.carry_out("sweep", sweep((0, 1), 1, 2), 2))
        await asyncio.wait_for(sent.wait(), 60)
        server = psutil.Process(lab.bench.server.pid)
        await lab.close(leave=True)
        await plan
        assert lab.bench.server.state == "ready"
        return server

    server = asyncio.run(whole())
    assert server.is_running()
    assert server.status() != psutil.STATUS_ZOMBIE
    os.killpg(server.pid, signal.SIGTERM)
    server.wait(20)


def test_a_pause_that_came_too_late_does_not_hold_the_next_plan(tmp_path: Path) -> None:
    missing = Recipe("gone", "llamacpp", "/nonexistent/llama-server", "/nonexistent/m.gguf", Dial("ngram-simple", (0,)))

    seen: list[Event] = []

    async def whole() -> list[object]:
        lab = Lab(missing, store.create(tmp_path), seen.append, (0,))
        await lab.open()
        try:
            lab.pause(on=True)
            plan = lab.carry_out("sweep", sweep((0,), 1, 1), 1)
            return [o.failed for o in await asyncio.wait_for(plan, 20)]
        finally:
            await lab.close()

    (failed,) = asyncio.run(whole())
    assert str(failed).startswith("the server did not start")
    last = [e for e in seen if isinstance(e, PlanProgress)][-1]
    assert (last.done, last.total, last.finished) == (0, 1, True)
