"""Whether there is room on the GPUs: waiting for memory to fall after a stop, who is in the way, high-water marks by
phase, and what the memory in use consists of. Pure: readings and time are given, no process is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from probes.events import Capacity, GpuReading, MemorySample

SLACK = 64 << 20
"""Bytes over the baseline that still count as free: drivers keep a little for a while after a process has gone."""

WAIT_S = 0.25
"""Seconds between two looks while waiting for memory to fall."""


def key(reading: GpuReading) -> str:
    """What names a GPU across samples: its UUID, or its index where it has none."""
    return reading.uuid or f"#{reading.index}"


@dataclass(frozen=True, slots=True)
class Freed:
    """How waiting for memory ended. `left`: bytes over the baseline by GPU, those that have fallen left out.

    `ok` is None when no reading told.
    """

    ok: bool | None
    waited_s: float
    left: Mapping[str, int]


def wait_until_free(
    read: Callable[[], Iterable[GpuReading]],
    baseline: Iterable[GpuReading],
    limit_s: float,
    clock: Callable[[], float],
    wait: Callable[[float], object],
    *,
    slack: int = SLACK,
) -> Freed:
    """Look until the memory in use is back at what it was before the server, or `limit_s` seconds have passed.

    What foreign processes took meanwhile isn't waited for. A GPU without a baseline is not judged. `wait` is called
    with the seconds to let pass.
    """
    before = {key(reading): reading for reading in baseline}
    began = clock()
    deadline = began + limit_s
    while True:
        over = {key(r): _over(r, before[key(r)]) for r in read() if key(r) in before}
        left = {name: extra for name, extra in over.items() if extra is not None and extra > slack}
        told = all(extra is not None for extra in over.values()) and len(over) == len(before)
        if told and not left:
            return Freed(True, clock() - began, {})
        now = clock()
        if now >= deadline:  # compared as points in time: a difference of floats can stay just below the limit
            return Freed(False if left else None, now - began, left)
        wait(min(WAIT_S, deadline - now))


def _over(now: GpuReading, before: GpuReading) -> int | None:
    if now.used is None or before.used is None:
        return None
    return now.used - before.used - max(0, _foreign(now) - _foreign(before))


def _foreign(reading: GpuReading) -> int:
    return sum(size or 0 for _, _, size in reading.others)


@dataclass(frozen=True, slots=True)
class Blocker:
    """A foreign process on a GPU that lacks room; `used` is None where the driver gives no size."""

    gpu: int
    pid: int
    name: str
    used: int | None


@dataclass(frozen=True, slots=True)
class Room:
    """Whether a start would fit, in one sentence, and who is in the way. `fits` is None when memory isn't told."""

    fits: bool | None
    sentence: str
    blockers: tuple[Blocker, ...] = ()


def blockers(readings: Iterable[GpuReading], needed: int | None) -> tuple[Blocker, ...]:
    """Foreign processes on GPUs with less than `needed` bytes free (on all GPUs when None), largest first."""
    found = [
        Blocker(reading.index, pid, name, size)
        for reading in readings
        if needed is None or (reading.free is not None and reading.free < needed)
        for pid, name, size in reading.others
    ]
    return tuple(sorted(found, key=lambda b: (-(b.used or 0), b.gpu, b.pid)))


def room(readings: Iterable[GpuReading], needed: int) -> Room:
    """Whether each of these GPUs has `needed` bytes free; the sentence names the first that has not, and why."""
    gpus = tuple(readings)
    known = [(gpu, gpu.free) for gpu in gpus if gpu.free is not None]
    short = [(gpu, free) for gpu, free in known if free < needed]
    if not short:
        if len(known) < len(gpus) or not gpus:
            return Room(None, "free GPU memory is not known")
        return Room(True, f"{gib(needed)} needed, {gib(min(free for _, free in known))} free")
    gpu, free = min(short, key=lambda item: item[1])
    found = blockers([gpu for gpu, _ in short], needed)
    here = [b for b in found if b.gpu == gpu.index]
    who = "; ".join(
        f"{b.name} (pid {b.pid}) holds {'an unknown amount' if b.used is None else gib(b.used)}" for b in here
    )
    unnamed = "no process is named by the driver" if gpu.used else "the GPU is too small"
    return Room(False, f"GPU {gpu.index}: {gib(needed)} needed, {gib(free)} free; {who or unnamed}", found)


def leftovers(
    readings: Iterable[GpuReading], started: Mapping[int, float], created: Callable[[int], float | None]
) -> tuple[Blocker, ...]:
    """Processes on the GPUs that an earlier run of ours started and that are still there.

    `started` has the pids we once started with their creation times (as psutil gives them); `created` asks for the
    time of a pid that is alive now. A reused pid has another time, and is not ours.
    """
    return tuple(
        Blocker(reading.index, pid, name, size)
        for reading in readings
        for pid, name, size in reading.others
        if pid in started and (now := created(pid)) is not None and abs(now - started[pid]) < 0.05
    )


@dataclass(frozen=True, slots=True)
class Mark:
    """Memory of one GPU in one phase, in bytes: the most that was used, the least that was free, the last free."""

    peak_used: int
    least_free: int
    last_free: int
    peak_ours: int | None
    n: int


class HighWater:
    """High-water marks by restart, phase and GPU, so that free after boot and free under load are two numbers."""

    def __init__(self) -> None:
        self._marks: dict[tuple[int, str, str], Mark] = {}
        self._rss: dict[tuple[int, str], int] = {}

    def add(self, sample: MemorySample) -> None:
        """Take a sample into account. Readings that don't tell what is used and free change nothing."""
        for gpu in sample.gpus:
            if gpu.used is None or gpu.free is None:
                continue
            at = (sample.restart, sample.phase, key(gpu))
            old = self._marks.get(at)
            ours = [size for size in (gpu.ours, old.peak_ours if old else None) if size is not None]
            self._marks[at] = Mark(
                peak_used=max(gpu.used, old.peak_used if old else 0),
                least_free=min(gpu.free, old.least_free if old else gpu.free),
                last_free=gpu.free,
                peak_ours=max(ours, default=None),
                n=(old.n if old else 0) + 1,
            )
        if sample.server_rss is not None:
            here = (sample.restart, sample.phase)
            self._rss[here] = max(sample.server_rss, self._rss.get(here, 0))

    def phases(self, restart: int) -> tuple[str, ...]:
        """The phases seen in a restart, in the order in which they were first seen."""
        return tuple(dict.fromkeys(phase for number, phase, _ in self._marks if number == restart))

    def mark(self, restart: int, phase: str, gpu: str) -> Mark | None:
        """The mark of one GPU in one phase; None: nothing was seen."""
        return self._marks.get((restart, phase, gpu))

    def tightest(self, restart: int, phase: str) -> Mark | None:
        """Of the GPU with the least free memory in that phase: the one that decides."""
        found = [mark for (number, name, _), mark in self._marks.items() if (number, name) == (restart, phase)]
        return min(found, key=lambda mark: mark.least_free, default=None)

    def free_after_boot(self, restart: int) -> int | None:
        """Bytes free on the tightest GPU once the server was up and before it was asked anything."""
        idle = self.tightest(restart, "idle")
        if idle is not None:
            return idle.least_free
        found = [m.last_free for (number, phase, _), m in self._marks.items() if (number, phase) == (restart, "boot")]
        return min(found, default=None)

    def free_under_load(self, restart: int) -> int | None:
        """Least bytes free on the tightest GPU while the server worked; None: it has not worked yet."""
        found = [mark for phase in ("probe", "load") if (mark := self.tightest(restart, phase)) is not None]
        return min((mark.least_free for mark in found), default=None)

    def peak_rss(self, restart: int, phase: str) -> int | None:
        """The most resident memory of the server's processes in that phase."""
        return self._rss.get((restart, phase))


@dataclass(frozen=True, slots=True)
class Split:
    """What memory in use consists of, in bytes per GPU. `rest` is what the engine's lines do not account for."""

    used: int
    weights: int | None
    pools: int | None
    other: int | None
    claimed: int
    rest: int
    sentence: str


def split(used: int, capacity: Capacity) -> Split:
    """Weights, pools (KV and state) and the rest of one GPU's memory in use, by the engine's own lines.

    `used`: bytes the driver says are in use on a GPU, best of the server's processes alone. An engine that tells its
    sizes per server and not per rank is compared as if on one GPU, and the sentence says so.
    """
    pools = _sum(capacity.kv_bytes, capacity.state_bytes)
    parts = {"weights": capacity.weights_bytes, "pools": pools, "other": capacity.other_bytes}
    claimed = sum(size for size in parts.values() if size is not None)
    rest = used - claimed
    told = " + ".join(f"{name} {gib(size)}" for name, size in parts.items() if size is not None)
    if not told:
        sentence = f"{gib(used)} in use; the engine's lines name no part of it"
    elif rest >= 0:
        untold = [name for name, size in parts.items() if size is None and name != "other"]
        why = f"{' and '.join(untold)}, CUDA contexts and graphs" if untold else "contexts, graphs and workspaces"
        sentence = f"{gib(used)} in use = {told} + {gib(rest)} that no line names ({why})"
    else:
        sentence = f"the engine's lines claim {told}, {gib(-rest)} more than the {gib(used)} in use"
    if capacity.per != "rank" and (capacity.ranks or 1) > 1:
        sentence += f"; the lines are per {capacity.per}, not per GPU"
    return Split(used, capacity.weights_bytes, pools, capacity.other_bytes, claimed, rest, sentence)


def _sum(*sizes: int | None) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if known else None


def gib(size: int) -> str:
    """Bytes as GiB with one place, or as MiB below one GiB."""
    return f"{size / (1 << 30):.1f} GiB" if abs(size) >= 1 << 30 else f"{size / (1 << 20):.0f} MiB"
