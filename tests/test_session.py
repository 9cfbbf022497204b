from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from probes.events import (
    Capacity,
    CapacityRead,
    Ceiling,
    CeilingChanged,
    EngineSample,
    Event,
    FlagsInForce,
    GpuReading,
    Judged,
    LogLines,
    LogRecords,
    MemorySample,
    Notice,
    PlanProgress,
    Record,
    RequestDone,
    RequestSent,
    RunStarted,
    ServerChanged,
)  # fmt: skip
from probes.session import HANDLERS, HISTORY, LOG_KEPT, Session


def finished(name: str) -> RequestDone:
    return RequestDone(name, "code-1", "h", "code", 1, 1, 0, "ok", 1.0)


ANY: list[Event] = [
    RunStarted(1.0, "r", "llamacpp", "p", "m", "draft depth", (0, 1), ("code",)),
    ServerChanged(2.0, "starting", 1),
    ServerChanged(2.0, "ready", 1, boot_s=0.5),
    ServerChanged(2.0, "failed", 2, reason="no"),
    LogLines(1, ("a", "b")),
    LogRecords(1, (Record(2, "decode", {"running": 2}),)),
    CapacityRead(1, Capacity(lanes=3)),
    CeilingChanged(3.0, 1, Ceiling("lanes")),
    FlagsInForce(1, 1, {}, {}, proven=False),
    FlagsInForce(1, 1, {}, {}, proven=True),
    RequestSent("a", 1.0, "code-1", "code", 5, 1),
    finished("a"),
    MemorySample(4.0, 1, (GpuReading(0, "g", total=10, used=4, free=6),), phase="boot"),
    MemorySample(4.0, 1, (), server_rss=7, phase="load"),
    EngineSample(5.0, 1, {"running": 1, "waiting": 0}),
    PlanProgress(6.0, "sweep", 1, 2, "x"),
    Notice(7.0, "info", "n"),
    Judged(8.0, {"verdict": {}}),
]


def apply(*events: Event) -> Session:
    session = Session()
    session.apply_all(events)
    return session


def test_every_kind_of_event_is_handled() -> None:
    assert {type(e) for e in ANY} == set(HANDLERS)


@given(st.lists(st.sampled_from(ANY), max_size=40))
def test_any_order_gives_a_frame_and_looking_changes_nothing(events: list[Event]) -> None:
    looked, straight = Session(), Session()
    for event in events:
        looked.apply(event)
        looked.frame()
        straight.apply(event)
    assert looked.frame() == straight.frame()
    assert looked.frame() is looked.frame()


def test_nothing_known_is_none_not_zero() -> None:
    frame = Session().frame()
    assert frame.capacity is None
    assert frame.result is None
    assert frame.memory is None
    assert frame.log == ()


def test_the_log_keeps_its_newest_lines_with_their_numbers() -> None:
    session = Session()
    for start in range(1, LOG_KEPT + 2000, 1000):
        session.apply(LogLines(start, tuple(f"line {n}" for n in range(start, start + 1000))))
    frame = session.frame()
    assert len(frame.log) == LOG_KEPT
    assert frame.log[0] == f"line {frame.log_first}"
    assert frame.log[-1] == f"line {frame.log_lines}"


def test_strips_span_the_whole_run_and_keep_the_peaks() -> None:
    session = Session()
    for n in range(HISTORY * 5):
        session.apply(MemorySample(float(n), 1, server_rss=999 if n == 7 else n % 50, host_total=1000))
        session.apply(EngineSample(float(n), 1, {"running": 1, "waiting": 9 if n == 11 else 0}))
    frame = session.frame()
    assert len(frame.memory_history) <= HISTORY
    assert max(m.used or 0 for m in frame.memory_history) == 999
    assert max(a.waiting or 0 for a in frame.activity) == 9
    assert frame.memory_history[-1].at > HISTORY * 4


def test_the_tightest_gpu_and_marks_by_phase() -> None:
    roomy, tight = GpuReading(0, "a", total=100, used=10, free=90), GpuReading(1, "b", total=100, used=80, free=20)
    frame = apply(
        MemorySample(1.0, 1, (roomy, tight), phase="boot"),
        MemorySample(2.0, 1, (roomy, GpuReading(1, "b", total=100, used=95, free=5)), phase="load"),
    ).frame()
    assert frame.high_water == {"boot": 80, "load": 95}
    assert frame.low_free == {"boot": 20, "load": 5}


def test_a_depth_proven_later_is_no_longer_unverified() -> None:
    session = apply(FlagsInForce(1, 2, {}, {}, proven=False))
    assert session.frame().unverified == (2,)
    session.apply(FlagsInForce(2, 2, {}, {}, proven=True))
    assert session.frame().unverified == ()


def test_the_ledger_holds_what_is_in_flight() -> None:
    sent: Any = [RequestSent(n, 1.0, "code-1", "code", 5, 1) for n in "ab"]
    session = apply(*sent, finished("a"))
    assert [r.id for r in session.frame().in_flight] == ["b"]
    session.apply(ServerChanged(9.0, "starting", 2))
    assert session.frame().in_flight == ()


def test_the_last_good_state_survives_a_failure() -> None:
    good = ServerChanged(1.0, "ready", 1, depth=2, boot_s=0.4)
    frame = apply(good, ServerChanged(2.0, "failed", 2, depth=5, reason="no")).frame()
    assert frame.last_good == good
    assert frame.boots == {1: 0.4}


def test_a_request_told_again_replaces_what_was_told() -> None:
    better = dataclasses.replace(finished("a"), drafted=4)
    frame = apply(finished("a"), finished("b"), better).frame()
    assert frame.recent == (better, finished("b"))
    assert frame.requests == 2
