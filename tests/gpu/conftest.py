"""Stand-ins for the vendors' libraries, compiled here, and a Python process of its own to load them in."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

PRELUDE = """
import dataclasses, json, os, pathlib, sys
answers = {}
def gpus(readings):
    return [dataclasses.asdict(reading) for reading in readings]
"""

Ask = Callable[..., dict[str, Any]]


def compile_shared(out: Path, *sources: Path) -> None:
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("no gcc here to compile the stand-in library with")
    out.parent.mkdir(parents=True, exist_ok=True)
    argv = [gcc, "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", "-o", str(out), *map(str, sources)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def ask_python(folder: Path, script: str, env: dict[str, str]) -> dict[str, Any]:
    """Run `script`, which fills `answers`; give them back with what it wrote to its standard streams."""
    answers = folder / "answers.json"
    text = f"{PRELUDE}\n{script}\npathlib.Path({str(answers)!r}).write_text(json.dumps(answers))\n"
    inherited = {key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", text],
        cwd=ROOT,
        env={**inherited, "ROCM_PATH": str(folder / "no-rocm"), **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(answers.read_text())
    return {**found, "stdout": done.stdout, "stderr": done.stderr}


@pytest.fixture(scope="session")
def nvml_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a stand-in libnvidia-ml.so.1."""
    folder = tmp_path_factory.mktemp("nvml")
    compile_shared(folder / "libnvidia-ml.so.1", HERE / "nvml_stub.c")
    return folder


@pytest.fixture(scope="session")
def rocm_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like ROCm's, with a stand-in lib/libamd_smi.so that has every symbol which the wrapper binds."""
    folder = tmp_path_factory.mktemp("rocm")
    spec = importlib.util.find_spec("amdsmi")  # finds the package without importing it
    assert spec is not None
    assert spec.origin is not None
    wrapper = (Path(spec.origin).parent / "amdsmi_wrapper.py").read_text()
    wanted = set(re.findall(r"_libraries\['libamd_smi\.so'\]\.(\w+)", wrapper))
    written = set(re.findall(r"^int (\w+)\(", (HERE / "amd_stub.c").read_text(), re.MULTILINE))
    assert len(wanted) > 100
    assert written <= wanted, f"no such function in amdsmi: {written - wanted}"
    rest = folder / "rest.c"
    rest.write_text("".join(f"int {name}(void) {{ return 2; }}\n" for name in sorted(wanted - written)))
    compile_shared(folder / "lib" / "libamd_smi.so", HERE / "amd_stub.c", rest)
    return folder


@pytest.fixture
def nvidia(tmp_path: Path, nvml_folder: Path) -> Ask:
    """Ask a Python process on a machine with NVIDIA's driver: `nvidia(script, STUB_GPUS="2")`."""
    return lambda script, **env: ask_python(tmp_path, script, {"LD_LIBRARY_PATH": str(nvml_folder), **env})


@pytest.fixture
def amd(tmp_path: Path, rocm_folder: Path) -> Ask:
    """Ask a Python process on a machine with ROCm: `amd(script, STUB_KIND="radeon")`."""
    return lambda script, **env: ask_python(tmp_path, script, {"ROCM_PATH": str(rocm_folder), **env})


@pytest.fixture
def bare(tmp_path: Path) -> Ask:
    """Ask a Python process on a machine without any vendor's library, or with files in its place that don't open."""
    broken = {}
    if Path("/opt/rocm/lib/libamd_smi.so").exists():
        pytest.skip("ROCm is installed here")
    for name in ("libnvidia-ml.so.1", "libamd_smi.so"):
        with contextlib.suppress(OSError):
            ctypes.CDLL(name)
            (tmp_path / name).write_text("not a library")
            broken["LD_LIBRARY_PATH"] = str(tmp_path)
    return lambda script, **env: ask_python(tmp_path, script, {**broken, **env})
