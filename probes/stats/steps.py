"""Step time as a function of draft depth: a line plus what the data insist on, with honest uncertainty.

Uses numpy, so import it inside functions that need it. A step's time depends on depth, hardly on content, so every
category measures it. Never the bare line: real step costs have kinks (a kernel or block size that changes).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["PLAIN_RESTART_SD", "draw_category_steps", "draw_steps", "shrink_step"]

Floats = NDArray[np.float64]

KINK = np.array([0.0025, 0.005, 0.01, 0.02, 0.04, 0.08])
KINK_ODDS = np.array([0.10, 0.20, 0.30, 0.25, 0.10, 0.05])
"""Prior of the deviation from a line: real curves bend by a per cent or two, a few jump."""
RESTART = np.array([0.002, 0.005, 0.01, 0.02, 0.03, 0.05])
RESTART_ODDS = np.array([0.15, 0.20, 0.20, 0.20, 0.15, 0.10])
"""Prior of the restart-to-restart noise of a step time: an idle single GPU 0.3 %, a shared server 3 %."""
PLAIN_KINK = 0.15
"""Depth 0 runs another code path (no drafter, other kernels), so the line says little about it."""
WIDE = 1e4
REQUEST_SD = 0.01
PLAIN_RESTART_SD = 0.03
"""Restart noise assumed where neither counters nor an A/A run say anything: that of a shared server."""


def shrink_step(
    log_step: Sequence[float], depths: Sequence[float], sd: float, restarts: float, tau: float = 0.02
) -> Floats:
    """Line over depths plus the deviation shrunk by tau^2 / (tau^2 + sd^2 / restarts); step times in the unit given.

    `log_step`: mean log step time per depth; `sd`: restart noise (of the log) as an A/A run measured it.
    """
    seen, x = np.exp(np.asarray(log_step, dtype=float)), np.asarray(depths, dtype=float)
    line = np.polyval(np.polyfit(x, seen, 1), x)
    keep = tau**2 / (tau**2 + sd**2 / restarts)
    return np.asarray(line * np.exp(keep * np.log(seen / line)), dtype=float)


def draw_steps(
    means: Sequence[Floats],
    depths: Sequence[int],
    own: Sequence[float],
    draws: int,
    rng: np.random.Generator,
    *,
    floor_sd: float | None = None,
) -> tuple[Floats, Floats]:
    """Draws [draw, depth] of the log step time, and its mean, given log step times per restart.

    `means[i]`: one mean log step time per restart at `depths[i]`; `own[i]`: variance that a restart's mean has from its
    requests alone; `floor_sd`: restart noise from an A/A run, else unknown. Noise and kink sizes are averaged over a
    grid, weighted by how well each explains the data (Gaussian regression on a linearised line, flat line prior).
    """
    count = np.array([len(m) for m in means], dtype=float)
    mean = np.array([float(np.mean(m)) for m in means])
    spread = np.array([float(np.sum((m - np.mean(m)) ** 2)) for m in means])
    restart = RESTART if floor_sd is None else np.array([floor_sd])
    odds = RESTART_ODDS if floor_sd is None else np.ones(1)
    noise = restart[:, None] ** 2 + np.asarray(own, dtype=float)[None, :]
    within = -0.5 * (spread / noise + (count - 1) * np.log(noise)).sum(axis=1)
    basis, line = _basis(mean, np.asarray(depths, dtype=float))
    size = len(depths)
    prior = WIDE * basis @ basis.T + _deviation(np.asarray(depths))[:, :, None] * np.eye(size)
    total = prior[None] + (noise / count)[:, None, :, None] * np.eye(size)
    gap = mean - line
    wide = np.broadcast_to(prior, total.shape)
    solved = np.linalg.solve(
        total, np.concatenate([np.broadcast_to(gap[:, None], (*total.shape[:-1], 1)), wide], axis=-1)
    )
    centre = line + np.einsum("kij,rkj->rki", prior, solved[..., 0])
    cov = wide - wide @ solved[..., 1:]
    score = -0.5 * (solved[..., 0] @ gap + np.linalg.slogdet(total)[1])
    score += within[:, None] + np.log(odds)[:, None] + np.log(KINK_ODDS)[None, :]
    weight = np.exp(score - score.max())
    weight /= weight.sum()
    picked = rng.choice(weight.size, size=draws, p=weight.ravel())
    roots = _root(cov.reshape(-1, size, size))
    drawn = centre.reshape(-1, size)[picked] + np.einsum(
        "nij,nj->ni", roots[picked], rng.standard_normal((draws, size))
    )
    return drawn, np.asarray(np.einsum("rk,rki->i", weight, centre), dtype=float)


def _deviation(depths: NDArray[np.int_]) -> Floats:
    """Prior variance [kink, depth] of the deviation from the line; two depths make no line to deviate from."""
    if len(depths) <= 2:
        return np.full((len(KINK), len(depths)), PLAIN_KINK**2)
    return np.where(depths[None, :] == 0, np.maximum(KINK, PLAIN_KINK)[:, None], KINK[:, None]) ** 2


def _basis(mean: Floats, depths: Floats) -> tuple[Floats, Floats]:
    """Directions in which the log of a line moves, and that log; the line is least squares over depths above 0."""
    seen = np.exp(mean)
    use = depths > 0 if (depths > 0).sum() >= 2 else np.ones(len(depths), dtype=bool)
    slope, start = np.polyfit(depths[use], seen[use], 1) if use.sum() > 1 else (0.0, float(seen.mean()))
    line = np.maximum(start + slope * depths, 0.2 * seen)
    return np.column_stack([seen.mean() / line, seen.mean() * depths / line / max(depths.max(), 1.0)]), np.log(line)


def _root(cov: Floats) -> Floats:
    """Square roots of covariances that may be singular."""
    values, vectors = np.linalg.eigh((cov + np.swapaxes(cov, -1, -2)) / 2)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :], dtype=float)


def draw_category_steps(
    entries: Sequence[Sequence[tuple[int, float]]], categories: int, draws: int, rng: np.random.Generator
) -> Floats:
    """Draws [draw, category, depth] of what a category's log step time adds to its depth's; near nothing as a rule.

    `entries[d]`: (category, log step time) per request. Where drafts vary in length (n-gram look-up), a step's time
    depends on content too; the spread between categories beyond the requests' own noise says how much (one-way random
    effects, method of moments), and each category's deviation is shrunk by it.
    """
    shape = (categories, len(entries))
    total, square, count = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for d, rows in enumerate(entries):
        for c, value in rows:
            total[c, d] += value
            square[c, d] += value * value
            count[c, d] += 1
    mean = total / np.maximum(count, 1)
    lost = float(np.maximum(square - count * mean**2, 0.0).sum())
    free = float(np.maximum(count - 1, 0).sum())
    request = (lost + 4 * REQUEST_SD**2) / (free + 4)
    gap = np.where(count > 0, mean - mean.sum(axis=0) / np.maximum((count > 0).sum(axis=0), 1), 0.0)
    expected = float((np.where(count > 0, request / np.maximum(count, 1), 0.0) * (1 - 1 / categories)).sum())
    groups = max(1.0, float(((count > 0).sum(axis=0) - 1).sum()))
    between = max(0.0, (float((gap**2).sum()) - expected) / groups)
    keep = between / (between + request / np.maximum(count, 1) + 1e-12)
    spread = np.sqrt(between * (1 - keep))
    return np.asarray(keep * gap + spread * rng.standard_normal((draws, *shape)), dtype=float)
