from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.text import Text

from probes.events import (
    Capacity,
    CapacityRead,
    Event,
    GpuReading,
    Judged,
    MemorySample,
    RequestDone,
    RequestSent,
    ServerChanged,
)
from probes.session import Frame, Session
from tui import panels
from tui.panels import accept, activity, capacity, latency, memory, regret, requests, server, speed
from tui.widgets import ink
from tui.widgets.drawn import Drawn

PURE = (accept, activity, capacity, latency, memory, regret, requests, server, speed)


def frame_of(*events: Event) -> Frame:
    session = Session()
    session.apply_all(events)
    return session.frame()


@pytest.mark.parametrize("module", PURE, ids=lambda m: m.__name__.rpartition(".")[2])
def test_every_panel_draws_nothing_something_and_in_any_size(module: Any, facts: list[Event]) -> None:
    for frame in (Frame(), frame_of(*facts[:1]), frame_of(*facts)):
        for width in (1, 2, 5, 17, 36, 57, 120):
            for height in (1, 2, 3, 6, 11, 30):
                assert isinstance(module.draw(frame, width, height), Text)
    assert module.draw(Frame(), 57, 11).plain != module.draw(frame_of(*facts), 57, 11).plain


def test_panels_name_the_fields_that_they_use() -> None:
    for panel in panels.found():
        widget = panel.make(None)
        if isinstance(widget, Drawn):
            assert set(widget._uses) <= set(Frame.__slots__), panel.name


def test_gpus_come_before_the_host_with_what_is_not_known_as_a_dash() -> None:
    gpus = (
        GpuReading(0, "big", total=32 << 30, used=28 << 30, free=4 << 30, temperature_c=63.0, power_w=412.0),
        GpuReading(1, "mute", problem="the driver does not answer"),
    )
    shown = memory.draw(frame_of(MemorySample(1.0, 1, gpus)), 36, 8).plain
    assert "28.0 GiB of 32.0 GiB" in shown
    assert "free 4.0 GiB" in shown
    assert "63 °C" in shown
    assert "GPU1" in shown
    assert "— of —" in shown
    assert "the driver does not answer" in shown


def test_memory_in_use_is_split_by_the_engines_own_lines() -> None:
    gib = 1 << 30
    sample = MemorySample(1.0, 1, (GpuReading(0, "big", total=32 * gib, used=30 * gib, free=2 * gib, ours=28 * gib),))
    told = Capacity(weights_bytes=18 * gib, kv_bytes=6 * gib)
    assert (
        "weights 18.0 GiB  pools 6.0 GiB  unnamed 4.0 GiB"
        in memory.draw(frame_of(sample, CapacityRead(1, told)), 60, 8).plain
    )
    assert "unnamed" not in memory.draw(frame_of(sample, CapacityRead(1, Capacity(lanes=3))), 60, 8).plain
    claims = CapacityRead(1, Capacity(weights_bytes=29 * gib))
    assert "weights 29.0 GiB  1.0 GiB too much" in memory.draw(frame_of(sample, claims), 60, 8).plain


def test_two_requests_are_both_shown_and_more_are_averaged() -> None:
    assert speed.words({"decode_tps": [10.0, 12.0]}) == "10.0/12.0"
    assert speed.words({"decode_tps": [10.0, 12.0, 14.0]}) == "12.0"
    assert speed.words({"decode_tps": []}) == ink.NONE
    assert accept.words({"accept_rate": None}) == ink.NONE


def judged(picks: dict[str, int], **verdict: Any) -> Frame:
    row = {"code": 0.0, "story": 0.1, "worst": 0.1}
    result = {
        "categories": ["code", "story"], "regret": {str(d): row for d in range(9)}, "picks": picks, "flags": [],
        "cells": [{"depth": 1, "category": "code", "requests": 2, "n": 2}],
        "verdict": {"state": "UNDECIDED", "sentence": "", **verdict},
    }  # fmt: skip
    return frame_of(Judged(1.0, result))


def test_rules_that_disagree_are_said_in_a_sentence() -> None:
    shown = regret.draw(judged({"minimax": 3, "median": 4, "mean": 5}), 80, 20).plain
    assert "they disagree: worst case says 3, median 4, mean 5" in shown
    assert "all say 3" in regret.draw(judged({"minimax": 3, "median": 3, "mean": 3}), 80, 20).plain


@pytest.mark.parametrize(
    "verdict",
    [
        {"state": "NO_CLAIM", "sentence": "Nothing to compare: only depth 2 was measured."},
        {"state": "NOTHING_TO_CHOOSE", "sentence": "Nothing to choose: only depth 2 was measured."},  # an older result
    ],
)
def test_one_depth_is_said_to_be_nothing_to_compare(verdict: dict[str, Any]) -> None:
    frame = judged({"minimax": 2, "median": 2, "mean": 2}, **verdict)
    assert frame.result is not None
    for rows in (1, 2):
        regrets = dict(list(frame.result["regret"].items())[2 : 2 + rows])
        result = {**frame.result, "regret": regrets, "decision": None}
        for height in (6, 20):
            shown = regret.draw(dataclasses.replace(frame, result=result), 80, height).plain
            assert "NOTHING TO COMPARE · Only depth 2 was measured." in shown
            assert not re.search("all three|all say|NOTHING TO CHOOSE|minimax", shown)
            assert ("best" in shown) == (rows > 1)


def test_picked_depths_stay_when_there_is_no_room_for_all() -> None:
    shown = regret.draw(judged({"minimax": 7, "median": 2, "mean": 2}), 80, 6).plain.split("\n")
    assert len(shown) <= 6
    assert any(line.endswith("5 more: y") for line in shown)
    assert any(line.endswith("← minimax") for line in shown)
    assert any(line.endswith("← median, mean") for line in shown)


def test_a_verdict_does_not_say_its_word_twice_and_names_what_is_missing() -> None:
    shown = regret.draw(judged({}, sentence="Undecided between 3 and 4.", needs_requests=24), 80, 20).plain
    assert shown.startswith("UNDECIDED · about 24 more requests · Between 3 and 4.")


def test_a_failed_request_says_why_and_has_no_speed() -> None:
    done = RequestDone("a", "p", "h", "code", 2, 1, 0, "overloaded", 1.0, status=429, decode_tps=None)
    sent = RequestSent("b", 1.0, "p", "story", 10, 1)
    shown = requests.draw(frame_of(sent, done), 60, 8).plain
    assert "overloaded: status 429" in shown
    assert "story        —+10 tok" in shown


def test_requests_on_the_wire_are_a_ledger_of_what_they_hold() -> None:
    """The seed's three requests of 100,000 tokens on a pool of 3,500 pages: two fit, the third is promised too much."""
    told = CapacityRead(1, Capacity(kv_pool_tokens=224_000, pages=3500, page_tokens=64, lanes=3, reserving=True,
                                    max_context=224_000), ())  # fmt: skip
    sent = [RequestSent(n, 1.0, n, "story", 100_000, 1, 1_000 if n != "c" else None) for n in "abc"]
    lines = requests.draw(frame_of(told, *sent), 60, 12).plain.split("\n")
    assert lines[1].strip() == "3 on the wire hold ≥4,721 pages of 3,500"
    assert lines[2].strip() == "… story        1,000+100,000 tok · 1,579 pages"
    assert lines[4].strip() == "… story        —+100,000 tok · ≥1,563 pages"
    long = RequestSent("d", 1.0, "d", "code", 400_000, 1, 220_000)
    assert "220,000+4,001 tok · 3,500 pages" in requests.draw(frame_of(told, long), 60, 12).plain, "cut at the context"
    few = requests.draw(frame_of(told, *sent), 60, 6).plain
    assert "and 1 more on the wire" in few


def test_a_pool_that_is_not_promised_is_grown_into() -> None:
    told = CapacityRead(1, Capacity(kv_pool_tokens=4096, lanes=4, reserving=False), ())
    sent = [RequestSent(n, 1.0, n, "story", 100, 1, 20) for n in "ab"]
    shown = requests.draw(frame_of(told, *sent), 60, 12).plain
    assert "2 on the wire grow to 238 tokens of 4,096" in shown
    assert "20+100 tok · 119 tokens" in shown


def test_a_signal_is_named_where_there_is_one() -> None:
    failed = ServerChanged(1.0, "failed", 1, depth=2, exit_code=-9, signal="SIGKILL")
    shown = server.draw(frame_of(failed), 40, 6).plain
    assert "signal SIGKILL" in shown
    assert "no reason was printed" in shown


def test_a_repeated_warning_is_shown_once(facts: list[Event]) -> None:
    from probes.events import Capacity, CapacityRead, Warn

    read = CapacityRead(1, Capacity(lanes=1), (Warn(4, "twice"), Warn(4, "twice")))
    assert capacity.draw(frame_of(*facts, read), 80, 9).plain.count("twice") == 1


@given(st.floats(0, 1e15), st.floats(0, 1e6))
def test_sizes_and_spans_are_short(bytes_: float, seconds: float) -> None:
    assert len(ink.size(int(bytes_))) <= 13
    assert len(ink.span(seconds)) <= 10


@settings(deadline=None)
@given(st.lists(st.none() | st.floats(0, 1e9), max_size=300), st.integers(0, 60))
def test_a_strip_fits_and_gaps_stay_gaps(values: list[float | None], width: int) -> None:
    strip = ink.strip(values, width)
    assert len(strip) <= width
    if len(values) <= width:
        assert [c == " " for c in strip] == [v is None for v in values]


def test_a_bar_is_as_wide_as_asked() -> None:
    for share in (None, -1.0, 0.0, 0.03, 0.5, 1.0, 7.0):
        assert len(ink.bar(share, 12)) == 12
    assert ink.bar(0.5, 4) == "██░░"


def test_settled_figures_look_settled(facts: list[Event]) -> None:
    frame = frame_of(*facts)
    assert frame.result is not None
    sure = dict(frame.result, cells=[{**c, "state": "VERDICT"} for c in frame.result["cells"]])
    bold = dataclasses.replace(frame, result=sure)
    assert "n=2" in speed.draw(frame, 57, 11).plain
    dim_spans = [s for s in speed.draw(frame, 57, 4).spans if "dim" in str(s.style)]
    sure_spans = [s for s in speed.draw(bold, 57, 4).spans if "dim" in str(s.style)]
    assert len(sure_spans) < len(dim_spans)
