"""Intervals, verdicts and looks of an A/B, against exact cases, scipy and simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from probes.stats.ab import (
    SPEND,
    Interval,
    anytime_t,
    blocks_needed,
    noise_floor,
    sign_flip_p,
    spend_reject,
    two_way_ci,
    verdict,
)

CATEGORIES = np.repeat(np.arange(4), 4)
PROFILES = {"shared": (0.0424, 0.03, 0.028), "quiet": (0.005, 0.03, 0.007), "content": (0.005, 0.07, 0.004)}


@pytest.mark.parametrize("profile", PROFILES)
def test_two_way_type_one_error_stays_near_its_level(profile: str) -> None:
    block, prompt, rest = PROFILES[profile]
    rng = np.random.default_rng(1)
    wrong = 0
    for _ in range(1500):
        d = rng.normal(0, block, (6, 1)) + rng.normal(0, prompt, 16) + rng.normal(0, rest, (6, 16))
        wrong += two_way_ci(d, CATEGORIES.tolist()).p < 0.05
    assert wrong / 1500 < 0.07


def test_the_interval_covers_and_agrees_with_its_p_value() -> None:
    rng = np.random.default_rng(2)
    for shift in (0.0, 0.1):
        d = shift + rng.normal(0, 0.01, (6, 16))
        found = two_way_ci(d, CATEGORIES.tolist())
        assert found.low < found.ratio < found.high
        assert (found.p < 0.05) == (found.low > 1 or found.high < 1)
    assert two_way_ci(np.full((3, 4), 0.1) + rng.normal(0, 1e-6, (3, 4))).ratio == pytest.approx(np.exp(0.1), rel=1e-4)


def test_blocks_alone_decide_when_prompts_do_not_differ() -> None:
    """With one common value per block the two-way error is the one-sample t's, or a little wider."""
    blocks = np.array([0.03, 0.05, 0.01, 0.04, 0.02, 0.06])
    found = two_way_ci(np.repeat(blocks[:, None], 8, axis=1))
    assert found.se == pytest.approx(float(stats.sem(blocks)))
    assert found.p == pytest.approx(float(stats.ttest_1samp(blocks, 0).pvalue), rel=1e-6)


@pytest.mark.parametrize("shape", [(1, 8), (3, 1)])
def test_too_little_for_an_interval_is_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="at least two"):
        two_way_ci(np.zeros(shape))


def interval(low: float, high: float) -> Interval:
    """An interval whose ratio is its middle."""
    return Interval((low + high) / 2, low, high, 0.5, 5, 0.01, 0.01, 0.01)


@pytest.mark.parametrize(
    ("wide", "narrow", "floor", "expected"),
    [
        ((1.04, 1.08), (1.05, 1.07), None, "BETTER"),
        ((0.90, 0.95), (0.91, 0.94), None, "WORSE"),
        ((0.98, 1.02), (0.985, 1.015), None, "EQUIVALENT"),
        ((0.95, 1.05), (0.96, 1.04), None, "UNDECIDED"),
        ((1.01, 1.09), (1.02, 1.08), 0.10, "UNDECIDED"),
        ((1.005, 1.015), (1.006, 1.014), 0.03, "EQUIVALENT"),
    ],
)
def test_verdicts(wide: tuple[float, float], narrow: tuple[float, float], floor: float | None, expected: str) -> None:
    assert verdict(interval(*wide), interval(*narrow), floor=floor) == expected


def test_blocks_needed_for_the_usual_noise() -> None:
    table = {
        0.007: {0.01: 7, 0.02: 4, 0.03: 3},
        0.015: {0.01: 20, 0.02: 7, 0.03: 5, 0.05: 3},
        0.0436: {0.02: 40, 0.05: 9},
    }
    assert {sd: {e: blocks_needed(e, sd) for e in row} for sd, row in table.items()} == table
    assert blocks_needed(0.0001, 0.05) is None


def test_peeking_with_the_anytime_line_stays_under_its_level_and_plain_t_does_not() -> None:
    rng = np.random.default_rng(3)
    blocks = rng.normal(0, 1, (1000, 12))
    safe = sum(any(anytime_t(x[:k].tolist()).e >= 20 for k in range(3, 13)) for x in blocks)
    naive = np.any([stats.ttest_1samp(blocks[:, :k], 0, axis=1).pvalue < 0.05 for k in range(3, 13)], axis=0)
    assert safe / 1000 <= 0.05
    assert naive.mean() > 0.12
    looks = {k: stats.ttest_1samp(blocks[:, :k], 0, axis=1).pvalue < level for k, level in SPEND.items()}
    assert np.any(list(looks.values()), axis=0).mean() <= 0.06
    assert all(spend_reject(blocks[i, :k].tolist()) == looks[k][i] for k in SPEND for i in range(20))
    assert not spend_reject(blocks[0, :5].tolist())


def test_anytime_interval_and_e_value_say_the_same() -> None:
    rng = np.random.default_rng(4)
    for shift in (0.0, 0.5, 1.0, 3.0):
        found = anytime_t((shift + rng.normal(0, 1, 12)).tolist())
        assert (found.e >= 20) == (found.low > 0 or found.high < 0)
    assert anytime_t([5.0, 5.1]).e == 1.0
    assert np.isinf(anytime_t([5.0, 5.1, 5.2]).low)


@pytest.mark.parametrize(("n", "critical"), [(4, 7.2), (5, 5.4), (6, 4.7), (8, 4.2), (10, 4.0), (12, 3.8)])
def test_anytime_critical_values(n: int, critical: float) -> None:
    spread = np.resize([1.0, -1.0], n)
    spread = (spread - spread.mean()) / spread.std(ddof=1)
    beyond, short = (critical + 0.06) / np.sqrt(n), (critical - 0.06) / np.sqrt(n)
    assert anytime_t((spread + beyond).tolist()).e >= 20 > anytime_t((spread + short).tolist()).e


def test_exact_sign_flips() -> None:
    assert sign_flip_p([1, 2, 3, 1, 2, 2]) == 2 / 64
    assert sign_flip_p([1] * 5) == 0.0625
    d = [0.3, -0.1, 0.5, 0.2, 0.4, -0.2, 0.6]
    exact = stats.permutation_test((d,), np.sum, permutation_type="samples", n_resamples=np.inf).pvalue
    assert sign_flip_p(d) == pytest.approx(float(exact))
    with pytest.raises(ValueError, match="16"):
        sign_flip_p([1.0] * 17)


def test_noise_floor_is_an_upper_bound() -> None:
    rng = np.random.default_rng(5)
    floors = [noise_floor(x.tolist()) for x in rng.normal(0, 0.03, (2000, 3))]
    assert np.mean([f.upper >= 0.03 for f in floors]) == pytest.approx(0.95, abs=0.02)
    with pytest.raises(ValueError, match="two"):
        noise_floor([0.1])
