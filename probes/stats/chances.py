"""How sure a sweep's losses are, in words and as a strip: a 90 % interval, the chance to be best, the expected excess.

Pure; results are taken in the form of `result.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["best", "lines"]

STRIP = 32
"""Cells from no loss to the largest loss that any interval reaches."""
WORTH_NAMING = 0.01


def best(result: Mapping[str, Any]) -> str:
    """The chance of each depth to be the best one, likeliest first; empty where nothing was decided on."""
    chances = (result.get("decision") or {}).get("p_best") or {}
    likely = sorted(((p, int(d)) for d, p in chances.items() if p >= WORTH_NAMING), key=lambda c: (-c[0], c[1]))
    return ", ".join(f"{depth} {p:.0%}" for p, depth in likely)


def lines(result: Mapping[str, Any]) -> list[str]:
    """A row a depth: `├──●──┤` on a scale from 0, the loss with its interval, and the chances."""
    decision = result.get("decision") or {}
    spans, chances, excess = (decision.get(name) or {} for name in ("cost_90", "p_best", "expected_excess"))
    if not spans:
        return []
    what = "your traffic's loss" if decision.get("objective") == "weighted" else "worst loss"
    top = max(*(row[2] for row in spans.values()), 0.001)
    how = ", told by counters and step times" if decision.get("route") == "counters" else ""
    out = [f"{what} by depth{how}: 90 % interval on a strip from 0 to {top:.1%}, chance to be best, expected excess"]
    for depth in sorted(spans, key=int):
        low, middle, high = spans[depth]
        row = f"{depth:>5} {_strip(low / top, middle / top, high / top)} {middle:>6.1%} ({low:.1%} to {high:.1%})"
        out.append(f"{row:<{STRIP + 34}} best {chances.get(depth, 0.0):>4.0%}  excess {excess.get(depth, 0.0):.1%}")
    return out


def _strip(low: float, middle: float, high: float) -> str:
    """The interval to scale; shares of the strip's length, 0..1."""
    first, at, last = (round(max(0.0, share) * (STRIP - 1)) for share in (low, middle, high))
    cells = [" "] * STRIP
    cells[first : last + 1] = ["─"] * (last + 1 - first)
    cells[first], cells[last] = "├", "┤"
    cells[at] = "●"
    return "".join(cells)
