"""Which GPUs a server will see, from its environment, and which of them is the tightest. Pure: it asks no driver.

The rules are the runtimes' own: CUDA reads `CUDA_VISIBLE_DEVICES`; ROCm first filters by `ROCR_VISIBLE_DEVICES`, then
HIP numbers what is left and filters by `HIP_VISIBLE_DEVICES` (or `CUDA_VISIBLE_DEVICES` where that is unset).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from probes.events import GpuReading

Vendor = Literal["nvidia", "amd"]


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU, or one MIG instance of one. `index` is the driver's index of the GPU, `handle` its library's handle."""

    vendor: Vendor
    index: int
    name: str
    uuid: str | None = None
    handle: Any = field(default=None, compare=False, repr=False)
    parent: str | None = None
    """For a MIG instance: the UUID of its GPU."""
    gpu_instance: int | None = None
    compute_instance: int | None = None


@dataclass(frozen=True, slots=True)
class Visible:
    """The devices a server sees, in its own order, and what a person should know about how they were chosen."""

    devices: tuple[Device, ...]
    notes: tuple[str, ...] = ()


_INDEX = re.compile(r"^\+?\d+$")
_MIG_OF_GPU = re.compile(r"^MIG-(GPU-[0-9a-fA-F-]+)/(\d+)/(\d+)$")


def visible(devices: Sequence[Device], environ: Mapping[str, str]) -> Visible:
    """Which of one machine's devices a process with `environ` sees, NVIDIA's first."""
    nvidia = nvidia_visible([d for d in devices if d.vendor == "nvidia"], environ)
    amd = amd_visible([d for d in devices if d.vendor == "amd"], environ)
    return Visible(nvidia.devices + amd.devices, nvidia.notes + amd.notes)


def nvidia_visible(devices: Sequence[Device], environ: Mapping[str, str]) -> Visible:
    """CUDA's rules: an invalid entry ends the list, a device named twice empties it, indices and UUIDs don't mix."""
    asked = environ.get("CUDA_VISIBLE_DEVICES")
    notes: list[str] = []
    if asked is None:
        split = {d.parent for d in devices if d.parent}
        return Visible(tuple(d for d in devices if d.uuid not in split))
    chosen = _chosen("CUDA_VISIBLE_DEVICES", asked, devices, _cuda_one, notes)
    models = {d.name for d in devices if d.parent is None}
    by_index = any(_INDEX.match(entry.strip()) for entry in asked.split(","))
    if by_index and len(models) > 1 and environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        notes.append(
            "CUDA_VISIBLE_DEVICES counts GPUs by speed where models differ; set CUDA_DEVICE_ORDER=PCI_BUS_ID or use "
            "UUIDs to be sure which is meant"
        )
    return Visible(chosen, tuple(notes))


def amd_visible(devices: Sequence[Device], environ: Mapping[str, str]) -> Visible:
    """ROCm's rules: `ROCR_VISIBLE_DEVICES` filters and renumbers, then `HIP_VISIBLE_DEVICES` filters what is left."""
    notes: list[str] = []
    left: tuple[Device, ...] = tuple(devices)
    rocr = environ.get("ROCR_VISIBLE_DEVICES")
    if rocr is not None:
        left = _chosen("ROCR_VISIBLE_DEVICES", rocr, left, _rocm_one, notes)
    for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        asked = environ.get(name)
        if asked is not None and devices:
            left = _chosen(name, asked, left, _rocm_one, notes)
            break
    return Visible(left, tuple(notes))


def _chosen(variable: str, asked: str, devices: Sequence[Device], one: Any, notes: list[str]) -> tuple[Device, ...]:
    chosen: list[Device] = []
    kinds: set[bool] = set()
    for entry in (part.strip() for part in asked.split(",")):
        found = one(entry, devices)
        kinds.add(_INDEX.match(entry) is not None)
        if found is None or len(kinds) > 1:
            if asked.strip() not in {"", "-1"}:  # the two customary ways to say "none"
                why = "names no device here" if found is None else "mixes indices and UUIDs"
                notes.append(f"{variable}={asked}: {entry!r} {why}; it and what follows is ignored")
            break
        if found in chosen:
            notes.append(f"{variable}={asked}: {entry!r} is named twice, so no device is visible")
            return ()
        chosen.append(found)
    return tuple(chosen)


def _cuda_one(entry: str, devices: Sequence[Device]) -> Device | None:
    whole = [d for d in devices if d.parent is None]
    if _INDEX.match(entry):
        index = int(entry)
        gpu = next((d for d in whole if d.index == index), None)
        # With MIG on, CUDA can use only an instance, and takes the GPU's first.
        return next((d for d in devices if gpu and gpu.uuid and d.parent == gpu.uuid), gpu)
    of_gpu = _MIG_OF_GPU.match(entry)
    if of_gpu:
        prefix, gi, ci = of_gpu.group(1), int(of_gpu.group(2)), int(of_gpu.group(3))
        instances = [d for d in devices if d.parent and (d.gpu_instance, d.compute_instance) == (gi, ci)]
        return _only([d for d in instances if d.parent and d.parent.lower().startswith(prefix.lower())])
    if entry.startswith("MIG-"):
        return _prefix(entry, [d for d in devices if d.parent])
    if entry.startswith("GPU-"):
        gpu = _prefix(entry, whole)
        return next((d for d in devices if gpu and d.parent == gpu.uuid), gpu)
    return None


def _rocm_one(entry: str, devices: Sequence[Device]) -> Device | None:
    if _INDEX.match(entry):
        index = int(entry)
        return devices[index] if index < len(devices) else None
    if entry.upper().startswith("GPU-"):
        return _prefix(entry, devices)
    return None


def _prefix(entry: str, devices: Sequence[Device]) -> Device | None:
    # An abbreviation must fit exactly one device; a bare "GPU-" abbreviates nothing.
    if len(entry) <= len("GPU-"):
        return None
    return _only([d for d in devices if d.uuid and d.uuid.lower().startswith(entry.lower())])


def _only(found: list[Device]) -> Device | None:
    return found[0] if len(found) == 1 else None


def tightest(readings: Iterable[GpuReading]) -> tuple[GpuReading, ...]:
    """Readings with the least free memory first; a GPU that does not say comes last."""
    return tuple(sorted(readings, key=lambda r: (math.inf if r.free is None else r.free, r.index)))
