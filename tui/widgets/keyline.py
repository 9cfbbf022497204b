"""The bottom row: which keys do something now. Some must always be in sight; the others give way by their rank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding
from textual.widget import Widget

from tui.widgets import ink

MORE = "…"
"""Stands where some keys had no room: help names them all."""


@dataclass(frozen=True, slots=True)
class Hint:
    """A key as the row names it. `rank`: the higher, the sooner it gives way; 0 never does."""

    key: str
    sign: str
    label: str
    rank: int = 0

    @property
    def cells(self) -> int:
        """Its width."""
        return Text(f"{self.sign} {self.label}").cell_len


def fit(hints: Sequence[Hint], width: int) -> tuple[list[Hint], bool]:
    """Those that have room in so many cells, in their order, and whether some had none."""
    kept = list(hints)
    while sum(h.cells + 1 for h in kept) - 1 + (2 if len(kept) < len(hints) else 0) > width:
        last = max(kept, key=lambda h: h.rank, default=None)
        if last is None or last.rank == 0:
            break
        kept.remove(last)
    return kept, len(kept) < len(hints)


def of_bindings(bindings: Iterable[Any], *, pinned: str, only: str | None = None) -> tuple[Hint, ...]:
    """A screen's own bindings as hints: the first ones stay longest, `pinned` (a key) always.

    `only`: labels of those that do something now, with | between them; None: all.
    """
    wanted = None if only is None else only.split("|")
    shown = [b for b in bindings if isinstance(b, Binding) and b.show]
    shown = [b for b in shown if wanted is None or b.description in wanted or b.key.partition(",")[0] == pinned]
    found = []
    for rank, binding in enumerate(shown, 1):
        key = binding.key.partition(",")[0]
        sign = binding.key_display or key
        found.append(Hint(key, sign, binding.description, 0 if key == pinned else rank))
    return tuple(found)


class Keys(Widget):
    """One row; a click on a key is that key."""

    def __init__(self, hints: Sequence[Hint] = ()) -> None:
        super().__init__(id="keys")
        self.hints = tuple(hints)

    def put(self, hints: Sequence[Hint]) -> None:
        """Name these."""
        if tuple(hints) != self.hints:
            self.hints = tuple(hints)
            self.refresh()

    def render(self) -> Text:
        """What has room; … stands before the keys that never give way."""
        kept, short = fit(self.hints, self.content_size.width)
        parts = []
        for hint in kept:
            part = Text(f"{hint.sign} ", style=ink.HOT).append(hint.label, style="not bold default")
            part.stylize(Style(meta={"key": hint.key}))
            parts.append(part)
        if short:
            at = next((i for i, hint in enumerate(kept) if hint.rank == 0), len(kept))
            parts.insert(at, Text(MORE, style="dim"))
        text = Text(" ").join(parts)
        text.no_wrap = True
        return text

    def on_click(self, event: events.Click) -> None:
        """As if it had been pressed."""
        if key := event.style.meta.get("key"):
            event.stop()
            self.app.simulate_key(str(key))
