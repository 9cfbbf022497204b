"""Reads ninfer's operational log in all its formats (S 2026-07, G1 2026-08, L 2026-09, N, P) and its request JSONL.

Finds the format from the lines themselves. Holds one record back at most; a cut line gives no record but a warning.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from probes.engines import _ninfer_clauses as clause_log
from probes.engines import _ninfer_jsonl as jsonl
from probes.engines import _ninfer_pairs as pair_log
from probes.engines import _ninfer_pool as pool
from probes.engines import _ninfer_start as start_up
from probes.engines._ninfer_text import Clipped, Line, lines
from probes.engines._ninfer_trouble import ABORTED, argument_error, cause
from probes.engines._unwrap import plain, unwrap
from probes.events import Capacity, Kind, Record, Warn

MOST_WARNINGS = 50
_LOADED = re.compile(r"model loaded in (\d+(?:\.\d+)?) s$")
_STATES = frozenset({"context cache", "prefix cache", "context"})
"""How the line begins that tells the lanes, by format."""
Found = tuple[Kind, dict[str, Any]] | None


class Reader:
    """A `LogReader` for ninfer."""

    def __init__(self) -> None:
        self._dialect: str | None = None
        self._start = start_up.Start()
        self._capacity = Capacity()
        self._warnings: list[Warn] = []
        self._clipped = 0
        self._held: Record | None = None
        self._unsure: str | None = None
        self._failing: Record | None = None
        self._instance: str | None = None

    @property
    def dialect(self) -> str | None:
        """`S`, `G1`, `L`, `N`, `P` or `jsonl`; L until a line of N or P shows."""
        return self._dialect

    @property
    def capacity(self) -> Capacity:
        """Of the last start."""
        return self._capacity

    @property
    def warnings(self) -> Sequence[Warn]:
        """Identities that fail, odd flags, clipped lines (the first fifty, then their number)."""
        if self._clipped <= MOST_WARNINGS:
            return tuple(self._warnings)
        return (*self._warnings, Warn(0, f"{self._clipped} lines were cut or damaged and are left out"))

    def feed(self, line: int, text: str) -> list[Record]:
        r"""Take line `line` without its `\n`; records that are complete now."""
        found: list[Record] = []
        if self._held is not None:
            found.append(self._held)
            self._held = None
        try:
            if text[:1] == "{" and jsonl.MARK in text:
                self._json(line, text, found)
                return found
            for piece in unwrap(text):
                for message in lines(piece):
                    self._message(line, message, found)
        except (OverflowError, ValueError):  # a number of hundreds of digits: the line is damaged
            self._clip(line, text)
        return found

    def close(self) -> list[Record]:
        """What is held: a report whose last number may be torn goes without it."""
        held, self._held = self._held, None
        failing, self._failing = self._failing, None
        found = [failing] if failing is not None else []
        if held is not None:
            found.append(replace(held, fields={k: v for k, v in held.fields.items() if k != self._unsure}))
        return found

    def _message(self, number: int, line: Line, found: list[Record]) -> None:
        if self._held is not None:
            found.append(self._held)
            self._held = None
        if self._failing is not None:
            # The next message usually tells the reason and becomes the record of this failure.
            if not line.text.startswith("server failed during startup"):
                found.append(self._failing)
            self._failing = None
        if self._dialect is None or (self._dialect == "S" and line.form != "S"):
            self._dialect = line.form
        self._unsure = None
        try:
            read = self._pairs(number, line) if line.form != "L" else self._clauses(number, line)
        except (Clipped, ValueError):
            self._clip(number, line.text)
            return
        if read is None:
            return
        record = Record(number, read[0], read[1], line.at, text=plain(line.text))
        if line.text.startswith("startup failed"):
            self._failing = record
        elif self._unsure is not None:
            self._held = record
        else:
            found.append(record)

    def _clauses(self, number: int, line: Line) -> Found:
        """A message of the clause log."""
        text = line.text
        if text.startswith("throughput |"):
            fields, self._unsure = clause_log.report(text)
            if "paused" in fields:
                self._capacity = pool.pausing(self._capacity, number)
            return "throughput", fields
        if text.startswith(("req#", "HTTP request failed")):
            read = clause_log.request(text)
            if read is None and line.level in {"WARN", "ERROR"}:
                self._warn(number, text)
            return read
        if text.startswith("listening on "):
            return start_up.listening(self._start, number, text)
        head = text.split(" | ", 1)[0].rstrip(" |")
        if head in start_up.LINES:
            return self._boot_line(head, number, text)
        if line.level in {"ERROR", "FATAL"}:
            return start_up.broken(self._start, cause(text.split(" | ")[-1] if line.level == "FATAL" else text))
        if line.level == "WARN":
            self._warn(number, text)
        return None

    def _boot_line(self, head: str, number: int, text: str) -> Found:
        """A line of a start: after it the capacity may be another."""
        if head == "starting engine":
            self._begin()
        read = start_up.LINES[head](self._start, number, text)
        start = self._start
        if head in _STATES:
            self._dialect = "P" if start.pauses else "N" if start.newer else "L"
        if head not in {"server stopped", "startup failed", "server failed during startup", "engine"}:
            self._capacity = start.capacity()
        if start.pool is not None and (head == "capacity" or head in _STATES):
            known = {(warn.line, warn.text) for warn in self._warnings}
            for problem in pool.problems(start.pool, start.lanes):
                if (start.pool_line, problem) not in known:
                    self._warn(start.pool_line, problem)
        return read

    def _pairs(self, number: int, line: Line) -> Found:
        """A message of the older logs, or a complaint about the command line (all versions print that unstamped)."""
        text = line.text
        if text.startswith("[req "):
            return pair_log.request(text)
        if text.startswith("throughput "):
            return "throughput", pair_log.report(text)
        if text.startswith("loading model"):
            self._begin()
            return "boot", {}
        if match := _LOADED.match(text):
            return "weights", {"load_ms": round(float(match[1]) * 1000, 3)}
        if text.startswith("listening on "):
            return start_up.listening(self._start, number, text)
        if text.startswith(("server stopped", "stopped")):
            return start_up.stopped(self._start, number, text)
        if ABORTED.search(text):
            kind, fields = start_up.broken(self._start, cause(text))
            return ("oom" if kind == "oom" else "crash"), fields
        complaint = text.removeprefix("error: ")
        if complaint != text or argument_error(text) or line.level in {"ERROR", "FATAL"}:
            self._begin()
            return start_up.broken(self._start, cause(complaint))
        if line.level == "WARN" or text.startswith("warmup failed"):
            self._warn(number, text)
        return None

    def _begin(self) -> None:
        """Another start: nothing of the one before carries over."""
        self._start = start_up.Start()
        self._capacity = Capacity()

    def _json(self, number: int, text: str, found: list[Record]) -> None:
        read = jsonl.read(number, text)
        if read is None:
            self._clip(number, text)
            return
        self._dialect = "jsonl"
        if read.instance is not None and read.instance == self._instance:
            return
        self._instance = read.instance or self._instance
        if read.capacity is not None:
            self._capacity = read.capacity
        for problem in read.problems:
            self._warn(number, problem)
        if read.record is not None:
            if read.record.kind == "preempt" or "paused" in read.record.fields:
                self._capacity = pool.pausing(self._capacity, number)
            found.append(read.record)

    def _warn(self, number: int, text: str) -> None:
        if len(self._warnings) < MOST_WARNINGS:
            self._warnings.append(Warn(number, plain(text, 300)))

    def _clip(self, number: int, text: str) -> None:
        self._clipped += 1
        self._warn(number, f"cut or damaged, left out: {text[:80]}")


_MARKS = re.compile(
    r"ninfer-serve\b|throughput \| (?:[\d.]+m?s|running|prefill|decode)|capacity \| KV [\d,]+ tokens|"
    r"req#\d+ (?:started|done|rejected|failed|cancelled) ?|(?:context|prefix) cache \| |"
    r"throughput interval=[\d.]+s prefill=|" + jsonl.MARK
)
_WEAK = re.compile(
    r"  (?:INFO |WARN |ERROR|FATAL) (?:starting engine|weights ready|engine ready|startup failed|server )"
)


def sniff(log: Sequence[str]) -> float:
    """How surely these lines are ninfer's: one line that only it prints is enough to be fairly sure.

    Where such lines are few among many, another engine may speak too, whose own lines then count for more.
    """
    marks = sum(1 for text in log if _MARKS.search(text))
    if marks:
        return min(1.0 if marks * 10 >= len(log) else 0.9, 0.85 + 0.05 * marks)
    return 0.7 if any(_WEAK.search(text) for text in log) else 0.0
