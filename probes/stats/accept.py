"""Accept length as a function of draft depth: what one run says about smaller depths, and which curves one text allows.

Uses numpy, so import it inside functions that need it. L(k) = 1 + sum of S_i for i <= k, where S_i is the unconditional
chance that position i is accepted; S never rises with i, so L of one text is non-decreasing and concave in depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["coherent", "curve_from_histogram", "curve_from_survival", "leviathan", "misfit", "shape"]

Floats = NDArray[np.float64]


def leviathan(a: float, k: int) -> float:
    """Accept length with the same chance `a` at every position: (1 - a^(k+1)) / (1 - a) (Leviathan et al. 2023)."""
    return float(k + 1) if a == 1.0 else (1.0 - a ** (k + 1)) / (1.0 - a)


def curve_from_survival(survival: Sequence[float]) -> Floats:
    """Accept length at depths 1..k from per-position acceptance at depth k (drafts alike at every depth assumed)."""
    return 1.0 + np.cumsum(np.asarray(survival, dtype=float))


def curve_from_histogram(histogram: Sequence[int]) -> Floats:
    """Accept length at depths 1..k from `histogram[i]` = steps that accepted exactly i drafts."""
    h = np.asarray(histogram, dtype=float)
    if h.sum() <= 0:
        raise ValueError("the histogram of accepted drafts is empty")
    return curve_from_survival((h[::-1].cumsum()[::-1][1:] / h.sum()).tolist())


def coherent(lengths: Sequence[float], depths: Sequence[int]) -> bool:
    """Whether measured accept lengths could be one text's: never falling, gains never growing."""
    gains = np.diff(np.asarray(lengths, dtype=float)) / np.diff(np.asarray(depths, dtype=float))
    return bool((gains >= 0).all() and (np.diff(gains) <= 1e-9).all())


def shape(lengths: Any, depths: Sequence[int]) -> Floats:
    """Project accept lengths (last axis: ascending depths >= 1) to the nearest curve that one text allows.

    Isotonic regression of the gains per position, anchored at L(0) = 1, gains kept within 0..1; leading axes are free.
    Uses the min-max form of the pool-adjacent-violators solution, which runs on whole batches at once.
    """
    values = np.asarray(lengths, dtype=float)
    knots = np.concatenate([[0.0], np.asarray(depths, dtype=float)])
    curve = np.concatenate([np.ones((*values.shape[:-1], 1)), values], axis=-1)
    size = len(depths)
    chords = (curve[..., None, 1:] - curve[..., :-1, None]) / (knots[None, 1:] - knots[:-1, None] + _lower(size))
    chords = np.where(np.tri(size, size, -1, dtype=bool), -np.inf, chords)
    steepest = np.maximum.accumulate(chords[..., ::-1], axis=-1)[..., ::-1]
    gains = np.stack([steepest[..., : i + 1, i].min(axis=-1) for i in range(size)], axis=-1)
    return 1.0 + np.cumsum(np.clip(gains, 0.0, 1.0) * np.diff(knots), axis=-1)


def misfit(lengths: Sequence[float], depths: Sequence[int]) -> Floats:
    """How far (signed share) each measured accept length lies from the nearest curve that one text allows."""
    values = np.asarray(lengths, dtype=float)
    return np.asarray(values / shape(values, depths) - 1.0, dtype=float)


def _lower(size: int) -> Floats:
    """Keeps the unused lower triangle of chords from dividing by zero."""
    return np.where(np.tri(size, size, -1, dtype=bool), 1e9, 0.0)
