"""The live diagnosis: log records, metrics and our own requests go in, a ceiling comes out when it has changed.

The rules are `probes.stats.ceilings`, the same that explain a log that someone else wrote.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from probes.engines import Engine
from probes.events import FIELDS, CapacityRead, Ceiling, Event, LogRecords, Record, RequestDone, RequestSent
from probes.stats.present import Present
from probes.stats.windows import Traits

QUEUE_MOST = 5000
OLD_S = 5.0
"""Seconds after which the figures of an unchanged verdict are told anew."""


class Diagnosis:
    """What holds the present server back, so far."""

    def __init__(self, engine: Engine, speed: float = 1.0) -> None:
        self._traits = Traits.of(engine)
        self._speed = speed
        self._told, self._told_at = Ceiling("unknown"), 0.0
        self.begin(0)

    @property
    def omits_zero(self) -> bool:
        """Whether a report without a waiting clause means that nothing waits."""
        return self._traits.omits_zero

    def begin(self, restart: int, requested: int | None = None) -> None:
        """Another start: nothing that was seen before counts. `requested`: requests meant to be kept in flight."""
        self._restart = restart
        self._requested = requested
        self._sampled = False
        self._judge = Present(self._traits, requested=requested, speed=self._speed)
        self._log_tells_queue = False
        self.queue: list[tuple[int, int]] = []
        """Running and waiting in each report of this start, the last few thousand."""
        self._preempted: int | None = None
        self._dirty = False

    def see(self, event: Event) -> None:
        """Take a fact of this restart; others are ignored."""
        if isinstance(event, LogRecords) and event.restart == self._restart:
            clock = _clock()
            for record in event.records:
                if "running" in record.fields and not self._log_tells_queue:
                    self._log_tells_queue = True
                    if self._sampled and self._traits.delays:
                        # Its gauges stand still between two log lines, and show no prompt being computed.
                        self.forget(self._requested)
                self._judge.see(record, clock)
                self._count(record.fields, taken_in=record.fields.get("new_seqs") if record.kind == "prefill" else None)
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
        self._sampled = True
        self._judge.see(Record(0, "throughput", sample, _clock(), text=text), _clock())
        self._dirty = True

    def _preemptions(self, total: Any) -> None:
        """Requests that were put back since the last sample, as the log of another engine would tell them."""
        if not isinstance(total, int):
            return
        before, self._preempted = self._preempted, total
        if before is not None and total > before:
            text = f"/metrics: {total - before} requests preempted since the last look"
            self._judge.see(Record(0, "preempt", {}, _clock(), text=text), _clock())
            self._dirty = True

    def _count(self, fields: Mapping[str, Any], taken_in: Any = None) -> None:
        """Remember who ran and who waited. `taken_in`: what a prefill report lets in, which run from then on."""
        running, waiting = fields.get("running"), fields.get("waiting")
        if waiting is None and self._traits.omits_zero:
            waiting = 0
        if isinstance(running, int) and isinstance(waiting, int) and len(self.queue) < QUEUE_MOST:
            self.queue.append((running + (taken_in if isinstance(taken_in, int) else 0), waiting))

    def so_far(self) -> Ceiling:
        """The verdict over everything since this start began, or since `forget`."""
        return self._judge.whole.verdict()

    def forget(self, requested: int | None) -> None:
        """Judge what follows by itself; what the start announced and what is on the wire stay known."""
        self._requested = requested
        self._judge.forget(requested)
        self.queue = []

    def caught_up(self) -> None:
        """What was in the log before we came is read."""
        self._judge.caught_up(_clock())
        self._dirty = True

    def news(self) -> Ceiling | None:
        """The verdict, when it is another than the last one told, or the same with figures that have grown old."""
        if not self._judge.turn(time.monotonic()) and not self._dirty:
            return None
        self._dirty = False
        now, old = self._judge.verdict(), self._told
        same = _gist(now) == _gist(old)
        if now == old or (same and time.monotonic() - self._told_at < OLD_S):
            return None
        self._told, self._told_at = now, time.monotonic()
        return now


def _clock() -> str:
    """The local time of day as records bear it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S")


def _gist(ceiling: Ceiling) -> tuple[Any, ...]:
    """What makes a verdict another one."""
    return ceiling.verdict, ceiling.confidence, ceiling.rivals, ceiling.until
