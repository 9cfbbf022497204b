"""Split the ratio of two speeds into its halves: tokens per step and time per step. Plain Python.

The split is on the log scale, where the halves add; what they do not explain is the error bar, not a third cause.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

__all__ = ["Split", "halved_part", "split"]


@dataclass(frozen=True, slots=True)
class Split:
    """Slow-down of a second point against a first. Shares are of the predicted log ratio, and add to one.

    `residual`: measured over predicted, minus one; None when no independent speed was measured.
    """

    step_ratio: float
    accept_ratio: float
    predicted: float
    step_share: float
    accept_share: float
    residual: float | None


def split(
    step_ms: tuple[float, float], accept_len: tuple[float, float], tps: tuple[float, float] | None = None
) -> Split | None:
    """Split the loss from the first point to the second; None when the predicted speeds are equal.

    `tps`: output speeds by another route. Step time = accept length x TPOT, so from those two the prediction is the
    TPOT ratio by identity and no test of anything.
    """
    step, accept = step_ms[1] / step_ms[0], accept_len[0] / accept_len[1]
    predicted = step * accept
    if abs(log(predicted)) < 1e-12:
        return None
    residual = tps[0] / tps[1] / predicted - 1.0 if tps else None
    whole = log(predicted)
    return Split(step, accept, predicted, log(step) / whole, log(accept) / whole, residual)


def halved_part(base: float, now: float) -> float:
    """Speed gained when the part of a step that grew from `base` to `now` is halved."""
    return now / (base + (now - base) / 2.0)
