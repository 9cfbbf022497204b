"""From load records of an A/B run to its result: ratio with interval, verdict, per category, guards. Pure.

Arms are told by the ids of requests: `aa-…`, `a-…`, `b-…`. The unit of replication is the block, prompts are crossed
with blocks; see `probes.stats.ab` for the estimator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from probes.events import RequestDone
from probes.stats.cells import usable
from probes.stats.flags import THROTTLE_SHARE
from probes.stats.metrics import decode

MARGIN = 0.03
"""Practical margin: a difference below it is no difference to act on."""

Table = dict[int, dict[str, float]]


def judge_ab(
    requests: Sequence[RequestDone],
    *,
    run: str,
    engine: str,
    simulated: bool,
    differs: Sequence[str],
    warnings: Sequence[str] = (),
    margin: float = MARGIN,
    floor: float | None = None,
    slowed: Mapping[int, float] | None = None,
) -> dict[str, Any]:
    """Judge an A/B, however incomplete. `floor`: a known noise floor (log sd), used when this run has no A/A.

    `slowed`: restart -> share 0..1 of its time slowed by heat or a brake; what ran so is left out, and told.
    """
    hot = {n: share for n, share in (slowed or {}).items() if share > THROTTLE_SHARE}
    warnings = [*warnings, *_hot(requests, hot)]
    requests = [r for r in requests if r.restart not in hot]
    a, b, aa = (_table(requests, arm) for arm in ("a-", "b-", "aa-"))
    categories = {r.prompt_id: r.category for r in requests}
    blocks, prompts = _complete(a, b)
    found_floor = _floor(aa)
    heard = (found_floor or {}).get("upper", floor)
    texts = _texts_differ(requests)
    result: dict[str, Any] = {
        "kind": "result", "plan": "ab", "run": run, "engine": engine, "simulated": simulated,
        "differs": list(differs), "blocks": len(blocks), "prompts": len(prompts), "margin": margin,
        "unit": "blocks of one restart of each arm, crossed with prompts",
        "floor": found_floor or ({"upper": floor} if floor else None),
        "interval": None, "per_category": {}, "anytime": None, "needs_blocks": None, "warnings": list(warnings),
        "flags": [*_flags(differs, texts, requests), *(["THROTTLED"] if hot else [])], "texts_differ": texts,
        "incomplete_blocks": sorted({*a, *b} - set(blocks)),
        "speeds": {"a": _means(a, blocks, prompts), "b": _means(b, blocks, prompts)},
        "rows": _rows(a, b, categories),
    }  # fmt: skip
    diffs = [[math.log(b[i][p] / a[i][p]) for p in prompts] for i in blocks]
    strata = [categories[p] for p in prompts]
    result["verdict"], result["sentence"] = _decide(result, diffs, strata, margin, heard)
    return result


def _hot(requests: Sequence[RequestDone], hot: Mapping[int, float]) -> list[str]:
    """One sentence for each restart that was slowed too much to be compared."""
    where = {r.restart: (r.id.partition("-")[0].upper(), r.block + 1) for r in requests if r.restart in hot}
    return [
        f"arm {arm}, block {block} is left out: the GPU was slowed for {hot[restart]:.0%} of the time"
        for restart, (arm, block) in sorted(where.items())
    ]


def _table(requests: Sequence[RequestDone], arm: str) -> Table:
    """Block -> prompt -> tokens per second of one arm; the latest sound request of a prompt in a block counts."""
    table: Table = {}
    for r in requests:
        if r.id.startswith(arm) and usable(r) and (phase := decode(r)) is not None and phase.tps > 0:
            table.setdefault(r.block, {})[r.prompt_id] = phase.tps
    return table


def _complete(a: Table, b: Table) -> tuple[list[int], list[str]]:
    """Blocks that both arms have, and the prompts that each of them has in all of those; a poor block is dropped."""
    both = sorted(set(a) & set(b))
    sizes = {i: len(set(a[i]) & set(b[i])) for i in both}
    most = max(sizes.values(), default=0)
    blocks = [i for i in both if sizes[i] >= 0.75 * most and sizes[i]]
    common: set[str] | None = None
    for i in blocks:
        here = set(a[i]) & set(b[i])
        common = here if common is None else common & here
    return blocks, sorted(common or ())


def _floor(aa: Table) -> dict[str, float] | None:
    """Noise of a block's log ratio between identical arms, from restarts of A alone."""
    prompts = set.intersection(*(set(row) for row in aa.values())) if aa else set()
    if len(aa) < 3 or not prompts:
        return None
    from probes.stats.ab import noise_floor

    levels = [fmean(math.log(row[p]) for p in prompts) for row in aa.values()]
    found = noise_floor([math.sqrt(2) * level for level in levels])  # a ratio has the noise of two restarts
    return {"sd": found.sd, "upper": found.upper, "restarts": float(len(levels))}


def _means(table: Table, blocks: Sequence[int], prompts: Sequence[str]) -> list[float]:
    """Geometric mean speed of each block, over the common prompts."""
    return [round(math.exp(fmean(math.log(table[i][p]) for p in prompts)), 4) for i in blocks] if prompts else []


def _rows(a: Table, b: Table, categories: Mapping[str, str]) -> list[dict[str, Any]]:
    """Every block and category with the speed of each prompt in both arms, blocks that are under way included."""
    measured = {p for table in (a, b) for row in table.values() for p in row}
    names = list(dict.fromkeys(c for p, c in categories.items() if p in measured))

    def told(row: Mapping[str, float], category: str) -> list[float]:
        return [round(row[p], 3) for p in sorted(row) if categories[p] == category]

    return [
        {"block": i, "category": c, "a": told(a.get(i, {}), c), "b": told(b.get(i, {}), c)}
        for i in sorted({*a, *b})
        for c in names
    ]


def _decide(
    result: dict[str, Any], diffs: list[list[float]], strata: list[str], margin: float, floor: float | None
) -> tuple[str, str]:
    """Fill the intervals in, and say what they mean."""
    per = {c: [j for j, s in enumerate(strata) if s == c] for c in dict.fromkeys(strata)}
    thin = [c for c, columns in per.items() if len(columns) < 2]
    if len(diffs) < 2 or not per or thin:
        lack = (
            "two whole blocks are needed"
            if len(diffs) < 2
            else f"two sound prompts are needed in {', '.join(thin) or 'each category'}"
        )
        return "NO_CLAIM", f"Too little was measured to compare: {lack}."
    from probes.stats import ab

    wide, narrow = ab.two_way_ci(diffs, strata), ab.two_way_ci(diffs, strata, 0.90)
    result["interval"] = {
        "ratio": wide.ratio,
        "low": wide.low,
        "high": wide.high,
        "confidence": 0.95,
        "df": wide.df,
        "p": wide.p,
    }
    for category, columns in per.items():
        own = ab.two_way_ci([[row[j] for j in columns] for row in diffs])
        result["per_category"][category] = {
            "ratio": own.ratio,
            "low": own.low,
            "high": own.high,
            "prompts": len(columns),
        }
    means = [fmean(fmean(row[j] for j in columns) for columns in per.values()) for row in diffs]
    live = ab.anytime_t(means)
    result["anytime"] = {"low": _exp(live.low), "high": _exp(live.high), "e": live.e if math.isfinite(live.e) else None}
    verdict = ab.verdict(wide, narrow, margin=margin, floor=floor)
    if verdict == "UNDECIDED":
        sd = max(wide.se_block * math.sqrt(len(diffs)), 1e-9)
        result["needs_blocks"] = ab.blocks_needed(max(abs(math.log(wide.ratio)), margin), sd)
    return verdict, _sentence(verdict, result, floor)


def _exp(value: float) -> float | None:
    return math.exp(value) if math.isfinite(value) and value < 700 else None


def _signed(ratio: float) -> str:
    """A ratio as the change that it is, with a true minus sign as in all tables."""
    return f"{(ratio - 1) * 100:+.1f} %".replace("-", "−")


def _sentence(verdict: str, result: Mapping[str, Any], floor: float | None) -> str:
    """The verdict for a person who knows no statistics."""
    found = result["interval"]
    change = _signed(found["ratio"])
    span = f"between {_signed(found['low'])} and {_signed(found['high'])}"
    n = f"{result['blocks']} blocks of restarts, {result['prompts']} prompts"
    if verdict == "BETTER":
        return f"B is faster: {change}, {span} ({n})."
    if verdict == "WORSE":
        return f"B is slower: {change}, {span} ({n})."
    if verdict == "EQUIVALENT":
        return f"No difference to act on: {change}, {span}, inside ±{result['margin']:.0%} ({n})."
    quiet = ""
    if floor is not None and abs(math.log(found["ratio"])) < floor and (found["low"] > 1 or found["high"] < 1):
        quiet = f" Identical servers here differ by as much ({floor:.1%})."
    need = result["needs_blocks"]
    more = (
        f" About {max(need, result['blocks'] + 1)} blocks would tell."
        if need
        else " More blocks than is sensible would be needed."
    )
    return f"Undecided: {change}, {span} ({n}).{quiet}{more}"


def _texts_differ(requests: Sequence[RequestDone]) -> list[str]:
    """Prompts whose greedy text is not the same in both arms."""
    seen: dict[str, dict[str, set[str]]] = {}
    for r in requests:
        if r.outcome == "ok" and not r.warmup and r.text_hash:
            arm = "b" if r.id.startswith("b-") else "a"
            seen.setdefault(r.prompt_id, {}).setdefault(arm, set()).add(r.text_hash)
    return sorted(p for p, arms in seen.items() if len(arms) == 2 and arms["a"] != arms["b"])


def _flags(differs: Sequence[str], texts: Sequence[str], requests: Sequence[RequestDone]) -> list[str]:
    """Guards that a reader must know of."""
    flags = []
    if len(differs) > 1:
        flags.append("SEVERAL_KNOBS")
    if not differs:
        flags.append("A_A")
    if texts:
        flags.append("NON_IDENTICAL_GREEDY")
    if any(r.outcome == "ok" and not r.warmup and not usable(r) for r in requests):
        flags.append("DEGENERATE")
    if any((r.cached_tokens or 0) > 0.5 * (r.prompt_tokens or math.inf) for r in requests if not r.warmup):
        flags.append("CACHE_HITS")
    return flags
