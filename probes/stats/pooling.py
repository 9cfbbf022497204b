"""Pooling over prompts and runs: one level per depth from runs of shared prompts, with the covariance it deserves.

Uses numpy, so import it inside functions that need it. Prompts and runs are random, depths are not: the same prompt at
every depth cancels its own effect, and levels that one deep run implies for smaller depths share that run's noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Noise", "Seen", "estimate_noise", "pool"]

Floats = NDArray[np.float64]

PROMPT_SD, RUN_SD, WITHIN_SD = 0.08, 0.07, 0.02
"""Usual sizes on a log scale: prompts of one category differ by 8 %, a prompt's run at one depth by 5-10 %."""
PRIOR_DF = 4.0
"""How many residuals the usual sizes are worth."""
PREFIX_SD = 0.03
"""Acceptance by position depends a little on depth; what is only derived from a deeper run carries this on top."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One prompt's run at one depth: log `levels` at depths `at`, of which the last is its own.

    `size`: how long the run was, relative to the usual; short runs are noisier.
    """

    prompt: str
    depth: int
    at: tuple[int, ...]
    levels: tuple[float, ...]
    size: float = 1.0


@dataclass(frozen=True, slots=True)
class Noise:
    """Standard deviations on the log scale: of a run (with degrees of freedom) and of positions within a run."""

    run: float
    df: float
    within: float


def pool(rows: Sequence[Seen], depths: Sequence[int], noise: Noise) -> tuple[Floats, Floats]:
    """Mean level per depth of one category and its covariance: generalised least squares with random effects.

    Raises ValueError when some depth has no run that speaks of it.
    """
    index = {d: i for i, d in enumerate(depths)}
    info, right = np.zeros((len(index), len(index))), np.zeros(len(index))
    prompts: dict[str, list[Seen]] = {}
    for row in rows:
        prompts.setdefault(row.prompt, []).append(row)
    for runs in prompts.values():
        entries = [
            (k, index[d], level)
            for k, r in enumerate(runs)
            for d, level in zip(r.at, r.levels, strict=True)
            if d in index
        ]
        if not entries:
            continue
        run = np.array([k for k, _, _ in entries])
        own = np.array([noise.run**2 / runs[k].size for k, _, _ in entries])
        cov = PROMPT_SD**2 + np.where(run[:, None] == run[None, :], own[:, None], 0.0)
        cov += noise.within**2 * np.eye(len(entries))
        pick = np.zeros((len(entries), len(index)))
        pick[np.arange(len(entries)), [i for _, i, _ in entries]] = 1.0
        solved = np.linalg.solve(cov, pick)
        info += pick.T @ solved
        right += solved.T @ np.array([level for _, _, level in entries])
    if (np.diag(info) <= 0).any():
        raise ValueError("a depth has no run that speaks of it")
    spread = np.asarray(np.linalg.inv(info), dtype=float)
    direct = {r.depth for r in rows}
    return spread @ right, spread + np.diag([1e-9 if d in direct else PREFIX_SD**2 for d in depths])


def estimate_noise(categories: Sequence[Sequence[Seen]]) -> Noise:
    """Noise from the residuals of additive prompt + depth fits, pooled over categories with a weak prior."""
    total, df, inner, inner_df = PRIOR_DF * RUN_SD**2, PRIOR_DF, PRIOR_DF * WITHIN_SD**2, PRIOR_DF
    for rows in categories:
        lost, free = _additive(rows)
        total, df = total + lost, df + free
        by_depths: dict[tuple[int, ...], list[tuple[float, ...]]] = {}
        for r in rows:
            if len(r.at) > 1:
                by_depths.setdefault(r.at, []).append(r.levels)
        for curves in by_depths.values():
            m = np.array(curves)
            rest = m - m.mean(axis=0) - m.mean(axis=1, keepdims=True) + m.mean()
            inner += float((rest**2).sum())
            inner_df += (m.shape[0] - 1) * (m.shape[1] - 1)
    return Noise(float(np.sqrt(total / df)), df, float(np.sqrt(inner / inner_df)))


def _additive(rows: Sequence[Seen]) -> tuple[float, float]:
    """Weighted squared residuals and degrees of freedom of levels = prompt + depth, each run's own level only."""
    if not rows:
        return 0.0, 0.0
    names, depths = sorted({r.prompt for r in rows}), sorted({r.depth for r in rows})
    x = np.zeros((len(rows), len(names) + len(depths)))
    for i, r in enumerate(rows):
        x[i, names.index(r.prompt)] = x[i, len(names) + depths.index(r.depth)] = 1.0
    root = np.sqrt(np.array([r.size for r in rows]))
    y = np.array([r.levels[-1] for r in rows]) * root
    beta, _, rank, _ = np.linalg.lstsq(x * root[:, None], y, rcond=None)
    return float(((y - (x * root[:, None]) @ beta) ** 2).sum()), float(len(rows) - int(rank))
