"""Percentiles, only where there are enough independent values to mean something. Plain Python.

Below its n a percentile is not shown at all, only the maximum of n. The rules are distribution-free: with n values the
largest exceeds the q-quantile with chance 1 - q^n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log

__all__ = ["Percentile", "n_for_bound", "needed", "percentile", "shown"]

NEEDED = {90: 10, 95: 20, 99: 100}


@dataclass(frozen=True, slots=True)
class Percentile:
    """`value` is the interpolated percentile; `bound` an upper 95 % confidence bound, None when n is too small."""

    value: float
    bound: float | None


def needed(q: float) -> int:
    """Fewest values for percentile `q` as a number: one expected beyond it (and the usual 10, 20, 100)."""
    return NEEDED.get(int(q) if float(q).is_integer() else -1) or max(3, ceil(1.0 / (1.0 - q / 100.0) - 1e-9))


def n_for_bound(q: float, confidence: float = 0.95) -> int:
    """Fewest values whose maximum is an upper bound of percentile `q`."""
    return ceil(log(1.0 - confidence) / log(q / 100.0) - 1e-12)


def percentile(values: Sequence[float], q: float) -> Percentile | None:
    """The percentile of independent values, or None below its n. Linear interpolation between order statistics."""
    n = len(values)
    if n < needed(q):
        return None
    order = sorted(values)
    at = (n - 1) * q / 100.0
    low = floor(at)
    high = min(low + 1, n - 1)
    value = order[low] + (order[high] - order[low]) * (at - low)
    return Percentile(value, order[-1] if n >= n_for_bound(q) else None)


def shown(values: Sequence[float], q: float, unit: str = "ms") -> str:
    """The percentile as text, or what may be said instead: `max of n`."""
    if not values:
        return "—"
    found = percentile(values, q)
    if found is None:
        return f"max of {len(values)}: {max(values):.1f} {unit}"
    return f"p{q:g} {found.value:.1f} {unit}"
