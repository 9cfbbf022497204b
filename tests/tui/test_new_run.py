"""Figures that were measured with different knobs never share a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from probes.events import Event
from probes.recipe import Recipe
from tui.commands.live import opener
from tui.labthread import LabThread
from tui.messages import Anew, Apply, Sweep
from tui.screens.live import Live

WIDE, SMALL = (160, 48), (80, 24)
Show = Callable[..., str]
TYPED = ("down", "4", "0", "9", "6", "enter")


async def settled(pilot: Any, live: Live) -> None:
    """Until what was asked to open is open."""
    await pilot.app.workers.wait_for_complete()
    await pilot.pause()
    pilot.app.feed.doing = None  # this feed stands for both runs: what the old one was doing is over
    pilot.app.pump()
    await pilot.pause()


@pytest.mark.parametrize(("key", "then"), [("enter", Apply(2, {"ctx": 4096})), ("s", Sweep({"ctx": 4096}))])
def test_another_knob_after_a_measurement_is_another_run(
    on_screen: Show, feed: Any, facts: list[Event], key: str, then: Apply | Sweep
) -> None:
    async def until_marked(pilot: Any, live: Live) -> None:
        while live.dial.chosen is None or not live.dial.chosen.moved():
            await pilot.pause(0.01)

    marked = on_screen(feed, facts, WIDE, *TYPED, then=until_marked)
    dial = " ".join(row[:38] for row in marked.split("\n")[1:11]).replace("│", " ")
    assert "in a new run: what was measured stays apart" in " ".join(dial.split())
    assert feed.asked == []
    shown = on_screen(feed, facts, SMALL, *TYPED, key, then=settled)
    assert feed.closed is False
    assert feed.asked == [then]
    assert "a new run: ctx its default → 4096; r shows run 2026-11-30-a" in shown


@pytest.mark.parametrize("keys", [("right", "enter"), ("s",)])
def test_another_depth_stays_in_the_run(on_screen: Show, feed: Any, facts: list[Event], keys: tuple[str, ...]) -> None:
    on_screen(feed, facts, SMALL, *keys, then=settled)
    assert feed.asked == [Apply(4, {}) if "enter" in keys else Sweep()]
    assert feed.closed is None


def test_before_anything_is_measured_there_is_nothing_to_mix(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    on_screen(feed, ready, SMALL, *TYPED, "enter", then=settled)
    assert feed.asked == [Apply(2, {"ctx": 4096})]


def test_a_sweep_takes_the_knobs_that_the_dial_shows(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    on_screen(feed, ready[:1], SMALL, *TYPED, "s")
    assert feed.asked == [Sweep({"ctx": 4096})]


def test_the_new_run_has_the_same_preset_with_other_knobs(
    recipe: Recipe, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAFTDIAL_RUNS", str(tmp_path))
    feed = opener(Anew(recipe, Apply(2), "ctx 1 → 2"))
    assert isinstance(feed, LabThread)
    assert feed.recipe == recipe
    assert feed.run.path.parent == tmp_path
