"""A bordered box that draws one part of a frame, and only when that part or its own size has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.widget import Widget

from probes.session import Frame

Draw = Callable[[Frame, int, int], Text]
"""What a panel shows of a frame in so many columns and rows."""


class Drawn(Widget):
    """Draws `draw(frame, width, height)`; `uses` names the frame's fields that it depends on."""

    DEFAULT_CSS: ClassVar[str] = ""

    def __init__(self, name: str, title: str, uses: tuple[str, ...], draw: Draw) -> None:
        super().__init__(id=f"panel-{name}", classes="panel")
        self.border_title = title
        self._uses = uses
        self._draw = draw
        self._frame = Frame()
        self._text = Text()
        self._drawn: tuple[object, ...] | None = None
        self.draws = 0
        """How often this was drawn: a chart that nothing changed must not be."""

    def show(self, frame: Frame) -> None:
        """Take a new frame; drawn only when it says something new here."""
        self._frame = frame
        self._again()

    def on_resize(self, event: events.Resize) -> None:  # noqa: ARG002  (the size is asked for where it's used)
        """Draw for the new size."""
        self._again()

    def _again(self) -> None:
        width, height = self.content_size
        if width <= 0 or height <= 0:
            return
        parts = tuple(getattr(self._frame, name) for name in self._uses)
        if self._drawn is not None and self._drawn[:2] == (width, height):
            before = self._drawn[2:]
            if len(before) == len(parts) and all(a is b for a, b in zip(before, parts, strict=True)):
                return
        self._drawn = (width, height, *parts)
        self._text = self._draw(self._frame, width, height)
        self.draws += 1
        self.refresh()

    def render(self) -> Text:
        """What was drawn last."""
        return self._text
