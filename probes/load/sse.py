r"""Server-sent events out of bytes that were stamped as they arrived; whole streams, read after their end.

Follows the event-stream grammar of the HTML standard where servers do: comments, `\n`, `\r\n` and `\r` as line
ends, several `data:` lines an event, a byte order mark. An event without its closing blank line still counts.
Nothing raises.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Stamped = tuple[float, bytes]
"""When some bytes arrived (`time.monotonic()` seconds), and the bytes."""


def events(parts: Sequence[Stamped]) -> Iterator[Stamped]:
    """The data of each event, with the arrival time of the read that brought the end of its last data line.

    Characters split between two reads are whole here: bytes are joined before anything looks at them.
    """
    body = b"".join(part for _, part in parts)
    reads = iter(parts)
    stamp, have = 0.0, 0
    for end, data in _spans(body):
        while have < end:
            stamp, part = next(reads)
            have += len(part)
        yield stamp, data


def _spans(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Each event's data and where its last data line's text ends in the body."""
    start = 3 if body.startswith(b"\xef\xbb\xbf") else 0
    if b"\r" in body or start:
        yield from _lines(body, start)
        return
    for block in body.split(b"\n\n"):
        end = start + len(block)
        if block.startswith(b"data: ") and b"\n" not in block:
            # As nearly every event is: the short way.
            yield end, block[6:]
        elif block:
            yield from _lines(body, start, end)
        start = end + 2


def _lines(body: bytes, start: int, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
    """The same, line by line, for whatever the grammar allows."""
    position, end = start, start
    data: list[bytes] = []
    for line in body[start:stop].splitlines(keepends=True):
        bare = line.rstrip(b"\r\n")
        if not bare:
            if data:
                yield end, b"\n".join(data)
                data = []
        elif bare.startswith(b"data") and bare[4:5] in {b":", b""}:
            # The line's text, not its line end: a server may hold the last newline back.
            end = position + len(bare)
            value = bare[5:]
            data.append(value[1:] if value.startswith(b" ") else value)
        position += len(line)
    if data:
        yield end, b"\n".join(data)
