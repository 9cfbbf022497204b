from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from probes.events import RequestDone
from probes.measure.adaptive import adaptive, following
from probes.measure.steps import Measure, Measured


def came(step: Measure, judged: dict[str, Any], per: tuple[float, ...] | None) -> Measured:
    done = RequestDone("x", "code-1", "h", "code", step.depth, 1, step.block, "ok", 0.0, per_position=per)
    return Measured(step, (done,), judged=judged)


def verdict(state: str, lead: int, chances: dict[str, float]) -> dict[str, Any]:
    return {"verdict": {"state": state}, "decision": {"leading": lead, "p_best": chances}}


def steps_of(judged: dict[str, Any], per: tuple[float, ...] | None, most: int = 3) -> list[Measure]:
    plan = adaptive((0, 1, 2, 3, 4), 2, 400, most)
    steps = [next(plan)]
    try:
        while len(steps) < 99:
            steps.append(plan.send(came(steps[-1], judged, per)))
    except StopIteration:
        return steps
    raise AssertionError("it never ends")


def test_deepest_first_then_short_runs_then_the_pick_and_its_neighbours_in_full() -> None:
    steps = steps_of(verdict("PICK", 3, {"3": 0.95}), (0.8, 0.6, 0.5, 0.4))
    assert [s.depth for s in steps] == [4, 0, 2, 1, 3, 3, 2]
    assert [s.max_tokens for s in steps] == [None, None, 64, 64, 64, None, None]
    full = {s.depth for s in steps if s.max_tokens is None}
    assert {2, 3, 4} <= full, "the pick and both neighbours are measured in full"


def test_without_acceptance_by_position_every_depth_is_measured_in_full() -> None:
    steps = steps_of(verdict("PICK", 3, {"3": 0.95}), None)
    assert sorted(s.depth or 0 for s in steps) == [0, 1, 2, 3, 4]
    assert all(s.max_tokens is None for s in steps)


def test_rivals_get_more_runs_with_new_prompts_until_the_limit() -> None:
    steps = steps_of(verdict("UNDECIDED", 3, {"3": 0.5, "4": 0.4, "0": 0.01}), (0.9,) * 4)
    later = steps[5:]
    assert {s.depth for s in later} == {2, 3, 4}
    assert max(s.block for s in later) == 2
    assert all(s.offset == s.block * 2 for s in later)


@given(
    st.sampled_from(["PICK", "UNDECIDED", "NO_CLAIM", "NOTHING_TO_CHOOSE"]), st.integers(0, 4),
    st.dictionaries(st.sampled_from("01234"), st.floats(0, 1)), st.booleans(), st.integers(1, 4),
)  # fmt: skip
def test_it_always_ends_and_never_repeats_a_point(
    state: str, lead: int, chances: dict[str, float], per: bool, most: int
) -> None:
    steps = steps_of(verdict(state, lead, chances), (0.5,) * 4 if per else None, most)
    points = [(s.depth, s.block, s.max_tokens) for s in steps]
    assert len(points) == len(set(points))
    assert {s.depth for s in steps} == {0, 1, 2, 3, 4}


def test_nothing_known_yet_measures_what_is_missing() -> None:
    assert following([0, 1], {0: 1, 1: 0}, {}, 3) == 1
    assert following([0, 1], {0: 1, 1: 1}, {}, 3) is None
