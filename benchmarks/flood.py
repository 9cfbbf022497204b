"""The screen under a flood of log lines while keys are pressed: `python -m benchmarks.flood --seconds 30`.

Prints key-to-repaint times, the CPU share of the screen's process (lab thread and log reader included), its resident
memory before and after, and whether every line arrived.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.first_paint import PAINTED, open_screen, settle, until

WRITER = r"""
import os, sys, time
path, rate, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
form = '''\
{t} I slot get_availabl: id  0 | task -1 | selected slot by LCP similarity, sim_best = 0.348 (> 0.100 thold)
{t} I slot launch_slot_: id  0 | task {n} | processing task, is_child = 0
\trepeat_last_n = 64, repeat_penalty = 1.000, frequency_penalty = 0.000, presence_penalty = 0.000
\tdry_multiplier = 0.000, dry_base = 1.750, dry_allowed_length = 2, dry_penalty_last_n = 2048
{t} I slot   operator(): id  0 | task {n} | cached n_tokens = 0, memory_seq_rm [0, end)
{t} I slot init_sampler: id  0 | task {n} | init sampler, took 0.02 ms, tokens: text = 70, total = 70
{t} I slot print_timing: id  0 | task {n} | n_decoded =    100, tg =  23.22 t/s, tg_3s =  23.21 t/s
{t} I srv  update_slots: all slots are idle
{t} I srv  log_server_r: done request: POST /v1/chat/completions 127.0.0.1 200
{t} I srv  log_server_r: done request: GET /metrics 127.0.0.1 200
'''
began, number, step = time.perf_counter(), 0, rate // 50
while number < rate * seconds:
    stamps = [f"0.{n // 1000000 % 60:02}.{n // 1000 % 1000:03}.{n % 1000:03}" for n in range(number, number + step, 10)]
    os.write(out, "".join(form.format(t=t, n=number) for t in stamps).encode())
    number += step
    time.sleep(max(0, number / rate - (time.perf_counter() - began)))
print(number, time.perf_counter() - began)
"""
RIGHT, LEFT = b"\x1b[C", b"\x1b[D"


def press(terminal: int, key: bytes, word: bytes) -> float:
    """Milliseconds from a key to the bytes that show what it did."""
    os.write(terminal, key)
    return until(terminal, word, 30) * 1000


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--rate", type=int, default=20000)
    ask.add_argument("--seconds", type=float, default=30)
    chosen = ask.parse_args()
    with tempfile.TemporaryDirectory() as runs:
        pid, terminal = open_screen(["llamacpp-smollm2-ngram"], runs)
        try:
            until(terminal, PAINTED, 60)
            settle(terminal, 5)
            log = next(Path(runs).iterdir()) / "server.log"
            flood(chosen.rate, chosen.seconds, psutil.Process(pid), terminal, log)
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(terminal)


def flood(rate: int, seconds: float, screen: psutil.Process, terminal: int, log: Path) -> None:
    """Write, press keys meanwhile, and tell."""
    idle = [press(terminal, key, word) for key, word in ((RIGHT, "▸3".encode()), (LEFT, "▸0".encode())) * 10]
    resident = screen.memory_info().rss / 1e6
    used, began = sum(screen.cpu_times()[:2]), time.perf_counter()
    words = [sys.executable, "-c", WRITER, str(log), str(rate), str(seconds)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as writer:
        took, middle = [], 0.0
        while writer.poll() is None:
            took += [press(terminal, key, word) for key, word in ((RIGHT, "▸3".encode()), (LEFT, "▸0".encode()))]
            settle(terminal, 0.4)
            if not middle and time.perf_counter() - began > seconds / 2:
                middle = screen.memory_info().rss / 1e6
        wall = time.perf_counter() - began
        share = (sum(screen.cpu_times()[:2]) - used) / wall
        assert writer.stdout is not None
        lines, wrote_s = writer.stdout.read().split()
    with log.open("a") as file:
        file.write("the line after the flood\n")
    last = int(lines) + 1
    behind = until(terminal, f"line {last} of {last}".encode(), 60)
    rates = f"{int(lines) / float(wrote_s):,.0f} lines/s for {float(wrote_s):.0f} s"
    print(f"{int(lines):,} lines at {rates}; all on the screen {behind:.1f} s after the last one")
    for name, times in (("idle", idle), ("flood", took)):
        p95 = statistics.quantiles(times, n=20)[-1]
        print(
            f"key to repaint, {name}: p50 {statistics.median(times):.0f} ms, p95 {p95:.0f}, n {len(times)} (limit 100)"
        )
    print(f"CPU of the screen's process: {share:.0%} of a core (limit 20 %)")
    after = screen.memory_info().rss / 1e6
    print(f"resident: {resident:.0f} MB before, {middle:.0f} halfway, {after:.0f} after (limit 150)")


if __name__ == "__main__":
    main()
