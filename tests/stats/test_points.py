"""Two points beside each other: which half of the speed changed, and the slow end of first tokens."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.stats import points, tails


def cell(depth: int, tps: float, length: float | None, gap: float | None, **more: Any) -> dict[str, Any]:
    base = {"depth": depth, "category": "code", "decode_tps": [tps], "accept_len": length, "gap_ms": gap}
    return base | {"step_ms": gap} | more


def test_the_halves_multiply_to_the_change_and_what_is_left_is_told() -> None:
    found = points.between([cell(1, 100.0, 2.0, 20.0), cell(3, 121.0, 3.0, 25.0)], 1, 3)[0]
    assert found.split is not None
    assert found.split.step_ratio == pytest.approx(1.25)
    assert found.split.accept_ratio == pytest.approx(2 / 3)
    assert found.split.residual == pytest.approx((100 / 121) / (1.25 * 2 / 3) - 1)
    assert found.split.step_share + found.split.accept_share == pytest.approx(1)
    said = points.words([found])
    assert said[0] == "from depth 1 to 3: speed = accept length / step time"
    assert "100.0 → 121.0 tok/s (+21.0%): accept length ×1.500, step time ×1.250" in said[1]
    assert said[1].endswith("0.8% explained by neither")


def test_plain_decoding_commits_one_token_a_step() -> None:
    found = points.between([cell(0, 50.0, None, 20.0), cell(2, 100.0, 2.5, 25.0)], 0, 2)[0]
    assert found.lengths == (1.0, 2.5)


def test_a_step_time_made_from_the_speed_leaves_no_residual() -> None:
    rows = [cell(1, 100.0, 2.0, None, step_ms=20.0), cell(3, 121.0, 3.0, 25.0)]
    found = points.between(rows, 1, 3)[0]
    assert found.split is not None
    assert found.split.residual is None
    assert "neither" not in points.words([found])[1]


def test_what_is_not_known_is_said_and_unmeasured_cells_are_left_out() -> None:
    rows = [cell(1, 100.0, None, 20.0), cell(2, 90.0, 2.0, 21.0), cell(3, 0.0, 2.0, 21.0, decode_tps=[])]
    assert points.words(points.between(rows, 1, 2))[1].endswith("the halves are not known")
    assert points.between(rows, 1, 3) == []
    assert points.words([]) == []


@pytest.mark.parametrize(
    ("n", "said"),
    [(0, "—"), (1, "1.0"), (2, "1.0/2.0"), (9, "5.0 max 9.0 of 9"), (10, "5.5 p90 9.1"), (19, "10.0 p90 17.2"),
     (20, "10.5 p95 19.1"), (99, "50.0 p95 94.1"), (100, "50.5 p99 99.0")],
)  # fmt: skip
def test_no_percentile_stands_below_its_n(n: int, said: str) -> None:
    assert tails.words([float(i + 1) for i in range(n)]) == said


@given(st.lists(st.floats(0.1, 1e6), min_size=3, max_size=120))
def test_the_tail_is_never_above_the_slowest(values: list[float]) -> None:
    assert float(tails.words(values).split(" of ")[0].split()[-1]) <= round(max(values), 1) + 0.051


def test_a_table_of_tails_has_a_row_a_depth_and_a_dash_where_nothing_was_measured() -> None:
    cells = [cell(d, 1.0, None, None, category=c, ttft_each_ms=[50.0, 51.5]) for d, c in ((0, "code"), (3, "story"))]
    found = tails.lines({"cells": cells, "categories": ["code", "story", "translation"]})
    assert [row.split() for row in found[1:]] == [
        ["depth", "code", "story"], ["0", "50.0/51.5", "—"], ["3", "—", "50.0/51.5"],
    ]  # fmt: skip
    assert tails.lines({"cells": [cell(1, 1.0, None, None)], "categories": ["code"]}) == []
