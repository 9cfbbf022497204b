"""NVIDIA GPUs through NVML (`pynvml` of nvidia-ml-py). Whatever goes wrong is a value, never an exception.

Memory is asked as version 2, like nvidia-smi: what the driver reserves for itself is in neither `used` nor `free`.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable
from typing import Any

from probes.events import GpuReading
from probes.gpu import throttle
from probes.gpu.devices import Device
from probes.gpu.host import OnGpu, Owners

REOPEN_S = 5.0
"""Seconds between two attempts to find a lost GPU again: re-initialising costs tens of milliseconds."""

LOST = frozenset({1, 9, 15, 16, 18, 28, 999})
"""NVML codes after which the handle is worth nothing: not initialised, driver not loaded, GPU lost, reset required,
library and driver differ, GPU not found, unknown."""

_REASON = {
    1: "NVML was shut down",
    4: "no permission to ask the driver",
    9: "the NVIDIA driver is not loaded",
    12: "no NVIDIA driver library (libnvidia-ml.so.1)",
    15: "the GPU has fallen off the bus",
    16: "the GPU needs a reset",
    18: "the driver was updated and not yet reloaded (reboot, or reload its module)",
    28: "the GPU is gone",
}
"""NVML codes in words, for a person."""


class Nvml:
    """Reads every NVIDIA GPU. `why` says why there is none to read; `devices` are GPUs and, with MIG on, instances."""

    vendor = "nvidia"

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.why: str | None = None
        self.devices: tuple[Device, ...] = ()
        self.driver: str | None = None
        self.error: Exception | None = None
        self._clock = clock
        self._lib: Any = None
        self._slow: dict[str, dict[str, Any]] = {}
        self._reopen_at: float | None = None
        try:
            import pynvml
        except ImportError:
            self.why = "the package nvidia-ml-py is not installed"
            return
        self._lib = pynvml
        self.open()

    def query(self, name: str, *args: Any, default: Any = None, **kwargs: Any) -> Any:
        """The one door to the library: the result of the function `name`, or `default` where it can't be had.

        `error` then holds the reason, until the next call.
        """
        self.error = None
        try:
            return getattr(self._lib, name)(*args, **kwargs)
        except (self._lib.NVMLError, self._lib.NVMLLibraryMismatchError, AttributeError, UnicodeDecodeError) as error:
            self.error = error
            return default

    def open(self) -> None:
        """Initialise the library and list its devices; `why` says what failed."""
        self.query("nvmlInit")
        if self.error is not None:
            self.why = self.reason()
            self.devices = tuple(dataclasses.replace(d, handle=None) for d in self.devices)
            return
        self.why = None
        self.driver = self.query("nvmlSystemGetDriverVersion")
        found: list[Device] = []
        for index in range(self.query("nvmlDeviceGetCount", default=0)):
            handle = self.query("nvmlDeviceGetHandleByIndex", index)
            if handle is not None:
                found.extend(self._with_instances(index, handle))
        fresh = {d.uuid for d in found}
        # A GPU known before and not found now stays in the list, so that its loss is seen.
        lost = [dataclasses.replace(d, handle=None) for d in self.devices if d.uuid not in fresh]
        self.devices = tuple(sorted(found + lost, key=lambda d: (d.index, d.parent is not None, d.gpu_instance or 0)))
        if not self.devices:
            self.why = "the NVIDIA driver lists no GPU"

    def _with_instances(self, index: int, handle: Any) -> list[Device]:
        name = self.query("nvmlDeviceGetName", handle, default="NVIDIA GPU")
        uuid = self.query("nvmlDeviceGetUUID", handle)
        found = [Device("nvidia", index, name, uuid, handle)]
        current = self.query("nvmlDeviceGetMigMode", handle, default=(0, 0))[0]
        if not current:
            return found
        for slot in range(self.query("nvmlDeviceGetMaxMigDeviceCount", handle, default=0)):
            instance = self.query("nvmlDeviceGetMigDeviceHandleByIndex", handle, slot)
            if instance is not None:
                found.append(
                    Device(
                        "nvidia",
                        index,
                        self.query("nvmlDeviceGetName", instance, default=f"{name} MIG"),
                        self.query("nvmlDeviceGetUUID", instance),
                        instance,
                        parent=uuid,
                        gpu_instance=self.query("nvmlDeviceGetGpuInstanceId", instance),
                        compute_instance=self.query("nvmlDeviceGetComputeInstanceId", instance),
                    )
                )
        return found

    def reason(self) -> str:
        """The last error in words."""
        code = self._code()
        return _REASON.get(code, f"NVML: {self.error}") if self.error is not None else ""

    def _code(self) -> int:
        return int(getattr(self.error, "value", 0) or 0)

    def read(self, owners: Owners, chosen: Iterable[Device] | None = None, *, slow: bool = True) -> list[GpuReading]:
        """Read the chosen devices (all when None). Not `slow`: only memory, the rest as at the last slow reading."""
        if self._reopen_at is not None and self._clock() >= self._reopen_at:
            self._reopen_at = None
            self.query("nvmlShutdown")
            self.open()
        wanted = None if chosen is None else {d.uuid for d in chosen}
        return [self._one(d, owners, slow=slow) for d in self.devices if wanted is None or d.uuid in wanted]

    def _one(self, device: Device, owners: Owners, *, slow: bool) -> GpuReading:
        if device.handle is None:  # never ask with a handle of before a re-initialisation: it points nowhere
            return self._lost(device, self.why or _REASON[28])
        memory = self.query("nvmlDeviceGetMemoryInfo", device.handle, version=self._lib.nvmlMemory_v2)
        if self.error is not None and self._code() in LOST:
            return self._lost(device, self.reason())
        if memory is None:  # a driver from before version 2, where `used` includes what the driver keeps
            memory = self.query("nvmlDeviceGetMemoryInfo", device.handle)
        used = None if memory is None else int(memory.used)
        key = device.uuid or str(device.index)
        if slow or key not in self._slow:
            self._slow[key] = self._state(device)
        ours, others = owners.attribute(self._processes(device, key), used)
        state = {name: value for name, value in self._slow[key].items() if name != "graphics"}
        return GpuReading(
            index=device.index,
            name=device.name,
            uuid=device.uuid,
            total=None if memory is None else int(memory.total),
            used=used,
            free=None if memory is None else int(memory.free),
            reserved=getattr(memory, "reserved", None),
            ours=ours,
            others=others,
            **state,
        )

    def _lost(self, device: Device, problem: str) -> GpuReading:
        self._slow.pop(device.uuid or str(device.index), None)
        if self._reopen_at is None:
            self._reopen_at = self._clock() + REOPEN_S
        return GpuReading(index=device.index, name=device.name, uuid=device.uuid, problem=problem)

    def _state(self, device: Device) -> dict[str, Any]:
        """What changes slowly. An instance has no sensors of its own: it shows its GPU's."""
        whole = next((d.handle for d in self.devices if device.parent and d.uuid == device.parent), device.handle)
        utilisation = self.query("nvmlDeviceGetUtilizationRates", device.handle)
        temperature = self.query("nvmlDeviceGetTemperatureV", whole, 0)
        if temperature is None:  # drivers before 570
            temperature = self.query("nvmlDeviceGetTemperature", whole, 0)
        power = self.query("nvmlDeviceGetPowerUsage", whole)
        sm = self.query("nvmlDeviceGetClockInfo", whole, self._lib.NVML_CLOCK_SM)
        memory = self.query("nvmlDeviceGetClockInfo", whole, self._lib.NVML_CLOCK_MEM)
        mask = self.query("nvmlDeviceGetCurrentClocksEventReasons", whole)
        if mask is None:  # its name before driver 535
            mask = self.query("nvmlDeviceGetCurrentClocksThrottleReasons", whole)
        return {
            "utilisation": None if utilisation is None else utilisation.gpu / 100,
            "temperature_c": None if temperature is None else float(temperature),
            "power_w": None if power is None else power / 1000,
            "sm_clock_mhz": None if sm is None else float(sm),
            "mem_clock_mhz": None if memory is None else float(memory),
            "throttle": throttle.named(mask, throttle.NVML_BITS),
            "graphics": self.query("nvmlDeviceGetGraphicsRunningProcesses", device.handle),
        }

    def _processes(self, device: Device, key: str) -> list[OnGpu] | None:
        """Processes computing and drawing on the device; None where the driver does not list them."""
        compute = self.query("nvmlDeviceGetComputeRunningProcesses", device.handle)
        if compute is None:  # drivers before 510
            compute = self.query("nvmlDeviceGetComputeRunningProcesses_v2", device.handle)
        graphics = self._slow[key]["graphics"]
        if compute is None and graphics is None:
            return None
        found: dict[int, OnGpu] = {}
        for process in (*(compute or ()), *(graphics or ())):
            size = None if process.usedGpuMemory is None else int(process.usedGpuMemory)
            before = found.get(process.pid)
            # A process that does both is in both lists, each time with all it holds.
            if before is None or (size or 0) > (before.used or 0):
                found[process.pid] = OnGpu(int(process.pid), size)
        return list(found.values())

    def close(self) -> None:
        """Let the library go."""
        if self._lib is not None and self.why is None:
            self.query("nvmlShutdown")
