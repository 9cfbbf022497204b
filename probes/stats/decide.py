"""A sweep's verdict: pick a depth, say that there is nothing to choose, or abstain and say what is missing.

Numpy is imported inside, and only once enough was measured to compare. Never names a depth that was not measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from probes.stats.cells import Cell
from probes.stats.coherence import incoherent
from probes.stats.explain import verdict_sentence

if TYPE_CHECKING:
    from probes.stats.choose import Choice
    from probes.stats.evidence import Draws

__all__ = ["LACK", "decide"]

ENOUGH = 2
"""Distinct prompts needed in a cell: one is a value, not a comparison."""
LACK = 2.5
"""Lack of fit above which accept lengths of different depths are not of the same texts; noise alone stays below."""


def decide(
    cells: Sequence[Cell],
    depths: Sequence[int],
    categories: Sequence[str],
    *,
    mix: Mapping[str, float] | None = None,
    incumbent: int | None = None,
    floor_sd: float | None = None,
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Verdict and the decision's numbers (None when nothing can be compared) over depths complete in `categories`."""
    verdict: dict[str, Any] = {"state": "NO_CLAIM", "depth": None, "needs_requests": None, "sentence": ""}
    judged = [c for c in cells if c.depth in depths and c.category in categories]
    if len(depths) < 2:
        return verdict | {"sentence": verdict_sentence(verdict, None, depths, incumbent)}, None
    short = _short(judged, depths)
    if short:
        verdict["needs_requests"] = short
        return verdict | {"sentence": verdict_sentence(verdict, None, depths, incumbent)}, None
    from probes.stats.choose import choose, needed_multiple
    from probes.stats.evidence import draw_speeds

    drawn = draw_speeds(judged, depths, categories, floor_sd=floor_sd)
    weights = [mix.get(c, 0.0) for c in categories] if mix else None
    weights = weights if weights and sum(weights) > 0 else None
    choice = choose(drawn.speeds, depths, mix=weights)
    apart = drawn.route == "counters" and drawn.lack > LACK and bool(incoherent(judged))
    shown = _shown(choice, drawn, categories, weighted=weights is not None)
    thin = sum(max(0, ENOUGH - c.n) for c in judged if c.depth == choice.pick)
    requests = sum(len(c.timed) for c in judged)
    if choice.p_all_within >= shown["sure"] and not apart:
        verdict["state"] = "NOTHING_TO_CHOOSE"
    elif choice.decided and not apart and not thin:
        verdict |= {"state": "PICK", "depth": _keep(choice, incumbent, shown["sure"])}
    else:
        times = needed_multiple(drawn.speeds, mix=weights)
        times = max(times, 2.0) if apart else times
        more = thin if choice.decided and thin else _round((times - 1.0) * requests) if isfinite(times) else None
        verdict |= {"state": "UNDECIDED", "needs_requests": max(more, len(categories)) if more is not None else None}
    shown |= {"incoherent": apart, "unconfirmed": bool(choice.decided and thin and not apart)}
    return verdict | {"sentence": verdict_sentence(verdict, shown, depths, incumbent)}, shown


def _short(judged: Sequence[Cell], depths: Sequence[int]) -> int:
    """Requests missing before anything can be compared.

    With counters two prompts a category at one depth do, since that depth speaks for the others too; without, every
    cell needs them.
    """
    counted = all(c.accepted is not None for c in judged if c.depth > 0)
    if counted:
        best: dict[str, int] = {}
        for c in judged:
            best[c.category] = max(best.get(c.category, 0), c.n)
        return sum(max(0, ENOUGH - n) for n in best.values()) * (len(depths) if max(best.values()) < ENOUGH else 1)
    return sum(max(0, ENOUGH - c.n) for c in judged)


def _keep(choice: Choice, incumbent: int | None, sure: float) -> int:
    """The pick, or the depth in use where that is surely as good: a change must be worth it."""
    if incumbent in choice.depths and choice.p_within[choice.depths.index(incumbent)] >= sure:
        return incumbent
    return choice.pick


def _shown(choice: Choice, drawn: Draws, categories: Sequence[str], *, weighted: bool) -> dict[str, Any]:
    """The decision's numbers in plain JSON, by depth."""
    from probes.stats.choose import SURE, TOLERANCE

    def by_depth(values: Any) -> dict[str, float]:
        return {str(d): round(float(v), 4) for d, v in zip(choice.depths, values, strict=True)}

    worst = zip(choice.worst_low, choice.worst, choice.worst_high, strict=True)
    return {
        "route": drawn.route,
        "objective": "weighted" if weighted else "worst",
        "leading": choice.pick,
        "p_best": by_depth(choice.p_best),
        "p_within": by_depth(choice.p_within),
        "p_all_within": round(choice.p_all_within, 4),
        "expected_excess": by_depth(choice.excess),
        "cost_90": {str(d): [round(float(x), 4) for x in row] for d, row in zip(choice.depths, worst, strict=True)},
        "tolerance": TOLERANCE,
        "sure": SURE,
        "lack_of_fit": round(drawn.lack, 3) if drawn.route == "counters" else None,
        "accept_len": None
        if drawn.lengths is None
        else {c: by_depth(row) for c, row in zip(categories, drawn.lengths, strict=True)},
        "step_ms": None if drawn.step_ms is None else by_depth(drawn.step_ms),
    }


def _round(requests: float) -> int:
    """Two significant figures are more than such an estimate deserves."""
    return max(1, int(round(requests, -1 if requests >= 100 else 0)))
