"""Do accept lengths of different depths belong together? One text's never fall with depth, and gain ever less.

Where they do not, the texts were different between depths or too few; such a sweep calls for prompts and knows no
peak. Numpy is imported inside.
"""

from __future__ import annotations

from collections.abc import Sequence

from probes.stats.cells import Cell
from probes.stats.metrics import pool_len, pool_step_ms

__all__ = ["implied_lengths", "incoherent"]

APART = 0.03
"""Share by which a measured accept length may miss the nearest possible curve."""


def implied_lengths(cells: Sequence[Cell]) -> dict[str, dict[int, float]]:
    """Accept length per category and depth >= 1: from counters, else speed times the step time of a line over depths.

    The line rests on the depths whose step times are known; with fewer than two of them, only counters speak.
    """
    steps: dict[int, list[float]] = {}
    for c in cells:
        if c.timed and (step := pool_step_ms(c.parts, plain=c.depth == 0)) is not None:
            steps.setdefault(c.depth, []).append(step)
    known = {d: sum(v) / len(v) for d, v in steps.items()}
    found: dict[str, dict[int, float]] = {}
    for c in cells:
        if c.depth == 0 or not c.timed:
            continue
        length = pool_len(c.parts)
        step = _line(known, c.depth)
        if length is None and step is not None and (speed := c.mean_tps) is not None:
            length = speed * step / 1000.0
        if length is not None:
            found.setdefault(c.category, {})[c.depth] = length
    return found


def incoherent(cells: Sequence[Cell]) -> list[str]:
    """Sentences for the cells whose accept length no curve of one text comes near."""
    from probes.stats.accept import misfit

    found = []
    for category, row in implied_lengths(cells).items():
        depths = sorted(row)
        for depth, share in zip(depths, misfit([row[d] for d in depths], depths), strict=True):
            if abs(share) > APART:
                found.append(
                    f"depth {depth}, {category}: accept length {row[depth]:.2f} is {abs(float(share)):.0%} "
                    f"{'above' if share > 0 else 'below'} any curve that one text can give"
                )
    return found


def _line(known: dict[int, float], depth: int) -> float | None:
    """Step time at a depth: as known, else by least squares over depths."""
    if depth in known:
        return known[depth]
    if len(known) < 2:
        return None
    mx, my = sum(known) / len(known), sum(known.values()) / len(known)
    slope = sum((d - mx) * (s - my) for d, s in known.items()) / sum((d - mx) ** 2 for d in known)
    return my + slope * (depth - mx)
