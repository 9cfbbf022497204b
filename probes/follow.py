r"""Bytes of a growing file to whole lines: nothing lost, nothing reordered, in bounded memory.

Lines end at `\n` only; a `\r` stays in its line for the reader of the engine. Bad UTF-8 is replaced, NUL bytes are left
out: a file that was cut under its writer begins with thousands of them. The file may be truncated or replaced under its
name (rotation) at any time.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

CHUNK = 1 << 18
"""Bytes taken in one read: large enough for 20,000 lines/s at ten reads a second."""
LINE_MAX = 1 << 20
"""Bytes of one line that are kept; the rest is dropped and the line ends with `CUT`."""
CUT = " …[line cut]"


@dataclass(slots=True)
class Splitter:
    """Cuts a stream of bytes into lines, whatever the cuts of the stream are."""

    line_max: int = LINE_MAX
    _parts: list[bytes] = field(default_factory=list)
    _held: int = 0
    _over: bool = False

    def feed(self, data: bytes) -> list[str]:
        r"""The lines that end in `data`; what follows the last `\n` is held (at most `line_max` bytes of it)."""
        if b"\0" in data:
            data = data.replace(b"\0", b"")
        head, newline, rest = data.partition(b"\n")
        if not newline:
            self._hold(data)
            return []
        self._hold(head)
        lines = [self._take()]
        if rest:
            body, newline, tail = rest.rpartition(b"\n")
            if newline and len(body) <= self.line_max:  # decoded at once: no character of UTF-8 spans a newline
                lines += body.decode("utf-8", "replace").split("\n")
            elif newline:
                lines.extend(self._whole(line) for line in body.split(b"\n"))
            self._hold(tail)
        return lines

    def partial(self, most: int = 400) -> str:
        r"""The unfinished line so far (its last progress bar, when it redraws itself with `\r`)."""
        tail = b"".join(self._parts[-8:])[-4096:]
        return tail.decode("utf-8", "replace").rstrip("\r").rpartition("\r")[2][-most:]

    def close(self) -> list[str]:
        """What is still held, as a last line."""
        return [self._take()] if self._held or self._over else []

    def _hold(self, data: bytes) -> None:
        if not data:
            return
        room = self.line_max - self._held
        if room < len(data):
            self._over = True
            data = data[: max(room, 0)]
        if data:
            self._parts.append(data)
            self._held += len(data)

    def _take(self) -> str:
        line = b"".join(self._parts)
        over, self._over, self._held = self._over, False, 0
        self._parts.clear()
        return line.decode("utf-8", "replace") + (CUT if over else "")

    def _whole(self, line: bytes) -> str:
        if len(line) <= self.line_max:
            return line.decode("utf-8", "replace")
        return line[: self.line_max].decode("utf-8", "replace") + CUT


class Follower:
    """Reads what was appended to a file since the last call. The file need not exist yet."""

    def __init__(self, path: Path, *, line_max: int = LINE_MAX) -> None:
        self.path = path
        self.splitter = Splitter(line_max)
        self.behind = False
        """Whether the last `read` stopped at its limit with more to come."""
        self._file: BinaryIO | None = None
        self._inode: tuple[int, int] | None = None
        self._offset = 0

    def read(self, limit: int = CHUNK * 8) -> list[str]:
        """The whole lines appended since the last call, at most about `limit` bytes of them."""
        lines: list[str] = []
        self.behind = False
        left = limit
        while True:
            data = self._bytes(min(CHUNK, left))
            if data:
                lines.extend(self.splitter.feed(data))
                left -= len(data)
                if left <= 0:
                    self.behind = True
                    return lines
                continue
            if not self._reopened(lines):
                return lines

    def close(self) -> list[str]:
        """Stop following; the unfinished last line, if any."""
        if self._file:
            self._file.close()
            self._file = None
        return self.splitter.close()

    def _bytes(self, most: int) -> bytes:
        if self._file is None and not self._open():
            return b""
        assert self._file is not None  # noqa: S101  (narrowing: _open has just said so)
        data = self._file.read(most)
        self._offset += len(data)
        return data

    def _open(self) -> bool:
        try:
            self._file = self.path.open("rb", buffering=0)
        except OSError:
            return False
        stat = os.fstat(self._file.fileno())
        self._inode = (stat.st_dev, stat.st_ino)
        self._offset = 0
        return True

    def _reopened(self, lines: list[str]) -> bool:
        """At the end of the file: whether it was truncated or replaced meanwhile, and is read anew from its start."""
        if self._file is None:
            return False
        if os.fstat(self._file.fileno()).st_size < self._offset:
            lines.extend(self.splitter.close())
            self._file.seek(0)
            self._offset = 0
            return True
        try:
            stat = self.path.stat()
        except OSError:
            return False  # moved away and not made anew yet: keep what is open, more may still be written to it
        if (stat.st_dev, stat.st_ino) == self._inode:
            return False
        if self._file.read(1):  # written between the last read and the move
            self._file.seek(-1, os.SEEK_CUR)
            return True
        lines.extend(self.splitter.close())
        self._file.close()
        self._file = None
        return self._open()
