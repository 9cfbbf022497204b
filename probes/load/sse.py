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
    position = 3 if body.startswith(b"\xef\xbb\xbf") else 0
    data: list[bytes] = []
    for line in body[position:].splitlines(keepends=True):
        bare = line.rstrip(b"\r\n")
        position += len(line)
        if not bare:
            if data:
                yield stamp, b"\n".join(data)
                data = []
        elif bare.startswith(b"data") and bare[4:5] in {b":", b""}:
            # The line's text, not its line end: a server may hold the last newline back.
            needed = position - len(line) + len(bare)
            while have < needed:
                stamp, part = next(reads)
                have += len(part)
            value = bare[5:]
            data.append(value[1:] if value.startswith(b" ") else value)
    if data:
        yield stamp, b"\n".join(data)
