"""What the app needs of whatever it shows: a lab in its thread, or a run of the past."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from probes.events import Event
from probes.recipe import Recipe
from probes.store import Run
from tui.messages import Intent, Open, OpenRun


class Feed(Protocol):
    """Where events come from and intents go: a lab in its thread, or a run of the past."""

    past: bool
    recipe: Recipe | None
    run: Run
    doing: str | None
    left: str | None

    def start(self) -> None:
        """Begin."""

    def drain(self) -> list[Event]:
        """What happened since the last call."""

    def ask(self, intent: Intent) -> None:
        """Have an intent carried out."""

    def close(self, *, leave: bool = False) -> None:
        """End everything; blocks."""


Opener = Callable[[Open | OpenRun], Feed]
