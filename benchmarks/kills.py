"""Kill the console, the server or the load process at a random moment of a sweep, again and again: no orphan, no lost
record, and a resumed sweep ends with the same counts. Prints one line a kill and a summary; exits 1 on any failure.

    python benchmarks/kills.py --times 20 --seed 1
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from probes import store

WORDS = ["llamacpp-smollm2-ngram", "--depths", "0,3,6", "--prompts", "1", "--max-tokens", "24"]


def command(root: Path, *words: str) -> subprocess.Popen[bytes]:
    """A sweep as a process, its runs under `root`."""
    return subprocess.Popen(
        [sys.executable, "-m", "probes", "sweep", *words, "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        env={**os.environ, "DRAFTDIAL_RUNS": str(root)},
    )  # fmt: skip


def output(process: subprocess.Popen[bytes], limit_s: float) -> bytes:
    """All it prints until it ends or the time is up."""
    assert process.stdout is not None
    end, data = time.monotonic() + limit_s, b""
    while time.monotonic() < end:
        if select.select([process.stdout], [], [], 0.1)[0]:
            more = os.read(process.stdout.fileno(), 1 << 16)
            if not more:
                break
            data += more
    process.wait(10)
    return data


def counted(run: store.Run) -> dict[str, tuple[Any, ...]]:
    """What must not depend on kills: counts and text of every measured prompt at every depth."""
    return {
        f"{r.depth} {r.prompt_id}": (r.drafted, r.accepted, r.completion_tokens, r.text_hash)
        for r in run.requests()
        if r.outcome == "ok" and not r.warmup
    }


def living(family: list[psutil.Process], limit_s: float) -> list[psutil.Process]:
    """Who still runs after so many seconds; the dead that init has not reaped yet do not run."""
    end = time.monotonic() + limit_s
    left = family
    while left and time.monotonic() < end:
        _, left = psutil.wait_procs(left, timeout=0.05)
        left = [p for p in left if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    return left


def one(root: Path, victim: str, wait_s: float) -> tuple[list[str], dict[str, tuple[Any, ...]]]:
    """One kill after so many seconds: what went wrong, and the counts in the end."""
    process = command(root, *WORDS)
    time.sleep(wait_s)  # the random moment itself
    family = psutil.Process(process.pid).children(recursive=True)
    by_name = {
        "console": [psutil.Process(process.pid)],
        "server": [p for p in family if "llama-server" in p.name()],
        "load": [p for p in family if "probes.load" in " ".join(p.cmdline())],
    }
    runs = store.listing(root)
    before = {r.id for r in runs[0].requests()} if runs else set()
    for target in by_name[victim][:1]:
        target.kill()
    wrong = []
    if victim == "console":
        began = time.monotonic()
        alive = living(family, 2.0)
        if alive:
            wrong.append(f"orphans after {time.monotonic() - began:.1f} s: {[p.name() for p in alive]}")
        output(process, 5)
        runs = store.listing(root)
        again = command(root, "--resume", runs[0].name) if runs else command(root, *WORDS)
        text = output(again, 300)
        code = again.returncode
    else:
        text = output(process, 300)
        code = process.returncode
    last = json.loads(text.splitlines()[-1]) if text.strip() else {}
    if code != 0 or last.get("kind") != "result":
        wrong.append(f"exit {code}, last line {last.get('kind')}")
    run = store.listing(root)[0]
    if not before <= {r.id for r in run.requests()}:
        wrong.append("a record was lost")
    left = [p for p in psutil.process_iter(["cmdline"]) if str(run.path) in " ".join(p.info["cmdline"] or [])]
    if left:
        wrong.append(f"left running: {[p.pid for p in left]}")
    return wrong, counted(run)


def main() -> int:
    """Kill as often as asked for."""
    args = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    args.add_argument("--times", type=int, default=20)
    args.add_argument("--seed", type=int, default=1)
    options = args.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as whole:
        root = Path(whole)
        began = time.monotonic()
        calm = command(root / "calm", *WORDS)
        output(calm, 300)
        length = time.monotonic() - began
        truth = counted(store.listing(root / "calm")[0])
        print(f"undisturbed: {length:.1f} s, {len(truth)} prompts measured")
        bad = 0
        for number in range(options.times):
            victim = ("console", "server", "load")[number % 3]
            wait_s = rng.uniform(0.5, length * 0.95)
            wrong, counts = one(root / str(number), victim, wait_s)
            if counts != truth:
                wrong.append(f"counts differ in {[k for k in truth if counts.get(k) != truth[k]]}")
            bad += bool(wrong)
            print(f"{number + 1:>3} {victim:<8} at {wait_s:5.1f} s: {'; '.join(wrong) or 'nothing lost'}")
    print(json.dumps({"kills": options.times, "failures": bad, "seed": options.seed}))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
