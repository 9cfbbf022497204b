"""The event-stream reader: the grammar, arrival times, and any bytes at all."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.load.sse import events


def read(*parts: bytes) -> list[tuple[float, bytes]]:
    return list(events([(float(place), part) for place, part in enumerate(parts)]))


@pytest.mark.parametrize(
    ("body", "want"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b": keep-alive\n\ndata: a\n\n: ping\n\n", [b"a"]),
        (b":\n\n:\n\n", []),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data:a\n\ndata:  b\n\n", [b"a", b" b"]),
        (b"event: x\nid: 3\nretry: 9\ndata: a\n\n", [b"a"]),
        (b"data\n\n", [b""]),
        (b"database: no\n\n", []),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"data: a\n\ndata: [DONE]", [b"a", b"[DONE]"]),
        (b"\n\n\n\ndata: a\n\n\n\ndata: b\n\n", [b"a", b"b"]),
        (b"error: x\n\n", []),
        (b"", []),
    ],
)
def test_grammar(body: bytes, want: list[bytes]) -> None:
    assert [data for _, data in read(body)] == want


def test_an_event_arrives_with_the_end_of_its_text() -> None:
    assert read(b"data: a\n\nda", b"ta: b", b"\n", b"\ndata: c\n\n") == [(0.0, b"a"), (1.0, b"b"), (3.0, b"c")]


def test_a_comment_does_not_lend_its_time() -> None:
    assert read(b": wait\n\n", b"data: a\n\n", b": wait\n\n") == [(1.0, b"a")]


def test_characters_split_between_reads_are_whole() -> None:
    whole = "data: é€😀\n\n".encode()
    for cut in range(len(whole) + 1):
        assert [data.decode() for _, data in read(whole[:cut], whole[cut:])] == ["é€😀"]


pieces = st.sampled_from(
    [
        b"data: x\n\n",
        b"data: {}\r\n\r\n",
        b": c\n",
        b"\n",
        b"\r",
        b"data",
        b":",
        b"data: y",
        b" ",
        b"\xff",
        b"data: z\n",
    ]
)


@given(st.lists(st.one_of(pieces, st.binary(max_size=6)), max_size=12))
def test_cuts_change_no_event_and_times_never_go_back(parts: list[bytes]) -> None:
    found = read(*parts)
    assert [data for _, data in found] == [data for _, data in read(b"".join(parts))]
    assert all(earlier <= later for (earlier, _), (later, _) in pairwise(found))


@given(st.lists(pieces, max_size=10))
def test_line_ends_are_alike(parts: list[bytes]) -> None:
    body = b"".join(parts).replace(b"\r", b"")
    assert [d for _, d in read(body)] == [d for _, d in read(body.replace(b"\n", b"\r\n"))]
