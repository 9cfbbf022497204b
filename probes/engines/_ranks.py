"""Several ranks of one server print the same event: this makes one record of the copies.

Records leave in the order of their lines. A record waits only while copies of it, or of one before it, may still come:
until a record two seconds younger shows up, or `WINDOW` lines went by. Records without a key are never merged, and pass
straight through while nothing is held. It must not decide what is the same event: that is the caller's `key`.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from probes.events import Rank, Record

WINDOW = 128
"""Lines after the last copy (other lines stand between copies) in which one more may come."""
APART_S = 2
"""Copies are at most this many seconds apart by their own stamps: ranks do not print at the very same moment."""
REMEMBERED = 64
HELD = 512
_DAY_S = 86_400


def second_of_day(at: str | None) -> int | None:
    """Seconds since midnight of an ISO stamp with or without a date; None when it holds no time."""
    if at is None:
        return None
    clock = at.rpartition("T")[2]
    if len(clock) < 8 or not (clock[0:2] + clock[3:5] + clock[6:8]).isdecimal():
        return None
    return int(clock[0:2]) * 3600 + int(clock[3:5]) * 60 + int(clock[6:8])


def apart(first: int | None, second: int | None) -> int:
    """Seconds between two times of day, the short way round midnight; 0 when either is unknown."""
    if first is None or second is None:
        return 0
    gap = abs(first - second)
    return min(gap, _DAY_S - gap)


@dataclass(slots=True)
class _Open:
    """A record that waits, and the ranks that have printed it so far."""

    record: Record
    key: Hashable | None
    second: int | None
    last_line: int
    ranks: list[Rank] = field(default_factory=list)
    changed: dict[str, Any] = field(default_factory=dict)

    def done(self) -> Record:
        """The record with all its ranks."""
        if len(self.ranks) < 2 and not self.changed:
            return self.record
        fields = {**self.record.fields, **self.changed} if self.changed else self.record.fields
        return replace(self.record, ranks=tuple(self.ranks) if len(self.ranks) > 1 else (), fields=fields)


class Merger:
    """Joins equal records of different ranks. Of the fields named in `smallest` the least one is kept."""

    def __init__(self, smallest: Collection[str] = ()) -> None:
        self._smallest = frozenset(smallest)
        self._queue: deque[_Open] = deque()
        self._by_key: dict[Hashable, _Open] = {}
        self._recent: OrderedDict[Hashable, _Open] = OrderedDict()
        self.deadline: int | None = None
        """The line from which `due` releases something whatever the stamps; None while nothing is held."""

    def add(self, record: Record, key: Hashable | None = None) -> Sequence[Record]:
        """Take a record; give those that are complete now. `key` None: this record has no copies."""
        if key is None and not self._queue:
            return (record,)
        second = second_of_day(record.at)
        out = self._release(record.line, second)
        if key is not None and self._join(record, key, second):
            return out
        entry = _Open(record, key, second, record.line, [record.rank] if record.rank else [])
        if key is None and not self._queue:
            out.append(record)
            return out
        self._queue.append(entry)
        if key is not None:
            self._by_key[key] = entry
        self._set_deadline()
        return out

    def due(self, line: int, at: str | None = None) -> Sequence[Record]:
        """What is complete because `line`, stamped `at` if that is known, has been reached."""
        return self._release(line, second_of_day(at))

    def flush(self) -> Sequence[Record]:
        """Everything that is held. Copies that come later are still known as copies."""
        out: list[Record] = []
        while self._queue:
            out.append(self._pop())
        self.deadline = None
        return out

    def _join(self, record: Record, key: Hashable, second: int | None) -> bool:
        """Whether this record is another rank's copy of one that is held or has just left."""
        entry = self._by_key.get(key) or self._recent.get(key)
        if (
            entry is None
            or not record.rank
            or record.rank in entry.ranks
            or not entry.ranks
            or apart(entry.second, second) > APART_S
            or record.line - entry.last_line > WINDOW
        ):
            return False
        entry.ranks.append(record.rank)
        entry.last_line = record.line
        for name in self._smallest & record.fields.keys():
            have = entry.changed.get(name, entry.record.fields.get(name))
            if have is None or record.fields[name] < have:
                entry.changed[name] = record.fields[name]
        self._set_deadline()
        return True

    def _release(self, line: int, second: int | None) -> list[Record]:
        """Records at the front that can get no more copies."""
        out: list[Record] = []
        while self._queue:
            front = self._queue[0]
            waiting = front.key is not None and self._by_key.get(front.key) is front
            if (
                waiting
                and line - front.last_line <= WINDOW
                and apart(front.second, second) <= APART_S
                and len(self._queue) < HELD
            ):
                break
            out.append(self._pop())
        if out:
            self._set_deadline()
        return out

    def _pop(self) -> Record:
        entry = self._queue.popleft()
        if entry.key is not None:
            if self._by_key.get(entry.key) is entry:
                del self._by_key[entry.key]
            self._recent[entry.key] = entry
            self._recent.move_to_end(entry.key)
            if len(self._recent) > REMEMBERED:
                self._recent.popitem(last=False)
        return entry.done()

    def _set_deadline(self) -> None:
        self.deadline = self._queue[0].last_line + WINDOW + 1 if self._queue else None
