"""How sure a loss is, in words and as a strip."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from probes.stats import chances

DECISION: dict[str, Any] = {
    "objective": "worst",
    "p_best": {"3": 0.6, "4": 0.395, "10": 0.005},
    "expected_excess": {"3": 0.012, "4": 0.02, "10": 0.2},
    "cost_90": {"3": [0.0, 0.05, 0.1], "4": [0.05, 0.1, 0.2], "10": [0.2, 0.3, 0.4]},
}


def test_each_depth_has_its_interval_and_its_chances() -> None:
    head, *rows = chances.lines({"decision": DECISION})
    assert head.startswith("worst loss by depth: 90 % interval on a strip from 0 to 40.0%, chance to be best")
    assert [row.split()[0] for row in rows] == ["3", "4", "10"]
    assert rows[0][6:38] == "├───●───┤" + " " * 23
    assert rows[0][38:].split() == ["5.0%", "(0.0%", "to", "10.0%)", "best", "60%", "excess", "1.2%"]
    assert rows[2][6:38].endswith("┤")
    assert len({row.index("best") for row in rows}) == 1


def test_the_likeliest_come_first_and_the_hopeless_are_not_named() -> None:
    assert chances.best({"decision": DECISION}) == "3 60%, 4 40%"
    assert chances.best({"decision": None}) == ""


def test_losses_from_the_estimator_are_told_as_that() -> None:
    head = chances.lines({"decision": {**DECISION, "route": "counters"}})[0]
    assert "by depth, told by counters and step times: 90 %" in head


def test_nothing_decided_is_nothing_shown_and_weights_are_named() -> None:
    assert chances.lines({}) == []
    assert chances.lines({"decision": {**DECISION, "objective": "weighted"}})[0].startswith("your traffic's loss")


@given(st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3).map(sorted))
def test_the_middle_lies_inside(span: list[float]) -> None:
    strip = chances._strip(*span)
    assert len(strip) == chances.STRIP
    assert strip.count("●") == 1
    assert strip.strip()[0] in "├●┤"
    assert strip.strip()[-1] in "┤●"
