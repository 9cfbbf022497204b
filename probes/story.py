"""What a whole log tells, gathered while its records go by: starts, acceptance over time, trouble. Bounded and pure.

Any number of records may pass; what is kept fits one screen. Nothing here knows an engine or opens a file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from probes.events import Capacity, Record

BUCKETS = 32
TROUBLES = 48
STARTS = 64
RANKS = 512
TROUBLE = frozenset({"reject", "retract", "preempt", "oom", "crash", "error"})
NAMES = (
    "version", "model", "model_path", "spec_algorithm", "spec_type", "speculative_algorithm", "num_draft_tokens",
    "draft_depth", "tp_size", "dp_size",
)  # fmt: skip
"""Extras of start-up records that say what ran, in the order in which they are shown."""
_NAMES = re.compile(r"(?=[\w-]*\d)[\w-]{6,}")
"""Names of requests and long numbers: what is the same but for these is one kind of trouble."""


@dataclass(slots=True)
class Start:
    """One start of the server: where it begins, what ran, what it announced and how it ended.

    `served`: it reported on requests, so it was ready even if the line that says so is in another file.
    """

    line: int
    at: str | None
    facts: dict[str, str] = field(default_factory=dict)
    capacity: Capacity = field(default_factory=Capacity)
    ready: int | None = None
    served: bool = False
    ended: str | None = None
    ended_line: int | None = None


@dataclass(slots=True)
class Trouble:
    """One kind of trouble: how often, where first and last, why and what helps."""

    kind: str
    reason: str
    hint: str | None
    first: int
    last: int
    count: int = 1
    at: str | None = None


@dataclass(slots=True)
class Bucket:
    """Acceptance over some consecutive reports. `drafted`/`accepted` are sums; `length` is summed over `lengths` steps.

    A report counts as many steps as it tells of drafts, where it tells them (drafted tokens by positions of a draft),
    else it counts as one.
    """

    line: int
    at: str | None
    last_line: int = 0
    n: int = 0
    length: float = 0.0
    lengths: float = 0.0
    rate: float = 0.0
    rates: int = 0
    drafted: int = 0
    accepted: int = 0

    def take(self, other: Bucket) -> None:
        """Add what came right after."""
        self.last_line = other.last_line
        self.n += other.n
        self.length += other.length
        self.lengths += other.lengths
        self.rate += other.rate
        self.rates += other.rates
        self.drafted += other.drafted
        self.accepted += other.accepted

    @property
    def accept_len(self) -> float | None:
        """Mean accept length over the steps of the reports that say one, with the bonus token."""
        return self.length / self.lengths if self.lengths else None

    @property
    def accept_rate(self) -> float | None:
        """Accepted over drafted tokens where the log counts them, else the mean of the reports' rates."""
        if self.drafted:
            return self.accepted / self.drafted
        return self.rate / self.rates if self.rates else None


@dataclass(slots=True)
class Story:
    """Give it every record in order."""

    starts: list[Start] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
    acceptance: list[Bucket] = field(default_factory=list)
    reports: int = 0
    requests: int = 0
    top_gen_tps: float | None = None
    _size: int = 1
    _loaded: bool = True
    _failed: bool = False
    """Something went wrong since the start under way began and nothing ran: the next boot line is another start."""
    _known: dict[tuple[str, str], Trouble] = field(default_factory=dict)
    more_troubles: int = 0
    more_starts: int = 0
    _ranks: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Of each data-parallel rank in the last start: reports, those with a queue, requests that ran, summed."""

    def see(self, record: Record) -> None:
        """Take the next record."""
        kind, values = record.kind, record.fields
        if kind in {"decode", "throughput", "prefill", "spec"}:
            self._loaded = True
            self.reports += 1
            if self.starts and (values.get("running") or kind == "throughput"):
                self.starts[-1].served = True
            if record.rank and "DP" in record.rank:
                self._spread(record.rank["DP"], values.get("running"), values.get("waiting"))
            rate = values.get("gen_tps")
            if rate is not None and (self.top_gen_tps is None or rate > self.top_gen_tps):
                self.top_gen_tps = rate
            if "accept_len" in values or "drafted" in values or "accept_rate" in values:
                self._accept(record)
        elif kind == "request":
            self._loaded = True
            if values.get("phase") != "started":
                self.requests += 1
                if self.starts:
                    self.starts[-1].served = True
                if "drafted" in values or "accept_len" in values:
                    self._accept(record)
        elif kind in TROUBLE:
            self._trouble(record)
        else:
            self._start(record)

    def announced(self, capacity: Capacity) -> None:
        """The capacity of the start under way."""
        if self.starts:
            self.starts[-1].capacity = capacity

    @property
    def overall(self) -> Bucket | None:
        """All reports with acceptance as one."""
        if not self.acceptance:
            return None
        first = self.acceptance[0]
        out = Bucket(first.line, first.at)
        for bucket in self.acceptance:
            out.take(bucket)
        return out

    def _spread(self, rank: int, running: int | None, waiting: int | None) -> None:
        """Count one report of a data-parallel rank."""
        if running is not None and waiting is not None and (rank in self._ranks or len(self._ranks) < RANKS):
            reports, queued, ran = self._ranks.get(rank, (0, 0, 0))
            self._ranks[rank] = reports + 1, queued + (waiting > 0), ran + running

    @property
    def uneven(self) -> str | None:
        """That some data-parallel ranks have a queue while others never had one and run clearly less, in words."""
        known = {rank: counts for rank, counts in self._ranks.items() if counts[0] >= 5}
        busy = {rank: ran / reports for rank, (reports, queued, ran) in known.items() if 2 * queued >= reports}
        least = min(busy.values(), default=0.0)
        idle = [rank for rank, (reports, queued, ran) in known.items() if not queued and ran / reports <= 0.8 * least]
        if not busy or not idle:
            return None
        shown = [", ".join(f"DP{rank}" for rank in sorted(ranks)[:6]) for ranks in (busy, idle)]
        return f"requests are spread unevenly: {shown[0]} had a queue most of the time, {shown[1]} never, and ran fewer"

    def _start(self, record: Record) -> None:
        kind = record.kind
        if kind == "exit":
            if self.starts and self.starts[-1].ended is None:
                failed = record.fields.get("cause") == "child_failed"
                self.starts[-1].ended = "crashed" if failed else str(record.fields.get("reason") or "stopped")
                self.starts[-1].ended_line = record.line
            self._loaded = True
            if record.fields.get("hint"):
                self._trouble(record)
            return
        if not self.starts or (self._loaded and kind in {"boot", "weights"}) or (self._failed and kind == "boot"):
            if len(self.starts) >= STARTS:
                del self.starts[1]
                self.more_starts += 1
            self.starts.append(Start(record.line, record.at))
            self._loaded = self._failed = False
            self._ranks.clear()
        start = self.starts[-1]
        for name in NAMES:
            if (value := record.fields.get(name)) is not None:
                start.facts.setdefault(name, str(value)[:120])
        if kind == "ready" and start.ready is None:
            start.ready = record.line

    def _trouble(self, record: Record) -> None:
        self._failed = self._failed or record.kind == "error"
        if record.kind in {"crash", "oom"}:
            self._loaded = True
            if record.kind == "crash" and self.starts and self.starts[-1].ended is None:
                self.starts[-1].ended, self.starts[-1].ended_line = "crashed", record.line
        reason = str(record.fields.get("reason") or record.text or record.kind)[:200]
        found = self._known.get((record.kind, _NAMES.sub("#", reason)))
        if found is not None:
            found.count += 1
            found.last = record.line
            return
        if len(self.troubles) >= TROUBLES:
            self.more_troubles += 1
            return
        hint = record.fields.get("hint")
        found = Trouble(
            record.kind, reason, None if hint is None else str(hint), record.line, record.line, at=record.at
        )
        self._known[record.kind, _NAMES.sub("#", reason)] = found
        self.troubles.append(found)

    def _accept(self, record: Record) -> None:
        get = record.fields.get
        drafted, accepted = get("drafted"), get("accepted")
        bucket = self._bucket(record)
        bucket.last_line = record.line
        bucket.n += 1
        if (length := get("accept_len")) is not None:
            positions = get("per_position")
            steps = get("steps") or (drafted / len(positions) if drafted and positions else 1.0)
            bucket.lengths += steps
            bucket.length += float(length) * steps
        if (rate := get("accept_rate")) is not None:
            bucket.rate += float(rate)
            bucket.rates += 1
        if drafted is not None and accepted is not None and 0 <= accepted <= drafted:
            bucket.drafted += int(drafted)
            bucket.accepted += int(accepted)

    def _bucket(self, record: Record) -> Bucket:
        """Where this report is counted; when all are full, neighbours are joined."""
        if self.acceptance and self.acceptance[-1].n < self._size:
            return self.acceptance[-1]
        if len(self.acceptance) >= 2 * BUCKETS:
            for left, right in zip(self.acceptance[::2], self.acceptance[1::2], strict=True):
                left.take(right)
            self.acceptance = self.acceptance[::2]
            self._size *= 2
        self.acceptance.append(Bucket(record.line, record.at))
        return self.acceptance[-1]
