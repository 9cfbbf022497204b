"""From cells to draws of speed: accept length times step time where counters allow it, plain speeds where they don't.

Uses numpy, so import it inside functions that need it. Draws come from a fixed seed: the same records give the same
verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from probes.events import RequestDone
from probes.stats.cells import Cell
from probes.stats.lengths import draw_lengths, level
from probes.stats.metrics import Decode, steps
from probes.stats.pooling import Seen, estimate_noise, pool
from probes.stats.steps import PLAIN_RESTART_SD, draw_category_steps, draw_steps

__all__ = ["Draws", "draw_speeds"]

Floats = NDArray[np.float64]
SEED = 20260314


@dataclass(frozen=True, slots=True)
class Draws:
    """Speeds [draw, category, depth] in tokens/s and how they were made: `counters` or `speeds`."""

    speeds: Floats
    route: str
    lengths: Floats | None = None
    """Fitted accept length [category, depth]."""
    step_ms: Floats | None = None
    """Step time per depth, milliseconds."""
    lack: float = 0.0
    """Variance of accept lengths that no curve explains, over that between runs; well above 1: texts differ."""


def draw_speeds(
    cells: Sequence[Cell],
    depths: Sequence[int],
    categories: Sequence[str],
    *,
    draws: int = 400,
    floor_sd: float | None = None,
) -> Draws:
    """Draws over complete `depths`; `floor_sd`: restart noise of a log time from an A/A run, if there was one."""
    rng = np.random.default_rng(SEED)
    rows = {(c.depth, c.category): c.timed for c in cells if c.depth in depths and c.category in categories}
    usual = float(np.median([d.tokens for timed in rows.values() for _, d in timed]))
    if all(_accepted_per_step(d) is not None for (k, _), timed in rows.items() if k for _, d in timed):
        return _by_counters(rows, depths, categories, usual, draws, rng, floor_sd)
    seen = [[s for d in depths for s in _speed_rows(rows[d, c], d, usual)] for c in categories]
    return Draws(_by_speeds(seen, rows, depths, draws, rng, floor_sd), "speeds")


Rows = dict[tuple[int, str], tuple[tuple[RequestDone, Decode], ...]]


def _by_counters(
    rows: Rows,
    depths: Sequence[int],
    categories: Sequence[str],
    usual: float,
    draws: int,
    rng: np.random.Generator,
    floor_sd: float | None,
) -> Draws:
    """Accept length per category and depth times step time per depth."""
    drafting = [d for d in depths if d > 0]
    seen = [[s for d in drafting for s in _length_rows(rows[d, c], d, usual)] for c in categories]
    drawn, fitted, lack = draw_lengths(seen, drafting, draws, rng)
    if 0 in depths:
        drawn = np.concatenate([np.ones((draws, len(categories), 1)), drawn], axis=-1)
        fitted = np.concatenate([np.ones((len(categories), 1)), fitted], axis=-1)
    logs = [
        [(r.restart, c, _log_step(phase, d)) for c in range(len(categories)) for r, phase in rows[d, categories[c]]]
        for d in depths
    ]
    means = [_by_restart(entries) for entries in logs]
    own = _own_variance(logs)
    step, centre = draw_steps(means, depths, own, draws, rng, floor_sd=floor_sd)
    extra = draw_category_steps([[(c, v) for _, c, v in entries] for entries in logs], len(categories), draws, rng)
    return Draws(1000.0 * drawn * np.exp(-step[:, None, :] - extra), "counters", fitted, np.exp(centre), lack)


def _by_speeds(
    seen: Sequence[Sequence[Seen]],
    rows: Rows,
    depths: Sequence[int],
    draws: int,
    rng: np.random.Generator,
    floor_sd: float | None,
) -> Floats:
    """Speeds pooled over prompts, each depth carrying the noise of its restarts; no shape is assumed."""
    noise = estimate_noise(seen)
    pooled = [pool(r, depths, noise) for r in seen]
    centre, root = np.stack([p[0] for p in pooled]), np.linalg.cholesky(np.stack([p[1] for p in pooled]))
    scale = np.sqrt(noise.df / rng.chisquare(noise.df, (draws, 1, 1)))
    drawn = centre + scale * np.einsum("cij,ncj->nci", root, rng.standard_normal((draws, *centre.shape)))
    restarts = np.array([len({r.restart for (k, _), t in rows.items() if k == d for r, _ in t}) for d in depths])
    shared = (floor_sd or PLAIN_RESTART_SD) / np.sqrt(restarts) * rng.standard_normal((draws, 1, len(depths)))
    return np.asarray(np.exp(drawn + shared), dtype=float)


def _accepted_per_step(phase: Decode) -> float | None:
    """Accepted drafts per forward step: steps that drafted nothing count, so that speed is length over step time."""
    n = steps(phase.decode_tokens, phase.accepted)
    return None if n is None or phase.accepted is None else phase.accepted / n


def _log_step(phase: Decode, depth: int) -> float:
    """Log milliseconds per forward step of one request."""
    per_step = _accepted_per_step(phase) if depth else 0.0
    return log((1.0 + (per_step or 0.0)) * phase.ms / phase.tokens)


def _length_rows(timed: Sequence[tuple[RequestDone, Decode]], depth: int, usual: float) -> list[Seen]:
    """One row per prompt: accepted per step at the run's own depth and, from per-position counters, at smaller ones."""
    by_prompt: dict[str, list[tuple[RequestDone, Decode]]] = {}
    for r, phase in timed:
        by_prompt.setdefault(r.prompt_hash or r.prompt_id, []).append((r, phase))
    found = []
    for prompt, runs in by_prompt.items():
        own = level(_mean([_accepted_per_step(p) or 0.0 for _, p in runs]))
        size = min(1.0, max(p.tokens for _, p in runs) / usual)
        curves = [r.per_position for r, _ in runs if r.per_position and len(r.per_position) >= depth]
        ratio = np.cumsum(np.mean([c[:depth] for c in curves], axis=0)) if curves and depth > 1 else None
        if ratio is None or ratio[-1] <= 0:
            found.append(Seen(prompt, depth, (depth,), (own,), size))
            continue
        # The engine's own denominator may leave out steps without drafts: keep the form, not the scale.
        total = _mean([_accepted_per_step(p) or 0.0 for _, p in runs])
        levels = [level(float(x) / float(ratio[-1]) * total) for x in ratio[:-1]]
        found.append(Seen(prompt, depth, tuple(range(1, depth + 1)), (*levels, own), size))
    return found


def _speed_rows(timed: Sequence[tuple[RequestDone, Decode]], depth: int, usual: float) -> list[Seen]:
    """One row per prompt: log speed, averaged over repeats."""
    by_prompt: dict[str, list[Decode]] = {}
    for r, phase in timed:
        by_prompt.setdefault(r.prompt_hash or r.prompt_id, []).append(phase)
    return [
        Seen(p, depth, (depth,), (_mean([log(x.tps) for x in runs]),), min(1.0, max(x.tokens for x in runs) / usual))
        for p, runs in by_prompt.items()
    ]


def _by_restart(entries: Sequence[tuple[int, int, float]]) -> Floats:
    """Mean log step time of each restart."""
    groups: dict[int, list[float]] = {}
    for restart, _, value in entries:
        groups.setdefault(restart, []).append(value)
    return np.array([_mean(v) for v in groups.values()])


def _own_variance(logs: Sequence[Sequence[tuple[int, int, float]]]) -> list[float]:
    """Variance that a restart's mean has from its requests alone, per depth; request noise pooled over all."""
    lost, df = 4 * 0.01**2, 4.0
    for entries in logs:
        groups: dict[int, list[float]] = {}
        for restart, _, value in entries:
            groups.setdefault(restart, []).append(value)
        for values in groups.values():
            lost += sum((v - _mean(values)) ** 2 for v in values)
            df += len(values) - 1
    return [lost / df * len({r for r, _, _ in e}) / len(e) for e in logs]


def _mean(values: Sequence[float]) -> float:
    """Arithmetic mean."""
    return sum(values) / len(values)
