from __future__ import annotations

import itertools
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.follow import CUT, Follower, Splitter


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=12))
def test_any_cuts_give_the_same_lines(data: bytes, cuts: list[int]) -> None:
    whole = Splitter()
    expected = whole.feed(data) + whole.close()
    parts = Splitter()
    got: list[str] = []
    edges = [0, *sorted(min(c, len(data)) for c in cuts), len(data)]
    for a, b in itertools.pairwise(edges):
        got.extend(parts.feed(data[a:b]))
    assert got + parts.close() == expected
    data = data.replace(b"\0", b"")
    assert expected == [line.decode("utf-8", "replace") for line in data.removesuffix(b"\n").split(b"\n")] or not data


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_cuts_never_matter_for_lines_over_the_limit(chunks: list[bytes]) -> None:
    one, many = Splitter(line_max=16), Splitter(line_max=16)
    data = b"".join(chunks)
    expected = one.feed(data) + one.close()
    got: list[str] = []
    for chunk in chunks:
        got.extend(many.feed(chunk))
    assert got + many.close() == expected


def test_a_bar_redrawn_with_carriage_returns_is_one_partial_line() -> None:
    split = Splitter()
    assert split.feed(b"load 10%\rload 20%\rload 3") == []
    assert split.partial() == "load 3"
    assert split.feed(b"0%\n") == ["load 10%\rload 20%\rload 30%"]


@pytest.fixture
def follow(tmp_path: Path) -> Iterator[Follower]:
    follower = Follower(tmp_path / "server.log")
    yield follower
    follower.close()


def test_a_file_that_grows_is_read_once_and_in_order(tmp_path: Path, follow: Follower) -> None:
    path = tmp_path / "server.log"
    assert follow.read() == []
    with path.open("ab", buffering=0) as out:
        out.write(b"one\ntw")
        assert follow.read() == ["one"]
        out.write(b"o\nthree\n")
        assert follow.read() == ["two", "three"]
        assert follow.read() == []


def test_truncation_starts_anew_and_keeps_the_torn_line(tmp_path: Path, follow: Follower) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(b"one\ntorn")
    assert follow.read() == ["one"]
    path.write_bytes(b"x\n")
    assert follow.read() == ["torn", "x"]


def test_rotation_reads_the_old_file_to_its_end_first(tmp_path: Path, follow: Follower) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(b"one\n")
    assert follow.read() == ["one"]
    with path.open("ab", buffering=0) as out:
        out.write(b"two\n")
        path.rename(tmp_path / "server.log.1")
        path.write_bytes(b"three\n")
        assert follow.read() == ["two", "three"]


def test_a_huge_line_is_cut_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "big.log"
    with path.open("wb") as out:
        for _ in range(50):
            out.write(b"x" * 1_000_000)
        out.write(b"\nafter\n")
    tracemalloc.start()
    follow = Follower(path, line_max=10_000)
    lines: list[str] = []
    while True:
        new = follow.read(limit=1 << 20)
        lines.extend(new)
        if not new and not follow.behind:
            break
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    follow.close()
    assert lines == ["x" * 10_000 + CUT, "after"]
    assert peak < 8_000_000


def test_the_limit_leaves_the_rest_for_the_next_call(tmp_path: Path, follow: Follower) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(b"".join(b"%05d\n" % i for i in range(1000)))
    first = follow.read(limit=600)
    assert follow.behind
    rest: list[str] = []
    while True:
        more = follow.read(limit=600)
        rest.extend(more)
        if not follow.behind:
            break
    assert first + rest == [f"{i:05d}" for i in range(1000)]


def test_a_file_that_vanishes_keeps_what_is_open(tmp_path: Path, follow: Follower) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(b"one\n")
    assert follow.read() == ["one"]
    os.remove(path)  # noqa: PTH107  (the plain call that a log rotator makes)
    assert follow.read() == []
    assert follow.close() == []
