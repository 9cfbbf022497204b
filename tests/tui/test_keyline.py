from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.events import Event, PlanProgress, RunStarted
from tui.screens.ab import Ab
from tui.screens.diagnose import Diagnosis
from tui.widgets.keyline import Hint, Keys, fit, of_bindings

Show = Callable[..., str]
HINTS = st.lists(
    st.builds(Hint, key=st.just("a"), sign=st.text("⏎a", min_size=1, max_size=2), label=st.text("abcd", max_size=9),
              rank=st.integers(0, 9)),
    max_size=14,
)  # fmt: skip


def bottom(shown: str) -> str:
    return shown.rsplit("\n", maxsplit=1)[-1].strip()


@given(HINTS, st.integers(0, 120))
def test_what_gives_way_ranks_higher_than_what_stays(hints: list[Hint], width: int) -> None:
    kept, short = fit(hints, width)
    gone = [h for h in hints if h not in kept]
    assert [h for h in hints if h.rank == 0] == [h for h in kept if h.rank == 0]
    assert short == (len(kept) < len(hints))
    if gone and kept:
        assert min(h.rank for h in gone) >= max(h.rank for h in kept)
    if any(h.rank for h in kept):
        assert sum(h.cells + 1 for h in kept) - 1 + (2 if short else 0) <= width


@pytest.mark.parametrize("width", [60, 80, 100, 160, 200])
def test_help_and_quit_are_always_in_sight(on_screen: Show, feed: Any, ready: list[Event], width: int) -> None:
    shown = bottom(on_screen(feed, ready, (width, 24)))
    assert shown.endswith("? help q quit")
    assert shown.startswith("←→ dial ⏎ apply")
    assert ("…" in shown) == (width < 100)
    feed.doing = "sweeping 3 depths, block 1"
    plan = PlanProgress(9.0, "sweep", 1, 3, "block 1, depth 4")
    shown = bottom(on_screen(feed, [*ready, plan], (width, 24)))
    assert shown.endswith("? help q quit")
    assert "x end it space pause" in shown
    assert "apply" not in shown


def test_only_keys_that_do_something_are_named(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    run = ready[0]
    assert isinstance(run, RunStarted)
    shown = bottom(on_screen(feed, [dataclasses.replace(run, attached=True), *ready[1:]], (160, 48)))
    assert "p probe" in shown
    assert not {"apply", "sweep", "A/B"} & set(shown.split())
    feed.past, feed.recipe = True, None
    shown = bottom(on_screen(feed, ready, (160, 48)))
    assert shown == "y why l log t panel r runs ? help q quit"


def test_a_click_on_a_key_is_that_key(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    async def click(pilot: Any, live: Any) -> None:
        plain = live.query_one(Keys).render().plain
        await pilot.click(Keys, offset=(1 + plain.index("? help"), 0))
        await pilot.pause()

    assert "Help · escape closes" in on_screen(feed, ready, (80, 24), then=click)


@pytest.mark.parametrize("screen", [Ab, Diagnosis])
def test_the_way_back_stays_on_a_narrow_screen(screen: Any) -> None:
    kept, _ = fit(of_bindings(screen.BINDINGS, pinned="escape"), 20)
    assert [h.label for h in kept if h.rank == 0] == ["back"]
