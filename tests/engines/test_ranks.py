"""Records of several ranks joined: order, windows, the least of a field, nothing lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from probes.engines._ranks import WINDOW, Merger, apart, second_of_day
from probes.events import Record


def record(line: int, rank: int | None, second: int = 0, free: int = 5) -> Record:
    at = f"2026-01-01T00:{second // 60:02d}:{second % 60:02d}"
    return Record(line, "retract", {"free_bytes": free}, at, None if rank is None else {"TP": rank})


def test_copies_become_one_with_all_ranks() -> None:
    merger = Merger()
    assert [list(merger.add(record(n, n), "k")) for n in (1, 2, 3)] == [[], [], []]
    (whole,) = merger.flush()
    assert whole.line == 1
    assert whole.ranks == ({"TP": 1}, {"TP": 2}, {"TP": 3})


def test_without_a_key_nothing_waits() -> None:
    merger = Merger()
    assert [r.line for r in merger.add(record(1, 0))] == [1]
    assert merger.deadline is None


def test_what_stands_behind_a_held_record_waits_too() -> None:
    merger = Merger()
    assert list(merger.add(record(1, 0), "k")) == []
    assert list(merger.add(record(2, 0))) == []
    assert [r.line for r in merger.add(record(3, 1, second=5))] == [1, 2, 3]


def test_the_same_rank_again_is_another_event() -> None:
    merger = Merger()
    out = [*merger.add(record(1, 0), "k"), *merger.add(record(2, 0), "k"), *merger.flush()]
    assert [(r.line, r.ranks) for r in out] == [(1, ()), (2, ())]


def test_a_late_copy_of_a_record_that_left_is_dropped() -> None:
    merger = Merger()
    out = [*merger.add(record(1, 0), "k"), *merger.flush(), *merger.add(record(2, 1), "k"), *merger.flush()]
    assert [r.line for r in out] == [1]


def test_lines_alone_end_the_waiting() -> None:
    merger = Merger()
    merger.add(record(1, 0), "k")
    assert merger.deadline == WINDOW + 2
    assert list(merger.due(WINDOW + 1)) == []
    assert [r.line for r in merger.due(WINDOW + 2)] == [1]


def test_the_least_counts() -> None:
    merger = Merger(smallest=("free_bytes",))
    for line, free in ((1, 7), (2, 4), (3, 6)):
        merger.add(record(line, line, free=free), "k")
    assert merger.flush()[0].fields == {"free_bytes": 4}


def test_times_of_day() -> None:
    assert second_of_day("2026-01-01T01:02:03.500") == 3723
    assert second_of_day("01:02:03") == 3723
    assert second_of_day("soon") is None
    assert apart(86_399, 1) == 2


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 9), st.booleans()), max_size=60))
def test_every_event_leaves_once_and_in_order(events: list[tuple[int, int, int, bool]]) -> None:
    merger = Merger()
    out: list[Record] = []
    for line, (rank, key, second, keyed) in enumerate(events, 1):
        out.extend(merger.add(record(line, rank, second), key if keyed else None))
    out.extend(merger.flush())
    lines = [r.line for r in out]
    assert lines == sorted(set(lines))
    alone = sum(1 for *_, keyed in events if not keyed)
    joined = sum(max(len(r.ranks), 1) for r in out)
    assert alone <= len(out)
    assert joined <= len(events)
