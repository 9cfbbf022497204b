"""What acceptance by position at the deepest measured depth says of smaller depths that were not measured. Pure.

A predicted point is drawn hollow and never wins: acceptance by position is not quite the same at every depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from probes.stats.cells import Cell

__all__ = ["predicted"]


def predicted(cells: Sequence[Cell], depths: Sequence[int]) -> list[dict[str, Any]]:
    """Accept length and rate of each kind of text at depths without drafts of their own, by depth."""
    found = []
    for category in dict.fromkeys(c.category for c in cells):
        own = {c.depth: c for c in cells if c.category == category and c.drafted}
        deepest = max(own, default=0)
        survival = _survival(own[deepest]) if deepest else []
        gains = list(accumulate(survival))
        found += [
            {
                "depth": depth, "category": category, "state": "PREDICTED", "from": deepest,
                "accept_len": round(1.0 + gains[depth - 1], 6), "accept_rate": round(gains[depth - 1] / depth, 6),
            }
            for depth in depths
            if 0 < depth < deepest and depth not in own and depth <= len(gains)
        ]  # fmt: skip
    return sorted(found, key=lambda p: p["depth"])


def _survival(cell: Cell) -> list[float]:
    """Acceptance by position, pooled over requests by their steps; positions that some request does not tell go."""
    told = [(r.per_position, (r.drafted or 0) / cell.depth) for r, _ in cell.timed if r.per_position and r.drafted]
    weight = sum(steps for _, steps in told)
    length = min((len(rates) for rates, _ in told), default=0)
    return [sum(rates[i] * steps for rates, steps in told) / weight for i in range(length)]
