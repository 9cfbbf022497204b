"""A page of text about a run of the past: what its A/B or its diagnosis found. Nothing can be asked here."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Static

from probes.session import Frame
from tui.widgets.keyline import Keys, of_bindings
from tui.widgets.lines import Line, title


class Page(Screen[None]):
    """`draw` gives the text for a width in cells."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "scroll(-1)", "scroll", key_display="↑↓"),
        Binding("down", "scroll(1)", show=False),
        Binding("escape,q,a,d", "dismiss(None)", "back", key_display="esc"),
    ]

    def __init__(self, name: str, frame: Frame, draw: Callable[[int], Text]) -> None:
        super().__init__()
        self._about = name
        self._frame = frame
        self._draw = draw

    def compose(self) -> ComposeResult:
        """A title, the page, the keys."""
        yield Line("header")
        with VerticalScroll(id="page", can_focus=False):
            yield Static(id="told")
        yield Keys(of_bindings(self.BINDINGS, pinned="escape"))

    def on_resize(self, event: events.Resize) -> None:  # noqa: ARG002  (the size is asked for where it's used)
        """Draw for the new size."""
        self.query_one("#header", Line).put(title(self._about, self._frame, run=True))
        self.query_one("#told", Static).update(self._draw(max(10, self.size.width - 6)))

    def action_scroll(self, by: int) -> None:
        """A row up or down."""
        self.query_one("#page", VerticalScroll).scroll_relative(y=by, animate=False)
