"""Words and figures as a tired person reads them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from probes.events import Event, Judged, ServerChanged
from probes.session import Frame, Session
from tui.panels import regret, server
from tui.widgets import ink


@given(st.text(), st.integers(0, 60))
def test_a_cut_middle_keeps_both_ends(text: str, width: int) -> None:
    shown = ink.middle(text, width)
    assert cell_len(shown) <= width
    if cell_len(text) <= width:
        assert shown == text


def judged(sentence: str, needs: int) -> Frame:
    row = {"code": 0.0, "story": 0.1, "worst": 0.1}
    session = Session()
    result = {
        "categories": ["code", "story"], "regret": {str(d): row for d in range(9)}, "picks": {}, "flags": [],
        "cells": [], "verdict": {"state": "UNDECIDED", "sentence": sentence, "needs_requests": needs},
    }  # fmt: skip
    session.apply(Judged(1.0, result))
    return session.frame()


def test_what_is_needed_survives_a_cut_sentence() -> None:
    said = "Undecided between depth 3 (4 chances in 10), depth 4 (3 chances in 10) and depth 5 (2 chances in 10); "
    said += "about 24 requests more should settle it."
    frame = judged(said, 24)
    assert regret.draw(frame, 57, 11).plain.startswith("UNDECIDED · about 24 more requests · Between depth 3")
    assert regret.draw(frame, 120, 30).plain.startswith("UNDECIDED · Between depth 3")


def test_the_cure_at_the_end_survives() -> None:
    assert ink.middle("/a/" + "b" * 90 + ": no such file; put the right path into x.yaml", 60).endswith("x.yaml")


def test_an_estimate_never_reads_as_a_time_of_day() -> None:
    said = [ink.about(s) for s in (0.4, 50, 100, 5399, 8000)]
    assert said == ["0 s", "50 s", "2 min", "90 min", "2 h 13 min"]


def shown(events: list[Event]) -> str:
    session = Session()
    session.apply_all(events)
    return server.draw(session.frame(), 60, 6).plain


def test_a_stopped_server_has_no_flags_in_force(facts: list[Event]) -> None:
    assert "in force" in shown(facts)
    assert "in force" not in shown([*facts, ServerChanged(9.0, "stopped", 1, depth=2)])
