"""Accept length per category and depth, with uncertainty: draws of curves that a text can really have.

Uses numpy, so import it inside functions that need it. Acceptance by position is a survival curve, so accept length
never falls with depth and gains ever less; knowing that is worth several times more runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import log

import numpy as np
from numpy.typing import NDArray

from probes.stats.pooling import Seen, estimate_noise, pool

__all__ = ["SHIFT", "draw_lengths", "level"]

Floats = NDArray[np.float64]

SHIFT = 0.1
"""Accepted drafts per step are compared as log(x + SHIFT): relative noise where there are some, absolute near none."""
LEVEL, LEVEL_SD = 1.0, 1.5
SLOPE_SD, WALK_SD, FIRST_SD = 0.4, 0.5, 0.25
"""Prior on the logit of conditional acceptance: its level, a trend over positions, free steps, a freer first step."""
ITERATIONS = 12
SETTLED = 1e-6


def level(accepted_per_step: float) -> float:
    """The scale on which accepted drafts per step are pooled."""
    return log(max(accepted_per_step, 0.0) + SHIFT)


def draw_lengths(
    seen: Sequence[Sequence[Seen]], depths: Sequence[int], draws: int, rng: np.random.Generator
) -> tuple[Floats, Floats, float]:
    """Draws [draw, category, depth] of accept length, the fitted curve [category, depth], and the lack of fit.

    `depths` are >= 1. The lack of fit is the variance that no curve explains over that between runs, about 1 when
    the runs of different depths could be of the same texts.

    `seen[c]` are a category's runs; together they must speak of every depth, else ValueError. The curve is a
    discrete-time survival function whose conditional acceptances (logits) follow a trend plus a random walk over
    positions (dynamic survival model, Gamerman 1991), fitted by damped Gauss-Newton; draws are from the Laplace
    approximation with a Student scale. What no such curve can fit counts as noise of the runs.
    """
    noise, lack = estimate_noise(seen), 0.0
    for again in (True, False):
        pooled = [pool(rows, depths, noise) for rows in seen]
        centre = np.stack([p[0] for p in pooled])
        weight = np.linalg.inv(np.stack([p[1] for p in pooled]))
        logits, hess, gap, used = _fit(centre, weight, depths)
        if again:
            lost = float(np.einsum("ci,cij,cj->", gap, weight, gap)) * noise.run**2
            spare = max(0.0, gap.size - used)
            df, lack = noise.df + spare, lost / noise.run**2 / max(spare, 1.0)
            noise = replace(noise, run=float(np.sqrt((noise.run**2 * noise.df + lost) / df)), df=df)
    root = np.linalg.cholesky(np.linalg.inv(hess))
    scale = np.sqrt(noise.df / rng.chisquare(noise.df, (draws, 1, 1)))
    drawn = logits + scale * np.einsum("cij,ncj->nci", root, rng.standard_normal((draws, *logits.shape)))
    picked = np.asarray(depths) - 1
    return 1.0 + _accepted(drawn)[..., picked], 1.0 + _accepted(logits)[:, picked], lack


def _accepted(logits: Floats) -> Floats:
    """Accepted drafts per step at depths 1..K from logits of the conditional acceptance at each position."""
    return np.asarray(np.cumsum(np.cumprod(1.0 / (1.0 + np.exp(-logits)), axis=-1), axis=-1), dtype=float)


def _precision(size: int) -> Floats:
    """Precision of the logits before any data."""
    x = np.arange(size, dtype=float)
    shared = np.minimum.outer(x, x)
    walk = shared * WALK_SD**2 + np.where(shared > 0, FIRST_SD**2, 0.0)
    return np.asarray(
        np.linalg.inv(LEVEL_SD**2 + np.outer(x, x) * SLOPE_SD**2 + walk + 1e-6 * np.eye(size)), dtype=float
    )


def _fit(centre: Floats, weight: Floats, depths: Sequence[int]) -> tuple[Floats, Floats, Floats, float]:
    """Logits [category, position] that fit pooled levels best: logits, Hessian, residuals, parameters used."""
    size, count = max(depths), len(centre)
    precision = _precision(size)
    logits = np.full((count, size), LEVEL)
    kept, best, damp = logits, np.full(count, np.inf), np.full(count, 1e-3)
    grad, hess = np.zeros((count, size)), np.tile(precision, (count, 1, 1))
    for _ in range(ITERATIONS):
        model, jac = _model(logits, depths)
        gap, off = centre - model, logits - LEVEL
        loss = np.einsum("ci,cij,cj->c", gap, weight, gap) + np.einsum("ci,ij,cj->c", off, precision, off)
        better = loss <= best
        if np.abs(best - loss).max() < SETTLED:
            break
        best, kept = np.where(better, loss, best), np.where(better[:, None], logits, kept)
        damp = np.where(better, damp * 0.2, damp * 10.0)
        grad = np.where(better[:, None], np.einsum("cji,cjk,ck->ci", jac, weight, gap) - off @ precision, grad)
        curve = np.einsum("cji,cjk,ckl->cil", jac, weight, jac) + precision
        hess = np.where(better[:, None, None], curve, hess)
        logits = kept + np.linalg.solve(hess + damp[:, None, None] * np.eye(size), grad[..., None])[..., 0]
    gap = centre - _model(kept, depths)[0]
    used = float(np.trace(np.linalg.solve(hess, hess - precision), axis1=1, axis2=2).sum())
    return kept, hess, gap, used


def _model(logits: Floats, depths: Sequence[int]) -> tuple[Floats, Floats]:
    """Levels at the depths and their derivatives [category, depth, position] by the logits."""
    picked = np.asarray(depths) - 1
    chance = 1.0 / (1.0 + np.exp(-logits))
    accepted = np.cumsum(np.cumprod(chance, axis=-1), axis=-1)
    before = np.concatenate([np.zeros((len(logits), 1)), accepted[:, :-1]], axis=1)
    slope = np.tril(accepted[:, :, None] - before[:, None, :]) * (1.0 - chance)[:, None, :]
    at = accepted[:, picked] + SHIFT
    return np.log(at), slope[:, picked, :] / at[..., None]
