"""Memory around a server: sampled all the time, looked at before a start, waited for after a stop."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from probes.events import GpuReading, MemorySample
from probes.gpu import room
from probes.gpu.devices import Device
from probes.gpu.watch import Watch
from probes.recipe import Recipe

VLLM_SHARE = 0.9
"""Of a GPU's whole memory that vLLM wants free at its start, where nothing else is asked; newer ones want .92."""


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

    async def before_start(self, recipe: Recipe, settings: Mapping[str, Any]) -> str | None:
        """Remember what is in use; who is in the way, when a server like the last one would not fit.

        Before the first start, when what the preset surely takes fits on no GPU.
        """
        if self._watch is None:
            return None
        sample = await asyncio.to_thread(self._watch.read)
        self._baseline = self._baseline or sample.gpus
        if not sample.gpus:
            return None
        if not self._peak:
            least = demand(recipe, settings, sample.gpus)
            frees = [gpu.free for gpu in sample.gpus if gpu.free is not None]
            tight = len(frees) == len(sample.gpus) and max(frees) < least
            return f"this start takes more than is free: {room.room(sample.gpus, least).sentence}" if tight else None
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


def demand(recipe: Recipe, settings: Mapping[str, Any], gpus: Sequence[GpuReading]) -> int:
    """Bytes that a start surely takes on a GPU; 0 where that can't be told.

    vLLM refuses to start unless its share is free. A model that is one file is on the one GPU there is, but for
    llama.cpp, which may leave layers on the host.
    """
    if recipe.simulated:
        return 0
    if recipe.engine == "vllm":
        share = settings.get("gpu_memory") or recipe.flags.get("--gpu-memory-utilization") or VLLM_SHARE
        totals = [gpu.total for gpu in gpus if gpu.total]
        return int(float(share) * min(totals)) if totals else 0
    if recipe.engine == "llamacpp" or len(gpus) != 1:
        return 0
    try:
        return Path(recipe.model).stat().st_size if Path(recipe.model).is_file() else 0
    except OSError:
        return 0
