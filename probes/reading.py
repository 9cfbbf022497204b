"""Reads a log that some server wrote: which engine, its records, its capacity, its ceiling. Files only; no network.

A log of any size goes through in bounded memory: records are handed on as they come and only a summary is kept.
"""

from __future__ import annotations

import codecs
import gzip
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedIOBase
from pathlib import Path
from typing import Any, cast

from probes import engines
from probes.engines import Engine, LogReader
from probes.engines._unwrap import source, unwrap
from probes.events import Capacity, Ceiling, Record, Warn
from probes.follow import CUT, Splitter
from probes.recipe import SIMULATED
from probes.stats.ceilings import Judge, Stretch, Traits
from probes.story import Story

CHUNK = 1 << 20
LOOK = 4000
"""Lines that are looked at, at a time, to tell the engine."""
LOOK_CHARS = 1 << 20
FEW = 20
"""Lines of a log so short that its engine may be guessed."""
SURE = 0.3
"""Below this no engine is named."""
ALSO = 0.9
"""From here on a second engine's lines are in the log too."""
SUFFIXES = (".log", ".txt", ".out", ".err", ".jsonl")
WARNINGS = 200
_PACKED = {b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"PK\x03\x04": "zip"}
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Unreadable(OSError):  # noqa: N818  (what is so, not what broke)
    """The file or folder cannot be read. One line: what and why."""


@dataclass(frozen=True, slots=True)
class Reading:
    """All that a log says, as far as it was read. `engine` None: none was recognised (`scores`: what was tried)."""

    file: str
    engine: str | None
    dialect: str | None
    lines: int
    records: int
    capacity: Capacity
    ceiling: Ceiling
    warnings: tuple[Warn, ...]
    timeline: tuple[Stretch, ...]
    story: Story
    scores: tuple[tuple[str, float], ...] = ()
    report_s: float | None = None
    drafted_steps: bool = False
    """Whether accept lengths are means over the steps with a draft alone, see `Engine.drafted_steps`."""


def logs_in(path: Path) -> list[Path]:
    """The logs that `path` means: itself, the server's log of a run directory, or every log of a folder.

    Raises `Unreadable` when there is none.
    """
    if not path.exists():
        raise Unreadable(f"{path}: no such file or folder")
    if not path.is_dir():
        return [path]
    if (path / "server.log").is_file():
        return [path / "server.log"]
    if (path / "server.log.gz").is_file():
        return [path / "server.log.gz"]
    try:
        found = sorted(p for p in path.iterdir() if p.is_file() and _looks_like_log(p.name))
    except OSError as problem:
        raise Unreadable(f"{path}: {problem.strerror}") from problem
    if not found:
        raise Unreadable(f"{path}: no server.log and no file named like a log ({', '.join(SUFFIXES)}, .gz) in it")
    return found


def _looks_like_log(name: str) -> bool:
    """`x.log`, `x.log.gz`, and what log rotation makes of it, e.g. `x.log.1`."""
    if name.startswith("."):
        return False
    base = name.removesuffix(".gz")
    stem, _, last = base.rpartition(".")
    return (stem if last.isdigit() and stem else base).endswith(SUFFIXES)


@contextmanager
def opened(path: Path | None) -> Iterator[BufferedIOBase]:
    """The log's bytes, unpacked when it is gzip (told by its first bytes). None: standard input."""
    if path is None:
        yield cast("BufferedIOBase", sys.stdin.buffer)
        return
    try:
        with path.open("rb") as raw:
            first = raw.read(6)
            raw.seek(0)
            for mark, name in _PACKED.items():
                if first.startswith(mark):
                    raise Unreadable(f"{path}: packed with {name}; unpack it first (gzip is read as it is)")
            if not first.startswith(b"\x1f\x8b"):
                yield raw
                return
            with gzip.GzipFile(fileobj=raw) as unpacked:
                yield unpacked
    except (IsADirectoryError, PermissionError, FileNotFoundError) as problem:
        raise Unreadable(f"{path}: {problem.strerror}") from problem


def sniffed(lines: Sequence[str], names: Sequence[str] | None = None) -> list[tuple[str, float]]:
    """How surely these lines are each engine's, surest first."""
    looked = [line if len(line) <= 4096 else line[:4096] for line in lines]
    known = [engines.engine(name) for name in (names or engines.names())]
    scores = [(one.name, one.sniff(looked)) for one in known]
    if max(score for _, score in scores) < SURE:
        # Nothing speaks for itself: look behind what collectors and terminals put in front.
        inner = [piece for line in looked[:400] for piece in unwrap(line)]
        scores = [(one.name, one.sniff(inner)) for one in known]
    return sorted(scores, key=lambda pair: -pair[1])


def _guess(lines: Sequence[str]) -> str | None:
    """The engine whose reader alone makes anything of a handful of lines, e.g. of a refused start."""
    if not 0 < len(lines) <= FEW:
        return None
    found = {name: records for name in engines.names() if (records := engines.parse(name, lines))}
    if len(found) > 1:  # the one that knows a cure knows the line
        found = {name: records for name, records in found.items() if any("hint" in r.fields for r in records)}
    return next(iter(found)) if len(found) == 1 else None


@dataclass(slots=True)
class Log:
    """A log being read, line by line: tells the engine, makes records, follows the ceiling. Feed it, then ask.

    `on_engine` is called once, with the name, before the first record; `on_record` with each record.
    """

    name: str = ""
    on_record: Callable[[Record], None] | None = None
    on_engine: Callable[[str], None] | None = None
    lines: int = 0
    records: int = 0
    engine: Engine | None = None
    scores: list[tuple[str, float]] = field(default_factory=list)
    story: Story = field(default_factory=Story)
    judge: Judge | None = None
    cut: list[int] = field(default_factory=list)
    notes: list[Warn] = field(default_factory=list)
    _reader: LogReader | None = None
    _held: list[str] = field(default_factory=list)
    _chars: int = 0
    _dirty: bool = True
    _since: int = 0
    _servers: set[str] = field(default_factory=set)
    """Services or pods, as a collector names them, in which a server got ready."""

    def choose(self, name: str) -> None:
        """Fix the engine. Raises `Refused` for an unknown name."""
        self.engine = engines.engine(name)
        self._reader = self.engine.reader()
        self.judge = Judge(Traits.of(self.engine))
        if self.on_engine:
            self.on_engine(name)

    def feed(self, lines: Sequence[str]) -> None:
        """Take the next whole lines."""
        if not self.lines and not self._held:
            first = next((place for place, line in enumerate(lines[:LOOK], 1) if line.startswith(SIMULATED)), None)
            if first is not None:
                self.notes.append(Warn(first, "a simulated engine wrote this: no figure in it is of a real machine"))
        if self._reader is not None:
            self._read(lines)
            return
        self._held.extend(lines)
        self._chars += sum(map(len, lines))
        if len(self._held) >= LOOK or self._chars >= LOOK_CHARS:
            self._tell()

    def pause(self) -> None:
        """No more lines for now: look at what there is, if the engine is not known yet."""
        if self._reader is None and self._held:
            self._tell(keep=True)

    def close(self) -> None:
        """The end of the log."""
        self.pause()
        if self._reader is None and (guess := _guess(self._held)) is not None:
            self.notes.append(Warn(0, f"too few lines to be sure of the engine: only {guess} would write these"))
            held, self._held = self._held, []
            self.choose(guess)
            self._read(held)
        if self._reader is None:
            self.lines += len(self._held)
            self._held.clear()
            return
        for record in self._reader.close():
            self._take(record)

    def _tell(self, *, keep: bool = False) -> None:
        """Try to tell the engine from the held lines; without success all but the last few are let go."""
        self.scores = sniffed(self._held)
        name, score = self.scores[0]
        if score >= SURE:
            self.choose(name)
            for other, another in self.scores[1:]:
                if another >= ALSO:
                    title = engines.engine(other).title
                    text = f"lines of {title} stand in this log too and are left out: --engine {other} reads them"
                    self.notes.append(Warn(0, text))
            held, self._held, self._chars = self._held, [], 0
            self._read(held)
        elif not keep:
            self.lines += len(self._held)
            self._held, self._chars = [], 0

    def _read(self, lines: Sequence[str]) -> None:
        assert self._reader is not None  # noqa: S101  (callers have just seen it)
        feed, take, number = self._reader.feed, self._take, self.lines
        for line in lines:
            number += 1
            text = line
            if line.endswith(CUT):
                # A number at the cut may have lost digits: everything after the last blank goes.
                self.cut.append(number)
                text = line.removesuffix(CUT).rpartition(" ")[0]
            found = feed(number, text)
            if found:
                for record in found:
                    take(record)
                    if record.kind == "ready" and record.line == number and (name := source(line)) is not None:
                        self._servers.add(name)
        self.lines = number

    def _take(self, record: Record) -> None:
        assert self._reader is not None  # noqa: S101
        assert self.judge is not None  # noqa: S101
        self.records += 1
        starting = record.kind in {"boot", "weights", "pool", "capacity", "ready"}
        self._since += 1
        if not starting and (self._dirty or self._since >= 500):
            self._announce()
        self.judge.see(record)
        self.story.see(record)
        self._dirty = self._dirty or starting
        if self.on_record:
            self.on_record(record)

    def _announce(self) -> None:
        """Hand the announced capacity on to those who judge by it."""
        assert self._reader is not None  # noqa: S101
        assert self.judge is not None  # noqa: S101
        capacity = self._reader.capacity
        self.judge.capacity(capacity)
        self.story.announced(capacity)
        self._dirty, self._since = False, 0

    def reading(self) -> Reading:
        """What is known up to now."""
        if self.engine is None or self._reader is None or self.judge is None:
            return Reading(
                self.name, None, None, self.lines + len(self._held), 0, Capacity(), Ceiling("unknown"),
                tuple(self.notes), (), self.story, tuple(self.scores),
            )  # fmt: skip
        self._announce()
        warnings = [*self.notes, *self._reader.warnings]
        if (uneven := self.story.uneven) is not None:
            warnings.append(Warn(0, uneven))
        if self.cut:
            warnings.append(
                Warn(self.cut[0], f"{len(self.cut)} lines are longer than a mebibyte; only their beginning was read")
            )
        capacity, ceiling, timeline = self._reader.capacity, self.judge.verdict(), tuple(self.judge.timeline())
        if len(self._servers) > 1:
            mixed = (
                f"Lines of {len(self._servers)} servers are mixed in this log: {', '.join(sorted(self._servers)[:8])}."
            )
            capacity = Capacity(explain=(f"{mixed} What each can hold can't be told apart.",))
            ceiling = Ceiling(
                "unknown", "low", f"{mixed} Their queues can't be told apart.", missing=("one server's lines",)
            )
            timeline = ()
        return Reading(
            self.name, self.engine.name, self._reader.dialect, self.lines, self.records, capacity, ceiling,
            tuple(warnings[:WARNINGS]), timeline, self.story, tuple(self.scores), self.engine.report_s,
            self.engine.drafted_steps,
        )  # fmt: skip


def read(
    path: Path | None,
    *,
    engine: str | None = None,
    on_record: Callable[[Record], None] | None = None,
    on_engine: Callable[[str], None] | None = None,
) -> Reading:
    """Read a whole log (None: standard input). Raises `Unreadable`, and `Refused` for an unknown engine."""
    log = Log("-" if path is None else str(path), on_record, on_engine)
    if engine is not None:
        log.choose(engine)
    splitter = Splitter()
    with opened(path) as stream:
        data = _chunk(stream, log)
        # PowerShell writes what it redirects in UTF-16, and only there a file begins so.
        wide = codecs.getincrementaldecoder("utf-16")("replace") if data.startswith(_WIDE) else None
        while data:
            log.feed(splitter.feed(wide.decode(data).encode("utf-8", "replace") if wide else data))
            data = _chunk(stream, log)
    log.feed(splitter.close())
    log.close()
    return log.reading()


def _chunk(stream: BufferedIOBase, log: Log) -> bytes:
    """The next bytes that are there; a damaged archive ends where it breaks, with a warning."""
    try:
        return stream.read1(CHUNK)
    except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
        log.notes.append(Warn(0, f"the archive is damaged and was read up to there ({problem})"))
        return b""
    except OSError as problem:
        raise Unreadable(f"{log.name}: {problem.strerror or problem}") from problem


def as_dict(reading: Reading) -> dict[str, Any]:
    """The reading in the form of `read --json`, without its records."""
    ceiling = reading.ceiling
    capacity = {name: getattr(reading.capacity, name) for name in Capacity.__dataclass_fields__}
    known = reading.engine is not None
    return {
        "file": reading.file,
        "engine": reading.engine,
        "dialect": reading.dialect,
        "lines": reading.lines,
        "capacity": {**capacity, "lines": dict(reading.capacity.lines), "explain": list(reading.capacity.explain)},
        "ceiling": {
            "verdict": ceiling.verdict,
            "confidence": ceiling.confidence,
            "sentence": ceiling.sentence if known else "No engine was recognised.",
            "evidence": [{"line": e.line, "text": e.text} for e in ceiling.evidence],
            "missing": list(ceiling.missing) if known else ["a log of a known engine"],
            "rivals": list(ceiling.rivals),
            "experiment": ceiling.experiment,
            "advice": ceiling.advice,
        },
        "timeline": [
            {**{name: getattr(s, name) for name in Stretch.__dataclass_fields__}, "shares": dict(s.shares)}
            for s in reading.timeline
        ],
        "warnings": [{"line": w.line, "text": w.text} for w in reading.warnings],
    }


def record_dict(record: Record) -> dict[str, Any]:
    """A record in the form of `read --json`, to be written and not kept; what the line does not say is left out."""
    out: dict[str, Any] = {"line": record.line, "kind": record.kind}
    if record.at is not None:
        out["at"] = record.at
    if record.rank is not None:
        out["rank"] = dict(record.rank)
    if record.ranks:
        out["ranks"] = [dict(r) for r in record.ranks]
    fields = record.fields
    out["fields"] = fields if isinstance(fields, dict) else dict(fields)
    return out
