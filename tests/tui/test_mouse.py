"""What a click does, told by the text of the screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from probes.events import Event
from tui.screens.live import Live

WIDE, SMALL = (160, 48), (80, 24)
Show = Callable[..., str]


async def click(pilot: Any, words: str) -> None:
    """A click on the last letter of the first place on the screen where these words stand."""
    strips = pilot.app.screen._compositor.render_strips()
    rows = ["".join(segment.text for segment in strip) for strip in strips]
    y = next(i for i, row in enumerate(rows) if words in row)
    await pilot.click(offset=(rows[y].index(words) + len(words) - 1, y))
    await pilot.pause()


def test_a_depth_is_marked_and_nothing_starts(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    async def steps(pilot: Any, live: Live) -> None:
        await click(pilot, "▸2•◂ 4")
        assert live.dial.chosen is not None
        assert live.dial.chosen.wanted.depth == 4

    shown = on_screen(feed, ready, SMALL, then=steps)
    assert "▸4◂" in shown
    assert "1 change · enter restarts" in shown
    assert feed.asked == []


def test_a_knob_is_gone_to_and_a_switch_is_turned_by_a_second_click(
    on_screen: Show, feed: Any, ready: list[Event]
) -> None:
    async def steps(pilot: Any, live: Live) -> None:
        await click(pilot, "flash")
        assert live.dial.chosen is not None
        assert live.dial.chosen.wanted.knobs == {}
        await click(pilot, "flash")
        await click(pilot, "ctx")
        await click(pilot, "ctx")

    shown = on_screen(feed, ready, WIDE, then=steps)
    assert "off → on *" in shown
    assert "ctx          2048  256…65536" in shown


def test_a_tab_opens_its_panel(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    async def steps(pilot: Any, live: Live) -> None:
        await click(pilot, "requests")

    assert "Last requests" in on_screen(feed, ready, SMALL, then=steps)
