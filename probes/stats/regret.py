"""Regret: what a depth loses in each category against that category's own best measured depth. Plain Python.

Regret is relative to the depths that were measured; a depth that was not can neither win nor lose here.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean, median
from typing import Literal

__all__ = ["argmax", "minimax", "regret", "weighted", "worst"]

Table = Mapping[int, Mapping[str, float]]
"""Depth -> category -> tokens per second. Cells may be missing."""


def regret(table: Table) -> dict[int, dict[str, float]]:
    """Share 0..1 of the category's best measured speed that is lost, for each cell that there is."""
    best: dict[str, float] = {}
    for row in table.values():
        for category, speed in row.items():
            best[category] = max(best.get(category, 0.0), speed)
    return {d: {c: 1.0 - s / best[c] for c, s in row.items() if best[c] > 0} for d, row in table.items()}


def worst(losses: Mapping[int, Mapping[str, float]], categories: frozenset[str]) -> dict[int, float]:
    """Worst regret per depth, of the depths that have every one of `categories`."""
    full = {d: row for d, row in losses.items() if categories <= row.keys()}
    return {d: max(row[c] for c in categories) for d, row in full.items()} if categories else {}


def weighted(
    losses: Mapping[int, Mapping[str, float]], categories: frozenset[str], mix: Mapping[str, float]
) -> dict[int, float]:
    """Regret averaged with the weights of someone's real traffic; weights need not sum to one."""
    total = sum(mix.get(c, 0.0) for c in categories)
    if total <= 0:
        return {}
    full = {d: row for d, row in losses.items() if categories <= row.keys()}
    return {d: sum(row[c] * mix.get(c, 0.0) for c in categories) / total for d, row in full.items()}


def minimax(losses: Mapping[int, float]) -> int | None:
    """The depth with the smallest (worst) regret; the smaller depth on a tie."""
    return min(losses, key=lambda d: (losses[d], d)) if losses else None


def argmax(values: Mapping[int, list[float]], by: Literal["mean", "median"]) -> int | None:
    """The depth with the highest pooled `mean` or `median`; the smaller depth on a tie."""
    levels = {d: fmean(v) if by == "mean" else median(v) for d, v in values.items() if v}
    return min(levels, key=lambda d: (-levels[d], d)) if levels else None
