"""What a rule of the ceiling table is given, and what it answers. No rule stands here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from probes.events import Capacity, Confidence, Verdict
from probes.stats.ledger import Claim, View
from probes.stats.windows import Traits, Window

MOSTLY = 0.8
HALF = 0.5


@dataclass(frozen=True, slots=True)
class Finding:
    """What one stretch says. `because` is one sentence with the numbers; `signs` name the evidence kept in it."""

    verdict: Verdict
    confidence: Confidence
    because: str
    signs: tuple[str, ...] = ("any",)
    rivals: tuple[Verdict, ...] = ()
    missing: tuple[str, ...] = ()
    cites: tuple[str, ...] = ()
    """Capacity fields whose lines belong to the evidence."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A stretch with everything that it is judged by."""

    window: Window
    capacity: Capacity
    traits: Traits
    boot: Mapping[str, Any] = field(default_factory=dict)
    views: Sequence[View] = ()
    used: Sequence[float | None] = ()
    """How full the pool of keys and values was at each view, 0..1."""

    @property
    def reserving(self) -> bool | None:
        """Whether admission promises whole outputs here, as the log or else the engine says."""
        return self.traits.reserving if self.capacity.reserving is None else self.capacity.reserving

    @property
    def estimating(self) -> bool:
        """Whether admission sets a part of the output still to come aside, and not the whole."""
        return self.traits.estimate_tokens is not None and self.reserving is None


def long_enough(window: Window, traits: Traits) -> bool:
    """Three reports with a queue, or two that span a whole reporting interval."""
    if window.waiting.n >= 3:
        return True
    span = window.span_s
    return window.waiting.n == 2 and span is not None and span >= max(5.0, 0.9 * traits.report_s)


def pct(share: float) -> str:
    """A share, 0..1, as whole percents."""
    return f"{share:.0%}"


def least(claim: Claim) -> str:
    """A claim in figures, marked when it is only a lower bound."""
    return f"{claim.low:,}" if claim.high == claim.low else f"at least {claim.low:,}"


def lanes_of(scene: Scene) -> str:
    """How many lanes are taken of how many there are."""
    return f"{scene.window.running.high:.0f} of {scene.capacity.lanes} lanes"


def all_taken(lanes: int | None) -> str:
    """That no lane is free, to begin a sentence with."""
    return "The only lane is taken" if lanes == 1 else f"All {lanes} lanes are taken"


def counted(count: int, one: str, many: str) -> str:
    """A count with its noun and what agrees with it."""
    return f"{count:,} {one if count == 1 else many}"


def ran(scene: Scene) -> str:
    """How many ran, as a phrase: `8 run`, `6 to 9 run`."""
    low, high = scene.window.running.low, scene.window.running.high
    if low == high:
        return f"{high:.0f} runs" if high == 1 else f"{high:.0f} run"
    return f"{low:.0f} to {high:.0f} run"


def times(count: int) -> str:
    """A count in words, to begin a sentence with."""
    return "Once" if count == 1 else f"{count:,} times"
