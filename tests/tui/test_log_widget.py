from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from probes.events import Event, LogLines
from tui.screens.live import Live
from tui.widgets.log import folded, split

MANY = LogLines(5, tuple(f"line {n}" for n in range(5, 3001)), 1)
Show = Callable[..., str]


def test_it_follows_the_end(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    shown = on_screen(feed, [*ready, MANY], (160, 48))
    assert "line 3000" in shown
    assert "line 2000" not in shown
    assert "Log · line 3000 of 3000" in shown


def test_scrolling_holds_it_and_new_lines_do_not_move_it(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    async def more(pilot: Any, live: Live) -> None:
        await pilot.press("l", "pageup", "pageup")
        feed.events = [LogLines(3001, tuple(f"new {n}" for n in range(9000)), 1)]
        pilot.app.pump()
        await pilot.pause()

    shown = on_screen(feed, [*ready, MANY], (160, 48), then=more)
    assert "line 2982" in shown
    assert "new" not in shown.split("Log ·")[1].split("newer below")[1]
    assert "9018 newer below" in shown

    async def follow(pilot: Any, live: Live) -> None:
        await more(pilot, live)
        await pilot.press("f")

    assert "new 8999" in on_screen(feed, [*ready, MANY], (160, 48), then=follow)


def test_search_finds_marks_and_goes_on(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    seen: list[int | None] = []

    async def hits(pilot: Any, live: Live) -> None:
        await pilot.press("slash", *"NE 77", "enter")
        for _ in range(3):
            await pilot.pause()
            seen.append(live.log_view.marked)
            await pilot.press("N")

    shown = on_screen(feed, [*ready, MANY], (160, 48), then=hits)
    assert seen == [779, 778, 777]
    assert "line 776" in shown


def test_a_search_without_a_hit_says_so(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    assert "not in the last 4 lines" in on_screen(feed, ready, (160, 48), "slash", "z", "z", "enter")


def test_long_lines_wrap_when_asked(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    long = LogLines(5, ("begin " + "x" * 300 + " end",), 1)
    assert " end" not in on_screen(feed, [*ready, long], (160, 48)).split("Log ·")[1].replace("endpoint", "")
    assert " end" in on_screen(feed, [*ready, long], (160, 48), "w").split("Log ·")[1]


def test_its_keys_bring_it_into_sight(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    assert "held, 0 newer below" in on_screen(feed, ready, (80, 24), "f")
    assert "first line" in on_screen(feed, ready, (80, 24), "w")


def test_markup_and_patterns_in_a_search_are_plain_text(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    odd = LogLines(5, (r"[red]a\[b]*(c", "[/] other"), 1)
    for typed in (r"\[B]*(", "[red]", "[/]"):
        shown = on_screen(feed, [*ready, odd], (160, 48), "slash", *typed, "enter")
        title = next(row for row in shown.split("\n") if "search" in row)
        assert repr(typed.casefold()) in title
        assert "not in the last" not in shown


@given(st.text(), st.integers(2, 40))
def test_folding_loses_nothing(text: str, width: int) -> None:
    pieces = folded(text, width)
    assert "".join(pieces) == text
    assert all(cell_len(p) <= width for p in pieces)


@given(st.text(), st.text(max_size=5))
def test_splitting_loses_nothing(text: str, query: str) -> None:
    parts = split(text, query.casefold())
    assert "".join(part for part, _ in parts) == text
    assert all(part.casefold() == query.casefold() for part, hit in parts if hit)
