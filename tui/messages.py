"""What a person asks for, as plain facts. A screen posts them; the app hands them to whatever carries them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from textual.message import Message

if TYPE_CHECKING:
    from probes.measure.ab import Arm, Design
from probes.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Open:
    """Work with this preset, given by name or path."""

    preset: str


@dataclass(frozen=True, slots=True)
class OpenRun:
    """Look at a run of the store again."""

    run: str


@dataclass(frozen=True, slots=True)
class Apply:
    """Start the server, or start it again, with this depth and these knobs."""

    depth: int | None
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Probe:
    """Send the workload once to the server that runs."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Measure every depth of the dial with these knobs, or go on with what is missing of it."""

    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Anew:
    """Do this in a run of its own: what was measured so far was measured with other knobs, and must not mix."""

    recipe: Recipe
    then: Apply | Sweep
    why: str
    """What changed, in words."""


@dataclass(frozen=True, slots=True)
class Compare:
    """Run an A/B in a run of its own; with `early` it ends as soon as the line that may be watched has decided."""

    a: Arm
    b: Arm
    design: Design
    early: bool = False


@dataclass(frozen=True, slots=True)
class Diagnose:
    """Provoke the queue at this depth with these knobs, in a run of its own, and find what holds it back."""

    depth: int | None
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pause:
    """Hold the plan before its next point, or let it go on."""

    on: bool


@dataclass(frozen=True, slots=True)
class Cancel:
    """End what runs; what was measured is kept."""


@dataclass(frozen=True, slots=True)
class StopServer:
    """End the server."""


@dataclass(frozen=True, slots=True)
class Quit:
    """Leave; with `leave` the server stays behind."""

    leave: bool = False


Intent = Open | OpenRun | Anew | Apply | Probe | Sweep | Compare | Diagnose | Pause | Cancel | StopServer | Quit


class Asked(Message):
    """Carries an intent up to the app."""

    def __init__(self, intent: Intent) -> None:
        super().__init__()
        self.intent = intent
