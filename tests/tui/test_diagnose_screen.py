from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from probes.events import (
    Capacity,
    CapacityRead,
    Ceiling,
    CeilingChanged,
    EngineSample,
    Event,
    Judged,
    PlanProgress,
    RunStarted,
)
from probes.measure.ceiling_report import report
from probes.measure.steps import Burst, Measure, Measured
from probes.session import Frame, Session
from probes.store import Run
from tui.messages import Cancel, Diagnose, Pause
from tui.screens.live import Live

WIDE, SMALL, TINY = (160, 48), (80, 24), (40, 12)
Show = Callable[..., str]
CAPACITY = Capacity(kv_pool_tokens=224_000, page_tokens=64, lanes=3)
POOL = Ceiling("kv_pool", "medium", "The KV pool holds requests back.", rivals=("lanes",), advice="Lower max_tokens.")


class Beside:
    """A run beside that only shows what it is given."""

    def __init__(self, path: Path, events: list[Event], *, over: bool = False) -> None:
        self.asked, self.run, self.over = Diagnose(2, {}), Run(path), over
        self._session = Session()
        self._session.apply_all(events)

    def frame(self) -> Frame:
        return self._session.frame()


def point(arm: str, why: str, tokens: int, queue: list[tuple[int, int]], failed: str | None = None) -> Measured:
    step = Measure(2, 1, {}, arm=f"{arm}-", why=why, burst=Burst(3, tokens))
    ceiling = POOL if queue and queue[0][1] else Ceiling("none")
    return Measured(step, failed=failed, ceiling=ceiling, capacity=CAPACITY, queue=tuple(queue))


def told(*, done: bool, failed: str | None = None) -> list[Event]:
    """A load that waits, the same with half the output that does not, and one more lane."""
    outcomes = [
        point("look", "a look at what it can hold", 8, [(1, 0)]),
        point("load1", "the pool: 3 × 100,000 tokens", 100_000, [(2, 1)] * 4),
        point("load1x1", "the pool: half the output", 50_000, [(3, 0)] * 4),
        point("load1x2", "the pool: 4 lanes", 100_000, [] if failed else [(2, 1)] * 4, failed),
    ]
    result = report(outcomes, run="2026-11-30-c", engine="ninfer", simulated=True)
    return [
        RunStarted(1.0, "2026-11-30-c", "ninfer", "tiny", "m", "mtp", (2,), ("code",), simulated=True),
        CapacityRead(1, CAPACITY),
        EngineSample(2.0, 1, {"running": 2.0, "waiting": 1.0}),
        CeilingChanged(2.0, 1, POOL),
        Judged(3.0, result),
        PlanProgress(4.0, "ceiling", 4, 7, "done" if done else "the lanes: 4 × 1,200 tokens", finished=done),
    ]


def show(on_screen: Show, feed: Any, ready: list[Event], size: tuple[int, int], beside: Beside, *keys: str) -> str:
    async def pump(pilot: Any, live: Live) -> None:
        await pilot.press("d")
        feed.beside, feed.doing = beside, None if beside.over else "diagnosis"
        pilot.app.pump()
        await pilot.pause()
        for key in keys:
            await pilot.press(key)
            await pilot.pause()

    return on_screen(feed, ready, size, then=pump)


def test_it_says_what_it_would_do_and_does_it_once(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    shown = on_screen(feed, ready, SMALL, "d")
    assert "depth 2 with the knobs of the dial; about seven starts, 0.4 s each" in " ".join(shown.split())
    assert feed.asked == []
    on_screen(feed, ready, SMALL, "down", "4", "0", "9", "6", "enter", "d", "enter", "enter")
    assert feed.asked == [Diagnose(2, {})]  # what runs, not what the dial marks


def test_without_a_server_the_dial_says_which_setting(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    on_screen(feed, ready[:1], WIDE, "right", "down", "4", "0", "9", "6", "enter", "d", "enter")
    assert feed.asked == [Diagnose(4, {"ctx": 4096})]


def test_a_busy_lab_is_left_alone(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    feed.doing = "probing depth 2"

    async def pump(pilot: Any, live: Live) -> None:
        await pilot.press("d")
        pilot.app.pump()
        await pilot.press("enter")

    assert "busy: probing depth 2" in on_screen(feed, ready, WIDE, then=pump)
    assert feed.asked == []


def test_while_it_runs_the_queue_and_the_verdict_so_far_are_in_sight(
    on_screen: Show, feed: Any, ready: list[Event], tmp_path: Path
) -> None:
    for size in (WIDE, SMALL):
        shown = show(on_screen, feed, ready, size, Beside(tmp_path, told(done=False)))
        for word in (
            "run 2026-11-30-c", "SIMULATED", "the lanes: 4 × 1,200 tokens", "running 2 of 3 lanes, waiting 1",
            "KV POOL SIMULATED (medium)", "4/7",
        ):  # fmt: skip
            assert word in shown, word


def test_each_load_has_verdict_experiments_verdict_and_what_would_admit_it(
    on_screen: Show, feed: Any, ready: list[Event], tmp_path: Path
) -> None:
    shown = show(on_screen, feed, ready, WIDE, Beside(tmp_path, told(done=True)))
    rows = [" ".join(line.split()) for line in shown.split("\n")]
    order = [
        "KV POOL SIMULATED · The KV pool holds requests back.",
        "─ the pool: 3 × 100,000 tokens",
        "queue running 2 of 3 lanes, waiting 1 (in 100% of the reports)",
        "before KV POOL (medium) The KV pool holds requests back. · could also be: LANES",
        "try half the output: running 2 → 3, waiting 1 → 0: less output, less waits",
        "try 4 lanes: running 2 → 2, waiting 1 → 1",
        "after KV POOL confirmed: the experiments bear kv_pool out",
        "admits --kv-capacity 300480 would let all 3 run. 3 × 100,160 tokens need a pool of 300,480",
        "to do Lower max_tokens.",
    ]
    found = [next((i for i, row in enumerate(rows) if row.startswith(words)), -1) for words in order]
    assert -1 not in found, [words for words, i in zip(order, found, strict=True) if i < 0]
    assert found == sorted(found)


def test_an_experiment_that_was_not_run_says_why(
    on_screen: Show, feed: Any, ready: list[Event], tmp_path: Path
) -> None:
    shown = show(on_screen, feed, ready, WIDE, Beside(tmp_path, told(done=True, failed="it needs \x1b[31ma restart")))
    assert "4 lanes: not run: it needs a restart" in shown
    assert shown.count("it needs a restart") == 1


def test_it_can_be_ended_and_asked_for_again(on_screen: Show, feed: Any, ready: list[Event], tmp_path: Path) -> None:
    show(on_screen, feed, ready, WIDE, Beside(tmp_path, told(done=False)), "space", "space", "x")
    assert feed.asked == [Pause(on=True), Pause(on=False), Cancel()]
    shown = show(on_screen, feed, ready, WIDE, Beside(tmp_path, told(done=True)), "n")
    assert "about seven starts" in shown
    over = Beside(tmp_path, told(done=True), over=True)
    assert "KV POOL confirmed" in show(on_screen, feed, ready, WIDE, over)  # it ended while nobody looked
    assert "about seven starts" in show(on_screen, feed, ready, WIDE, over, "n", "escape", "d")


def test_a_server_of_someone_else_is_not_restarted(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    run = ready[0]
    assert isinstance(run, RunStarted)
    shown = on_screen(feed, [dataclasses.replace(run, attached=True), *ready[1:]], SMALL, "d", "enter")
    assert feed.asked == [Diagnose(None, {})]
    assert "it is not restarted" in shown
    feed.past, feed.recipe = True, None
    assert "a run of the past" in on_screen(feed, ready, WIDE, "d")


@pytest.mark.parametrize("size", [TINY, (20, 5), (1, 1)])
def test_no_size_breaks_it(
    on_screen: Show, feed: Any, ready: list[Event], tmp_path: Path, size: tuple[int, int]
) -> None:
    shown = show(on_screen, feed, ready, size, Beside(tmp_path, told(done=True)), "down", "up", "escape")
    assert len(shown.split("\n")) == size[1]
