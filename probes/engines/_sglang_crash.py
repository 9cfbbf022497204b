"""Joins a traceback's lines into one record, so that nothing inside it is taken for a record of its own."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

from probes.engines import _sglang_trouble as trouble
from probes.engines._unwrap import plain
from probes.events import Rank, Record

_LINES = 400
_OTHER_RANKS = 40
_EXCEPTIONS = 8


class Crash:
    """A traceback, or a bare exception line, while its lines come."""

    def __init__(self, line: int, text: str, message: str, at: str | None, rank: Rank | None, phase: str) -> None:
        self.line, self.text, self.at, self.rank, self.phase = line, text, at, rank, phase
        self._fatal = "hit an exception" in message
        self._exceptions: list[str] = []
        self._fields: dict[str, Any] = {}
        self._left, self._patience = _LINES, _OTHER_RANKS
        self._drafter = self._draft_pool = False
        known = trouble.find(message)
        if "Traceback (most recent call last)" not in message or (known is not None and known.kind == "oom"):
            self._keep(message)

    @staticmethod
    def opens(message: str, *, stamped: bool) -> bool:
        """Whether this line begins a traceback, or is the bare last line of one."""
        if "Traceback (most recent call last)" in message or "hit an exception" in message:
            return True
        return not stamped and not message.startswith(" ") and trouble.is_exception(message)

    def take(self, message: str) -> bool:
        """Take an unstamped line that follows; False when this can't go on for ever."""
        self._left -= 1
        if self._left < 0:
            return False
        if message[:1] in (" ", "\t"):
            self._drafter = self._drafter or "/speculative/" in message
            self._draft_pool = self._draft_pool or (self._drafter and "/memory_pool.py" in message)
        elif trouble.is_exception(message) or (trouble.find(message) is not None):
            self._keep(message)
        else:
            for name, value in trouble.details(message).items():
                self._fields.setdefault(name, value)
        return True

    def ends_with(self, rank: Rank | None) -> bool:
        """Whether a stamped line of this rank ends it: the same process goes on to something else."""
        self._patience -= 1
        return rank is None or self.rank is None or rank == self.rank or self._patience < 0

    def _keep(self, message: str) -> None:
        if len(self._exceptions) < _EXCEPTIONS:
            self._exceptions.append(message[:1000])
        for name, value in trouble.details(message).items():
            self._fields.setdefault(name, value)

    def done(self) -> tuple[Record, Hashable]:
        """The record, and what its copies on other ranks share. The first known exception is the cause."""
        known, reason = None, None
        for message in self._exceptions:
            known = trouble.find(message)
            if known is not None:
                reason = message
                break
        if known is None:
            known = trouble.Trouble("crash" if self._fatal else "error", "exception", "")
        if reason is None:
            reason = self._exceptions[0] if self._exceptions else "an exception whose text is not in the log"
        fields = {"cause": known.cause, "phase": self.phase, "reason": plain(reason, 200), **self._fields}
        if known.hint:
            fields["hint"] = trouble.DRAFT_POOL if known.kind == "oom" and self._draft_pool else known.hint
        text = self.text if not self._exceptions or self._exceptions[0] in self.text else self._exceptions[0]
        record = Record(self.line, known.kind, fields, self.at, self.rank, (), plain(text))
        dp = self.rank.get("DP") if self.rank else None
        return record, (known.kind, dp, re.sub(r"\d+", "", reason[:120]))
