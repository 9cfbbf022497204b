"""The page of reasons: what sets the leading depth apart from its rivals, and the slow end of first tokens."""

from __future__ import annotations

from typing import Any

from probes.events import Event, FlagsInForce, Judged
from probes.session import Session
from tui.panels import accept, speed
from tui.screens.why import Why
from tui.widgets import ink


def said(facts: list[Event], **changes: Any) -> list[str]:
    """The page's lines for these facts, with changes to the result."""
    session = Session()
    session.apply_all(facts)
    result = dict(session.frame().result or {})
    session.apply(Judged(8.0, result | changes))
    return [str(option.prompt) for option in Why(session.frame())._options()]


def test_the_leading_depth_is_set_apart_from_each_rival(facts: list[Event]) -> None:
    picks = {"median": 0, "mean": 2, "minimax": 2}
    lines = said(facts, picks=picks, decision={"leading": 2})
    head = lines.index("from depth 0 to 2: speed = accept length / step time")
    assert lines[head + 1].split()[0] == "code"
    assert "accept length ×1.250" in lines[head + 1]  # 100 tokens in 80 steps
    assert not [line for line in lines if line.startswith("from depth 2 to 2")]


def test_where_all_rules_agree_nothing_is_set_apart(facts: list[Event]) -> None:
    lines = said(facts, picks={"median": 2, "mean": 2, "minimax": 2}, decision={"leading": 2})
    assert not [line for line in lines if line.startswith("from depth")]


def test_both_first_token_times_are_there(facts: list[Event]) -> None:
    assert [line for line in said(facts) if line.split()[:2] == ["0", "100.0/100.0"]]


def test_a_predicted_point_is_hollow_and_said_to_be_predicted(facts: list[Event]) -> None:
    session = Session()
    session.apply_all(facts)
    result = dict(session.frame().result or {})
    hollow = [{"depth": 2, "category": "code", "state": "PREDICTED", "from": 4, "accept_len": 1.9, "accept_rate": 0.9}]
    plain = accept.draw(session.frame(), 80, 20).plain
    session.apply(Judged(8.0, result | {"predicted": hollow}))
    drawn = accept.draw(session.frame(), 80, 20).plain
    assert "○ predicted from depth 4, not measured" in drawn
    assert drawn.count("○") == 2
    assert "○" not in plain
    assert "○" not in speed.draw(session.frame(), 80, 20).plain


def test_flags_asked_stand_beside_those_in_force(facts: list[Event]) -> None:
    session = Session()
    session.apply_all(facts)
    session.apply(FlagsInForce(1, 2, {"depth": 2, "ctx": 4096}, {"depth": 2}, proven=False, notes=("ctx is not told",)))
    lines = [str(option.prompt) for option in Why(session.frame())._options()]
    at = lines.index("Flags asked, and in force")
    assert lines[at + 1 : at + 4] == ["depth: 2 · 2", f"ctx: 4096 · {ink.NONE}", "! ctx is not told"]
