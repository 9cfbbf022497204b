"""Where a concurrency curve bends: the point of greatest power, X^2 / N (Kleinrock 1979). Plain Python.

On a concave curve that is the last point whose throughput still grows at least half as fast as the load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Knee", "elasticities", "knee"]

CLEAR = 0.95


@dataclass(frozen=True, slots=True)
class Knee:
    """Load of greatest power; `rival` is a point within 5 % of it, and then the knee is between the two."""

    at: float
    rival: float | None
    power: tuple[float, ...]

    @property
    def sentence(self) -> str:
        """In words."""
        if self.rival is None:
            return f"the knee is at {self.at:g}"
        low, high = sorted((self.at, self.rival))
        return f"the knee is between {low:g} and {high:g}"


def knee(load: Sequence[float], throughput: Sequence[float]) -> Knee | None:
    """The knee over measured loads (achieved concurrency), None with fewer than three points."""
    if len(load) != len(throughput):
        raise ValueError("as many loads as throughputs are needed")
    if len(load) < 3:
        return None
    power = tuple(x * x / n for n, x in zip(load, throughput, strict=True))
    order = sorted(range(len(power)), key=lambda i: (-power[i], load[i]))
    close = power[order[1]] >= CLEAR * power[order[0]]
    return Knee(load[order[0]], load[order[1]] if close else None, power)


def elasticities(load: Sequence[float], throughput: Sequence[float]) -> list[float]:
    """How fast throughput grows with load, d ln X / d ln N, per segment: 1 is perfect scaling, 0 none."""
    from math import log

    return [log(throughput[i + 1] / throughput[i]) / log(load[i + 1] / load[i]) for i in range(len(load) - 1)]
