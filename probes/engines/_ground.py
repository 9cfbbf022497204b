"""What failures below an engine mean: memory of the GPU and the host, drivers, ranks, ports, disks, the model hub.

These are the words of torch, CUDA, NCCL, Python and the shell, the same under every engine that stands on them; no
engine's own words stand here. Single messages only: which of several is the cause is the readers' work.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from probes.events import Kind


class Ground(NamedTuple):
    """What a message says: what kind of record, a fixed word for the cause, and the cure in words."""

    kind: Kind
    cause: str
    hint: str


DEVICE_OOM: Final = re.compile(
    r"(?:CUDA|HIP|NPU|XPU|MUSA)\]?(?: driver)?(?: [Ee]rror)?:?\s+out of memory|(?<!ray\.exceptions\.)OutOfMemoryError"
    r"|cudaErrorMemoryAllocation|hipErrorOutOfMemory|CUBLAS_STATUS_ALLOC_FAILED|RESOURCE_EXHAUSTED: .{0,120}memory"
)
"""Memory of the device ran out, in any layer's words. The cure is the engine's."""

_HOST = "the host ran out of memory: give it more, or load less at once; a GPU setting does not help"
_FAULT = "a fault in a kernel, unrelated to capacity: another attention backend, version or driver"
_RANKS = "a rank died or stands still, or the GPUs cannot reach each other: look for the first that failed"
_NEWER = "this version does not know that model: take a newer one, and newer transformers with it"
_TABLE: Final[tuple[tuple[str, Ground], ...]] = (
    ("running low on memory", Ground("error", "host_memory", _HOST)),
    ("Cannot allocate memory", Ground("error", "host_memory", _HOST)),
    ("can't allocate memory", Ground("error", "host_memory", _HOST)),
    ("no kernel image is available", Ground("error", "kernel", "this build has no kernels for that GPU: take a build "
     "for its compute capability")),
    ("driver on your system is too old", Ground("error", "no_gpu", "the GPU driver is older than this build needs: "
     "update it, or take an older build")),
    ("driver version is insufficient", Ground("error", "no_gpu", "the GPU driver is older than this build needs: "
     "update it, or take an older build")),
    ("uncorrectable ECC", Ground("crash", "kernel", "the GPU's memory is faulty: reset that GPU, or leave it out")),
    ("device-side assert", Ground("crash", "kernel", _FAULT)),
    ("unspecified launch failure", Ground("crash", "kernel", _FAULT)),
    ("illegal instruction was encountered", Ground("crash", "kernel", _FAULT)),
    ("misaligned address", Ground("crash", "kernel", _FAULT)),
    ("collective operation timeout", Ground("crash", "ranks", _RANKS)),
    ("AlignedAllocator", Ground("error", "workspace_too_small", "FlashInfer's workspace is too small, the GPU isn't "
     "full: raise its size (the engine's environment variable), or capture and run smaller batches")),
    ("onnection closed by peer", Ground("error", "ranks", _RANKS)),
    ("NCCL error", Ground("crash", "ranks", _RANKS)),
    ("ddress already in use", Ground("error", "port_in_use", "another process listens on this port: choose another")),
    ("No space left on device", Ground("error", "disk_full", "a disk or shared memory is full: free it, or give more")),
    ("does not recognize this architecture", Ground("error", "unsupported_model", _NEWER)),
    ("are not supported for now", Ground("error", "unsupported_model", _NEWER)),
    ("gated repo", Ground("error", "model_not_found", "the model needs an accepted licence and a token in the "
     "environment")),
    ("GatedRepoError", Ground("error", "model_not_found", "the model needs an accepted licence and a token in the "
     "environment")),
    ("Cannot find any model weights", Ground("error", "model_not_found", "not a complete model folder: check the "
     "path")),
    ("cannot open shared object file", Ground("error", "missing_package", "a native library is missing or of another "
     "version: install what this build was made for")),
    ("No module named ", Ground("error", "missing_package", "a Python package is missing in this environment")),
)  # fmt: skip
"""Most telling first."""

_RAW = re.compile(
    r"(?P<ranks>Watchdog caught collective operation timeout)"
    r"|(?P<segfault>\ASegmentation fault\b|\AFatal Python error: |Segfault encountered |\AIllegal instruction \(core"
    r"|\AAborted \(core dumped\))"
    r"|(?P<bus>\ABus error\b)"
    r"|(?P<killed>\AKilled\Z|\A\S{1,80}: line \d{1,6}: +\d{1,9} Killed\b)"
)
_DEATHS: Final = {
    "ranks": Ground("crash", "ranks", _RANKS),
    "segfault": Ground("crash", "native", "a native library crashed: check that driver, torch and engine fit together"),
    "bus": Ground("crash", "native", "shared memory is often too small in a container: --shm-size or --ipc=host"),
    "killed": Ground("exit", "killed", "often the host ran out of memory: the kernel's log tells"),
}


def find(message: str) -> Ground | None:
    """What is known about an error's message; None: nothing. `DEVICE_OOM` is asked apart."""
    for needle, ground in _TABLE:
        if needle in message:
            return ground
    return None


def death(text: str) -> Ground | None:
    """A raw line by which the system, the shell or a native library tells that a process ended; None: another line."""
    found = _RAW.search(text, 0, 300)
    return _DEATHS[found.lastgroup or ""] if found else None
