"""Markdown tables of finished runs: what each depth did, and the memory high-water of each phase.

    python benchmarks/run_tables.py RUN… [--smi nvidia-smi.csv[.gz]]

RUN is a run directory; its files may be compressed with gzip. `--smi` names what
`nvidia-smi --query-gpu=timestamp,memory.total,memory.used,… --format=csv,nounits -lms 1000` wrote meanwhile (UTC): each
of its rows is compared with our reading nearest in time.
"""

from __future__ import annotations

import argparse
import bisect
import datetime as dt
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MIB = 1 << 20
NEAR_S = 0.5
"""A reading of ours is 'of the same second' up to this distance; we read twice a second."""


def lines(folder: Path, name: str) -> Iterator[str]:
    """The lines of a run's file, compressed or not."""
    plain = folder / name
    if plain.exists():
        with plain.open(encoding="utf-8", errors="replace") as file:
            yield from file
    else:
        with gzip.open(folder / f"{name}.gz", "rt", encoding="utf-8", errors="replace") as file:
            yield from file


def events(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines(folder, "events.jsonl")]


def shown(values: list[float | None], spec: str) -> str:
    """Values of the categories, one behind the other; a dash where nothing was measured."""
    return " / ".join("–" if v is None else format(v, spec) for v in values)


def depth_table(result: dict[str, Any], boots: dict[int, list[float]]) -> list[str]:
    """One row a depth; four figures in a cell are the categories in the order of the heading."""
    names = result["categories"]
    out = [
        f"Four figures: {', '.join(names)}.", "",
        "| depth | boot s | requests | accept rate % | accept length | tok/s (mean) | TPOT ms | TTFT ms | step ms |",
        "|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for depth in result["depths"]:
        cells = {c["category"]: c for c in result["cells"] if c["depth"] == depth and c["requests"]}
        if not cells:
            continue
        row = [cells.get(name) or {} for name in names]
        rates = [None if c.get("accept_rate") is None else 100 * c["accept_rate"] for c in row]
        speeds = [sum(c["decode_tps"]) / len(c["decode_tps"]) if c.get("decode_tps") else None for c in row]
        boot = ", ".join(f"{b:.1f}" for b in boots.get(depth, []))
        parts = [
            str(depth), boot, str(sum(c.get("requests", 0) for c in row)), shown(rates, ".0f"),
            shown([c.get("accept_len") for c in row], ".2f"), shown(speeds, ".0f"),
            shown([c.get("tpot_ms") for c in row], ".2f"), shown([c.get("ttft_ms") for c in row], ".0f"),
            shown([c.get("step_ms") for c in row], ".2f"),
        ]  # fmt: skip
        out.append("| " + " | ".join(parts) + " |")
    out += ["", f"Verdict: {result['verdict']['sentence']}  ", f"Flags: {', '.join(result['flags']) or 'none'}"]
    return out


def memory_table(found: list[dict[str, Any]]) -> list[str]:
    """The high-water of each phase, MiB, and what a look cost."""
    samples = [e for e in found if e["kind"] == "memory" and e["gpus"]]
    out = [
        "| phase | looks | GPU used, most | of it this server's, most | GPU free, least | server's RSS, most |",
        "|---|---|---|---|---|---|",
    ]
    for phase in ("boot", "idle", "probe", "load"):
        here = [s for s in samples if s["phase"] == phase]
        if not here:
            continue
        gpus = [s["gpus"][0] for s in here]
        most = [max(g[name] or 0 for g in gpus) / MIB for name in ("used", "ours")]
        least, rss = min(g["free"] for g in gpus) / MIB, max(s["server_rss"] or 0 for s in here) / MIB
        out.append(f"| {phase} | {len(here)} | {most[0]:,.0f} | {most[1]:,.0f} | {least:,.0f} | {rss:,.0f} |")
    if samples:
        mean = sum(s["poll_us"] for s in samples) / len(samples)
        rate = (len(samples) - 1) / max(samples[-1]["at"] - samples[0]["at"], 1e-9)
        out.append("")
        out.append(f"A look cost {mean:,.0f} µs of CPU, {rate:.2f} a second: {mean * rate / 1e4:.2f} % of a core.")
    return out


def beside_smi(found: list[dict[str, Any]], path: Path) -> str:
    """How far our reading of `used` and `free` is from nvidia-smi's nearest in time."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        rows = [[part.strip() for part in line.split(",")] for line in file][1:]
    ours = sorted((e["at"], e["gpus"][0]) for e in found if e["kind"] == "memory" and e["gpus"])
    times = [at for at, _ in ours]
    gaps: list[float] = []
    for row in rows:
        at = dt.datetime.strptime(row[0], "%Y/%m/%d %H:%M:%S.%f").replace(tzinfo=dt.UTC).timestamp()
        place = bisect.bisect(times, at)
        near = min((abs(ours[i][0] - at), i) for i in (place - 1, place) if 0 <= i < len(ours)) if ours else (9.0, 0)
        if near[0] <= NEAR_S:
            gaps.append(abs(ours[near[1]][1]["used"] / MIB - float(row[2])))
    if not gaps:
        return "nvidia-smi: no rows of the same time."
    same = sum(gap <= 1 for gap in gaps)
    return (
        f"nvidia-smi in the same second: {len(gaps)} rows, {same} of them within 1 MiB of our `used` "
        f"({100 * same / len(gaps):.1f} %); the rest fall where memory was being taken or freed."
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("runs", nargs="+", type=Path)
    options.add_argument("--smi", type=Path)
    asked = options.parse_args()
    for folder in asked.runs:
        found = events(folder)
        result = json.loads("".join(lines(folder, "result.json")))
        boots: dict[int, list[float]] = {}
        for event in found:
            if event["kind"] == "server" and event["state"] == "ready":
                boots.setdefault(event["depth"], []).append(event["boot_s"])
        print(f"### {folder.name}\n")
        if "cells" in result:  # a sweep's; what a ceiling plan found is `draftdial show`'s to tell
            print("\n".join(depth_table(result, boots)), end="\n\n")
        print("\n".join(memory_table(found)), end="\n\n")
        if asked.smi:
            print(beside_smi(found, asked.smi), end="\n\n")


if __name__ == "__main__":
    main()
