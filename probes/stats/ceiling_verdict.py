"""One verdict out of everything that was seen of one start: the limit that held in most of the reports with a queue.

Pure: it composes findings and says what is missing. What a single stretch means is decided in `ceiling_rules`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from probes.events import Capacity, Ceiling, Confidence, Evidence, Record, Verdict
from probes.stats.ceiling_scene import Finding, counted, times
from probes.stats.ceiling_words import advice, experiment, headline
from probes.stats.windows import Kept, Traits, Window

ORDER: tuple[Confidence, ...] = ("low", "medium", "high")
EVIDENCE = 8
OFTEN, SOMETIMES = 0.25, 0.1
"""Shares of the reports with load with a queue, in stretches too short to judge: from the first on nobody can say that
nothing held requests back, from the second on only with a reservation."""


@dataclass(slots=True)
class Tally:
    """What the stretches of one start said: reports by verdict, and the longest stretch of each.

    `elsewhere`: reports in which requests waited for another server, and how many at most.
    """

    weight: dict[Verdict, int] = field(default_factory=dict)
    may_be: dict[Verdict, int] = field(default_factory=dict)
    best: dict[Verdict, tuple[int, Finding, Window]] = field(default_factory=dict)
    short: int = 0
    short_reports: int = 0
    """Reports with a queue in the stretches that were too short to judge."""
    free: int = 0
    free_kept: list[Kept] = field(default_factory=list)
    short_kept: list[Kept] = field(default_factory=list)
    short_open: bool = False
    free_top: int = 0
    elsewhere: int = 0
    elsewhere_top: int = 0
    elsewhere_kept: list[Kept] = field(default_factory=list)

    @property
    def late(self) -> float:
        """Share of the reports outside any stretch that could be judged in which something waited."""
        return self.short_reports / max(1, self.free + self.short_reports)


@dataclass(slots=True)
class Direct:
    """What the engine itself said, outside any report: no room in the pool, no lane free."""

    count: int = 0
    ended: int = 0
    """How many of them ended requests that ran."""
    kept: list[Kept] = field(default_factory=list)

    def add(self, record: Record) -> None:
        """Count one more."""
        self.count += 1
        self.ended += bool(record.fields.get("failed"))
        if len(self.kept) < EVIDENCE:
            self.kept.append((record.line, record.text))


@dataclass(slots=True)
class Seen:
    """All that was seen of one start. `full`/`no_lane`: what the engine said itself. `requests`: how many ended."""

    traits: Traits
    capacity: Capacity = field(default_factory=Capacity)
    requested: int | None = None
    tally: Tally = field(default_factory=Tally)
    full: Direct = field(default_factory=Direct)
    no_lane: Direct = field(default_factory=Direct)
    boot: dict[str, Any] = field(default_factory=dict)
    boot_kept: list[Kept] = field(default_factory=list)
    loaded: bool = False
    requests: int = 0
    queued: int = 0

    @property
    def reserving(self) -> bool | None:
        """Whether admission promises whole outputs, as the log says or else the engine."""
        own = self.capacity.reserving
        return self.traits.reserving if own is None else own


def compose(seen: Seen) -> Ceiling:
    """One verdict out of many stretches: the one that held in most of the reports with a queue."""
    total = sum(seen.tally.weight.values())
    if not total:
        return _without_queue(seen)
    named: dict[Verdict, int] = {v: n for v, n in seen.tally.weight.items() if v != "unknown"}
    top: Verdict = max(named, key=lambda v: named[v]) if named else "unknown"
    # Stretches that are undecided between this verdict and others neither carry it nor speak against it.
    against = total - seen.tally.may_be.get(top, 0) / 2
    if top != "unknown" and named[top] >= 0.6 * against:
        _, finding, window = seen.tally.best[top]
        share = named[top] / total
        sure = finding.confidence if named[top] >= 0.8 * against else _less(finding.confidence)
        others = tuple(v for v in named if v != top and named[v] >= 0.1 * total)
        return _ceiling(seen, replace(finding, confidence=sure, rivals=(*finding.rivals, *others)), window, share)
    if "unknown" in seen.tally.best and seen.tally.weight["unknown"] >= sum(named.values()):
        _, finding, window = seen.tally.best["unknown"]
        return _ceiling(seen, finding, window, seen.tally.weight["unknown"] / total)
    _, finding, window = seen.tally.best[top]
    rivals = tuple(sorted(named, key=lambda v: -named[v]))
    text = "Different limits held in different stretches: " + ", ".join(
        f"{v} in {n} of {total} reports" for v, n in sorted(seen.tally.weight.items(), key=lambda p: -p[1])
    )
    mixed = Finding("unknown", "low", f"{text}.", finding.signs, rivals, ("one load that stays the same",))
    return _ceiling(seen, mixed, window, 1.0)


def _ceiling(seen: Seen, finding: Finding, window: Window, share: float) -> Ceiling:
    evidence = list(seen.boot_kept) if "lanes" in finding.cites or finding.verdict == "state_pool" else []
    for name in finding.cites:
        if (line := seen.capacity.lines.get(name)) is not None:
            evidence.append((line, f"{name} = {getattr(seen.capacity, name, None)}"))
    shown: list[Kept] = []
    for sign in (*finding.signs, "any"):
        if len(shown) < 3:  # the strongest signs first; weaker ones only where those are few
            shown.extend(window.kept.get(sign, []))
    evidence.extend(shown)
    if finding.verdict == "kv_pool":
        evidence.extend(seen.full.kept[:2])
    some = "" if share > 0.995 else f" This held in {share:.0%} of the reports with a queue."
    return Ceiling(
        finding.verdict,
        finding.confidence,
        f"{headline(finding.verdict, finding.rivals)} {finding.because}{some}",
        _evidence(evidence),
        finding.missing,
        tuple(v for v in dict.fromkeys(finding.rivals) if v != finding.verdict),
        experiment(finding.verdict, finding.rivals, seen.traits.name, seen.reserving),
        advice(finding.verdict, seen.traits.name, seen.reserving),
    )


def _without_queue(seen: Seen) -> Ceiling:
    """No stretch of waiting: what the engine said by itself, else nothing bound, else nothing is known."""
    name, reserving = seen.traits.name, seen.reserving
    if seen.full.count and seen.no_lane.count == 0:
        text = f"{times(seen.full.count)} the engine said that its KV pool had no room left."
        if seen.full.ended:
            text = f"{text[:-1]}; {times(seen.full.ended).lower()} it ended the requests that ran."
        sure: Confidence = "medium" if seen.full.count > 1 or seen.full.ended else "low"
        return _told(seen, "kv_pool", sure, text, seen.full.kept)
    if seen.no_lane.count and seen.full.count == 0:
        text = f"{times(seen.no_lane.count)} a request found no free lane and had to wait."
        return _told(seen, "lanes", "high" if seen.no_lane.count >= 3 else "medium", text, seen.no_lane.kept)
    if seen.full.count:
        return Ceiling(
            "unknown", "low", f"{headline('unknown', ())} Requests found no free lane {seen.no_lane.count} times "
            f"and no room in the pool {seen.full.count} times.",
            _evidence([*seen.no_lane.kept[:4], *seen.full.kept[:4]]), ("which came first",),
            ("lanes", "kv_pool"), experiment("unknown", ("lanes", "kv_pool"), name, reserving),
            advice("unknown", name, reserving),
        )  # fmt: skip
    if seen.tally.elsewhere >= 3:
        text = (
            f"No queue of its own lasted, but in {seen.tally.elsewhere:,} reports up to {seen.tally.elsewhere_top} "
            "requests waited for the server that decodes to have room for them."
        )
        return Ceiling(
            "unknown", "low", f"{headline('unknown', ())} {text}", _evidence(seen.tally.elsewhere_kept),
            ("the log of the server that decodes",), (), experiment("unknown", (), name, reserving),
            advice("unknown", name, reserving),
        )  # fmt: skip
    if seen.tally.short and (seen.tally.short_open or not seen.tally.free):
        text = "The log ends with a queue too short to judge: fewer than three reports."
        return Ceiling(
            "unknown", "low", f"{headline('unknown', ())} {text}", _evidence(seen.tally.short_kept),
            ("more reports of the same load",), (), experiment("unknown", (), name, reserving),
            advice("unknown", name, reserving),
        )  # fmt: skip
    if seen.tally.free:
        return _nothing_bound(seen)
    if seen.requests and not seen.queued and seen.traits.omits_zero and seen.capacity.pages is not None:
        text = (
            "The one request that ended did not wait in a queue, as its own line says."
            if seen.requests == 1
            else f"None of {seen.requests:,} requests waited in a queue, as their own lines say."
        )
        return _told(seen, "none", "low", text, seen.tally.free_kept)
    missing = ("a report of how many requests run and wait",)
    text = "No report with load is in this start of the log." if not seen.requests else (
        f"{counted(seen.requests, 'request', 'requests')} ended, but no line says how many ran and waited."
    )  # fmt: skip
    return Ceiling(
        "unknown", "low", f"{headline('unknown', ())} {text}", (), missing, (),
        experiment("unknown", (), name, reserving), advice("unknown", name, reserving),
    )  # fmt: skip


def _brief(seen: Seen) -> Ceiling:
    """Queues came and went too often to say that nothing held requests back, and too briefly to say what did."""
    late, all_ = seen.tally.short_reports, seen.tally.free + seen.tally.short_reports
    text = f"Something waited in {late:,} of {all_:,} reports with load, too briefly each time to tell why."
    name, reserving = seen.traits.name, seen.reserving
    return Ceiling(
        "unknown", "low", f"{headline('unknown', ())} {text}", _evidence(seen.tally.short_kept),
        ("one load that stays the same for longer",), (), experiment("unknown", (), name, reserving),
        advice("unknown", name, reserving),
    )  # fmt: skip


def _nothing_bound(seen: Seen) -> Ceiling:
    lanes = seen.capacity.lanes
    late = seen.tally.late
    if late >= OFTEN:
        return _brief(seen)
    top = f"at most {seen.tally.free_top} ran" + (f" of {lanes} lanes" if lanes else "")
    brief = (
        f"; {counted(seen.tally.short, 'queue was', 'queues were')} shorter than three reports"
        if seen.tally.short
        else ""
    )
    sure: Confidence = "high" if not seen.tally.short and seen.tally.free >= 10 else "medium"
    if seen.tally.free < 3 or late >= SOMETIMES:
        sure = "low"
    verdict: Verdict = "none"
    missing: tuple[str, ...] = ()
    text = f"Nothing waited in {counted(seen.tally.free, 'report', 'reports')} with load; {top}{brief}."
    if seen.requested is not None and seen.tally.free >= 3 and seen.tally.free_top < seen.requested - 1:
        verdict = "client"
        text += f" {seen.requested} were asked for: the client never had more in flight."
    return Ceiling(
        verdict, sure, f"{headline(verdict, ())} {text}", _evidence(seen.tally.free_kept), missing, (),
        experiment(verdict, (), seen.traits.name, seen.reserving),
        advice(verdict, seen.traits.name, seen.reserving),
    )  # fmt: skip


def _told(seen: Seen, verdict: Verdict, sure: Confidence, text: str, kept: Iterable[Kept]) -> Ceiling:
    name, reserving = seen.traits.name, seen.reserving
    return Ceiling(
        verdict, sure, f"{headline(verdict, ())} {text}", _evidence(kept), (), (),
        experiment(verdict, (), name, reserving), advice(verdict, name, reserving),
    )  # fmt: skip


def _less(sure: Confidence) -> Confidence:
    return ORDER[max(0, ORDER.index(sure) - 1)]


def _evidence(kept: Iterable[Kept]) -> tuple[Evidence, ...]:
    """Up to a dozen lines, each once, in the order of the log."""
    lines: dict[int, str] = {}
    for line, text in kept:
        lines.setdefault(line, text)
    return tuple(Evidence(line, lines[line]) for line in sorted(lines)[:12])
