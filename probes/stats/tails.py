"""The slow end of a sweep's times to first token, as far as so few prompts can tell it. Pure.

A percentile below its n is not shown: then stand both values of two, or the maximum and of how many it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from probes.stats.percentiles import NEEDED, percentile

__all__ = ["lines", "words"]

HEAD = "TTFT ms: both of two values, else the median, and the highest percentile that so many prompts allow or the most"


def words(values: Sequence[float]) -> str:
    """Independent values in short: `51.7/52.0`, `51.9 max 60.1 of 8`, `51.9 p90 58.8`."""
    if len(values) <= 2:
        return "/".join(f"{v:.1f}" for v in values) or "—"
    for q in sorted(NEEDED, reverse=True):
        if (found := percentile(values, q)) is not None:
            return f"{median(values):.1f} p{q} {found.value:.1f}"
    return f"{median(values):.1f} max {max(values):.1f} of {len(values)}"


def lines(result: Mapping[str, Any]) -> list[str]:
    """A row a depth, a column a kind of text; empty where nothing was measured."""
    cells = [c for c in result.get("cells") or [] if c.get("ttft_each_ms")]
    names = [n for n in result.get("categories") or [] if any(c["category"] == n for c in cells)]
    if not names:
        return []
    grid = {(c["depth"], c["category"]): words(c["ttft_each_ms"]) for c in cells}
    width = max(12, *(len(said) for said in grid.values()), *(len(n[:20]) for n in names))
    out = [HEAD, f"{'depth':>5} " + " ".join(f"{n[:20]:>{width}}" for n in names)]
    return out + [
        f"{depth:>5} " + " ".join(f"{grid.get((depth, n), '—'):>{width}}" for n in names)
        for depth in sorted({c["depth"] for c in cells})
    ]
