"""Which limit held when: stretches of a log in order, joined and shortened so that they stay few."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from probes.events import Verdict

TIMELINE = 64
"""Stretches that are kept, however long the log."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Part of the timeline: from which line and stamp to which, what bound it, over how many reports.

    `start` counts the starts in the log from 0. `shares`: reports by verdict, when short stretches were taken together;
    `verdict` is then the one with the most.
    """

    start: int
    first_line: int
    last_line: int
    first_at: str | None
    last_at: str | None
    verdict: Verdict
    reports: int
    running: int | None = None
    """Most that ran, and most that waited; None where no report said."""
    waiting: int | None = None
    shares: Mapping[Verdict, int] = field(default_factory=dict)


@dataclass(slots=True)
class Timeline:
    """Add stretches in the order in which they end; neighbours that say the same become one."""

    parts: list[Stretch] = field(default_factory=list)

    def add(self, part: Stretch) -> None:
        """Add a stretch that has ended."""
        last = self.parts[-1] if self.parts else None
        if last is not None and last.start == part.start and last.verdict == part.verdict:
            self.parts[-1] = merged(last, part)
            return
        self.parts.append(part)
        if len(self.parts) >= 2 * TIMELINE:
            self.parts = halved(self.parts)

    def strips(self, still: list[Stretch]) -> list[Stretch]:
        """All of it, with stretches that have not ended yet, in the order of the log."""
        parts = sorted([*self.parts, *still], key=lambda p: (p.start, p.first_line))
        return shortened(joined(parts), TIMELINE)


def joined(parts: list[Stretch]) -> list[Stretch]:
    """Neighbours of one start that say the same, as one."""
    out: list[Stretch] = []
    for part in parts:
        last = out[-1] if out else None
        if last is not None and last.start == part.start and last.verdict == part.verdict:
            out[-1] = merged(last, part)
        else:
            out.append(part)
    return out


def shortened(parts: list[Stretch], most: int) -> list[Stretch]:
    """At most `most` stretches: the least one is taken into its lesser neighbour until it fits."""
    parts = list(parts)
    while len(parts) > most:
        inner = [i for i in range(1, len(parts)) if parts[i].start == parts[i - 1].start]
        if not inner:
            return parts[-most:]
        at = min(inner, key=lambda i: min(parts[i].reports, parts[i - 1].reports))
        parts[at - 1 : at + 1] = [merged(parts[at - 1], parts[at])]
        parts = joined(parts)
    return parts


def halved(parts: list[Stretch]) -> list[Stretch]:
    """About half as many, in one pass: the shorter half of the stretches is taken into the one before."""
    floor = sorted(p.reports for p in parts)[len(parts) // 2]
    out: list[Stretch] = []
    for part in parts:
        last = out[-1] if out else None
        if last is not None and last.start == part.start and min(last.reports, part.reports) <= floor:
            out[-1] = merged(last, part)
        else:
            out.append(part)
    # Nothing to merge means nearly one stretch a start: then the oldest starts go.
    return out if len(out) < len(parts) else out[len(out) // 2 :]


def merged(left: Stretch, right: Stretch) -> Stretch:
    """Two neighbours as one, under the verdict that most of their reports had."""
    shares: dict[Verdict, int] = dict(left.shares or {left.verdict: left.reports})
    for verdict, reports in (right.shares or {right.verdict: right.reports}).items():
        shares[verdict] = shares.get(verdict, 0) + reports
    first, last = (left, right) if left.first_line <= right.first_line else (right, left), (left, right)
    if left.last_line > right.last_line:  # stretches of several ranks lie across each other
        last = (right, left)
    return replace(
        left,
        first_line=first[0].first_line,
        last_line=last[1].last_line,
        first_at=first[0].first_at or first[1].first_at,
        last_at=last[1].last_at or last[0].last_at,
        verdict=max(shares, key=lambda v: (shares[v], v)),
        reports=left.reports + right.reports,
        running=_most(left.running, right.running),
        waiting=_most(left.waiting, right.waiting),
        shares=shares,
    )


def _most(left: int | None, right: int | None) -> int | None:
    """The larger of what is known."""
    return max((n for n in (left, right) if n is not None), default=None)
