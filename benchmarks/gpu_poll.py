"""What watching GPUs costs, and whether its memory readings agree with nvidia-smi in the same second.

    python benchmarks/gpu_poll.py [--seconds 10] [--hz 5] [--stub nvidia|amd|both] [--json]

With --stub the libraries are the tests' stand-ins (needs gcc): the cost is then Python's alone, not the driver's.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from probes.events import MemorySample  # noqa: E402
from probes.gpu.watch import SLOW_S, Watch  # noqa: E402

SMI_FIELDS = ("uuid", "memory.total", "memory.used", "memory.free", "memory.reserved", "temperature.gpu", "power.draw")


def stub_environment(kind: str, folder: Path) -> dict[str, str]:
    """Compile the stand-ins into `folder`; the variables that make them be found."""
    gcc = shutil.which("gcc")
    if gcc is None:
        raise SystemExit("--stub needs gcc")
    found: dict[str, str] = {}
    source = ROOT / "tests" / "gpu"
    if kind in {"nvidia", "both"}:
        library = folder / "libnvidia-ml.so.1"
        subprocess.run([gcc, "-O1", "-shared", "-fPIC", "-o", library, source / "nvml_stub.c"], check=True)
        found |= {"LD_LIBRARY_PATH": str(folder), "STUB_PROCS": f"{os.getpid()}:1000000"}
    if kind in {"amd", "both"}:
        import importlib.util

        spec = importlib.util.find_spec("amdsmi")
        if spec is None or spec.origin is None:
            raise SystemExit("--stub amd needs the package amdsmi")
        wrapper = (Path(spec.origin).parent / "amdsmi_wrapper.py").read_text()
        written = set(re.findall(r"^int (\w+)\(", (source / "amd_stub.c").read_text(), re.MULTILINE))
        names = set(re.findall(r"_libraries\['libamd_smi\.so'\]\.(\w+)", wrapper)) - written
        rest = folder / "rest.c"
        rest.write_text("".join(f"int {name}(void) {{ return 2; }}\n" for name in sorted(names)))
        (folder / "lib").mkdir()
        library = folder / "lib" / "libamd_smi.so"
        subprocess.run([gcc, "-O1", "-shared", "-fPIC", "-o", library, source / "amd_stub.c", rest], check=True)
        found["ROCM_PATH"] = str(folder)
    return found


def cost(watch: Watch, n: int, *, slow: bool) -> dict[str, float]:
    """Microseconds of CPU and of wall time a poll, median and worst of `n`, on this thread."""
    cpu, wall = [], []
    for _ in range(n):
        watch._slow_at = -1e9 if slow else time.monotonic()  # noqa: SLF001  (each kind is measured on its own)
        began = time.perf_counter()
        sample = watch.read()
        wall.append((time.perf_counter() - began) * 1e6)
        cpu.append(sample.poll_us or 0.0)
    return {
        "cpu_us": statistics.median(cpu), "cpu_us_max": max(cpu), "wall_us": statistics.median(wall),
        "wall_us_max": max(wall),
    }  # fmt: skip


def watched(hz: float, seconds: float) -> dict[str, Any]:
    """Run the real thread for `seconds`; what it and the whole process used of a core."""
    samples: list[MemorySample] = []
    watch = Watch(samples.append, hz=hz)
    watch.set(pgid=os.getpgid(0), phase="idle")
    used, began = time.process_time(), time.monotonic()
    watch.start()
    threading.Event().wait(seconds)
    took = time.monotonic() - began
    share = (time.process_time() - used) / took
    watch.stop()
    polls = [s.poll_us or 0.0 for s in samples]
    return {
        "hz_asked": hz, "hz": len(samples) / took, "samples": len(samples),
        "core_percent_polls": sum(polls) / 1e6 / took * 100, "core_percent_process": share * 100,
    }  # fmt: skip


def beside_nvidia_smi(watch: Watch) -> list[dict[str, Any]]:
    """Our reading and nvidia-smi's of the same second, MiB, for each GPU; ours is read before and after."""
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return []
    before = {gpu.uuid: gpu for gpu in watch.read().gpus}
    argv = [smi, f"--query-gpu={','.join(SMI_FIELDS)}", "--format=csv,noheader,nounits"]
    began = time.monotonic()
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    took = time.monotonic() - began
    after = {gpu.uuid: gpu for gpu in watch.read().gpus}
    rows = []
    for line in done.stdout.splitlines():
        told = dict(zip(SMI_FIELDS, (part.strip() for part in line.split(",")), strict=False))
        mine, then = before.get(told["uuid"]), after.get(told["uuid"])
        if mine is None or then is None:
            continue
        row: dict[str, Any] = {"uuid": told["uuid"], "smi_took_s": round(took, 3)}
        for name in ("total", "used", "free", "reserved"):
            ours = [None if size is None else size / (1 << 20) for size in (getattr(mine, name), getattr(then, name))]
            row[name] = {"ours_before_mib": ours[0], "smi_mib": told[f"memory.{name}"], "ours_after_mib": ours[1]}
        row["temperature_c"] = {"ours": then.temperature_c, "smi": told["temperature.gpu"]}
        row["power_w"] = {"ours": then.power_w, "smi": told["power.draw"]}
        rows.append(row)
    return rows


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=10.0)
    options.add_argument("--hz", type=float, default=5.0)
    options.add_argument("--polls", type=int, default=200)
    options.add_argument("--stub", choices=("nvidia", "amd", "both"))
    options.add_argument("--json", action="store_true")
    asked = options.parse_args()
    if asked.stub and "GPU_POLL_STUB" not in os.environ:
        with tempfile.TemporaryDirectory() as folder:
            # Library paths are read when a process starts: a child measures.
            environ = {**os.environ, **stub_environment(asked.stub, Path(folder)), "GPU_POLL_STUB": asked.stub}
            raise SystemExit(subprocess.run([sys.executable, *sys.argv], env=environ, check=False).returncode)
    watch = Watch(lambda _: None, hz=asked.hz)
    watch.set(pgid=os.getpgid(0))
    first = watch.read()
    found: dict[str, Any] = {
        "stub": os.environ.get("GPU_POLL_STUB"),
        "gpus": [gpu.name for gpu in first.gpus],
        "why_not": list(watch.why),
        "quick": cost(watch, asked.polls, slow=False),
        "full": cost(watch, asked.polls, slow=True),
        "beside_nvidia_smi": beside_nvidia_smi(watch),
        "watched": watched(asked.hz, asked.seconds),
    }
    if asked.json:
        print(json.dumps(found))
        return
    print(f"GPUs: {', '.join(found['gpus']) or '—'}{'  (stand-in libraries)' if found['stub'] else ''}")
    for why in found["why_not"]:
        print(f"  {why}")
    for name, what in (("quick", "memory only"), ("full", f"everything, each {SLOW_S:g} s")):
        c = found[name]
        worst = c["wall_us_max"]
        print(f"{name:>6} poll: {c['cpu_us']:.0f} µs CPU, {c['wall_us']:.0f} µs wall (worst {worst:.0f}); {what}")
    w = found["watched"]
    print(
        f"watched at {w['hz_asked']:g} Hz: {w['samples']} samples ({w['hz']:.2f} Hz), polls "
        f"{w['core_percent_polls']:.2f} % of a core, whole process {w['core_percent_process']:.2f} %"
    )
    for row in found["beside_nvidia_smi"]:
        print(f"{row['uuid']}: nvidia-smi took {row['smi_took_s']} s")
        for name in ("total", "used", "free", "reserved"):
            before, smi, after = row[name].values()
            print(f"  {name:>8} MiB: ours {before} · nvidia-smi {smi} · ours after {after}")
        print(f"  temperature {row['temperature_c']}, power {row['power_w']}")


if __name__ == "__main__":
    main()
