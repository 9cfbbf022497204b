"""How often is the chosen depth wrong, and what did choosing cost? Simulated truths, the product's own judgment.

    python benchmarks/decisions.py [--truths 1000]

A pick is wrong when its true worst regret exceeds the best possible by more than 3 points. Rules compared: highest
pooled median, smallest worst regret of cell means, and ours, forced to answer or allowed to abstain. The last line is
one JSON object. No figure is kept from an earlier run.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # matrices of six rows: threads only wait for each other

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from probes.stats.ab import SPEND, anytime_t, two_way_ci
from probes.stats.accept import misfit
from probes.stats.choose import TOLERANCE, Choice, choose
from probes.stats.coherence import APART
from probes.stats.decide import LACK
from probes.stats.lengths import draw_lengths, level
from probes.stats.pooling import Seen
from probes.stats.steps import draw_category_steps, draw_steps

Floats = NDArray[np.float64]
DEPTHS, CATEGORIES = 6, 4
TOKENS, SHORT = 400, 64
STEP_S = 0.0136  # plain decoding, 73.7 tok/s
SIZES = ((1, 2), (2, 4), (3, 8))  # restarts x prompts a category: 8, 32 and 96 runs a depth
BOOTS = (5.0, 194.0)


@dataclass(frozen=True)
class Profile:
    """Noise on the log scale: restart and request of a step's time; prompt and prompt x depth of accepted drafts."""

    restart: float
    request: float
    prompt: float
    run: float


PROFILES = {"BRIEF": Profile(0.03, 0.02, 0.08, 0.05), "SEED_LIKE": Profile(0.003, 0.003, 0.08, 0.10)}


@dataclass(frozen=True)
class Truth:
    """Accepted drafts per step [category, depth] and step time [depth], relative to depth 0."""

    accepted: Floats
    step: Floats

    @property
    def excess(self) -> Floats:
        """True worst regret of each depth above the best one's."""
        speed = (1 + self.accepted) / self.step
        worst = (1 - speed / speed.max(axis=1, keepdims=True)).max(axis=0)
        return np.asarray(worst - worst.min(), dtype=float)


@dataclass
class Score:
    """Tally of one rule on one profile."""

    wrong: list[bool]
    decided: list[bool]
    seconds: list[float]

    def rates(self) -> dict[str, float]:
        """Forced wrong rate; share decided; wrong among the decided and among all."""
        wrong, decided = np.array(self.wrong), np.array(self.decided)
        return {
            "forced": round(float(wrong.mean()), 4),
            "decided": round(float(decided.mean()), 4),
            "wrong_of_decided": round(float(wrong[decided].mean()), 4) if decided.any() else 0.0,
            "wrong_of_all": round(float((wrong & decided).mean()), 4),
        }


def truth(kind: str, rng: np.random.Generator) -> Truth:
    """A random server. `declining`: chance of acceptance falls smoothly with position, steps bend by 1 %.

    The others are tests of our assumptions: `mixed` (easy and hard places, so the chance rises with position), `rough`
    (any chance at any position), `jump` (falls off a cliff somewhere), `kink` (a step 6 % longer from some depth on).
    """
    k = np.arange(1, DEPTHS)
    chance = rng.uniform(0.5, 0.95, (CATEGORIES, 1)) * rng.uniform(0.8, 1.0, (CATEGORIES, 1)) ** (k - 1)
    if kind == "rough":
        chance = rng.uniform(0.35, 0.97, (CATEGORIES, DEPTHS - 1))
    elif kind == "jump":
        cliff = k > rng.integers(1, DEPTHS - 1, (CATEGORIES, 1))
        chance = np.where(cliff, chance * rng.uniform(0.4, 1.0, (CATEGORIES, 1)), chance)
    survival = np.cumprod(chance, axis=1)
    if kind == "mixed":
        easy, part = rng.uniform(0.85, 0.97, (CATEGORIES, 1)), rng.beta(2, 1, (CATEGORIES, 1))
        survival = part * easy**k + (1 - part) * rng.uniform(0.2, 0.6, (CATEGORIES, 1)) ** k
    step = (1 + rng.uniform(0.03, 0.16) * np.arange(DEPTHS)) * np.exp(rng.normal(0, 0.01, DEPTHS))
    if kind == "kink":
        step = np.where(np.arange(DEPTHS) >= rng.integers(1, DEPTHS), 1.06 * step, step)
    accepted = np.concatenate([np.zeros((CATEGORIES, 1)), survival.cumsum(axis=1)], axis=1)
    return Truth(accepted, np.asarray(step, dtype=float))


# ------------------------------------------------------------------------------------------------------ our judgment


def judge(
    seen: Sequence[Sequence[Seen]],
    logs: Sequence[Sequence[tuple[int, int, float]]],
    rng: np.random.Generator,
    floor: float | None,
) -> tuple[Choice, bool]:
    """The product's estimator on simulated records; `logs[depth]` holds (restart, category, log step time)."""
    draws, depths = 400, list(range(DEPTHS))
    lengths, _, lack = draw_lengths(seen, depths[1:], draws, rng)
    lengths = np.concatenate([np.ones((draws, CATEGORIES, 1)), lengths], axis=-1)
    means, lost, df = [], 4 * 0.01**2, 4.0
    for rows in logs:
        by_restart = [np.array([v for r, _, v in rows if r == restart]) for restart in sorted({r for r, _, _ in rows})]
        means.append(np.array([v.mean() for v in by_restart]))
        lost += sum(float(((v - v.mean()) ** 2).sum()) for v in by_restart)
        df += sum(len(v) - 1 for v in by_restart)
    own = [lost / df * len(m) / len(rows) for m, rows in zip(means, logs, strict=True)]
    steps, _ = draw_steps(means, depths, own, draws, rng, floor_sd=floor)
    extra = draw_category_steps([[(c, v) for _, c, v in rows] for rows in logs], CATEGORIES, draws, rng)
    choice = choose(lengths * np.exp(-steps[:, None, :] - extra), depths)
    return choice, choice.decided and not (lack > LACK and _apart(seen))


def _apart(seen: Sequence[Sequence[Seen]]) -> bool:
    """Whether mean accept lengths miss every curve that one text can give."""
    for rows in seen:
        means = [np.mean([np.exp(r.levels[-1]) + 0.9 for r in rows if r.depth == d]) for d in range(1, DEPTHS)]
        if np.abs(misfit([float(m) for m in means], list(range(1, DEPTHS)))).max() > APART:
            return True
    return False


# ------------------------------------------------------------------------------------------------------------- plans


def grid(
    noise: Profile, restarts: int, prompts: int, floor: float | None, real: Truth, rng: np.random.Generator
) -> dict[str, tuple[int, bool, float]]:
    """Every depth, every prompt, every restart: (pick, decided, decoding seconds) of each rule."""
    about = rng.normal(0, noise.prompt, (CATEGORIES, prompts, 1)) + rng.normal(
        0, noise.run, (CATEGORIES, prompts, DEPTHS)
    )
    accepted = real.accepted[:, None, :] * np.exp(about)
    log_step = np.log(real.step) + rng.normal(0, noise.restart, (restarts, 1, 1, DEPTHS))
    log_step = log_step + rng.normal(0, noise.request, (restarts, CATEGORIES, prompts, DEPTHS))
    speed = (1 + accepted) / np.exp(log_step)
    seconds = float((TOKENS * STEP_S / speed).sum())
    cell = speed.mean(axis=(0, 2))
    rules = {
        "naive_median": int(np.median(speed.reshape(-1, DEPTHS), axis=0).argmax()),
        "cell_minimax": int((1 - cell / cell.max(axis=1, keepdims=True)).max(axis=0).argmin()),
    }
    seen = [
        [Seen(str(p), d, (d,), (level(float(accepted[c, p, d])),)) for p in range(prompts) for d in range(1, DEPTHS)]
        for c in range(CATEGORIES)
    ]
    logs = [
        [(r, c, float(v)) for r in range(restarts) for c in range(CATEGORIES) for v in log_step[r, c, :, d]]
        for d in range(DEPTHS)
    ]
    choice, decided = judge(seen, logs, rng, floor)
    return {k: (v, True, seconds) for k, v in rules.items()} | {"ours": (choice.pick, decided, seconds)}


def deepest_first(
    noise: Profile, floor: float | None, bias: float, real: Truth, rng: np.random.Generator
) -> dict[str, tuple[int, bool, float]]:
    """Two long runs a category at the deepest depth with per-position counters, one short one at every other depth.

    `bias`: how much less a position is accepted for each depth by which the run is deeper than needed.
    """
    prompt = rng.normal(0, noise.prompt, (CATEGORIES, 2))
    seen: list[list[Seen]] = [[] for _ in range(CATEGORIES)]
    logs: list[list[tuple[int, int, float]]] = []
    seconds = 0.0
    for d in range(DEPTHS):
        prompts, tokens = (2, TOKENS) if d == DEPTHS - 1 else (1, SHORT)
        size, restart = tokens / TOKENS, rng.normal(0, noise.restart)
        rows = []
        for c in range(CATEGORIES):
            for p in range(prompts):
                rows.append((0, c, float(np.log(real.step[d]) + restart + rng.normal(0, noise.request))))
                about = prompt[c, p] + rng.normal(0, noise.run / np.sqrt(size))
                at = np.arange(1, d + 1)
                own = rng.normal(0, 0.02 / np.sqrt(size), d) * (at < d) - bias * (d - at)
                curve = np.maximum.accumulate(real.accepted[c, 1 : d + 1] * np.exp(about + own)) if d else np.zeros(0)
                if d:
                    seen[c].append(Seen(str(p), d, tuple(range(1, d + 1)), tuple(level(float(a)) for a in curve), size))
                seconds += tokens * STEP_S * np.exp(rows[-1][2]) / (1 + (curve[-1] if d else 0.0))
        logs.append(rows)
    choice, decided = judge(seen, logs, rng, floor)
    return {"ours": (choice.pick, decided, float(seconds))}


def tally(
    truths: int, seed: int, kind: str, run: Callable[[Truth, np.random.Generator], dict[str, Any]]
) -> dict[str, Score]:
    """Run a plan on many truths; the same seed gives every plan the same truths."""
    scores: dict[str, Score] = {}
    source = np.random.default_rng([20260314, seed])
    for i in range(truths):
        real = truth(kind, source)
        excess = real.excess
        for name, (pick, decided, seconds) in run(real, np.random.default_rng([seed, i])).items():
            score = scores.setdefault(name, Score([], [], []))
            score.wrong.append(bool(excess[pick] > TOLERANCE))
            score.decided.append(decided)
            score.seconds.append(seconds)
    return scores


# --------------------------------------------------------------------------------------------------------------- A/B


def type_one(reps: int) -> dict[str, float]:
    """False claims of the two-way interval with no effect, in every profile; 6 blocks, 4 categories x 4 prompts."""
    strata = np.repeat(np.arange(CATEGORIES), 4).tolist()
    profiles = {
        "BRIEF": (0.03, 0.02, 0.02),
        "SEED_LIKE": (0.003, 0.003, 0.02),
        "QUIET": (0.005, 0.005, 0.02),
        "CONTENT": (0.005, 0.005, 0.05),
    }
    found = {}
    for at, (name, (restart, request, prompt)) in enumerate(profiles.items()):
        rng = np.random.default_rng([3, at])
        blocks = rng.normal(0, restart * np.sqrt(2), (reps, 6, 1))
        d = blocks + rng.normal(0, prompt, (reps, 1, 16)) + rng.normal(0, request * np.sqrt(2), (reps, 6, 16))
        found[name] = round(float(np.mean([two_way_ci(x, strata).p < 0.05 for x in d])), 4)
    return found


def peeking(reps: int) -> dict[str, float]:
    """False claims when looking after every block from 3 to 12, by rule."""
    d = np.random.default_rng(4).normal(0, 1, (reps, 12))
    plain = np.any([stats.ttest_1samp(d[:, :k], 0, axis=1).pvalue < 0.05 for k in range(3, 13)], axis=0)
    spent = np.any([stats.ttest_1samp(d[:, :k], 0, axis=1).pvalue < a for k, a in SPEND.items()], axis=0)
    always = [any(anytime_t(x[:k].tolist()).e >= 20 for k in range(3, 13)) for x in d]
    rates = {"plain_t": plain.mean(), "planned_looks": spent.mean(), "anytime": np.mean(always)}
    return {k: round(float(v), 4) for k, v in rates.items()}


# ------------------------------------------------------------------------------------------------------------- report


def matched(error: float, errors: Sequence[float], seconds: Sequence[float]) -> tuple[float, bool]:
    """Seconds at which the grid is as right as `error`, log-linear between sizes; False: it never was."""
    for i, e in enumerate(errors):
        if e <= error:
            if i == 0 or errors[i - 1] <= e:
                return seconds[i], True
            part = (errors[i - 1] - error) / (errors[i - 1] - e)
            return float(np.exp(np.log(seconds[i - 1]) + part * np.log(seconds[i] / seconds[i - 1]))), True
    return seconds[-1], False


def study(name: str, noise: Profile, truths: int, seed: int) -> dict[str, Any]:
    """Everything about one noise profile."""
    rows: dict[str, Any] = {}
    grids = []
    for restarts, prompts in SIZES:
        scores = tally(truths, seed, "declining", partial(grid, noise, restarts, prompts, noise.restart))
        runs = restarts * prompts * CATEGORIES
        row: dict[str, Any] = {k: v.rates() for k, v in scores.items()}
        decoding = float(np.mean(scores["ours"].seconds))
        row["server_s"] = {f"boot_{b:g}s": round(decoding + b * DEPTHS * restarts) for b in BOOTS}
        rows[f"runs_{runs}"] = row
        grids.append((row, decoding, DEPTHS * restarts))
        print(f"{name} {runs:3d} runs a depth: {json.dumps(row)}", flush=True)
    blind = tally(truths, seed, "declining", partial(grid, noise, 1, 2, None))
    rows["runs_8_noise_unknown"] = blind["ours"].rates()
    deep = tally(truths, seed, "declining", partial(deepest_first, noise, noise.restart, 0.0))["ours"]
    biased = tally(truths, seed, "declining", partial(deepest_first, noise, noise.restart, 0.012))["ours"]
    decoding = float(np.mean(deep.seconds))
    rows["counters"] = deep.rates() | {"server_s": {f"boot_{b:g}s": round(decoding + b * DEPTHS) for b in BOOTS}}
    rows["counters_if_acceptance_depends_on_depth"] = biased.rates()
    ratios: dict[str, Any] = {}
    for rule in ("cell_minimax", "ours"):
        errors = [g[0][rule]["forced"] for g in grids]
        for b in BOOTS:
            needed, reached = matched(rows["counters"]["forced"], errors, [g[1] + b * g[2] for g in grids])
            ratio = (decoding + b * DEPTHS) / needed
            ratios[f"{rule}_grid_boot_{b:g}s"] = {"ratio": round(ratio, 3), "grid_reaches_it": reached}
    rows["counters_time"] = ratios
    print(f"{name} counters: {json.dumps({k: rows[k] for k in rows if not k.startswith('runs_')})}", flush=True)
    return rows


def stress(truths: int) -> dict[str, Any]:
    """Ours and cell means at 8 runs where our assumptions are strained."""
    found: dict[str, Any] = {}
    for at, kind in enumerate(("mixed", "rough", "jump", "kink")):
        for name, noise in PROFILES.items():
            scores = tally(truths, 10 + at, kind, partial(grid, noise, 1, 2, noise.restart))
            found[f"{kind}_{name}"] = scores["ours"].rates() | {
                "cell_minimax": scores["cell_minimax"].rates()["forced"]
            }
            print(f"stress {kind} {name}: {json.dumps(found[f'{kind}_{name}'])}", flush=True)
    return found


def main() -> None:
    """Print the study; the last line is JSON. Headline figures are ours at its worst profile, rivals' at their best."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--truths", type=int, default=1000)
    options = parser.parse_args()
    began = time.perf_counter()
    profiles = {n: study(n, p, options.truths, 1 + i) for i, (n, p) in enumerate(PROFILES.items())}
    strained = stress(max(100, options.truths // 4))
    first = type_one(2000)
    looks = peeking(2000)
    eight = [p["runs_8"] for p in profiles.values()]
    summary = {
        "naive_median_8": min(e["naive_median"]["forced"] for e in eight),
        "cell_minimax_8": min(e["cell_minimax"]["forced"] for e in eight),
        "ours_forced_8": max(e["ours"]["forced"] for e in eight),
        "ours_abstain_wrong_8": max(e["ours"]["wrong_of_decided"] for e in eight),
        "ours_abstain_decided_8": min(e["ours"]["decided"] for e in eight),
        "counters_time_ratio": max(
            p["counters_time"][f"cell_minimax_grid_boot_{b:g}s"]["ratio"] for p in profiles.values() for b in BOOTS
        ),
        "ab_type1_max": max(first.values()),
        "peek_type1": max(looks["anytime"], looks["planned_looks"]),
        "truths": options.truths,
        "seconds": round(time.perf_counter() - began, 1),
        "profiles": profiles,
        "stress_8": strained,
        "ab_type1": first,
        "peeking": looks,
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
