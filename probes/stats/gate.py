"""Numbers behind the accuracy gate: difference of two pass rates, paired answers, and what zero failures prove.

Scipy is imported inside. Repeats of one question are one unit, not several: average per question first.
"""

from __future__ import annotations

from math import ceil, log, sqrt

__all__ = ["clustered_z", "mcnemar_p", "opt_in", "pooled_z", "rule_of_three", "runs_for_bound", "upper_bound_of_loss"]


def pooled_z(passed_0: int, n_0: int, passed_1: int, n_1: int) -> float:
    """Two-proportion z: rate 1 minus rate 0 with pooled variance, all items independent."""
    p = (passed_0 + passed_1) / (n_0 + n_1)
    if p in {0.0, 1.0}:
        return 0.0
    return (passed_1 / n_1 - passed_0 / n_0) / sqrt(p * (1 - p) * (1 / n_0 + 1 / n_1))


def clustered_z(z: float, repeats: int, rho: float = 0.5) -> float:
    """The same when each question was asked `repeats` times with correlation `rho` (design effect)."""
    return z / sqrt(1 + (repeats - 1) * rho)


def mcnemar_p(only_a: int, only_b: int) -> float:
    """Exact two-sided p of paired answers: items that only A, and only B, got right."""
    total = only_a + only_b
    if total == 0:
        return 1.0
    from scipy import stats

    return float(stats.binomtest(min(only_a, only_b), total, 0.5).pvalue)


def upper_bound_of_loss(only_a: int, only_b: int, n: int, confidence: float = 0.95) -> float:
    """One-sided upper bound of how much B loses against A, as a share of `n` paired items (normal approximation)."""
    from scipy import stats

    loss = (only_a - only_b) / n
    # One discordant pair is added on each side, so that none at all is not taken for certainty.
    spread = sqrt((only_a + only_b + 2) / n**2 - loss**2 / n)
    return loss + float(stats.norm.ppf(confidence)) * float(spread)


def rule_of_three(n: int, confidence: float = 0.95) -> float:
    """Upper bound of a failure rate after `n` trials without one: 1 - (1 - confidence)^(1/n), about 3/n."""
    if n < 1:
        return 1.0
    return 1.0 - float((1.0 - confidence) ** (1.0 / n))


def runs_for_bound(rate: float, confidence: float = 0.95) -> int:
    """Trials without failure needed to show that the rate is below `rate`."""
    return ceil(log(1.0 - confidence) / log(1.0 - rate) - 1e-12)


def opt_in(*, changes_numerics: bool, shown_safe: bool, gain: float, floor: float = 0.0) -> bool:
    """Whether a knob stays opt-in: it may change answers, was not shown safe, and gains less than 3 % or the noise."""
    return changes_numerics and not shown_safe and gain < max(0.03, floor)
