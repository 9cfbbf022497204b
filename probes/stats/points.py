"""Any two measured points of a result beside each other: which half of the speed changed, and what neither explains.

Speed is accept length over step time. Pure; cells are taken in the form of `result.json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from probes.stats.factor import Split, split

__all__ = ["Between", "between", "words"]

HALVES_CANCEL = 0.01
"""Below this share of change both halves are given as factors alone: shares of next to nothing mean nothing."""


@dataclass(frozen=True, slots=True)
class Between:
    """One kind of text at two depths. Speeds are tokens per second, `lengths` tokens a step, `steps_ms` per step.

    `split` is None where the halves are not known. Its residual is None where the step time itself was made from the
    speed, since then nothing is left that could disagree.
    """

    category: str
    depths: tuple[int, int]
    speeds: tuple[float, float]
    lengths: tuple[float, float] | None
    steps_ms: tuple[float, float] | None
    split: Split | None


def between(cells: Sequence[Mapping[str, Any]], first: int, second: int) -> list[Between]:
    """The kinds of text that were measured at both depths, in the order of the cells."""
    grid = {(int(c["depth"]), str(c["category"])): c for c in cells if c.get("decode_tps")}
    names = [c for d, c in grid if d == first and (second, c) in grid]
    return [_pair(grid[first, name], grid[second, name]) for name in names]


def _pair(a: Mapping[str, Any], b: Mapping[str, Any]) -> Between:
    depths = (int(a["depth"]), int(b["depth"]))
    speeds = (fmean(a["decode_tps"]), fmean(b["decode_tps"]))
    lengths, gaps, steps = (_both(a, b, key) for key in ("accept_len", "gap_ms", "step_ms"))
    times = gaps or steps
    halves = split(times, lengths, speeds if gaps else None) if times and lengths else None
    return Between(str(a["category"]), depths, speeds, lengths, times, halves)


def _both(a: Mapping[str, Any], b: Mapping[str, Any], key: str) -> tuple[float, float] | None:
    """A figure of both points; plain decoding commits one token a step."""
    left, right = (1.0 if key == "accept_len" and c["depth"] == 0 else c.get(key) for c in (a, b))
    return (float(left), float(right)) if left and right else None


def words(found: Sequence[Between]) -> list[str]:
    """From one depth to another in words, a line a kind of text; empty where nothing was measured at both."""
    head = (
        [f"from depth {found[0].depths[0]} to {found[0].depths[1]}: speed = accept length / step time"] if found else []
    )
    return head + [f"  {b.category:<12} {_words(b)}" for b in found]


def _words(b: Between) -> str:
    change = b.speeds[1] / b.speeds[0]
    said = f"{b.speeds[0]:.1f} → {b.speeds[1]:.1f} tok/s ({change - 1:+.1%})"
    if b.lengths is None or b.steps_ms is None:
        return f"{said}; the halves are not known"
    said += f": accept length ×{b.lengths[1] / b.lengths[0]:.3f}, step time ×{b.steps_ms[1] / b.steps_ms[0]:.3f}"
    if b.split is None or abs(change - 1) < HALVES_CANCEL:
        return said
    shares = f"{b.split.accept_share:.0%} of it by accept length, {b.split.step_share:.0%} by step time"
    if b.split.residual is None:
        return f"{said}; {shares}"
    return f"{said}; {shares}, {abs(b.split.residual):.1%} explained by neither"
