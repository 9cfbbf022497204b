"""Which depth, and how sure: the probability that each is best, what a choice may cost, and when to abstain.

Uses numpy, so import it inside functions that need it. Input are draws of the speed of every depth in every category;
the choice minimises the expected excess of the worst regret and is made only when it is probably within tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["SURE", "TOLERANCE", "Choice", "choose", "cost", "needed_multiple"]

Floats = NDArray[np.float64]

TOLERANCE = 0.03
"""A choice that costs at most this much more than the best is a right one: smaller gaps are not felt."""
SURE = 0.93
"""Needed chance of being right. Above the usual 0.90, which was wrong up to 6 % of the time on curves that jump."""
MULTIPLES = (1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0)


@dataclass(frozen=True, slots=True)
class Choice:
    """A decision over depths. Arrays run over the depths given; regrets and excesses are shares 0..1."""

    depths: tuple[int, ...]
    pick: int
    """Smallest expected excess, decided or not; the smaller depth on a tie."""
    p_best: Floats
    p_within: Floats
    """Chance that choosing the depth costs at most the tolerance more than the best choice."""
    excess: Floats
    worst: Floats
    worst_low: Floats
    worst_high: Floats
    p_all_within: float
    decided: bool


def choose(
    speeds: Floats,
    depths: Sequence[int],
    *,
    mix: Sequence[float] | None = None,
    tolerance: float = TOLERANCE,
    sure: float = SURE,
) -> Choice:
    """Choose from draws [draw, category, depth] of speed. With `mix`, the objective is the weighted regret."""
    price = cost(speeds, mix)
    excess = price - price.min(axis=1, keepdims=True)
    expected = excess.mean(axis=0)
    pick = int(expected.argmin())
    within = (excess <= tolerance).mean(axis=0)
    low, mid, high = np.quantile(price, [0.05, 0.5, 0.95], axis=0)
    best = np.bincount(excess.argmin(axis=1), minlength=len(depths)) / len(excess)
    return Choice(
        depths=tuple(depths),
        pick=depths[pick],
        p_best=best,
        p_within=within,
        excess=expected,
        worst=mid,
        worst_low=low,
        worst_high=high,
        p_all_within=float((excess.max(axis=1) <= tolerance).mean()),
        decided=bool(within[pick] >= sure),
    )


def cost(speeds: Floats, mix: Sequence[float] | None = None) -> Floats:
    """Worst regret [draw, depth], or with `mix` the regret weighted by someone's traffic."""
    losses = 1.0 - speeds / speeds.max(axis=-1, keepdims=True)
    if mix is None:
        return np.asarray(losses.max(axis=1), dtype=float)
    weight = np.asarray(mix, dtype=float)
    return np.asarray(np.einsum("ncd,c->nd", losses, weight / weight.sum()), dtype=float)


def needed_multiple(
    speeds: Floats, *, mix: Sequence[float] | None = None, tolerance: float = TOLERANCE, sure: float = SURE
) -> float:
    """By how much the data must be multiplied until a choice would be sure, if the truth is where it looks to be.

    The posterior is narrowed by the square root of the multiple around its centre. Infinite when 64 times is too few.
    """
    logs = np.log(speeds)
    centre = logs.mean(axis=0)
    for times in MULTIPLES:
        price = cost(np.exp(centre + (logs - centre) / np.sqrt(times)), mix)
        excess = price - price.min(axis=1, keepdims=True)
        if (excess <= tolerance).mean(axis=0)[int(excess.mean(axis=0).argmin())] >= sure:
            return times
    return float("inf")
