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
    if next((data[:1] for _, data in parts if data), b"") == b"\xef":
        yield from _joined(parts, mark=True)
        return
    held: list[Stamped] = []
    for part in parts:
        data = part[1]
        closed = data.endswith(b"\n\n")
        single = closed and not held and data.find(b"\n") == len(data) - 2
        if single and data.startswith(b"data: ") and b"\r" not in data:
            # One event a read, as nearly all are: the short way.
            yield part[0], data[6:-2]
            continue
        held.append(part)
        if closed:
            # A blank line: whatever was held is complete.
            yield from _joined(held)
            held = []
    yield from _joined(held)


def _joined(parts: Sequence[Stamped], *, mark: bool = False) -> Iterator[Stamped]:
    """The long way, for reads that begin or end within an event or hold several; `mark`: a byte order mark may lead."""
    reads = iter(parts)
    stamp, have = 0.0, 0
    for end, data in _lines(b"".join(part for _, part in parts), mark):
        while have < end:
            stamp, part = next(reads)
            have += len(part)
        yield stamp, data


def _lines(body: bytes, mark: bool) -> Iterator[tuple[int, bytes]]:
    """Each event's data and where its last data line's text ends in the body."""
    position = end = 3 if mark and body.startswith(b"\xef\xbb\xbf") else 0
    data: list[bytes] = []
    for line in body[position:].splitlines(keepends=True):
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
