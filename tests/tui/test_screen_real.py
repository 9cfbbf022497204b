"""The screen on a real llama-server, driven by keys alone, at both sizes that it is designed for."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from probes import preset, store
from tui.app import Draftdial
from tui.labthread import LabThread

pytestmark = pytest.mark.llama


def test_keys_alone_start_sweep_and_stop_a_real_server(tmp_path: Path, screen_text: Callable[[Draftdial], str]) -> None:
    found = preset.load("llamacpp-smollm2-draft")
    load = dataclasses.replace(found.workload, prompts_per_category=1, max_tokens=8)
    recipe = dataclasses.replace(found, workload=load, dial=dataclasses.replace(found.dial, values=(0, 1)))
    run = store.create(tmp_path)
    feed = LabThread(recipe, run)
    app = Draftdial(lambda _: feed, feed)
    shown: dict[str, str] = {}

    async def until(pilot: Pilot[Any], pattern: str) -> None:
        """Until the screen says so."""
        while not re.search(pattern, screen_text(app)):
            await asyncio.wait_for(pilot.pause(0.05), 60)

    async def whole() -> None:
        async with app.run_test(size=(160, 48)) as pilot:
            await until(pilot, r"enter starts depth 0")
            await pilot.press("right", "enter")
            await until(pilot, r"● ready  draft depth 1")
            await until(pilot, r"flags read back: in force")
            await pilot.press("s")
            await until(pilot, r"sweep [━┄]+ \d/2")
            await until(pilot, r"○ stopped")
            await until(pilot, r"worst case|all say|disagree")
            shown["wide"] = screen_text(app)
            await pilot.resize_terminal(80, 24)
            await until(pilot, r"accept  speed  latency")
            await pilot.press("t")
            await until(pilot, r"Decode tok/s by depth")
            shown["small"] = screen_text(app)
            await pilot.press("q")
            while app.is_running:
                await pilot.pause(0.05)

    asyncio.run(whole())
    result = run.result()
    assert result is not None
    cells = {(c["depth"], c["category"]): c for c in result["cells"] if c["requests"]}
    assert {depth for depth, _ in cells} == {0, 1}
    for (depth, category), cell in cells.items():
        speed = f"{cell['decode_tps'][0]:.1f}"
        if depth == 1 and category == "code":
            assert speed in shown["wide"]
            assert f"{cell['accept_rate']:.1%}" in shown["wide"]
            assert speed in shown["small"]
    for depth, row in result["regret"].items():
        if row.get("worst"):
            assert re.search(rf" {depth} .*{row['worst']:.1%}", shown["wide"])
    assert "n=1 prompts a cell: too few to call" in shown["wide"]
