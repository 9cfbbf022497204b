"""Memory around a server: sampled all the time, looked at before a start, waited for after a stop."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from probes.events import GpuReading, MemorySample
from probes.gpu import room
from probes.gpu.devices import Device
from probes.gpu.watch import Watch


@dataclass(frozen=True, slots=True)
class Hardware:
    """The GPUs that are watched, and each vendor's driver version."""

    devices: tuple[Device, ...] = ()
    drivers: Mapping[str, str | None] = field(default_factory=dict)


class MemoryWatch:
    """One polling thread and what its samples mean for starts and stops. Sentences come back, for a person."""

    def __init__(self, emit: Callable[[MemorySample], None]) -> None:
        self._emit = emit
        self._watch: Watch | None = None
        self._baseline: tuple[GpuReading, ...] = ()
        self._peak = 0
        """Most bytes that a server of ours held on one GPU."""

    async def open(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Begin to watch the GPUs that a server with this environment sees; what is odd about that, in words."""
        loop = asyncio.get_running_loop()

        def put(sample: MemorySample) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended: so has the run
                loop.call_soon_threadsafe(self._take, sample)

        self._watch = await asyncio.to_thread(lambda: Watch(put, hz=2.0, environ=environ))
        self._watch.start()
        return tuple(self._watch.visible.notes)

    async def close(self) -> None:
        """Stop watching."""
        if self._watch:
            await asyncio.to_thread(self._watch.stop)

    def hardware(self) -> Hardware:
        """What is watched; nothing before `open`."""
        return Hardware(self._watch.visible.devices, self._watch.drivers) if self._watch else Hardware()

    def about(self, **what: Any) -> None:
        """Say what the next samples are about: phase, restart, process group."""
        if self._watch:
            self._watch.set(**what)

    async def before_start(self) -> str | None:
        """Remember what is in use; who is in the way, when a server like the last one would not fit."""
        if self._watch is None:
            return None
        sample = await asyncio.to_thread(self._watch.read)
        self._baseline = self._baseline or sample.gpus
        if not sample.gpus or not self._peak:
            return None
        found = room.room(sample.gpus, self._peak)
        return f"the last start took more than is free now: {found.sentence}" if found.fits is False else None

    async def after_stop(self, limit_s: float) -> str | None:
        """Wait until GPU memory is back where it was, as drivers free it late; what is left when it is not."""
        if self._watch is None or not self._baseline:
            return None
        watch = self._watch
        freed = await asyncio.to_thread(
            room.wait_until_free, lambda: watch.read().gpus, self._baseline, limit_s, time.monotonic, time.sleep
        )
        if freed.ok is not False:
            return None
        left = ", ".join(f"{name}: {room.gib(size)}" for name, size in freed.left.items())
        return f"GPU memory has not fallen after {freed.waited_s:.0f} s ({left} more than before the start)"

    def _take(self, sample: MemorySample) -> None:
        self._peak = max([self._peak, *(g.ours for g in sample.gpus if g.ours is not None)])
        self._emit(sample)
