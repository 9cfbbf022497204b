"""The reducer: events in, one frozen `Frame` out. It does no I/O, knows no clock, and is the program's only state.

Applying the same events gives the same frame, whether they come from a live run or from a run's files.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from probes.events import (
    Capacity,
    CapacityRead,
    Ceiling,
    CeilingChanged,
    EngineSample,
    Event,
    FlagsInForce,
    Judged,
    LogLines,
    LogRecords,
    MemorySample,
    Notice,
    PlanProgress,
    Record,
    RequestDone,
    RequestSent,
    RunStarted,
    ServerChanged,
    Warn,
)

T = TypeVar("T")

LOG_KEPT = 5000
"""Lines of the log that stay searchable on the screen; the file has all of them."""
RECENT = 50
HISTORY = 240
"""Points of a live strip. When it is full, neighbours are merged, so a strip always spans the whole run."""


@dataclass(frozen=True, slots=True)
class Activity:
    """Running and waiting requests at one moment, as the engine says; `at` is `time.time()`."""

    at: float
    running: float | None
    waiting: float | None


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory held by the server at one moment: of the tightest GPU, or its resident set where there is none."""

    at: float
    used: int | None
    total: int | None


@dataclass(frozen=True, slots=True)
class Frame:
    """Everything a screen can show, at one moment. `None` and empty mean that nothing is known yet."""

    version: int = 0
    run: RunStarted | None = None
    server: ServerChanged | None = None
    last_good: ServerChanged | None = None
    """The last state in which the server was ready: what to go back to when a setting fails to start."""
    boots: Mapping[int, float] = field(default_factory=dict)
    """Restart id -> seconds from exec to ready."""
    flags: FlagsInForce | None = None
    unverified: tuple[int, ...] = ()
    """Depths of which a start's flags could not be proven in force."""
    requests: int = 0
    recent: tuple[RequestDone, ...] = ()
    """The latest finished requests, newest last."""
    in_flight: tuple[RequestSent, ...] = ()
    result: Mapping[str, Any] | None = None
    """The judgment so far, in the form of `result.json`."""
    result_version: int = 0
    memory: MemorySample | None = None
    memory_history: tuple[Memory, ...] = ()
    high_water: Mapping[str, int] = field(default_factory=dict)
    """Phase (boot, idle, probe, load) -> most bytes used on the tightest GPU, or most resident bytes without one."""
    low_free: Mapping[str, int] = field(default_factory=dict)
    """Phase -> fewest free bytes on any GPU of the server."""
    engine: Mapping[str, Any] = field(default_factory=dict)
    """The newest canonical fields from the engine's metrics or its log, with where they came from under `source`."""
    activity: tuple[Activity, ...] = ()
    capacity: Capacity | None = None
    warnings: tuple[Warn, ...] = ()
    ceiling: Ceiling | None = None
    records: int = 0
    last_records: tuple[Record, ...] = ()
    progress: PlanProgress | None = None
    notices: tuple[Notice, ...] = ()
    log_first: int = 1
    log: tuple[str, ...] = ()
    """The newest lines of the server's log, raw; `log_first` is the number of the first one."""
    log_lines: int = 0


class Session:
    """The state of one run. `apply` never raises on any sequence of events."""

    def __init__(self) -> None:
        self._now = Frame()
        self._changes: dict[str, Any] = {}
        self._version = 0
        self._log: deque[str] = deque(maxlen=LOG_KEPT)
        self._log_dirty = False
        self._recent: deque[RequestDone] = deque(maxlen=RECENT)
        self._records: deque[Record] = deque(maxlen=RECENT)
        self._notices: deque[Notice] = deque(maxlen=20)
        self._flight: dict[str, RequestSent] = {}
        self._memory: list[Memory] = []
        self._activity: list[Activity] = []
        self._counts = {"requests": 0, "records": 0, "lines": 0}
        self._boots: dict[int, float] = {}
        self._unproven: dict[int, bool] = {}
        self._high: dict[str, int] = {}
        self._low: dict[str, int] = {}
        self.requests: dict[str, RequestDone] = {}
        """Every finished request by id, in order of arrival: what the judgment is made from."""

    def apply(self, event: Event) -> None:
        """Take one fact."""
        self._version += 1
        HANDLERS[type(event)](self, event)

    def apply_all(self, events: Iterable[Event]) -> None:
        """Take facts in order."""
        for event in events:
            self.apply(event)

    def frame(self) -> Frame:
        """The picture of this moment; the same object while nothing changed."""
        if self._version != self._now.version:
            self._now = self._picture()
        return self._now

    def _picture(self) -> Frame:
        if self._log_dirty:
            self._changes["log"] = tuple(self._log)
            self._changes["log_first"] = self._counts["lines"] - len(self._log) + 1
            self._log_dirty = False
        kept = {name: getattr(self._now, name) for name in Frame.__slots__}
        return Frame(**(kept | self._changes | {"version": self._version}))

    # ---------------------------------------------------------------------------------------------- one fact each

    def _run_started(self, event: RunStarted) -> None:
        self._changes["run"] = event

    def _server_changed(self, event: ServerChanged) -> None:
        self._changes["server"] = event
        if event.boot_s is not None:
            self._boots[event.restart] = event.boot_s
            self._changes["boots"] = dict(self._boots)
        if event.state == "ready":
            self._changes["last_good"] = event
        if event.state == "starting":
            self._flight.clear()
            self._changes |= {"in_flight": (), "engine": {}, "flags": None}

    def _flags_in_force(self, event: FlagsInForce) -> None:
        self._changes["flags"] = event
        if event.depth is not None:
            self._unproven[event.depth] = not event.proven
            self._changes["unverified"] = tuple(sorted(d for d, bad in self._unproven.items() if bad))

    def _log_lines(self, event: LogLines) -> None:
        self._log.extend(event.texts)
        self._counts["lines"] = event.first + len(event.texts) - 1
        self._changes["log_lines"] = self._counts["lines"]
        self._log_dirty = True

    def _log_records(self, event: LogRecords) -> None:
        self._counts["records"] += len(event.records)
        self._records.extend(event.records[-RECENT:])
        self._changes["records"] = self._counts["records"]
        self._changes["last_records"] = tuple(self._records)

    def _capacity_read(self, event: CapacityRead) -> None:
        self._changes |= {"capacity": event.capacity, "warnings": event.warnings}

    def _ceiling_changed(self, event: CeilingChanged) -> None:
        self._changes["ceiling"] = event.ceiling

    def _request_sent(self, event: RequestSent) -> None:
        self._flight[event.id] = event
        self._changes["in_flight"] = tuple(self._flight.values())

    def _request_done(self, event: RequestDone) -> None:
        self._flight.pop(event.id, None)
        if event.id not in self.requests:
            self._counts["requests"] += 1
            self._recent.append(event)
        else:  # told again, better: it keeps its place
            self._recent = deque((event if r.id == event.id else r for r in self._recent), maxlen=RECENT)
        self.requests[event.id] = event
        self._changes["requests"] = self._counts["requests"]
        self._changes["recent"] = tuple(self._recent)
        self._changes["in_flight"] = tuple(self._flight.values())

    def _judged(self, event: Judged) -> None:
        self._changes |= {"result": event.result, "result_version": self._version}

    def _memory_sample(self, event: MemorySample) -> None:
        self._changes["memory"] = event
        tight = min((g for g in event.gpus if g.total), key=lambda g: g.free or 0, default=None)
        used, total = (tight.used, tight.total) if tight else (event.server_rss, event.host_total)
        if used is not None:
            self._high[event.phase] = max(used, self._high.get(event.phase, 0))
            self._changes["high_water"] = dict(self._high)
        frees = [g.free for g in event.gpus if g.free is not None]
        if frees:
            self._low[event.phase] = min([*frees, self._low.get(event.phase, frees[0])])
            self._changes["low_free"] = dict(self._low)
        self._memory.append(Memory(event.at, used, total))
        if len(self._memory) > HISTORY:
            self._memory = [max(a, b, key=lambda m: m.used or 0) for a, b in _pairs(self._memory)]
        self._changes["memory_history"] = tuple(self._memory)

    def _engine_sample(self, event: EngineSample) -> None:
        self._changes["engine"] = dict(event.fields)
        running, waiting = event.fields.get("running"), event.fields.get("waiting")
        if running is None and waiting is None:
            return
        self._activity.append(Activity(event.at, running, waiting))
        if len(self._activity) > HISTORY:
            self._activity = [
                max(a, b, key=lambda x: (x.waiting or 0, x.running or 0)) for a, b in _pairs(self._activity)
            ]
        self._changes["activity"] = tuple(self._activity)

    def _plan_progress(self, event: PlanProgress) -> None:
        self._changes["progress"] = event

    def _notice(self, event: Notice) -> None:
        self._notices.append(event)
        self._changes["notices"] = tuple(self._notices)


def _pairs(items: list[T]) -> list[tuple[T, T]]:
    """Neighbours two by two; an odd last one is paired with itself."""
    return [(items[i], items[min(i + 1, len(items) - 1)]) for i in range(0, len(items), 2)]


HANDLERS: Mapping[type, Callable[[Session, Any], None]] = {
    RunStarted: Session._run_started,  # noqa: SLF001
    ServerChanged: Session._server_changed,  # noqa: SLF001
    FlagsInForce: Session._flags_in_force,  # noqa: SLF001
    LogLines: Session._log_lines,  # noqa: SLF001
    LogRecords: Session._log_records,  # noqa: SLF001
    CapacityRead: Session._capacity_read,  # noqa: SLF001
    CeilingChanged: Session._ceiling_changed,  # noqa: SLF001
    RequestSent: Session._request_sent,  # noqa: SLF001
    RequestDone: Session._request_done,  # noqa: SLF001
    Judged: Session._judged,  # noqa: SLF001
    MemorySample: Session._memory_sample,  # noqa: SLF001
    EngineSample: Session._engine_sample,  # noqa: SLF001
    PlanProgress: Session._plan_progress,  # noqa: SLF001
    Notice: Session._notice,  # noqa: SLF001
}
