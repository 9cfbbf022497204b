"""The live log of a run: follows RUN/server.log and reads it with the engine's own reader. Judges nothing.

The same class replays a finished log, so that live and history are one code path.
"""

from __future__ import annotations

import re
from pathlib import Path

from probes.engines import Engine, LogReader
from probes.events import Capacity, CapacityRead, Event, LogLines, LogRecords, Record
from probes.follow import Follower

HEADER = re.compile(r"# draftdial restart (\d+) · ")
"""The line that the console writes before each start."""


class Tail:
    """Turns what was appended to a log into events. One restart's lines never reach another's reader."""

    def __init__(self, path: Path, engine: Engine) -> None:
        self.engine = engine
        self.restart = 0
        self.reader: LogReader = engine.reader()
        self.count = 0
        self._follow = Follower(path)
        self._capacity: Capacity | None = None
        self._warned = 0

    @property
    def partial(self) -> str:
        """The unfinished last line: a progress bar, often."""
        return self._follow.splitter.partial()

    @property
    def behind(self) -> bool:
        """Whether more is already there to read."""
        return self._follow.behind

    def poll(self, limit: int = 1 << 21) -> list[Event]:
        """What the lines appended since the last call say."""
        texts = self._follow.read(limit)
        return self._take(texts) if texts else []

    def close(self) -> list[Event]:
        """The end: the unfinished line and what the reader still held."""
        events = self._take(self._follow.close())
        return [*events, *self._records(list(self.reader.close()))]

    def _take(self, texts: list[str]) -> list[Event]:
        events: list[Event] = []
        records: list[Record] = []
        number = start = self.count
        self.count += len(texts)
        feed = self.reader.feed
        for text in texts:
            number += 1
            if text[:1] == "#" and (header := HEADER.match(text)):
                records.extend(self.reader.close())
                events.extend(self._records(records))
                records = []
                self.restart = int(header[1])
                self.reader = self.engine.reader()
                feed = self.reader.feed
                self._capacity, self._warned = None, 0
                continue
            if found := feed(number, text):
                records.extend(found)
        if texts:
            events.insert(0, LogLines(start + 1, tuple(texts), self.restart))
        events.extend(self._records(records))
        return events

    def _records(self, records: list[Record]) -> list[Event]:
        events: list[Event] = [LogRecords(self.restart, tuple(records))] if records else []
        capacity, warnings = self.reader.capacity, self.reader.warnings
        if records and (capacity != self._capacity or len(warnings) != self._warned) and capacity != Capacity():
            self._capacity, self._warned = capacity, len(warnings)
            events.append(CapacityRead(self.restart, capacity, tuple(warnings)))
        return events
