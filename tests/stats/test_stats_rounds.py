"""Counted verify steps from counters alone, where every step drafts the whole depth."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.events import RequestDone
from probes.stats.metrics import decode, whole_rounds


def done(**more: Any) -> RequestDone:
    base: dict[str, Any] = {"depth": 3, "completion_tokens": 155, "drafted": 141, "accepted": 109}
    return RequestDone("r", "p", "", "code", restart=1, block=0, outcome="ok", sent=0.0, **{**base, **more})


def test_a_record_of_a_real_engine() -> None:
    assert whole_rounds(done()) == 47  # 155 = 1 + 47 + 109 - 2: two tokens of the last round were cut off


@given(st.integers(1, 15), st.lists(st.integers(0, 15), min_size=1, max_size=60), st.integers(0, 15))
def test_any_run_of_whole_rounds_gives_its_rounds(depth: int, taken: list[int], cut: int) -> None:
    accepted = [min(n, depth) for n in taken]
    cut = min(cut, accepted[-1])
    total = 1 + len(accepted) + sum(accepted) - cut
    request = done(depth=depth, completion_tokens=total, drafted=depth * len(accepted), accepted=sum(accepted))
    assert whole_rounds(request) == len(accepted)


@pytest.mark.parametrize("more", [
    {"drafted": 140}, {"drafted": None}, {"accepted": None}, {"depth": None}, {"depth": 0}, {"completion_tokens": None},
    {"drafted": 30}, {"drafted": 300},
])  # fmt: skip
def test_it_says_nothing_where_drafts_vary(more: dict[str, Any]) -> None:
    assert whole_rounds(done(**more)) is None


def test_the_decode_phase_uses_them_unless_steps_are_counted() -> None:
    timed = done(first=1.0, last=2.0, first_tokens=1)
    found = decode(timed)
    assert found is not None
    assert found.steps == 47
    counted = decode(done(first=1.0, last=2.0, first_tokens=1, steps=50))
    assert counted is not None
    assert counted.steps == 50
