"""A panel that names a pick does not also say that there is too little to name one."""

from __future__ import annotations

import pytest

from probes.events import Event, Judged
from probes.session import Session
from tui.panels import regret
from tui.panels.regret import _units


@pytest.mark.parametrize(("state", "said"), [("UNDECIDED", True), ("PICK", False)])
def test_too_few_is_not_said_beside_a_pick(state: str, said: bool) -> None:
    session = Session()
    cell = {"depth": 0, "category": "code", "n": 2, "requests": 2, "decode_tps": [1.0, 2.0]}
    session.apply(Judged(1.0, {"cells": [cell], "verdict": {"state": state}}))
    text = _units(session.frame())
    assert text is not None
    assert ("too few to call" in text.plain) is said


def test_the_chances_of_the_depths_are_told(facts: list[Event]) -> None:
    session = Session()
    session.apply_all(facts)
    result = dict(session.frame().result or {})
    session.apply(Judged(8.0, {**result, "decision": {"p_best": {"0": 0.25, "2": 0.75}}}))
    assert "chance to be best: 2 75%, 0 25%" in regret.draw(session.frame(), 80, 24).plain
