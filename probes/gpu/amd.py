"""AMD GPUs through amdsmi. Whatever goes wrong is a value, never an exception. Tested against the library's ABI only.

`import amdsmi` opens `libamd_smi.so` at once, and prints to standard output when there is none. So the library is
looked for first, and amdsmi is imported only where it opens; then once, with file descriptors 1 and 2 captured, but
only on the main thread and while nobody has taken over standard output: a screen that owns the terminal, or a thread
that prints results, writes to those descriptors itself and would lose that.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from probes.events import GpuReading
from probes.gpu import throttle
from probes.gpu.devices import Device
from probes.gpu.host import OnGpu, Owners

LIBRARY = "libamd_smi.so"
REOPEN_S = 5.0
"""Seconds between two attempts to find a lost GPU again."""

LOST = frozenset({6, 18, 31, 32, 34, 54})
"""amdsmi codes after which the handle is worth nothing: DRM error, init error, not found, not initialised, driver not
loaded, restart failed."""

_VIOLATIONS = (
    ("active_ppt_pwr", throttle.POWER_CAP),
    ("active_prochot_thrm", throttle.PROCHOT),
    ("active_socket_thrm", throttle.THERMAL_SOCKET),
    ("active_vr_thrm", throttle.THERMAL_VR),
    ("active_hbm_thrm", throttle.THERMAL_HBM),
)
_ALL_ONES = 0xFFFF_FFFF_FFFF_FFFF
_import_lock = threading.Lock()


def library(environ: Mapping[str, str]) -> str | None:
    """Where `libamd_smi.so` opens: ROCm's folder, else the dynamic linker's own search. Prints nothing."""
    rocm = environ.get("ROCM_HOME", environ.get("ROCM_PATH"))
    places = [str(Path(rocm) / "lib" / LIBRARY)] if rocm else []
    for place in (*places, LIBRARY, f"/opt/rocm/lib/{LIBRARY}"):
        try:
            ctypes.CDLL(place)
        except OSError:
            continue
        return place
    return None


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # a program without a console has none
            with contextlib.suppress(OSError, ValueError):
                stream.flush()


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    taken_over = sys.stdout is not sys.__stdout__ or sys.stderr is not sys.__stderr__
    if taken_over or threading.current_thread() is not threading.main_thread():
        # A screen, or another thread that may be printing results now, needs the descriptors.
        yield
        return
    _flush()
    kept = []
    null = os.open(os.devnull, os.O_WRONLY)
    for fd in (1, 2):
        with contextlib.suppress(OSError):  # a closed descriptor has nothing to protect
            kept.append((fd, os.dup(fd)))
            os.dup2(null, fd)
    try:
        yield
    finally:
        _flush()
        for fd, copy in kept:
            os.dup2(copy, fd)
            os.close(copy)
        os.close(null)


def load(environ: Mapping[str, str] | None = None) -> tuple[Any, str | None]:
    """The amdsmi module, or None and why not. ROCm's own copy is preferred: it fits the library that lies beside it."""
    environ = os.environ if environ is None else environ
    with _import_lock:
        if "amdsmi" in sys.modules:
            return sys.modules["amdsmi"], None
        place = library(environ)
        if place is None:
            return None, f"no AMD driver library ({LIBRARY})"
        rocm = Path(environ.get("ROCM_HOME", environ.get("ROCM_PATH", "/opt/rocm")))
        own = rocm / "share" / "amd_smi"
        for folder in ([str(own)] if (own / "amdsmi" / "__init__.py").is_file() else []) + [None]:
            path = list(sys.path)
            if folder:
                sys.path.insert(0, folder)
            try:
                with _silence():
                    import amdsmi
            except Exception as error:  # noqa: BLE001  (its import runs ctypes against whatever library there is)
                why = f"amdsmi does not fit {place}: {type(error).__name__}: {error}".splitlines()[0]
            else:
                return amdsmi, None
            finally:
                sys.path[:] = path
        return None, why


class Amd:
    """Reads every AMD GPU. `why` says why there is none to read. A partition is a device of its own, as in amdsmi."""

    vendor = "amd"

    def __init__(self, environ: Mapping[str, str] | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.devices: tuple[Device, ...] = ()
        self.driver: str | None = None
        self.error: Exception | None = None
        self._clock = clock
        self._slow: dict[str, dict[str, Any]] = {}
        self._reopen_at: float | None = None
        self._turn = -1
        self._lib, self.why = load(environ)
        if self._lib is not None:
            with _silence():
                self.open()

    def query(self, name: str, *args: Any, default: Any = None) -> Any:
        """The one door to the library: the result of the function `name`, or `default` where it can't be had.

        `error` then holds the reason, until the next call.
        """
        self.error = None
        try:
            return getattr(self._lib, name)(*args)
        # Besides its own exceptions the wrapper lets through what odd values of a driver cause while it decodes them.
        except (self._lib.AmdSmiException, AttributeError, ValueError, TypeError, OSError) as error:
            self.error = error
            return default

    def open(self) -> None:
        """Initialise the library and list its devices, in HIP's order where it is told; `why` says what failed."""
        self.query("amdsmi_init")
        if self.error is not None:
            self.why = self.reason()
            self.devices = tuple(dataclasses.replace(d, handle=None) for d in self.devices)
            return
        self.why = None
        found: list[tuple[int, Device]] = []
        for index, handle in enumerate(self.query("amdsmi_get_processor_handles", default=())):
            order = self.query("amdsmi_get_gpu_enumeration_info", handle, default={})
            uuid = str(order.get("hip_uuid") or "") or self.query("amdsmi_get_gpu_device_uuid", handle)
            asic = self.query("amdsmi_get_gpu_asic_info", handle, default={})
            name = str(asic.get("market_name", "N/A"))
            hip = _number(order.get("hip_id"))
            device = Device("amd", index, "AMD GPU" if name == "N/A" else name, uuid, handle)
            found.append((index if hip is None else int(hip), device))
        fresh = {d.uuid for _, d in found}
        lost = [dataclasses.replace(d, handle=None) for d in self.devices if d.uuid not in fresh]
        self.devices = (*(d for _, d in sorted(found, key=lambda item: (item[0], item[1].index))), *lost)
        if self.devices:
            info = self.query("amdsmi_get_gpu_driver_info", self.devices[0].handle, default={})
            self.driver = info.get("driver_version")
        else:
            self.why = "the AMD driver lists no GPU"

    def reason(self) -> str:
        """The last error in words."""
        told = getattr(self.error, "get_error_info", None)
        return f"amdsmi: {told() if told else self.error}" if self.error is not None else ""

    def read(self, owners: Owners, chosen: Iterable[Device] | None = None, *, slow: bool = True) -> list[GpuReading]:
        """Read the chosen devices (all when None). Not `slow`: only memory, the rest as at the last slow reading."""
        if self._reopen_at is not None and self._clock() >= self._reopen_at:
            self._reopen_at = None
            self.query("amdsmi_shut_down")
            self.open()
        wanted = None if chosen is None else {d.uuid for d in chosen}
        devices = [d for d in self.devices if wanted is None or d.uuid in wanted]
        if slow and devices:
            self._turn = (self._turn + 1) % len(devices)
        return [self._one(d, owners, slow=slow, violations=turn == self._turn) for turn, d in enumerate(devices)]

    def _one(self, device: Device, owners: Owners, *, slow: bool, violations: bool) -> GpuReading:
        handle = device.handle
        if handle is None:
            return self._lost(device, self.why or "the GPU is gone")
        vram = self._lib.AmdSmiMemoryType.VRAM
        total = self.query("amdsmi_get_gpu_memory_total", handle, vram)
        if self.error is not None and getattr(self.error, "err_code", None) in LOST:
            return self._lost(device, self.reason())
        used = self.query("amdsmi_get_gpu_memory_usage", handle, vram)
        if used is None or total is None:  # the older call, in MiB
            usage = self.query("amdsmi_get_gpu_vram_usage", handle, default={})
            total, used = (_mib(usage.get(key)) for key in ("vram_total", "vram_used"))
        key = device.uuid or str(device.index)
        if slow or key not in self._slow:
            before = self._slow.get(key, {}).get("throttle", ())
            self._slow[key] = self._state(handle)
            self._slow[key]["throttle"] = self._throttle(handle) if violations else before
        listed = self.query("amdsmi_get_gpu_process_list", handle)
        ours, others = owners.attribute(None if listed is None else _processes(listed), used)
        return GpuReading(
            index=device.index,
            name=device.name,
            uuid=device.uuid,
            total=total,
            used=used,
            free=None if total is None or used is None else max(0, total - used),
            ours=ours,
            others=others,
            **self._slow[key],
        )

    def _lost(self, device: Device, problem: str) -> GpuReading:
        self._slow.pop(device.uuid or str(device.index), None)
        if self._reopen_at is None:
            self._reopen_at = self._clock() + REOPEN_S
        return GpuReading(index=device.index, name=device.name, uuid=device.uuid, problem=problem)

    def _state(self, handle: Any) -> dict[str, Any]:
        lib = self._lib
        activity = _number(self.query("amdsmi_get_gpu_activity", handle, default={}).get("gfx_activity"))
        now = lib.AmdSmiTemperatureMetric.CURRENT
        sensors = (lib.AmdSmiTemperatureType.HOTSPOT, lib.AmdSmiTemperatureType.EDGE)  # Instincts have no edge sensor
        readings = (_number(self.query("amdsmi_get_temp_metric", handle, sensor, now)) for sensor in sensors)
        temperature = next((reading for reading in readings if reading is not None), None)
        if temperature is not None and temperature > 1000:  # milli-degrees, as libraries before 6 say
            temperature /= 1000
        power = self.query("amdsmi_get_power_info", handle, default={})
        told = (_number(power.get(key)) for key in ("current_socket_power", "average_socket_power", "socket_power"))
        clocks = [
            _number(self.query("amdsmi_get_clock_info", handle, kind, default={}).get("clk"))
            for kind in (lib.AmdSmiClkType.GFX, lib.AmdSmiClkType.MEM)
        ]
        return {
            "utilisation": activity / 100 if activity is not None and activity <= 100 else None,
            "temperature_c": temperature,
            "power_w": next((watts for watts in told if watts), None),
            "sm_clock_mhz": clocks[0],
            "mem_clock_mhz": clocks[1],
        }

    def _throttle(self, handle: Any) -> tuple[str, ...]:
        """Reasons in force. The library sleeps 100 ms in the first call, so only one GPU is asked at a time."""
        status = self.query("amdsmi_get_violation_status", handle)
        if status is not None:
            return tuple(name for key, name in _VIOLATIONS if status.get(key) is True)
        return throttle.named(self._metrics(handle), throttle.AMD_BITS)

    def _metrics(self, handle: Any) -> int | None:
        """The throttle bits of GPUs before MI300 and of Radeons: the Python call keeps only whether any is set."""
        wrapper = self._lib.amdsmi_interface.amdsmi_wrapper
        metrics = wrapper.amdsmi_gpu_metrics_t()
        if wrapper.amdsmi_get_gpu_metrics_info(handle, ctypes.byref(metrics)) != 0:
            return None
        bits = int(metrics.indep_throttle_status)
        return None if bits == _ALL_ONES else bits

    def close(self) -> None:
        """Let the library go."""
        if self._lib is not None and self.why is None:
            self.query("amdsmi_shut_down")


def _number(value: Any) -> float | None:
    """A number that a driver really means: the wrapper says "N/A", and lets some all-ones values through."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value in {0xFFFF, 0xFFFF_FFFF, _ALL_ONES}:
        return None
    return float(value)


def _mib(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number) << 20


def _processes(listed: Iterable[Mapping[str, Any]]) -> list[OnGpu]:
    found: list[OnGpu] = []
    for process in listed:
        size = _number(process.get("memory_usage", {}).get("vram_mem"))
        if size is None:
            size = _number(process.get("mem"))
        name = process.get("name")
        found.append(OnGpu(int(process["pid"]), None if size is None else int(size), None if name == "N/A" else name))
    return found
