"""One thread that reads GPUs and host memory 1-5 times a second and hands each sample on, frozen.

It never queues: a reading that takes too long, or costs more than its share of a core, makes the next one later.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from probes.events import GpuReading, MemorySample
from probes.gpu import devices as visibility
from probes.gpu import host
from probes.gpu.devices import Device, Visible
from probes.gpu.host import Group, Owners

SLOW_S = 1.0
"""Seconds between two readings of what changes slowly: clocks, power, temperature, throttling, process names."""

MEMBERS_S = 2.0
"""Seconds between two searches for the server's processes; their memory is read each time."""

BUDGET = 0.01
"""Share of a core that watching may cost; where a reading is dear, there are fewer of them, down to one a second."""


class Source(Protocol):
    """A vendor's GPUs: `Nvml`, `Amd` or `Drm`."""

    vendor: str
    why: str | None
    """Why there is no GPU of this vendor to read; None: there is."""
    driver: str | None
    devices: tuple[Device, ...]

    def read(self, owners: Owners, chosen: Iterable[Device] | None = None, *, slow: bool = True) -> list[GpuReading]:
        """Read the chosen devices (all when None), only their memory when not `slow`. Never raises."""
        ...

    def close(self) -> None:
        """Let the library go."""
        ...


def sources(environ: Mapping[str, str] | None = None) -> tuple[Source, ...]:
    """Every vendor's library, opened. Costs milliseconds without GPUs; call it before a screen owns the terminal."""
    from probes.gpu.amd import Amd
    from probes.gpu.nvml import Nvml

    found: list[Source] = [Nvml(), Amd(environ)]
    if found[1].why is not None:
        from probes.gpu.drm import Drm

        kernel = Drm()
        if kernel.why is None:
            found[1] = kernel
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Context:
    """What a sample is about: set by the lab, read by the thread."""

    restart: int = 0
    phase: str = "idle"
    group: Group = field(default_factory=Group)


def next_tick(start: float, now: float, period: float) -> float:
    """The first tick of `start + n * period` after `now`: ticks that passed while reading are skipped, not made up."""
    return start + (math.floor((now - start) / period + 1e-9) + 1) * period


class Watch:
    """Watches the GPUs that a server with `environ` sees. `put` is called on the watching thread with each sample.

    `set` changes what the next samples are about. `read` takes one sample on the calling thread, for a start that
    wants to know what is free before the thread runs.
    """

    def __init__(
        self,
        put: Callable[[MemorySample], object],
        *,
        hz: float = 2.0,
        environ: Mapping[str, str] | None = None,
        gpus: Sequence[Source] | None = None,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        if not 1 <= hz <= 5:
            raise ValueError(f"hz={hz}: memory is watched 1 to 5 times a second")
        self.period = 1 / hz
        self._put = put
        self._sources = tuple(sources(environ) if gpus is None else gpus)
        self.visible: Visible = visibility.visible(
            [d for source in self._sources for d in source.devices], os.environ if environ is None else environ
        )
        self._clock = clock
        self._cpu = cpu
        self._context = Context()
        self._owners = Owners()
        self._members: tuple[int, ...] = ()
        self._members_at = self._slow_at = -math.inf
        self._reading = threading.Lock()
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def why(self) -> tuple[str, ...]:
        """For each vendor without a GPU: why, in words."""
        return tuple(source.why for source in self._sources if source.why is not None)

    @property
    def drivers(self) -> dict[str, str | None]:
        """The driver's version of each vendor that has a GPU here."""
        return {source.vendor: source.driver for source in self._sources if source.devices}

    def set(
        self,
        *,
        phase: str | None = None,
        restart: int | None = None,
        pgid: int | None = None,
        container: str | None = None,
        gone: bool = False,
    ) -> None:
        """Change what samples are about. `gone`: the server is no more, no process is ours."""
        now = self._context
        group = now.group
        if gone:
            group = Group()
        elif pgid is not None or container is not None:
            group = Group(pgid, container)
        self._context = replace(
            now,
            phase=now.phase if phase is None else phase,
            restart=now.restart if restart is None else restart,
            group=group,
        )

    def read(self) -> MemorySample:
        """One sample, now. GPUs stand with the tightest first."""
        with self._reading:  # drivers' libraries are thread-safe, our caches are not
            return self._read(self._context)

    def _read(self, context: Context) -> MemorySample:
        began = self._cpu()
        now = self._clock()
        slow = now - self._slow_at >= SLOW_S - 1e-3
        if context.group != self._owners.group:
            self._owners.group = context.group
            self._members_at = -math.inf
        if slow:
            self._slow_at = now
            self._owners.refresh()
        if now - self._members_at >= MEMBERS_S - 1e-3 or (slow and not self._members):
            self._members_at = now
            self._members = host.members(context.group)
        chosen = self.visible.devices
        gpus = [
            reading
            for source in self._sources
            if source.devices
            for reading in source.read(self._owners, [d for d in chosen if d.vendor == source.vendor], slow=slow)
        ]
        total, available = host.total_and_available()
        resident = host.rss(self._members) if context.group else None
        return MemorySample(
            at=time.time(),
            restart=context.restart,
            gpus=visibility.tightest(gpus),
            host_total=total,
            host_available=available,
            server_rss=resident,
            phase=context.phase,
            poll_us=(self._cpu() - began) * 1e6,
        )

    def start(self) -> None:
        """Begin watching. Once."""
        if self._thread is not None:
            raise RuntimeError("already watching")
        self._thread = threading.Thread(target=self._run, name="gpu-watch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        start = self._clock()
        while not self._done.is_set():
            sample = self.read()
            self._put(sample)
            period = self.stretched(sample.poll_us or 0.0)
            if self._done.wait(max(0.0, next_tick(start, self._clock(), period) - self._clock())):
                return

    def stretched(self, poll_us: float) -> float:
        """Seconds between readings at this cost: as asked, or longer to keep to the budget, but 1 at most."""
        return min(1.0, max(self.period, poll_us / 1e6 / BUDGET))

    def stop(self, timeout_s: float = 2.0) -> bool:
        """End watching; False when the driver does not come back in time (the thread then ends with the program)."""
        self._done.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                return False
        for source in self._sources:
            source.close()
        return True
