"""The live diagnosis: log records, metrics and our own requests go in, a ceiling comes out when it has changed.

The rules are `probes.stats.ceilings`, the same that explain a log that someone else wrote.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from probes.engines import Engine
from probes.events import FIELDS, CapacityRead, Ceiling, Event, LogRecords, Record, RequestDone, RequestSent
from probes.stats.ceilings import Judge, Traits

QUEUE_MOST = 5000
OLD_S = 5.0
"""Seconds after which the figures of an unchanged verdict are told anew."""


class Diagnosis:
    """What holds the present server back, so far."""

    def __init__(self, engine: Engine) -> None:
        self._traits = Traits.of(engine)
        self._told, self._told_at = Ceiling("unknown"), 0.0
        self.begin(0)

    @property
    def omits_zero(self) -> bool:
        """Whether a report without a waiting clause means that nothing waits."""
        return self._traits.omits_zero

    def begin(self, restart: int, requested: int | None = None) -> None:
        """Another start: nothing that was seen before counts. `requested`: requests meant to be kept in flight."""
        self._restart = restart
        self._judge = Judge(self._traits, requested=requested)
        self._log_tells_queue = False
        self.queue: list[tuple[int, int]] = []
        """Running and waiting in each report of this start, the last few thousand."""
        self._preempted: int | None = None
        self._dirty = False

    def see(self, event: Event) -> None:
        """Take a fact of this restart; others are ignored."""
        if isinstance(event, LogRecords) and event.restart == self._restart:
            for record in event.records:
                self._judge.see(record)
                self._log_tells_queue = self._log_tells_queue or "running" in record.fields
                self._count(record.fields)
        elif isinstance(event, CapacityRead) and event.restart == self._restart:
            self._judge.capacity(event.capacity)
        elif isinstance(event, RequestSent):
            self._judge.sent(event)
        elif isinstance(event, RequestDone):
            self._judge.done(event)
        else:
            return
        self._dirty = True

    def metrics(self, fields: Mapping[str, Any]) -> None:
        """A sample of the engine's metrics; it counts where the log is silent about queues, as llama.cpp's is.

        Preemptions count always: vLLM logs none, and only its counter proves that the pool was overfilled.
        """
        self._preemptions(fields.get("total_preemptions"))
        if self._log_tells_queue or "waiting" not in fields:
            return
        told = {k: fields[k] for k in ("running", "waiting", "kv_usage") if isinstance(fields.get(k), (int, float))}
        text = "/metrics: " + ", ".join(f"{k} {v:g}" for k, v in told.items())
        sample = {k: v for k, v in fields.items() if k in FIELDS}
        self._count(sample)
        self._judge.see(Record(0, "throughput", sample, time.strftime("%Y-%m-%dT%H:%M:%S"), text=text))
        self._dirty = True

    def _preemptions(self, total: Any) -> None:
        """Requests that were put back since the last sample, as the log of another engine would tell them."""
        if not isinstance(total, int):
            return
        before, self._preempted = self._preempted, total
        if before is not None and total > before:
            text = f"/metrics: {total - before} requests preempted since the last look"
            self._judge.see(Record(0, "preempt", {}, time.strftime("%Y-%m-%dT%H:%M:%S"), text=text))
            self._dirty = True

    def _count(self, fields: Mapping[str, Any]) -> None:
        """Remember who ran and who waited."""
        running, waiting = fields.get("running"), fields.get("waiting")
        if waiting is None and self._traits.omits_zero:
            waiting = 0
        if isinstance(running, int) and isinstance(waiting, int) and len(self.queue) < QUEUE_MOST:
            self.queue.append((running, waiting))

    def now(self) -> Ceiling:
        """The verdict at this moment."""
        return self._judge.verdict()

    def news(self) -> Ceiling | None:
        """The verdict, when it is another than the last one told, or the same with figures that have grown old."""
        if not self._dirty:
            return None
        self._dirty = False
        now, old = self._judge.verdict(), self._told
        same = (now.verdict, now.confidence, now.rivals) == (old.verdict, old.confidence, old.rivals)
        if now == old or (same and time.monotonic() - self._told_at < OLD_S):
            return None
        self._told, self._told_at = now, time.monotonic()
        return now
