"""Did the machine change while it was measured? Rank correlation of order and residual, so one outlier proves nothing.

Scipy is imported inside. No flag is no proof of steadiness: twelve blocks at 3 % noise see a drift of 0.3 % a block one
time in six, so arms stay interleaved all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

__all__ = ["Drift", "drift", "drift_of_repeats"]

ALPHA = 0.01
FEWEST = 6


@dataclass(frozen=True, slots=True)
class Drift:
    """`span`: change of the log over the whole time, by least squares; `p` of Kendall's tau; `found`: both matter."""

    tau: float
    p: float
    span: float
    found: bool


def drift(order: Sequence[float], residual: Sequence[float], floor: float = 0.01) -> Drift | None:
    """Trend of log residuals over time (Kendall 1938); None with too few points to reach its level.

    A trend counts when p < 0.01 and it moved by more than `floor` over the span.
    """
    n = len(order)
    if n < FEWEST or len(set(order)) < 2 or len(set(residual)) < 2:
        return None
    from scipy import stats

    tau, p = (float(v) for v in stats.kendalltau(order, residual))
    mx, my = fmean(order), fmean(residual)
    across = sum((x - mx) ** 2 for x in order)
    slope = sum((x - mx) * (y - my) for x, y in zip(order, residual, strict=True)) / across
    span = slope * (max(order) - min(order))
    return Drift(tau, p, span, p < ALPHA and abs(span) > floor)


def drift_of_repeats(rows: Sequence[tuple[object, int, float]], floor: float = 0.01) -> Drift | None:
    """Drift from (what, restart, log value): the same thing measured at several restarts, one point per restart."""
    groups: dict[object, list[tuple[int, float]]] = {}
    for what, restart, value in rows:
        groups.setdefault(what, []).append((restart, value))
    rests: dict[int, list[float]] = {}
    for entries in groups.values():
        if len({r for r, _ in entries}) > 1:
            centre = fmean(v for _, v in entries)
            for restart, value in entries:
                rests.setdefault(restart, []).append(value - centre)
    order = sorted(rests)
    return drift([float(r) for r in order], [fmean(rests[r]) for r in order], floor)
