"""The small judgments: metrics, percentiles, accept curves, steps, loops, splits, gate, knee, drift."""

from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from probes.stats import metrics
from probes.stats.accept import coherent, curve_from_histogram, leviathan, misfit, shape
from probes.stats.degenerate import degenerate, degenerate_text, longest_run, ngram_repeat
from probes.stats.drift import drift, drift_of_repeats
from probes.stats.factor import split
from probes.stats.gate import (
    clustered_z,
    mcnemar_p,
    opt_in,
    pooled_z,
    rule_of_three,
    runs_for_bound,
    upper_bound_of_loss,
)
from probes.stats.knee import elasticities, knee
from probes.stats.percentiles import n_for_bound, needed, percentile, shown
from probes.stats.regret import minimax, regret, worst
from probes.stats.steps import shrink_step


def test_cheap_judgments_need_no_numpy() -> None:
    code = (
        "import sys\n"
        "from probes.stats import metrics, regret, percentiles, degenerate, factor, gate, knee, drift, explain\n"
        "from probes.stats.result import judge_sweep\n"
        "judge_sweep([], engine='x', run='r', depths=[1], categories=['code'], simulated=True)\n"
        "sys.exit(any(m in sys.modules for m in ('numpy', 'scipy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ------------------------------------------------------------------------------------------------------- metrics


def test_llama_counters() -> None:
    assert metrics.accept_len(167, 87) == pytest.approx(2.920, abs=5e-4)
    assert metrics.accept_rate(167, 259) == pytest.approx(0.6448, abs=1e-4)
    assert metrics.steps(256, 167) == 89
    assert metrics.steps(256, 167, 87) == 87
    assert metrics.check_drafts(259, 3, 87) is None


def test_sglang_histogram_and_older_rate() -> None:
    histogram = [11, 14, 11, 4, 0, 3]
    assert metrics.check_histogram(histogram, 43, 63) is None
    assert metrics.check_histogram(histogram, 44, 63)
    assert np.allclose(curve_from_histogram(histogram), [1.744, 2.163, 2.326, 2.395, 2.465], atol=1e-3)
    assert metrics.accept_len(63, 43) == pytest.approx(106 / 43)
    assert metrics.sglang_rate_true(0.638, 3) == pytest.approx(0.5173, abs=1e-4)
    with pytest.raises(ValueError, match="empty"):
        curve_from_histogram([0, 0])


@given(st.floats(0, 1), st.integers(1, 16))
def test_rate_and_length_are_inverse(rate: float, depth: int) -> None:
    assert metrics.accept_rate_from_len(metrics.accept_len_from_rate(rate, depth), depth) == pytest.approx(rate)


def test_checks_speak_only_when_broken() -> None:
    assert metrics.check_counters(10, 9)
    assert metrics.check_counters(9, 9) is None
    assert metrics.check_counters(None, 9) is None
    assert metrics.check_drafts(200, 3, 90)
    assert metrics.check_step_routes(2.514, 9.05, 22.8) is None
    assert metrics.check_step_routes(2.514, 9.05, 25.0)


def test_unknown_stays_unknown() -> None:
    assert metrics.accept_rate(0, 0) is None
    assert metrics.accept_len(None, 5) is None
    assert metrics.steps(10, 10) is None
    assert metrics.tpot_ms(0.0, 1.0, 3, 3) is None
    with pytest.raises(ValueError, match="positive"):
        metrics.achieved_concurrency([1.0], 0.0)


def test_tokens_of_the_first_chunk_are_not_timed() -> None:
    assert metrics.tpot_ms(0.0, 0.6, 64, 4) == pytest.approx(10.0)


# --------------------------------------------------------------------------------------------------- percentiles


@pytest.mark.parametrize(("q", "n"), [(90, 10), (95, 20), (99, 100)])
def test_no_percentile_below_its_n(q: float, n: int) -> None:
    assert percentile(range(n - 1), q) is None
    found = percentile(range(n), q)
    assert found is not None
    assert found.value == pytest.approx(np.percentile(range(n), q))
    assert shown([3.0] * (n - 1), q) == f"max of {n - 1}: 3.0 ms"


@pytest.mark.parametrize(("q", "n"), [(90, 29), (95, 59), (99, 299)])
def test_upper_bounds_need_more(q: float, n: int) -> None:
    assert n_for_bound(q) == n
    below, enough = percentile(range(n - 1), q), percentile(range(n), q)
    assert enough is not None
    assert enough.bound == n - 1
    assert below is None or below.bound is None
    assert needed(99.9) == 1000


# --------------------------------------------------------------------------------------------------- accept curves


@given(st.lists(st.floats(-1, 8, allow_nan=False), min_size=1, max_size=8), st.data())
def test_shape_is_weighted_isotonic_regression_of_the_gains(lengths: list[float], data: st.DataObject) -> None:
    depths = sorted(data.draw(st.sets(st.integers(1, 16), min_size=len(lengths), max_size=len(lengths))))
    width = np.diff([0, *depths]).astype(float)
    gains = isotonic_regression(np.diff([1.0, *lengths]) / width, weights=width, increasing=False).x
    expected = 1 + np.cumsum(np.clip(gains, 0, 1) * width)
    assert np.allclose(shape(lengths, depths), expected, atol=1e-9)


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=12))
def test_possible_curves_are_left_alone(hazards: list[float]) -> None:
    lengths = 1 + np.cumsum(np.cumprod(hazards))
    depths = list(range(1, len(hazards) + 1))
    assert np.allclose(shape(lengths, depths), lengths)
    assert np.allclose(misfit(lengths.tolist(), depths), 0)
    assert coherent([1.0, *lengths], [0, *depths])


def test_the_seeds_implied_lengths_are_no_texts() -> None:
    assert not coherent([1, 1.674, 2.336, 2.224, 2.210], [0, 1, 3, 4, 5])
    assert coherent([1, 1.8, 2.5, 3.0], [0, 1, 2, 3])


def test_leviathan_overshoots_from_the_first_depth() -> None:
    assert [leviathan(0.802, k) for k in (2, 3, 4, 5)] == pytest.approx([2.445, 2.961, 3.375, 3.707], abs=1e-3)
    assert leviathan(1.0, 4) == 5


def test_steps_shrink_to_a_line_but_keep_a_kink() -> None:
    seen = np.log([10.0, 11.0, 12.0, 15.0, 16.0, 17.0])
    bare = shrink_step(seen.tolist(), range(6), sd=1.0, restarts=1)
    kept = shrink_step(seen.tolist(), range(6), sd=0.001, restarts=1)
    assert np.allclose(np.diff(bare, 2), 0, atol=0.01)
    assert np.allclose(kept, np.exp(seen), rtol=1e-3)


# ----------------------------------------------------------------------------------------------------------- loops


def test_loops_are_caught_and_prose_is_not() -> None:
    loop = ["Wait", ",", "x7", "x1", "x3", "is", "x7", "x1", "x3", "."] * 50
    assert longest_run(loop, 1) <= 2
    assert longest_run(loop) >= 40
    assert ngram_repeat(loop) > 0.9
    assert degenerate_text(" ".join(loop))
    words = random.Random(1).choices([f"w{i}" for i in range(500)], k=400)
    assert not degenerate_text(" ".join(words))
    assert not degenerate_text("yes " * 10)


@pytest.mark.parametrize(
    ("rep", "run", "loop"),
    [(0.295, 1, False), (0.95, 1, True), (0.30, 12, True), (0.1, 63, False), (0.1, 64, True), (0.19, 40, False)],
)
def test_two_signals_or_one_far_out(rep: float, run: int, loop: bool) -> None:
    assert degenerate(rep, run) is loop


@given(st.integers(1, 16), st.integers(8, 30))
def test_a_phrase_of_any_period_counts_its_repeats(period: int, times: int) -> None:
    assert longest_run([f"w{i}" for i in range(period)] * times) >= times


# ------------------------------------------------------------------------------------------------ regret and splits


@given(st.dictionaries(st.integers(0, 15), st.fixed_dictionaries({c: st.floats(1, 500) for c in "ab"}), min_size=1))
def test_regret_is_a_share_and_someone_has_none(table: dict[int, dict[str, float]]) -> None:
    losses = regret(table)
    assert all(0 <= v < 1 for row in losses.values() for v in row.values())
    assert all(min(row[c] for row in losses.values()) == 0 for c in "ab")
    worsts = worst(losses, frozenset("ab"))
    assert minimax(worsts) == min(d for d in worsts if worsts[d] == min(worsts.values()))


def test_the_loss_splits_by_logs() -> None:
    found = split((22.7517, 79.632), (2.514, 1.44), (101.92, 16.05))
    assert found is not None
    assert (100 * found.step_share, 100 * found.accept_share) == pytest.approx((69.2, 30.8), abs=0.1)
    assert found.residual == pytest.approx(0.0392, abs=5e-4)
    assert split((1.0, 2.0), (1.0, 2.0)) is None


# ------------------------------------------------------------------------------------------------------ gate, knee


def test_gate_numbers() -> None:
    assert pooled_z(231, 240, 227, 240) == pytest.approx(-0.873, abs=1e-3)
    assert clustered_z(0.873, 8) == pytest.approx(0.41, abs=0.01)
    assert pooled_z(5, 5, 5, 5) == 0.0
    assert rule_of_three(10) == pytest.approx(0.26, abs=0.005)
    assert rule_of_three(30) == pytest.approx(0.095, abs=0.001)
    assert rule_of_three(0) == 1.0
    assert runs_for_bound(0.05) == 59
    assert mcnemar_p(0, 6) == pytest.approx(2 / 64)
    assert mcnemar_p(0, 0) == 1.0
    assert upper_bound_of_loss(4, 4, 200) == pytest.approx(1.645 * np.sqrt(10) / 200, abs=1e-4)
    assert opt_in(changes_numerics=True, shown_safe=False, gain=0.0124)
    assert not opt_in(changes_numerics=False, shown_safe=False, gain=0.0124)


def test_the_knee_is_the_point_of_most_power() -> None:
    load, speed = [1, 16, 32, 48], [109.84, 629.05, 949.87, 1061]
    found = knee(load, speed)
    assert found is not None
    assert (found.at, found.rival, found.sentence) == (32, None, "the knee is at 32")
    assert elasticities(load, speed) == pytest.approx([0.63, 0.59, 0.27], abs=0.005)
    flat = knee([1, 2, 4], [100, 190, 265])
    assert flat is not None
    assert flat.sentence == "the knee is between 2 and 4"
    assert knee([1, 2], [1, 2]) is None
    with pytest.raises(ValueError, match="as many"):
        knee([1], [1, 2])


# ----------------------------------------------------------------------------------------------------------- drift


def test_drift_is_seen_and_steadiness_is_not_called_drift() -> None:
    rng = np.random.default_rng(0)
    order = list(range(12))
    falling = drift(order, (-0.003 * np.arange(12) + rng.normal(0, 0.002, 12)).tolist())
    assert falling is not None
    assert falling.found
    assert falling.span == pytest.approx(-0.033, abs=0.006)
    calm = [drift(order, rng.normal(0, 0.02, 12).tolist()) for _ in range(400)]
    assert sum(d is not None and d.found for d in calm) / 400 < 0.03
    assert drift([1, 2, 3], [1, 2, 3]) is None


def test_drift_needs_the_same_thing_more_than_once() -> None:
    assert drift_of_repeats([(i, i, 0.1 * i) for i in range(20)]) is None
    rows = [(p, restart, 3.0 * p - 0.01 * restart) for restart in range(8) for p in range(4)]
    found = drift_of_repeats(rows)
    assert found is not None
    assert found.found
