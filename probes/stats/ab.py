"""A/B of one flag: interval of the ratio, verdict, blocks needed, and a line that may be watched while it runs.

Uses numpy and scipy, so import it inside functions that need it. Replication means blocks (restarts of both arms) and
prompts; both are random, so both enter the error. More restarts cannot reduce what differs between prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import stats

__all__ = [
    "SPEND", "Anytime", "Floor", "Interval", "Verdict", "anytime_t", "blocks_needed", "noise_floor", "sign_flip_p",
    "spend_reject", "two_way_ci", "verdict",
]  # fmt: skip

Verdict = Literal["BETTER", "WORSE", "EQUIVALENT", "UNDECIDED"]

SPEND = {3: 0.002, 6: 0.010, 9: 0.015, 12: 0.023}
"""Level spent at each planned look, by blocks done; they sum to 0.05, so any look may stop (union bound)."""
CAP = 500


@dataclass(frozen=True, slots=True)
class Interval:
    """Ratio B/A with its confidence interval, p-value against no effect, and the standard errors of its log."""

    ratio: float
    low: float
    high: float
    p: float
    df: float
    se: float
    se_block: float
    se_prompt: float


@dataclass(frozen=True, slots=True)
class Anytime:
    """Interval of a mean that stays valid whenever one looks, and the e-value against zero (20 rejects at 5 %)."""

    low: float
    high: float
    e: float


@dataclass(frozen=True, slots=True)
class Floor:
    """Noise between identical arms: sd of block log-ratios and its 95 % upper bound; gains below are noise."""

    sd: float
    upper: float


def two_way_ci(d: Any, strata: Sequence[Any] | None = None, confidence: float = 0.95) -> Interval:
    """Interval of B/A from `d[block, prompt]` = log(B/A), blocks and prompts both random and crossed.

    Variance: blocks + prompts (within `strata`, each category with equal weight) - residual, never below either part;
    degrees of freedom by Satterthwaite. Needs two blocks and two prompts per stratum, else ValueError.
    """
    x = np.asarray(d, dtype=float)
    if x.ndim != 2 or x.shape[0] < 2:
        raise ValueError("an interval needs at least two blocks")
    blocks, prompts = x.shape
    names = [0] * prompts if strata is None else list(strata)
    groups = [np.flatnonzero([s == g for s in names]) for g in dict.fromkeys(names)]
    if min(len(g) for g in groups) < 2:
        raise ValueError("an interval needs at least two prompts in every category")
    weight = np.zeros(prompts)
    for g in groups:
        weight[g] = 1.0 / (len(groups) * len(g))
    by_prompt, by_block = x.mean(axis=0), x @ weight
    centre = float(by_prompt @ weight)
    block = float(by_block.var(ddof=1)) / blocks
    parts = [(by_prompt[g].var(ddof=1) / len(g) / len(groups) ** 2, len(g) - 1) for g in groups]
    prompt = float(sum(v for v, _ in parts))
    rest = x - x.mean(axis=1, keepdims=True) - by_prompt + x.mean()
    error = float((rest**2).sum()) / ((blocks - 1) * (prompts - 1)) * float((weight**2).sum()) / blocks
    total = max(block + prompt - error, block, prompt)
    if total <= 0:
        return Interval(
            float(np.exp(centre)), float(np.exp(centre)), float(np.exp(centre)), float(centre == 0), 1.0, 0, 0, 0
        )
    df = total**2 / (block**2 / (blocks - 1) + sum(v**2 / f for v, f in parts) + 1e-300)
    se = float(np.sqrt(total))
    half = float(stats.t.ppf(0.5 + confidence / 2, df)) * se
    p = 2 * float(stats.t.sf(abs(centre) / se, df))
    low, ratio, high = (float(v) for v in np.exp([centre - half, centre, centre + half]))
    return Interval(ratio, low, high, p, float(df), se, float(np.sqrt(block)), float(np.sqrt(prompt)))


def verdict(wide: Interval, narrow: Interval, *, margin: float = 0.03, floor: float | None = None) -> Verdict:
    """BETTER, WORSE, EQUIVALENT or UNDECIDED, for ratios where more is better.

    `wide`: 95 % interval; `narrow`: 90 % (two one-sided tests for equivalence within 1 +- `margin`); `floor`: noise of
    identical arms as a share, under which a difference is never called a win.
    """
    heard = floor is None or abs(float(np.log(wide.ratio))) >= floor
    if wide.low > 1 and heard:
        return "BETTER"
    if wide.high < 1 and heard:
        return "WORSE"
    return "EQUIVALENT" if 1 - margin < narrow.low and narrow.high < 1 + margin else "UNDECIDED"


def blocks_needed(effect: float, sd: float, *, alpha: float = 0.05, power: float = 0.8) -> int | None:
    """Blocks for a paired t test to see `effect` (log ratio) at block sd `sd`; None beyond 500. Noncentral t."""
    if sd <= 0:
        return 2
    for n in range(2, CAP + 1):
        critical = stats.t.ppf(1 - alpha / 2, n - 1)
        if stats.nct.sf(critical, n - 1, effect / sd * np.sqrt(n)) >= power:
            return n
    return None


def anytime_t(d: Sequence[float], g: float = 4.0, alpha: float = 0.05) -> Anytime:
    """Interval of the mean of block differences that holds at every look, however often one peeks.

    Normal-mixture Bayes factor with right-Haar prior on the scale (t-test e-process, as in safe testing); `g` is the
    prior variance of the standardised effect. Unbounded below three blocks and while the data allow any mean.
    """
    x = np.asarray(d, dtype=float)
    n = len(x)
    if n < 3:
        return Anytime(-np.inf, np.inf, 1.0)
    mean, sd = float(x.mean()), float(x.std(ddof=1))
    if sd == 0:
        return Anytime(-np.inf, np.inf, 1.0) if mean == 0 else Anytime(mean, mean, np.inf)
    big = 1 + n * g
    q = n * mean**2 / sd**2 / (n - 1)
    e = float(np.exp(-0.5 * np.log(big) + 0.5 * n * (np.log1p(q) - np.log1p(q / big))))
    k = (big / alpha**2) ** (1 / n)
    if k >= big:
        return Anytime(-np.inf, np.inf, e)
    half = float(np.sqrt((k - 1) / (1 - k / big) * (n - 1)) * sd / np.sqrt(n))
    return Anytime(mean - half, mean + half, e)


def spend_reject(d: Sequence[float]) -> bool:
    """Whether a planned look at this many blocks rejects no-effect at the level reserved for it (see SPEND)."""
    alpha = SPEND.get(len(d))
    return alpha is not None and float(stats.ttest_1samp(np.asarray(d, dtype=float), 0.0).pvalue) < alpha


def sign_flip_p(d: Sequence[float]) -> float:
    """Exact two-sided sign-flip p-value of block differences (up to 16); its smallest value is 2 / 2^n."""
    x = np.asarray(d, dtype=float)
    if len(x) > 16:
        raise ValueError("the exact sign-flip test is for at most 16 blocks")
    signs = 1 - 2 * ((np.arange(2 ** len(x))[:, None] >> np.arange(len(x))) & 1)
    return float((np.abs(signs @ x) >= abs(float(x.sum())) - 1e-12).mean())


def noise_floor(log_ratios: Sequence[float]) -> Floor:
    """Sd of A/A block log-ratios and its chi-square 95 % upper bound. Needs two blocks, else ValueError."""
    x = np.asarray(log_ratios, dtype=float)
    if len(x) < 2:
        raise ValueError("a noise floor needs at least two A/A blocks")
    sd = float(x.std(ddof=1))
    return Floor(sd, sd * float(np.sqrt((len(x) - 1) / stats.chi2.ppf(0.05, len(x) - 1))))
