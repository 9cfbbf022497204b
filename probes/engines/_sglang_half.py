"""Puts a cap line together again that somebody's terminal wrapped over several lines."""

from __future__ import annotations

from typing import NamedTuple

from probes.engines._sglang_boot import CAP
from probes.engines._sglang_lines import STAMP
from probes.engines._unwrap import plain
from probes.events import Rank, Record

_LINES = 4


class Half(NamedTuple):
    """The begun message, and where it came from. `joined` counts the lines put to it."""

    line: int
    text: str
    at: str | None
    rank: Rank | None
    joined: int = 0

    def take(self, text: str) -> Half | None:
        """With the next line put to it; None when that line is another message, or too many came."""
        if STAMP.match(text) is not None or "is capped to" in text or self.joined >= _LINES:
            return None
        return self._replace(text=f"{self.text} {text.strip()[:500]}", joined=self.joined + 1)

    @property
    def whole(self) -> bool:
        """Whether everything that counts has come."""
        return CAP.search(self.text) is not None

    def clipped(self) -> Record:
        """The record of a message whose rest never came, without what it lost."""
        fields = {"capped_by": "state", "clipped": True}
        return Record(self.line, "capacity", fields, self.at, self.rank, (), plain(self.text))
