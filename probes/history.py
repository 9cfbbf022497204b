"""What a finished or broken-off run amounts to, from its files alone. It starts nothing and writes nothing."""

from __future__ import annotations

import fcntl
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from probes import codec
from probes.events import (
    Capacity,
    CapacityRead,
    Ceiling,
    CeilingChanged,
    FlagsInForce,
    Judged,
    MemorySample,
    Notice,
    PlanProgress,
    RequestDone,
    RunStarted,
    ServerChanged,
    Warn,
)
from probes.gpu.room import HighWater, Mark, split
from probes.gpu.throttle import Slowed
from probes.replay import replay
from probes.stats.degenerate import degenerate_text
from probes.store import Run

State = Literal["finished", "interrupted", "open"]
PHASES = ("boot", "idle", "probe", "load")
TAIL = 1 << 16


@dataclass(frozen=True, slots=True)
class Start:
    """One start of the server: how long it took, or why it failed; argv is masked."""

    restart: int
    depth: int | None
    argv: tuple[str, ...] = ()
    boot_s: float | None = None
    reason: str | None = None
    hint: str | None = None
    proven: bool | None = None
    """Whether the flags asked were read back from the engine; None: it never came so far."""
    notes: tuple[str, ...] = ()
    asked: Mapping[str, Any] = field(default_factory=dict)
    in_force: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PhaseMemory:
    """The high water of one phase over all starts, in bytes; None: no GPU or no figure.

    `used` and `free` are of the tightest GPU at its tightest moment; `rss` is the server's resident memory.
    """

    phase: str
    used: int | None
    free: int | None
    rss: int | None
    samples: int


@dataclass(frozen=True, slots=True)
class Account:
    """Everything that a run's files say, summed up."""

    name: str
    path: str
    state: State
    plan: str | None
    step: str | None
    began: RunStarted | None
    description: Mapping[str, Any]
    result: Mapping[str, Any]
    stored: bool
    """Whether `result` is result.json; else it was computed from the records now."""
    starts: tuple[Start, ...]
    memory: tuple[PhaseMemory, ...]
    free_after_boot: int | None
    free_under_load: int | None
    split: str | None
    """What the memory in use consists of by the engine's own lines, and what none of them names."""
    outcomes: Mapping[str, int]
    warmups: int
    capacity: Capacity | None
    warnings: tuple[Warn, ...]
    ceiling: Ceiling | None
    notices: tuple[Notice, ...]
    requests: tuple[RequestDone, ...]


class _Sum:
    """Takes a run's events in order."""

    def __init__(self) -> None:
        self.began: RunStarted | None = None
        self.starts: dict[int, Start] = {}
        self.high = HighWater()
        self.slowed = Slowed()
        self.seen: Counter[str] = Counter()
        self.restarts: set[int] = set()
        self.capacity: CapacityRead | None = None
        self.ceilings: list[Ceiling] = []
        self.notices: list[Notice] = []
        self.progress: PlanProgress | None = None
        self.wall_s: float | None = None

    def take(self, event: Any) -> None:
        """One event."""
        if isinstance(event, RunStarted):
            self.began = self.began or event
        elif isinstance(event, ServerChanged):
            self._server(event)
        elif isinstance(event, FlagsInForce):
            old = self.starts.get(event.restart) or Start(event.restart, event.depth)
            self.starts[event.restart] = _with(
                old, proven=event.proven, notes=event.notes, asked=event.asked, in_force=event.in_force
            )
        elif isinstance(event, MemorySample):
            self.high.add(event)
            self.slowed.see(event)
            self.seen[event.phase] += 1
            self.restarts.add(event.restart)
        elif isinstance(event, CapacityRead):
            self.capacity = event
        elif isinstance(event, CeilingChanged):
            self.ceilings.append(event.ceiling)
        elif isinstance(event, Notice):
            self.notices.append(event)
        elif isinstance(event, PlanProgress):
            self.progress = event
        elif isinstance(event, Judged):
            self.wall_s = event.result.get("wall_s") or self.wall_s

    def _server(self, event: ServerChanged) -> None:
        if not event.restart:
            return
        old = self.starts.get(event.restart) or Start(event.restart, event.depth)
        if event.state == "starting":
            self.starts[event.restart] = _with(old, argv=event.argv)
        elif event.state == "ready":
            self.starts[event.restart] = _with(old, boot_s=event.boot_s)
        elif event.state == "failed":
            self.starts[event.restart] = _with(old, reason=event.reason or "it ended", hint=event.hint)

    def memory(self) -> tuple[PhaseMemory, ...]:
        """High water of each phase that was seen, over all starts."""
        found = []
        for phase in PHASES:
            if not self.seen[phase]:
                continue
            marks: list[Mark] = [m for r in self.restarts if (m := self.high.tightest(r, phase)) is not None]
            tight = min(marks, key=lambda m: m.least_free, default=None)
            rss = [size for r in self.restarts if (size := self.high.peak_rss(r, phase)) is not None]
            used, free = (tight.peak_used, tight.least_free) if tight else (None, None)
            found.append(PhaseMemory(phase, used, free, max(rss, default=None), self.seen[phase]))
        return tuple(found)

    def least(self, which: str) -> int | None:
        """Over all starts: the fewest bytes free after boot, or under load."""
        found = [f for r in self.restarts if r and (f := getattr(self.high, which)(r)) is not None]
        return min(found, default=None)

    def split(self) -> str | None:
        """Of the tightest GPU at its fullest in the last start whose capacity is known; None without either."""
        at = self.capacity.restart if self.capacity else 0
        marks = [m for phase in ("load", "probe", "idle") if (m := self.high.tightest(at, phase)) is not None]
        if self.capacity is None or not marks:
            return None
        return split(marks[0].peak_ours or marks[0].peak_used, self.capacity.capacity).sentence


def _with(start: Start, **changes: Any) -> Start:
    from dataclasses import replace

    return replace(start, **changes)


def account(run: Run, *, recompute: bool = False) -> Account:
    """Sum a run up. With `recompute`, or where result.json is missing, a sweep is judged from its records again."""
    found = _Sum()
    for event in replay(run):
        found.take(event)
    requests = tuple(run.requests())
    description = run.description()
    result = None if recompute else run.result()
    stored = result is not None
    if result is None and requests:
        result = judged(run.name, found.began, description, requests, found)
    known = [c for c in found.ceilings if c.verdict != "unknown"]
    measured = [r for r in requests if not r.warmup]
    outcomes: Counter[str] = Counter(
        "degenerate" if r.outcome == "ok" and degenerate_text(r.text) else r.outcome for r in measured
    )
    return Account(
        name=run.name,
        path=str(run.path),
        state=_state(run, found.progress),
        plan=found.progress.plan if found.progress else None,
        step=found.progress.step if found.progress else None,
        began=found.began,
        description=description,
        result=result or {},
        stored=stored,
        starts=tuple(found.starts[n] for n in sorted(found.starts)),
        memory=found.memory(),
        free_after_boot=found.least("free_after_boot"),
        free_under_load=found.least("free_under_load"),
        split=found.split(),
        outcomes=dict(outcomes),
        warmups=len(requests) - len(measured),
        capacity=found.capacity.capacity if found.capacity else None,
        warnings=found.capacity.warnings if found.capacity else (),
        ceiling=(known or found.ceilings)[-1] if found.ceilings else None,
        notices=tuple(found.notices),
        requests=requests,
    )


def judged(
    name: str,
    began: RunStarted | None,
    description: Mapping[str, Any],
    requests: Sequence[RequestDone],
    found: _Sum,
) -> dict[str, Any] | None:
    """The result of a sweep, or of the live screen's probes, from records alone; None for other plans."""
    if began is None or (found.progress and found.progress.plan not in {"sweep", "probe"}):
        return None
    from probes.stats.result import judge_sweep

    work = (description.get("recipe") or {}).get("workload")
    work = work if isinstance(work, Mapping) else {}
    depths = {r.depth for r in requests if r.depth is not None} | set(began.depths)
    latest = {s.depth: s.proven for s in found.starts.values()}
    return judge_sweep(
        requests,
        engine=began.engine,
        run=name,
        depths=sorted(depths),
        categories=began.categories,
        simulated=began.simulated,
        unverified={d for d, proven in latest.items() if proven is False and d is not None},
        mix=shares((description.get("sweep") or {}).get("mix")),
        boots=[round(s.boot_s, 3) for s in found.starts.values() if s.boot_s is not None],
        wall_s=found.wall_s,
        concurrency=work.get("concurrency"),
        throttled=found.slowed.by_depth(requests),
        greedy=not work.get("temperature"),
    )


def shares(mix: Any) -> dict[str, float] | None:
    """`code=.6,story=.4` as shares that add up to 1; None where run.yaml holds none."""
    if not isinstance(mix, str):
        return None
    found = {}
    for part in mix.split(","):
        name, _, share = part.strip().partition("=")
        try:
            found[name] = float(share)
        except ValueError:
            return None
    whole = sum(found.values())
    return {name: value / whole for name, value in found.items()} if whole > 0 else None


# -------------------------------------------------------------------------------------------------- a glance at a run


def _state(run: Run, progress: PlanProgress | None) -> State:
    if held(run):
        return "open"
    broken = progress is not None and (not progress.finished or progress.step.startswith("stopped"))
    return "interrupted" if broken else "finished"


def held(run: Run) -> bool:
    """Whether a console has this run open now."""
    try:
        lock = os.open(run.path / ".lock", os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def glance(run: Run) -> dict[str, Any]:
    """One row of a list of runs, from the ends of its files and result.json: cheap however long the run was."""
    began = _first(run)
    progress = _last_progress(run)
    result = run.result() or {}
    cells = result.get("cells") or []
    verdict = result.get("verdict")
    measured = sorted({c["depth"] for c in cells if c.get("requests")})
    if cells:
        requests = sum((c.get("outcomes") or {"": 0}).get(k, 0) for c in cells for k in c.get("outcomes") or {})
    else:
        done = list(run.requests())
        requests = sum(not r.warmup for r in done)
        measured = sorted({r.depth for r in done if r.depth is not None})
    return {
        "run": run.name,
        "at": began.at if began else None,
        "engine": began.engine if began else None,
        "preset": began.preset if began else None,
        "simulated": began.simulated if began else None,
        "plan": progress.plan if progress else None,
        "depths": measured,
        "requests": requests,
        "verdict": verdict.get("state") if isinstance(verdict, Mapping) else verdict,
        "pick": verdict.get("depth") if isinstance(verdict, Mapping) else None,
        "sentence": verdict.get("sentence") if isinstance(verdict, Mapping) else result.get("sentence"),
        "state": _state(run, progress),
        "path": str(run.path),
    }


def _first(run: Run) -> RunStarted | None:
    try:
        with run.events_log.open("rb") as lines:
            for line in lines:
                try:
                    event = codec.decode(line)
                except ValueError:
                    continue
                if isinstance(event, RunStarted):
                    return event
    except OSError:
        pass
    return None


def _last_progress(run: Run) -> PlanProgress | None:
    """The last progress in the file, found from its end backwards, block by block."""
    mark, rest = b'{"kind":"progress"', b""
    try:
        with run.events_log.open("rb") as file:
            place = file.seek(0, os.SEEK_END)
            while place > 0:
                size = min(TAIL, place)
                place -= size
                file.seek(place)
                lines = (file.read(size) + rest).split(b"\n")
                rest = lines[0] if place else b""
                for line in reversed(lines[1:] if place else lines):
                    if line.startswith(mark):
                        try:
                            event = codec.decode(line)
                        except ValueError:
                            continue
                        if isinstance(event, PlanProgress):
                            return event
    except OSError:
        pass
    return None
