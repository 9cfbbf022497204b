"""AMD GPUs without ROCm's library: what the kernel's amdgpu driver says under /sys and /proc. Reads files only.

Memory, load, temperature, power and clock are there for every card; processes are those whose /proc we may read.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from probes.events import GpuReading
from probes.gpu.devices import Device
from probes.gpu.host import OnGpu, Owners

AMD_VENDOR = "0x1002"
SCAN_S = 5.0
"""Seconds between two looks at every process's open files: it costs milliseconds on a busy machine."""

_CARD = re.compile(r"card(\d+)")


class Drm:
    """Reads every card of the amdgpu driver. `why` says why there is none to read."""

    vendor = "amd"
    driver: str | None = None

    def __init__(
        self, sys: Path = Path("/sys"), proc: Path = Path("/proc"), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.why: str | None = None
        self._proc = proc
        self._clock = clock
        self._slow: dict[str, dict[str, Any]] = {}
        self._scanned: float | None = None
        self._usage: dict[str, dict[int, int]] = {}
        found: list[Device] = []
        for card in sorted(sys.glob("class/drm/card*"), key=lambda path: (len(path.name), path.name)):
            device = card / "device"
            if _CARD.fullmatch(card.name) is None or _text(device / "vendor") != AMD_VENDOR:
                continue
            if _number(device / "mem_info_vram_total") is None:
                continue
            name = _text(device / "product_name") or "AMD GPU"
            unique = _text(device / "unique_id")
            uuid = f"GPU-{unique}" if unique else device.resolve().name  # the PCI address, where there is no identity
            found.append(Device("amd", len(found), name, uuid, device))
        self.devices = tuple(found)
        if not found:
            self.why = "no card of the amdgpu driver under /sys/class/drm"

    def read(self, owners: Owners, chosen: Iterable[Device] | None = None, *, slow: bool = True) -> list[GpuReading]:
        """Read the chosen devices (all when None). Not `slow`: only memory, the rest as at the last slow reading."""
        now = self._clock()
        if slow and self.devices and (self._scanned is None or now - self._scanned >= SCAN_S):
            self._scanned = now
            self._usage = vram_by_process(self._proc)
        wanted = None if chosen is None else {d.uuid for d in chosen}
        return [self._one(d, owners, slow=slow) for d in self.devices if wanted is None or d.uuid in wanted]

    def _one(self, device: Device, owners: Owners, *, slow: bool) -> GpuReading:
        folder: Path = device.handle
        total = _number(folder / "mem_info_vram_total")
        used = _number(folder / "mem_info_vram_used")
        if total is None:
            return GpuReading(device.index, device.name, device.uuid, problem="the card no longer answers under /sys")
        key = str(device.uuid)
        if slow or key not in self._slow:
            self._slow[key] = _state(folder)
        usage = self._usage.get(folder.resolve().name, {})
        ours, others = owners.attribute([OnGpu(pid, size) for pid, size in usage.items()], used)
        return GpuReading(
            index=device.index,
            name=device.name,
            uuid=device.uuid,
            total=total,
            used=used,
            free=None if used is None else max(0, total - used),
            ours=ours,
            others=others,
            **self._slow[key],
        )

    def close(self) -> None:
        """Nothing is held open."""


def _state(folder: Path) -> dict[str, Any]:
    hwmon = next(iter(sorted(folder.glob("hwmon/hwmon*"))), folder)
    busy = _number(folder / "gpu_busy_percent")
    temperature = _first(hwmon / "temp2_input", hwmon / "temp1_input")  # junction, else edge; milli-degrees
    power = _first(hwmon / "power1_average", hwmon / "power1_input")  # microwatts
    clock = _number(hwmon / "freq1_input")  # hertz
    memory = _number(hwmon / "freq2_input")
    return {
        "utilisation": None if busy is None else busy / 100,
        "temperature_c": None if temperature is None else temperature / 1000,
        "power_w": None if power is None else power / 1e6,
        "sm_clock_mhz": None if clock is None else clock / 1e6,
        "mem_clock_mhz": None if memory is None else memory / 1e6,
    }


def vram_by_process(proc: Path) -> dict[str, dict[int, int]]:
    """Bytes of video memory by PCI address and pid, from `/proc/PID/fdinfo` (kernel's DRM client usage stats).

    Descriptors of one client (`drm-client-id`) are one allocation and count once.
    """
    found: dict[str, dict[int, int]] = {}
    for process in proc.iterdir():
        if not process.name.isdigit():
            continue
        for (card, _client), size in _clients(process).items():
            pids = found.setdefault(card, {})
            pids[int(process.name)] = pids.get(int(process.name), 0) + size
    return found


def _clients(process: Path) -> dict[tuple[str, str], int]:
    clients: dict[tuple[str, str], int] = {}
    try:
        # Only descriptors of GPU nodes have these facts, and reading a link is cheaper than reading the facts.
        nodes = [link.name for link in (process / "fd").iterdir() if _is_gpu(link)]
    except OSError:
        return clients
    for fd in nodes:
        facts = dict(
            line.split(":", 1) for line in (_text(process / "fdinfo" / fd) or "").splitlines() if line.count(":") >= 1
        )
        amount = facts.get("drm-memory-vram", "").split()
        if not amount or not amount[0].isdigit():
            continue
        unit = {"KiB": 1 << 10, "MiB": 1 << 20}.get(amount[1] if len(amount) > 1 else "", 1)
        clients[facts.get("drm-pdev", "").strip(), facts.get("drm-client-id", fd).strip()] = int(amount[0]) * unit
    return clients


def _is_gpu(link: Path) -> bool:
    try:
        return "/dri/" in str(link.readlink())
    except OSError:
        return False


def _first(*paths: Path) -> int | None:
    return next((value for value in map(_number, paths) if value is not None), None)


def _number(path: Path) -> int | None:
    text = _text(path)
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
