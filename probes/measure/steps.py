"""What a measuring plan may ask for, and what it gets back. A plan is a pure generator of these."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from probes.events import Capacity, Ceiling, RequestDone

NO_START = "the server did not start"
"""Why a point failed before anything was sent."""


@dataclass(frozen=True, slots=True)
class Burst:
    """A load that is kept up instead of a workload: `streams` requests in flight for `seconds`, then cut.

    Each asks for `max_tokens` and has a prompt of about `prompt_tokens` that no other has; what it says is not judged.
    """

    streams: int
    max_tokens: int
    prompt_tokens: int = 60
    seconds: float = 25.0


@dataclass(frozen=True, slots=True)
class Measure:
    """One restart of one arm, and its requests: start afresh with this depth and these settings, then send.

    `block`: which block of restarts this belongs to; `offset`: prompts of each category to pass over; `prompts`: how
    many of each category; `why`: what this point is for, in words. `fresh`: restart even when the same is running.
    """

    depth: int | None
    block: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    arm: str = ""
    offset: int = 0
    prompts: int | None = None
    concurrency: int | None = None
    max_tokens: int | None = None
    categories: tuple[str, ...] | None = None
    why: str = ""
    fresh: bool = True
    burst: Burst | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of a `Measure`: its finished requests, warm-ups included, or why it failed."""

    step: Measure
    requests: tuple[RequestDone, ...] = ()
    boot_s: float | None = None
    failed: str | None = None
    hopeless: bool = field(default=False, kw_only=True)
    """Whether it would fail the same if it was tried again."""
    judged: Mapping[str, Any] | None = None
    """The judgment of everything measured so far, where the plan was said to want it."""
    ceiling: Ceiling | None = None
    """What held requests back at the end of the load, as the live diagnosis saw it."""
    capacity: Capacity | None = None
    queue: tuple[tuple[int, int], ...] = ()
    """Running and waiting in every report since the start that told both."""


Plan = Generator[Measure, Measured, None]
"""Yields the next point, is sent what came of it, and ends when it has enough."""
