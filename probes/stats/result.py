"""From load records to a sweep's result: cells, regret, picks, verdict and flags, in the form of `result.json`.

Pure: no file, no clock, no randomness beyond a fixed seed, so a result can always be recomputed from its records. Never
names a depth that was not measured, or whose flags were not proven to be in force.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import log
from typing import Any

from probes.events import RequestDone
from probes.stats import cells as grid
from probes.stats import flags as guards
from probes.stats.cells import Cell
from probes.stats.coherence import incoherent
from probes.stats.decide import decide
from probes.stats.drift import drift_of_repeats
from probes.stats.predict import predicted
from probes.stats.regret import argmax, minimax, regret, weighted, worst

__all__ = ["judge_sweep"]


def judge_sweep(
    requests: Sequence[RequestDone],
    *,
    engine: str,
    run: str,
    depths: Sequence[int],
    categories: Sequence[str],
    simulated: bool,
    unverified: Collection[int] = frozenset(),
    mix: Mapping[str, float] | None = None,
    incumbent: int | None = None,
    boots: Sequence[float] = (),
    wall_s: float | None = None,
    concurrency: int | None = None,
    throttled: Mapping[int, float] | None = None,
    greedy: bool = True,
    floor_sd: float | None = None,
) -> dict[str, Any]:
    """Judge a sweep, however incomplete.

    `unverified`: depths whose flags were not proven in force; `mix`: weight per category of someone's real traffic;
    `incumbent`: the depth in use now; `boots`: seconds of each start; `concurrency`: requests asked to be in flight;
    `throttled`: depth -> share 0..1 of its time slowed by heat or power brake; `greedy`: texts should be equal;
    `floor_sd`: restart noise of a log time as an A/A run of this server measured it.
    """
    order = sorted(set(depths))
    cells = grid.build(requests, order, categories)
    table = _table(cells)
    seen = [c for c in categories if any(c in row for row in table.values())]
    measured = [d for d in order if seen and all(c in table[d] for c in seen)]
    shares = dict(throttled or {})
    barred = set(unverified) | {d for d, share in shares.items() if share > guards.THROTTLE_SHARE}
    found = _flags(cells, requests, order, concurrency, shares, greedy=greedy)
    losses = regret({d: row for d, row in table.items() if d not in barred})
    able = [d for d in measured if d not in barred]
    picks = _picks(cells, losses, seen, able)
    verdict, decision = decide(cells, able, seen, mix=mix, incumbent=incumbent, floor_sd=floor_sd)
    found |= _flags_of_choice(cells, picks, decision, sorted(set(unverified) & set(measured)))
    about = {"run": run, "engine": engine, "simulated": simulated, "depths": order, "categories": list(categories)}
    return {
        "kind": "result",
        **about,
        "cells": [c.shown() | {"state": _state(c, found, verdict["state"])} for c in cells],
        "predicted": predicted(cells, order),
        "regret": _regret_shown(losses, frozenset(seen), mix),
        "picks": picks,
        "verdict": verdict,
        "decision": decision,
        "flags": sorted(found),
        "flag_details": {k: found[k] for k in sorted(found)},
        "unmeasured": {"depths": _others(order, measured), "categories": _others(categories, seen)},
        "unverified": sorted(unverified),
        "incumbent": incumbent,
        "mix": dict(mix) if mix else None,
        "wall_s": wall_s,
        "boot_s": list(boots),
        "request_s": round(sum(r.done - r.sent for r in requests if r.done is not None), 3),
    }


def _others(whole: Sequence[Any], part: Sequence[Any]) -> list[Any]:
    """What of the whole is not in the part, in order."""
    return [one for one in whole if one not in part]


def _table(cells: Sequence[Cell]) -> dict[int, dict[str, float]]:
    """Depth -> category -> mean tokens per second, of the cells that were measured."""
    table: dict[int, dict[str, float]] = {}
    for cell in cells:
        row = table.setdefault(cell.depth, {})
        if (mean := cell.mean_tps) is not None:
            row[cell.category] = mean
    return table


def _picks(
    cells: Sequence[Cell], losses: Mapping[int, Mapping[str, float]], seen: Sequence[str], able: Sequence[int]
) -> dict[str, int | None]:
    """What three rules of thumb would choose among the depths that may win; none of them is the verdict."""
    pooled: dict[int, list[float]] = {d: [] for d in able}
    for cell in cells:
        if cell.depth in pooled:
            pooled[cell.depth].extend(cell.speeds)
    worsts = {d: w for d, w in worst(losses, frozenset(seen)).items() if d in pooled}
    return {"median": argmax(pooled, "median"), "mean": argmax(pooled, "mean"), "minimax": minimax(worsts)}


def _flags(
    cells: Sequence[Cell],
    requests: Sequence[RequestDone],
    depths: Sequence[int],
    concurrency: int | None,
    shares: Mapping[int, float],
    *,
    greedy: bool,
) -> dict[str, list[str]]:
    """Every guard: flag -> sentences."""
    found = guards.per_cell(cells)
    found["LOW_CONCURRENCY"] = guards.low_concurrency(requests, depths, concurrency)
    found["THROTTLED"] = guards.throttled(shares)
    rows = [((c.depth, r.prompt_id), r.restart, log(d.tps)) for c in cells for r, d in c.timed]
    trend = drift_of_repeats(rows)
    if trend is not None and trend.found:
        found["DRIFT"] = [f"speed moved by {trend.span:+.1%} from the first restart to the last"]
    if greedy:
        between, within = guards.texts_differ(cells)
        found["NON_IDENTICAL_GREEDY"] = [f"prompt {p}: the text differs between depths" for p in between]
        found["NON_REPRODUCIBLE"] = [f"prompt {p}: the text differs between repeats at one depth" for p in within]
    return {k: v for k, v in found.items() if v}


def _flags_of_choice(
    cells: Sequence[Cell],
    picks: Mapping[str, int | None],
    decision: Mapping[str, Any] | None,
    unverified: Sequence[int],
) -> dict[str, list[str]]:
    """Guards that look at what was chosen, or could not be."""
    found = {}
    if picks["median"] != picks["mean"]:
        found["MEAN_MEDIAN_DISAGREE"] = [f"the mean says {picks['mean']}, the median {picks['median']}"]
    if unverified:
        found["CONFIG_UNVERIFIED"] = [f"depth {d} cannot win" for d in unverified]
    if decision and (decision["route"] == "speeds" or decision["incoherent"]) and (odd := incoherent(cells)):
        found["INCOHERENT"] = odd
    return found


def _state(cell: Cell, found: Mapping[str, Sequence[str]], verdict: str) -> str:
    """How far a cell's number may be believed: RAW, NO_CLAIM, FLAGGED, UNDECIDED or VERDICT."""
    if not cell.timed:
        return "RAW"
    where = f"depth {cell.depth}, {cell.category}:"
    if any(s.startswith(where) for flag in guards.SPOILS for s in found.get(flag, ())):
        return "FLAGGED"
    if cell.n < 3:
        return "NO_CLAIM"
    return "VERDICT" if verdict in {"PICK", "NOTHING_TO_CHOOSE"} else "UNDECIDED"


def _regret_shown(
    losses: Mapping[int, Mapping[str, float]], categories: frozenset[str], mix: Mapping[str, float] | None
) -> dict[str, dict[str, float | None]]:
    """Regret per depth and category, with the worst (null when a category is missing) and the weighted one."""
    worsts, means = worst(losses, categories), weighted(losses, categories, mix) if mix else {}
    shown: dict[str, dict[str, float | None]] = {}
    for depth, row in losses.items():
        if row:
            shown[str(depth)] = {c: round(v, 6) for c, v in row.items()}
            shown[str(depth)]["worst"] = round(worsts[depth], 6) if depth in worsts else None
            if mix:
                shown[str(depth)]["weighted"] = round(means[depth], 6) if depth in means else None
    return dict(sorted(shown.items(), key=lambda kv: int(kv[0])))
