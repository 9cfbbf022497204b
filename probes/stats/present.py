"""What holds a live server back at present, out of everything seen since it started. Pure: time is handed in.

A log is judged as a whole. A person at a running server asks about now: a queue that is over, or one that another
limit held an hour ago, must not stand on the screen as if it went on.
"""

from __future__ import annotations

from dataclasses import replace

from probes.events import Capacity, Ceiling, Record, RequestDone, RequestSent
from probes.stats.ceilings import SAMPLES, Judge
from probes.stats.windows import Traits, put_out, queue_of, seconds_between

SHORTEST_S = 20.0
REPORTS = 5
"""A judgment looks back over at least so many reporting intervals, and at most twice as many."""


class Present:
    """Judges of one start: one of all of it, two of overlapping stretches of its newest past.

    `speed`: how many times faster than real a simulated server's time runs. Every `at` is in seconds of one clock.
    """

    def __init__(self, traits: Traits, *, requested: int | None = None, speed: float = 1.0) -> None:
        self.whole = Judge(traits, requested=requested)
        self._requested = requested
        self._turn_s = max(SHORTEST_S, REPORTS * traits.report_s) / speed
        self._turned: float | None = None
        self._held: Ceiling | None = None
        self._queued_at: str | None = None
        self._older, self._newer = self._fresh(), self._fresh()

    def capacity(self, capacity: Capacity) -> None:
        """What this start announced."""
        for judge in self._judges:
            judge.capacity(capacity)

    def see(self, record: Record, clock: str) -> None:
        """Take the next record; `clock` is the time of day for one that bears no stamp."""
        if tells_queue(record):
            self._queued_at = record.at or clock
        start = self.whole.starts
        for judge in self._judges:
            judge.see(record)
        if self.whole.starts != start:
            self._begin()

    def sent(self, request: RequestSent) -> None:
        """The client put a request on the wire."""
        for judge in self._judges:
            judge.sent(request)

    def done(self, request: RequestDone) -> None:
        """A request ended, however."""
        for judge in self._judges:
            judge.done(request)

    def turn(self, at: float) -> bool:
        """Let old reports go when it is time. True when the verdict may have changed by that alone."""
        if self._turned is None:
            self._turned = at
        if at - self._turned < self._turn_s:
            return False
        silent = at - self._turned >= 2 * self._turn_s
        self._older = self._fresh() if silent else self._newer
        self._newer, self._turned = self._fresh(), at
        return True

    def forget(self, requested: int | None) -> None:
        """What was seen so far is history: what follows is judged by itself, with what the start announced."""
        self._requested = requested
        self.whole = self._fresh()
        self._begin()

    def _begin(self) -> None:
        self._older, self._newer, self._held = self._fresh(), self._fresh(), None
        self._turned = self._queued_at = None

    def caught_up(self, clock: str) -> None:
        """A log that was there before is read: unless its newest queue is of just now, it is history."""
        if not is_near(self._queued_at, clock, self._turn_s):
            self._older, self._newer = self._fresh(), self._fresh()

    def verdict(self) -> Ceiling:
        """What holds requests back now; with `until` what held them back when a queue was last seen."""
        now = self._older.present()
        if now is None and self._older.waited and not self._older.calm:
            now = self._older.verdict()
        if now is not None:
            if now.verdict != "unknown" or self._held is None:
                self._held = now
            return now
        whole = self.whole.verdict()
        if not self.whole.waited or self._queued_at is None:
            return whole
        return replace(self._held or whole, until=self._queued_at)

    def _fresh(self) -> Judge:
        return self.whole.fresh(self._requested)

    @property
    def _judges(self) -> tuple[Judge, Judge, Judge]:
        return self.whole, self._older, self._newer


def tells_queue(record: Record) -> bool:
    """Whether this record shows a request that waits: in a report, or because the engine says so itself."""
    if record.kind in SAMPLES:
        return bool((queue_of(record) or 0) > 0 or put_out(record.fields))
    return "deferred_task" in record.fields or "pool_exhausted" in record.fields


def is_near(stamp: str | None, clock: str, within_s: float) -> bool:
    """Whether a log's stamp is of the last `within_s` seconds, whatever time zone it is written in.

    Zones differ by quarters of an hour, so only the rest of the division counts. A stamp that can't be read is near.
    """
    apart = seconds_between(stamp, clock)
    if apart is None:
        return stamp is not None
    rest = apart % 900
    return -50_400 <= apart <= 50_400 and min(rest, 900 - rest) <= within_s
