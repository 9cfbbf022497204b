"""Nobody loses a server or an hour of measuring by one key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from probes.events import Event
from probes.recipe import Dial, Recipe
from probes.store import Run
from tui.labthread import attach

WIDE, SMALL = (160, 48), (80, 24)
Show = Callable[..., str]


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
def test_quitting_asks_while_something_is_measured(on_screen: Show, feed: Any, ready: list[Event], key: str) -> None:
    feed.doing = "A/B in run 2026-11-30-b · a shows it"
    shown = on_screen(feed, ready[:1], SMALL, key)
    assert feed.closed is None
    assert "It would be ended: A/B in run 2026-11-30-b." in " ".join(shown.replace("│", " ").split())
    assert "leave it running" not in shown
    on_screen(feed, ready[:1], SMALL, key, "s")
    assert feed.closed is False


@pytest.mark.parametrize("page", ["a", "d", "y", "question_mark", "slash"])
def test_ctrl_c_asks_on_every_page(on_screen: Show, feed: Any, ready: list[Event], page: str) -> None:
    shown = on_screen(feed, ready, WIDE, page, "ctrl+c")
    assert "A server runs (pid 4312)" in shown
    assert feed.closed is None


def test_ctrl_c_again_answers_the_question(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    on_screen(feed, ready, WIDE, "ctrl+c", "ctrl+c")
    assert feed.closed is False


def test_the_line_to_attach_again_can_be_pasted(tmp_path: Path) -> None:
    recipe = Recipe("p", "llamacpp", "b", "m", Dial("ngram-simple", (0, 3)))
    said = attach(7, "http://127.0.0.1:1", Run(tmp_path / "my runs" / "$x"), recipe)
    assert f"--log '{tmp_path}/my runs/$x/server.log'" in said
