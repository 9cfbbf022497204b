"""How fast `draftdial read` goes through a large log, beside `grep -c` on the same file.

Writes a log in the form of SGLang 0.5.x (a third of its lines are batch lines, the rest access lines and chatter),
reads it several times in a process of its own and prints medians: seconds, lines/s, the ratio to grep, peak memory.

    python benchmarks/read_log.py [--lines 1000000 | --megabytes 200] [--runs 3] [--keep FILE]
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PILOT = 12_000
"""Lines that are written first to learn how long one is."""
START = """\
[2026-02-03 08:00:00] server_args=ServerArgs(model_path='/m', tp_size=1, mem_fraction_static=0.85, \
chunked_prefill_size=8192, max_running_requests=64, speculative_algorithm='EAGLE3', speculative_num_draft_tokens=4)
[2026-02-03 08:01:10] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 655360, K size: 20.00 GB, V size: 20.00 GB
[2026-02-03 08:01:40] max_total_num_tokens=655360, chunked_prefill_size=8192, max_prefill_tokens=16384, \
max_running_requests=64, context_len=65536, available_gpu_mem=9.10 GB
[2026-02-03 08:01:44] The server is fired up and ready to roll!
"""
ACCESS = '[{at}] INFO:     10.0.0.{ip}:{port} - "POST /v1/chat/completions HTTP/1.1" 200 OK'
CHATTER = "[{at}] Tool call parser: request {port} finished with {ip} fragments, nothing left over in the buffer of it"
PREFILL = (
    "[{at}] Prefill batch, #new-seq: {few}, #new-token: {new}, #cached-token: {ip}, token usage: {use:.2f}, "
    "#running-req: {run}, #queue-req: {wait}, #pending-token: 0, cuda graph: False, "
    "input throughput (token/s): {rate:.2f}"
)
DECODE = (
    "[{at}] Decode batch, #running-req: {run}, #token: {tokens}, token usage: {use:.2f}, accept len: {length:.2f}, "
    "accept rate: {accept:.2f}, cuda graph: True, gen throughput (token/s): {rate:.2f}, #queue-req: {wait}"
)


def write(path: Path, lines: int) -> None:
    """A log of so many lines, always the same one."""
    rng = random.Random(7)
    with path.open("w") as out:
        out.write(START)
        for number in range(lines - START.count("\n")):
            second = 8 * 3600 + 120 + number // 30
            at = (
                f"2026-02-{3 + second // 86400:02d} {second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
            )
            kind = number % 12
            form = PREFILL if kind == 0 else DECODE if kind in {3, 6, 9} else ACCESS if kind % 2 else CHATTER
            run = 64 if number // 9000 % 2 else 20 + number % 17
            length = 1.6 + rng.random() * 1.6
            values = {
                "at": at, "ip": number % 250, "port": 30000 + number % 30000, "few": 1 + number % 4,
                "new": 900 + number % 3000, "use": run * 0.009, "run": run, "wait": 1 + number % 7 if run == 64 else 0,
                "tokens": int(run * 0.009 * 655360), "length": length, "accept": (length - 1) / 3,
                "rate": 500 + rng.random() * 3000,
            }  # fmt: skip
            out.write(form.format_map(values) + "\n")


def timed(command: list[str]) -> tuple[float, float, int]:
    """Wall seconds, CPU seconds and peak memory in bytes of a command."""
    begun = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Not to the null device: grep stops at its first match there.
    with tempfile.TemporaryFile() as out, subprocess.Popen(command, stdout=out) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in {0, 1}:
        raise SystemExit(f"{command[0]} left with {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - begun, cpu, usage.ru_maxrss * 1024


def main() -> None:
    """Write, read, compare, print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--lines", type=int, default=1_000_000)
    options.add_argument("--megabytes", type=int, help="so large instead of so many lines")
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--keep", type=Path, help="write the log there and leave it")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = asked.keep or Path(folder) / "server.log"
        if asked.megabytes is not None:
            write(path, PILOT)
            asked.lines = int(asked.megabytes * 1e6 / path.stat().st_size * PILOT)
        write(path, asked.lines)
        print(f"{asked.lines:,} lines, {path.stat().st_size / 1e6:,.0f} MB, {asked.runs} runs each, medians")
        here = [sys.executable, "-m", "probes", "read", str(path)]
        results = {}
        for name, command in {
            "grep -c": ["grep", "-c", "running-req", str(path)],
            "read": here,
            "read --json": [*here, "--json"],
        }.items():
            runs = [timed(command) for _ in range(asked.runs)]
            wall, cpu, peak = (statistics.median(r[i] for r in runs) for i in range(3))
            results[name] = wall
            print(
                f"{name:<12} {wall:7.2f} s  cpu {cpu:7.2f} s  {asked.lines / wall:12,.0f} lines/s  "
                f"{1e6 * cpu / asked.lines:6.2f} µs/line  {wall / results['grep -c']:7.1f} × grep  {peak / 1e6:6.0f} MB"
            )


if __name__ == "__main__":
    main()
