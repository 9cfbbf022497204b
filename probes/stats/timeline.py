"""Which limit held when: stretches of a log in order, joined and shortened so that they stay few."""

from __future__ import annotations

from dataclasses import dataclass

from probes.events import Verdict

TIMELINE = 64
"""Stretches that are kept, however long the log."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Part of the timeline: from which line and stamp to which, what bound it, over how many reports.

    `verdict` None: a start without load. `start` counts the starts in the log from 0.
    """

    start: int
    first_line: int
    last_line: int
    first_at: str | None
    last_at: str | None
    verdict: Verdict | None
    reports: int
    running: int = 0
    waiting: int = 0


def join(parts: list[Stretch]) -> list[Stretch]:
    """Neighbours of one start that say the same, as one."""
    out: list[Stretch] = []
    for part in parts:
        last = out[-1] if out else None
        if last is not None and last.start == part.start and last.verdict == part.verdict:
            out[-1] = _merged(last, part, last.verdict)
        else:
            out.append(part)
    return out


def shorten(parts: list[Stretch]) -> list[Stretch]:
    """At most `TIMELINE` stretches: the least one is taken into its neighbour until it fits."""
    while len(parts) > TIMELINE:
        inner = [i for i in range(1, len(parts)) if parts[i].start == parts[i - 1].start]
        if not inner:
            return parts[-TIMELINE:]
        at = min(inner, key=lambda i: min(parts[i].reports, parts[i - 1].reports))
        left, right = parts[at - 1], parts[at]
        bigger = left if left.reports >= right.reports else right
        parts = join([*parts[: at - 1], _merged(left, right, bigger.verdict), *parts[at + 1 :]])
    return parts


def _merged(left: Stretch, right: Stretch, verdict: Verdict | None) -> Stretch:
    return Stretch(
        left.start, min(left.first_line, right.first_line), max(left.last_line, right.last_line),
        left.first_at or right.first_at, right.last_at or left.last_at, verdict, left.reports + right.reports,
        max(left.running, right.running), max(left.waiting, right.waiting),
    )  # fmt: skip
