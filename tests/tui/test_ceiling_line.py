"""The ceiling is in sight at every width, whole where there is room."""

from __future__ import annotations

from probes.events import Ceiling, CeilingChanged, Notice
from probes.session import Session
from tui.panels.capacity import draw
from tui.widgets.lines import told

CLAUSE = "2 running requests hold 3,128 of 3,500 pages and the next needs 1,564. "
LONG = f"The KV pool holds requests back. {CLAUSE}{CLAUSE}"


def frame_of(ceiling: Ceiling) -> Session:
    session = Session()
    session.apply(Notice(1.0, "info", "an older word"))
    session.apply(CeilingChanged(2.0, 1, ceiling))
    return session


def test_a_limit_is_wrapped_in_its_panel() -> None:
    frame = frame_of(Ceiling("kv_pool", "high", LONG)).frame()
    text = draw(frame, 80, 6).plain
    assert text.startswith("▲ KV POOL (high)")
    assert "the next needs 1,564" in " ".join(text.split())
    assert len(text.splitlines()) >= 3


def test_a_limit_is_told_at_the_foot_where_its_panel_is_behind_a_tab() -> None:
    frame = frame_of(Ceiling("lanes", "high", "All 3 lanes are taken.")).frame()
    _, narrow = told(frame, None, None, 80)
    assert narrow is not None
    assert narrow.plain.startswith("▲ LANES (high)")
    _, wide = told(frame, None, None, 160)
    assert wide is not None
    assert "an older word" in wide.plain


def test_no_limit_takes_no_place() -> None:
    frame = frame_of(Ceiling("none", "high", "Nothing waits.")).frame()
    _, narrow = told(frame, None, None, 80)
    assert narrow is not None
    assert "an older word" in narrow.plain


def test_a_queue_that_is_over_is_told_as_past_and_keeps_its_evidence_near() -> None:
    over = Ceiling("lanes", "high", "All 3 lanes are taken.", until="11-30T22:45:09.120")
    frame = frame_of(over).frame()
    assert draw(frame, 120, 6).plain.splitlines()[0] == (
        "no queue since 22:45:09 · before: LANES (high): All 3 lanes are taken."
    )
    _, narrow = told(frame, None, None, 80)
    assert narrow is not None
    assert "an older word" in narrow.plain, "the foot is for what holds now"


def test_a_stamp_without_a_time_is_told_as_it_is() -> None:
    frame = frame_of(Ceiling("lanes", "high", "Full.", until="boot+[12]s")).frame()
    assert draw(frame, 120, 6).plain.startswith("no queue since boot+[12]s ·")


def test_an_idle_server_raises_no_alarm() -> None:
    idle = Ceiling("unknown", "low", "It can't be told from this.", missing=("a report of how many requests run",))
    text = draw(frame_of(idle).frame(), 120, 6)
    assert text.plain.startswith("no ceiling known yet · would decide: a report of how many requests run")
    rivals = Ceiling("unknown", "low", "Either.", rivals=("lanes", "kv_pool"))
    assert draw(frame_of(rivals).frame(), 120, 6).plain.startswith("▲ UNKNOWN (low)"), (
        "a queue that is undecided is one"
    )
