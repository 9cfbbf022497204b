"""Groups a stream of log records into stretches in which requests waited, with bounded state.

A snapshot names no ceiling; a stretch of consecutive reports with a queue may. This module only gathers what was seen
in a stretch; what it means is decided in `ceilings`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from probes.events import Capacity, Record

FULL = 0.95
"""A pool this full refuses the next prompt of any ordinary size."""
HIGH = 0.9
"""Below this share of a pool an ordinary prompt still fits."""
TIGHT = 0.6
"""Where few run, a pool is full earlier: one more request of their mean size no longer fits. Not below this share."""
KEEP = 4
"""Records kept of each kind of sign, as evidence to show."""
BEYOND = 1e15
Kept = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Traits:
    """What the judgment must know of an engine, and no more.

    `reserving`: admission promises a request's whole output (None: not known). `report_s`: seconds between two
    periodic reports. `omits_zero`: a report without a waiting clause means that nothing waits. `estimate_tokens`: most
    tokens of future output that admission sets aside for one running request on an engine that estimates (None: the
    engine does not estimate). `delays`: the engine has rules that hold admission back while there is room.
    """

    name: str
    reserving: bool | None = None
    report_s: float = 5.0
    omits_zero: bool = False
    estimate_tokens: int | None = None
    delays: bool = False

    @classmethod
    def of(cls, engine: Any) -> Traits:
        """Of anything with an engine's `name`, `reserving` and `report_s`."""
        name = str(engine.name)
        return cls(
            name=name,
            reserving=engine.reserving,
            report_s=float(engine.report_s),
            omits_zero=name == "ninfer",
            estimate_tokens=4096 if name == "sglang" else None,
            delays=name == "sglang",
        )


@dataclass(slots=True)
class Span:
    """Lowest, highest, first and last of a number seen in a stretch, and how often it rose or fell."""

    n: int = 0
    first: float = 0.0
    last: float = 0.0
    low: float = 0.0
    high: float = 0.0
    rises: int = 0
    falls: int = 0
    total: float = 0.0

    def add(self, value: float) -> None:
        """Take one more value; one beyond any server's reach counts as that much."""
        # No min() and max() here: they cost three times as much, and this runs several times a report.
        if value > BEYOND:  # noqa: PLR1730
            value = BEYOND
        if self.n:
            if value > self.last:
                self.rises += 1
                if value > self.high:  # noqa: PLR1730
                    self.high = value
            elif value < self.last:
                self.falls += 1
                if value < self.low:  # noqa: PLR1730
                    self.low = value
        else:
            self.first = self.low = self.high = value
        self.n += 1
        self.last = value
        self.total += value

    @property
    def mean(self) -> float:
        """Mean of what was seen; 0 when nothing was."""
        return self.total / self.n if self.n else 0.0


@dataclass(slots=True)
class Window:
    """A stretch of consecutive reports of one rank in which something waited (or, `free`, nothing did).

    `n` counts reports with a known number running and a queue. `calm`: reports of a free stretch, idle ones too.
    `at_cap`/`near_cap`: reports with all lanes, or all but one, taken. `kv` is the fuller of the pools that hold keys
    and values; `kv_tight`: reports in which it has no room for one more request of the mean size of those that run.
    `prefilling`: reports that show a prompt being computed while others wait, in steps filled to their limit where the
    log tells. `alone`: filled steps of prompts while nothing decodes. `level`: reports since more ran than ever before.
    `admitted`: requests taken in. `ran_before`: the most that ran at once earlier in this start. `events`: requests put
    back, or calls that found no room, meanwhile. `elsewhere`: requests that wait for another server, in reports that
    tell of any. `views`: who ran, who waited and how full the pool was, in each `every`-th report.
    """

    start: int
    rank: int | None
    first_line: int
    first_at: str | None
    last_line: int
    last_at: str | None
    free: bool = False
    calm: int = 0
    n: int = 0
    capped: int = 0
    at_cap: int = 0
    near_cap: int = 0
    running: Span = field(default_factory=Span)
    waiting: Span = field(default_factory=Span)
    kv: Span = field(default_factory=Span)
    kv_high: int = 0
    kv_full: int = 0
    kv_tight: int = 0
    state: Span = field(default_factory=Span)
    state_full: int = 0
    state_short: int = 0
    held: Span = field(default_factory=Span)
    prompt_tps: Span = field(default_factory=Span)
    gen_tps: Span = field(default_factory=Span)
    decodes: int = 0
    prefills: int = 0
    full_steps: int = 0
    alone: int = 0
    level: int = 0
    last_step: int | None = None
    prefilling: int = 0
    quiet_from: str | None = None
    quiet_s: float = 0.0
    admitted: int = 0
    ran_before: float = 0
    deferred: int = 0
    events: int = 0
    elsewhere: Span = field(default_factory=Span)
    every: int = 1
    views: list[tuple[Any, ...]] = field(default_factory=list)
    kept: dict[str, list[Kept]] = field(default_factory=dict)

    def keep(self, sign: str, record: Record) -> None:
        """Remember this record as evidence of `sign`, the first few of each."""
        found = self.kept.get(sign)
        if found is None:
            self.kept[sign] = [(record.line, record.text)]
        elif len(found) < KEEP:
            found.append((record.line, record.text))

    @property
    def span_s(self) -> float | None:
        """Seconds from first to last report, where both say when."""
        return seconds_between(self.first_at, self.last_at)


def seconds_between(first: str | None, last: str | None) -> float | None:
    """Seconds between two stamps as a log prints them, or None when they can't be compared."""
    if not first or not last:
        return None
    if first == last:
        return 0.0
    if first[2:3] == "-" == last[2:3]:  # month and day without a year: any leap year will do
        first, last = f"2000-{first}", f"2000-{last}"
    try:
        return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()
    except (ValueError, TypeError):
        return None


def put_out(fields: Any) -> int:
    """Requests that run no more for want of room in the pool: swapped out or paused, in a queue of their own."""
    return (fields.get("swapped") or 0) + (fields.get("paused") or 0) + (fields.get("retracted_queue") or 0)


def queue_of(record: Record) -> int | None:
    """All that wait: in the queue, put out, or before a server that only decodes, which lets in what has room there.

    None when the report doesn't tell.
    """
    get = record.fields.get
    waiting = get("waiting")
    if waiting is None:
        return None
    outside = get("prealloc_reqs") if record.kind == "decode" else None
    return int(waiting + put_out(record.fields) + (outside or 0))


def _elsewhere(window: Window, record: Record) -> None:
    """Requests that a server which only computes prompts holds until the one that decodes has room for them."""
    get = record.fields.get
    if (count := get("bootstrap_reqs") or get("prealloc_reqs")) is not None and count > 0:
        window.elsewhere.add(count)
        window.keep("elsewhere", record)


def lane_count(capacity: Capacity, fields: Any) -> int | None:
    """Lanes that stand against this report's `running`: of one rank, or of all when the report adds ranks up."""
    if capacity.lanes is None:
        return None
    engines = fields.get("engines")
    return capacity.lanes * engines if isinstance(engines, int) and engines > 1 else capacity.lanes


def add_sample(window: Window, record: Record, capacity: Capacity, waiting: int) -> None:
    """Take one report with a queue of so many into the stretch."""
    get = record.fields.get
    running = get("running")
    window.last_line = record.line
    window.last_at = record.at or window.last_at
    window.waiting.add(waiting)
    _pools(window, record, capacity)
    prefill = record.kind == "prefill"
    if prefill:
        _elsewhere(window, record)
        window.prefills += 1
        window.quiet_from = record.at or window.quiet_from
        window.admitted += get("new_seqs") or 0
        _prefill_signs(window, record, capacity)
    else:
        window.decodes += 1
        if window.quiet_from is None:
            window.quiet_from = record.at
        elif record.at is not None and record.at != window.quiet_from:
            window.quiet_s = max(window.quiet_s, seconds_between(window.quiet_from, record.at) or 0.0)
        ready = get("decode_ready")
        if ready is not None and running is not None and ready < running:
            window.prefilling += 1
            window.keep("prefill", record)
    for name, span in (("prompt_tps", window.prompt_tps), ("gen_tps", window.gen_tps)):
        if (rate := get(name, 0.0 if get("idle") else None)) is not None:
            span.add(rate)
    if (held_back := get("deferred")) is not None and held_back >= 0.8 * (get("waiting") or 0):
        window.deferred += 1
    if running is None:
        return
    window.n += 1
    # A prefill report counts what ran before it; the requests it takes in run from now on.
    taken = running + (get("new_seqs") or 0) if prefill else running
    window.level = 0 if taken > window.running.high else window.level + 1
    window.running.add(taken)
    lanes = lane_count(capacity, record.fields)
    if lanes is not None:
        window.capped += 1
        if taken >= lanes:
            window.at_cap += 1
            window.keep("cap", record)
        else:
            window.near_cap += taken == lanes - 1
            window.keep("below", record)
    window.keep("any", record)


def _pools(window: Window, record: Record, capacity: Capacity) -> None:
    """How full the pools are in this report."""
    get = record.fields.get
    usage, sliding = get("kv_usage"), get("swa_usage")
    if usage is None or (sliding is not None and sliding > usage):
        usage = sliding
    if usage is not None:
        window.kv.add(usage)
        # What is on its way from another server, or waits here with its pages in place, holds room too.
        inside = (get("transfer_reqs") or 0) + (get("waiting") or 0) if "prealloc_reqs" in record.fields else 0
        if (running := (get("running") or 0) + inside) and usage >= max(TIGHT, running / (running + 1)):
            window.kv_tight += 1
            window.keep("tight", record)
        if usage >= HIGH:
            window.kv_high += 1
            window.kv_full += usage >= FULL
            window.keep("kv", record)
    state, used = get("state_usage"), get("state_slots_used")
    if state is not None:
        window.state.add(state)
        if state >= FULL:
            window.state_full += 1
            window.keep("state", record)
    if used is not None:
        slots, each = capacity.state_slots, capacity.state_slots_per_request
        if slots is not None and each is not None and slots - used < each:
            window.state_short += 1
            window.keep("state", record)
        if (running := get("running")) and used < BEYOND:
            window.held.add(used / running)


def _prefill_signs(window: Window, record: Record, capacity: Capacity) -> None:
    """Whether this prefill report shows a step filled to its limit, or prompts left over for the next step."""
    get = record.fields.get
    new = get("new_tokens")
    step = capacity.batch_tokens
    if step is not None:
        full = new is not None and new >= HIGH * step
    else:
        # Steps of nearly one and the same large size are cut to a limit that this log doesn't print.
        last = window.last_step
        full = new is not None and last is not None and new >= 1024 and abs(new - last) <= 0.05 * new
    window.last_step = new
    # A step that was not filled though requests wait was stopped by something else than its size.
    if full:
        window.full_steps += 1
        window.alone += get("running") == 0
        window.prefilling += 1
        window.keep("prefill", record)


@dataclass(slots=True)
class Streams:
    """The open stretch of each rank. `take` gives a stretch when it has just closed."""

    traits: Traits
    open: dict[int | None, Window] = field(default_factory=dict)
    ran: dict[int | None, float] = field(default_factory=dict)
    """The most that ever ran at once in this start: so many lanes there are at least."""
    start: int = 0

    def take(self, record: Record, capacity: Capacity) -> Window | None:
        """Take one report; a stretch that this report ends, or None."""
        waiting = queue_of(record)
        if waiting is None:
            if not (self.traits.omits_zero and record.kind == "throughput" and "running" in record.fields):
                return None
            waiting = put_out(record.fields)
        rank = record.rank.get("DP") if record.rank else None
        window = self.open.get(rank)
        if window is None and len(self.open) >= 512:
            rank, window = None, self.open.get(None)
        closed = None
        later = window is not None and record.at != window.last_at and self._apart(window, record)
        if window is None or later or window.free == (waiting > 0):
            closed = window
            window = Window(self.start, rank, record.line, record.at, record.line, record.at, free=not waiting)
            window.ran_before = self.ran.get(rank, 0)
            self.open[rank] = window
        running = record.fields.get("running")
        if running is not None and running > self.ran.get(rank, 0):
            self.ran[rank] = min(running, BEYOND)
        if waiting:
            add_sample(window, record, capacity, waiting)
            if put_out(record.fields):
                window.events += 1
                window.keep("event", record)
        else:
            _add_free(window, record, capacity)
        return closed

    def _apart(self, window: Window, record: Record) -> bool:
        """Whether so much time passed since the last report that these are two stretches: silence means idle."""
        if record.at is None or record.at == window.last_at or window.last_at is None:
            return False
        gap = seconds_between(window.last_at, record.at)
        return gap is not None and not -3600 < gap < max(60.0, 6 * self.traits.report_s)

    def event(self, record: Record) -> bool:
        """Count a put-back request in the stretches that are open. False if none is."""
        touched = False
        for window in self.open.values():
            if not window.free:
                window.events += 1
                window.keep("event", record)
                touched = True
        return touched

    def close(self) -> Iterator[Window]:
        """End every stretch, e.g. because the server restarted."""
        found = list(self.open.values())
        self.open.clear()
        self.ran.clear()
        yield from found


def _add_free(window: Window, record: Record, capacity: Capacity) -> None:
    """Take one report without a queue."""
    window.last_line = record.line
    window.last_at = record.at or window.last_at
    window.calm += 1
    if record.kind == "prefill":
        _elsewhere(window, record)
    running = record.fields.get("running")
    if not running:
        return
    window.n += 1
    window.running.add(running)
    lanes = lane_count(capacity, record.fields)
    if lanes is not None:
        window.capped += 1
        window.at_cap += running >= lanes
    if (usage := record.fields.get("kv_usage")) is not None:
        window.kv.add(usage)
    window.keep("any", record)
