"""Panels: one file each, found by the folder. `PANEL` in a file says what it shows and where it likes to stand."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from probes.recipe import Recipe
from probes.session import Frame

Place = Literal["turn", "did", "bounds", "tell"]
"""Left column: what is turned; the middle: what it did; a full row: what bounds it; the bottom: what was told."""


class Shows(Protocol):
    """A widget that takes frames."""

    def show(self, frame: Frame) -> None:
        """Draw what is new in this frame."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. `make` gives its widget, whose id is `panel-NAME`; `rows` is the height it likes, border included.

    `always`: in sight on a small screen too, where the others become tabs.
    """

    name: str
    title: str
    place: Place
    order: int
    rows: int
    make: Callable[[Recipe | None], Any]
    always: bool = False


def found() -> tuple[Panel, ...]:
    """Every panel of the folder, in the order in which a person reads them."""
    order = {"turn": 0, "did": 1, "bounds": 2, "tell": 3}
    names = sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))
    panels = [importlib.import_module(f"tui.panels.{name}").PANEL for name in names]
    return tuple(sorted(panels, key=lambda p: (order[p.place], p.order)))
