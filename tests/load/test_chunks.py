"""Drafts counted from chunks: exact where each chunk is a step, silent where it can't be."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.load.chunks import drafts


@pytest.mark.parametrize(
    ("counts", "tokens", "each", "found"),
    [
        ([1, 3, 4, 8], 8, 3, {"steps": 3, "drafted": 9, "accepted": 4}),
        ([1, 3, 4, 7], 8, 3, {"steps": 3, "drafted": 9, "accepted": 4}),  # the stop token came with the last step
        ([1, 3, 4, 8], 9, 3, {}),  # one of three chunks holds two steps: too many to trust
        ([1, 2, 3, 4], 4, 3, {"steps": 3, "drafted": 9, "accepted": 0}),
        ([1, None, 4], 4, 3, {}),  # a chunk without a count
        ([1], 1, 3, {}),
        ([], None, 3, {}),
        ([1, 3], None, 3, {}),
        ([1, 3], 2, 3, {}),  # more shown than made
        ([1, 3, 2, 5], 5, 3, {}),  # counts that fall
        ([8, 16, 24, 32], 32, 3, {}),  # a stream interval of 8
        ([1, 3], 3, 0, {}),
    ],
)
def test_steps_are_counted_where_a_chunk_is_one(
    counts: list[int | None], tokens: int | None, each: int, found: dict[str, int]
) -> None:
    assert drafts(counts, tokens, each) == found


@settings(deadline=None)
@given(st.integers(1, 8).flatmap(lambda k: st.tuples(st.just(k), st.lists(st.integers(1, k + 1), min_size=1))))
def test_a_stream_of_one_step_a_chunk_is_read_exactly(case: tuple[int, list[int]]) -> None:
    each, made = case
    counts = [1]
    for step in made:
        counts.append(counts[-1] + step)
    found = drafts(counts, counts[-1], each)
    assert found == {"steps": len(made), "drafted": each * len(made), "accepted": sum(made) - len(made)}


@settings(deadline=None)
@given(st.lists(st.none() | st.integers(-3, 60)), st.none() | st.integers(-3, 60), st.integers(-1, 8))
def test_nothing_impossible_is_ever_told(counts: list[int | None], tokens: int | None, each: int) -> None:
    found = drafts(counts, tokens, each)
    if found:
        assert 0 <= found["accepted"] <= found["drafted"]
        assert tokens is not None
        assert found["steps"] + found["accepted"] == tokens - 1
