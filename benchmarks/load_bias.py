"""What the load client adds to TTFT and TPOT, and its CPU a token, against a stub with known times.

`python benchmarks/load_bias.py [--streams 1,16,64,256] [--bursts 1,4] [--rounds 3] [--beside COMMAND]`. Rounds of all
points are interleaved and medians over rounds are printed, as the machine is rarely quiet. `--beside` runs a command
meanwhile, such as the console on a terminal of its own. Ends with 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, fields

import uvloop

from probes.load.facts import median
from probes.load.selftest import Bias, bias, stub

TARGETS = {
    1: {"ttft_p50_ms": 1.0, "ttft_p90_ms": 3.0},
    16: {"ttft_p50_ms": 1.0, "ttft_p90_ms": 3.0},
    64: {"ttft_p50_ms": 1.0, "ttft_p90_ms": 3.0, "cpu_us": 30.0},
    256: {"ttft_p50_ms": 3.0},
}
TPOT_TARGET = 0.005
TOKENS = 128
LINE = (
    "{concurrency:7.0f} {burst:5.0f} {n:4.0f} {ttft_p50_ms:+9.3f} {ttft_p90_ms:+9.3f}   "
    "{late_p50_ms:+11.3f} {late_p90_ms:+7.3f} {tpot_rel:+8.3%} {tpot_worst_rel:6.2%} {cpu_us:8.1f}"
)


@contextlib.contextmanager
def beside(command: str | None) -> Iterator[None]:
    """Run something else meanwhile."""
    if command is None:
        yield
        return
    process = subprocess.Popen(
        shlex.split(command), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


async def measure(streams: list[int], bursts: list[int], rounds: int) -> list[list[Bias]]:
    """All points, `rounds` times over; one list a point."""
    points = [(count, burst) for count in streams for burst in bursts]
    found: dict[tuple[int, int], list[Bias]] = {point: [] for point in points}
    async with stub() as url:
        await bias(url, 4, 16, TOKENS)
        for _ in range(rounds):
            for count, burst in points:
                # One token a chunk needs no counts; in bursts the server states them, as it must for any client.
                n = max(20, count * 2)
                found[count, burst].append(await bias(url, count, n, TOKENS, burst, counts=burst > 1))
    return list(found.values())


def middle(rounds: list[Bias]) -> dict[str, float]:
    """Medians over the rounds of one point."""
    rows = [asdict(one) for one in rounds]
    return {field.name: median([float(row[field.name]) for row in rows]) or 0.0 for field in fields(Bias)}


def missed(point: dict[str, float]) -> list[str]:
    """Targets that this point misses."""
    limits = TARGETS.get(int(point["concurrency"]), {})
    found = [f"{name} {point[name]:.2f} > {limit:g}" for name, limit in limits.items() if abs(point[name]) > limit]
    if abs(point["tpot_rel"]) > TPOT_TARGET:
        found.append(f"TPOT {point['tpot_rel']:+.2%}")
    return found


def loop_ns() -> float:
    """CPU time of one turn of a bare Python loop: what the CPU figures mean on this machine, at this moment."""
    turns = 1_000_000
    before = time.process_time()
    for _ in range(turns):
        pass
    return (time.process_time() - before) / turns * 1e9


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", default="1,16,64,256")
    parser.add_argument("--bursts", default="1,4")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beside")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    streams, bursts = ([int(one) for one in text.split(",")] for text in (options.streams, options.bursts))
    with beside(options.beside), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        points = [middle(rounds) for rounds in runner.run(measure(streams, bursts, options.rounds))]
    pace = loop_ns()
    if options.json:
        print(json.dumps({"load": os.getloadavg()[0], "loop_ns": pace, "rounds": options.rounds, "points": points}))
    else:
        print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, medians of {options.rounds} rounds;")
        print(f"a bare Python loop takes {pace:.0f} ns of CPU a turn just now")
        print("streams burst    n  TTFT p50  TTFT p90 ms   late p50  p90 ms     TPOT  worst   CPU us/token")
        for point in points:
            print(
                "{concurrency:7.0f} {burst:5.0f} {n:4.0f} {ttft_p50_ms:+9.3f} {ttft_p90_ms:+9.3f}   "
                "{late_p50_ms:+11.3f} {late_p90_ms:+7.3f} {tpot_rel:+8.3%} {tpot_worst_rel:6.2%} {cpu_us:8.1f}".format(
                    **point
                )
            )
    trouble = [f"{point['concurrency']:.0f} streams: {text}" for point in points for text in missed(point)]
    for text in trouble:
        print("missed:", text, file=sys.stderr)
    return 1 if trouble else 0


if __name__ == "__main__":
    sys.exit(main())
