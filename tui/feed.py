"""What the app needs of whatever it shows: a lab in its thread, or a run of the past."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from probes.events import Event
from probes.recipe import Recipe
from probes.session import Frame
from probes.store import Run
from tui.messages import Anew, Compare, Diagnose, Intent, Open, OpenRun


class Second(Protocol):
    """An A/B or a diagnosis: a run of its own beside the one on the screen."""

    asked: Compare | Diagnose
    run: Run

    @property
    def over(self) -> bool:
        """Whether it has ended and let its server go."""

    def frame(self) -> Frame:
        """The picture of this moment; for the screen's thread alone."""


class Feed(Protocol):
    """Where events come from and intents go: a lab in its thread, or a run of the past."""

    past: bool
    recipe: Recipe | None
    run: Run
    doing: str | None
    paused: bool
    left: str | None

    @property
    def beside(self) -> Second | None:
        """The A/B or the diagnosis that was asked for last."""

    def start(self) -> None:
        """Begin."""

    def drain(self) -> list[Event]:
        """What happened since the last call."""

    def ask(self, intent: Intent) -> None:
        """Have an intent carried out."""

    def close(self, *, leave: bool = False) -> None:
        """End everything; blocks."""


@runtime_checkable
class Aside(Protocol):
    """A screen that shows what runs beside."""

    def show_beside(self, feed: Feed) -> None:
        """Draw what is new of it."""


Opener = Callable[[Open | OpenRun | Anew], Feed]
