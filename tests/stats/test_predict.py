"""What the deepest depth says of depths that nobody measured."""

from __future__ import annotations

import pytest

from probes.events import RequestDone
from probes.stats.cells import build
from probes.stats.predict import predicted
from probes.stats.result import judge_sweep


def request(depth: int, number: int, per_position: tuple[float, ...] | None, drafted: int) -> RequestDone:
    return RequestDone(
        f"d{depth}-{number}", f"p{number}", f"h{number}", "code", depth, depth, 0, "ok", 0.0, first=1.0, last=2.0,
        done=2.0, completion_tokens=101, first_tokens=1, drafted=drafted, accepted=drafted // 2,
        per_position=per_position, text="fine and varied words",
    )  # fmt: skip


ROWS = [
    request(4, 1, (0.8, 0.6, 0.4, 0.2), 400),
    request(4, 2, (0.4, 0.2, 0.0, 0.0), 1200),  # three times the steps
    request(1, 1, (0.5,), 100),
]


def test_smaller_depths_are_told_by_the_deepest_and_measured_ones_are_not() -> None:
    found = predicted(build(ROWS, range(6), ["code", "story"]), range(6))
    assert [(p["depth"], p["category"], p["from"]) for p in found] == [(2, "code", 4), (3, "code", 4)]
    assert [p["accept_len"] for p in found] == pytest.approx([1 + 0.5 + 0.3, 1 + 0.5 + 0.3 + 0.1])
    assert [p["accept_rate"] for p in found] == pytest.approx([0.8 / 2, 0.9 / 3])


def test_without_positions_nothing_is_predicted() -> None:
    rows = [request(4, n, None, 400) for n in (1, 2)]
    assert predicted(build(rows, [0, 2, 4], ["code"]), [0, 2, 4]) == []
    assert predicted([], [1]) == []


def test_a_predicted_depth_never_wins() -> None:
    found = judge_sweep(ROWS, engine="e", run="r", depths=[1, 2, 4], categories=["code"], simulated=False)
    assert [p["depth"] for p in found["predicted"]] == [2]
    assert "2" not in found["regret"]
    assert found["verdict"]["depth"] != 2
    assert 2 in found["unmeasured"]["depths"]
