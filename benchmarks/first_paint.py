"""How soon the live screen is painted after exec, and how much memory it holds: `python -m benchmarks.first_paint`."""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import select
import signal
import statistics
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path

import psutil

PAINTED = b"Regret"
COMPILED = Path(tempfile.gettempdir()) / "draftdial-benchmark-bytecode"
"""An installed program is compiled once; so is this one, by a first start that is not counted."""


def open_screen(words: list[str], runs: str, size: tuple[int, int] = (160, 48)) -> tuple[int, int]:
    """The screen in a terminal of its own: its pid and the terminal's descriptor."""
    pid, terminal = pty.fork()
    if pid == 0:
        env = {**os.environ, "DRAFTDIAL_RUNS": runs, "TERM": "xterm-256color", "PYTHONPYCACHEPREFIX": str(COMPILED)}
        env = {k: v for k, v in env.items() if k not in {"COLUMNS", "LINES", "PYTHONDONTWRITEBYTECODE"}}
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        os.execve(sys.executable, [sys.executable, "-m", "tui", *words], env)  # noqa: S606  (a terminal of its own is wanted)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    return pid, terminal


def until(terminal: int, word: bytes, limit_s: float) -> float:
    """Seconds until the terminal was sent `word`."""
    began, seen = time.perf_counter(), b""
    while time.perf_counter() - began < limit_s:
        if select.select([terminal], [], [], 0.05)[0]:
            seen = seen[-4096:] + os.read(terminal, 1 << 16)
            if word in seen:
                return time.perf_counter() - began
    raise SystemExit(f"{word!r} was not painted within {limit_s} s")


def settle(terminal: int, seconds: float) -> None:
    """Read what it paints for a while."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        if select.select([terminal], [], [], 0.05)[0]:
            os.read(terminal, 1 << 16)


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--times", type=int, default=7)
    ask.add_argument("--preset", default="llamacpp")
    chosen = ask.parse_args()
    words, paints, used, resident = [], [], [], []
    for number in range(chosen.times + 1):
        with tempfile.TemporaryDirectory() as runs:
            pid, terminal = open_screen([chosen.preset], runs)
            screen = psutil.Process(pid)
            try:
                words.append(until(terminal, b"draftdial", 60))
                paints.append(words[-1] + until(terminal, PAINTED, 60))
                used.append(sum(screen.cpu_times()[:2]))
                settle(terminal, 3)
                resident.append(screen.memory_info().rss / 1e6)
            finally:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                os.close(terminal)
        if number == 0:
            words, paints, used, resident = [], [], [], []
    middle = statistics.median
    print(f"first word: {min(words):.2f} s best, {middle(words):.2f} s median of {len(words)}")
    print(f"whole screen: {min(paints):.2f} s best, {middle(paints):.2f} s median (limit 0.6)")
    print(f"CPU until then: {min(used):.2f} s best, {middle(used):.2f} s median")
    print(f"resident after 3 s: {max(resident):.0f} MB (limit 150)")


if __name__ == "__main__":
    main()
