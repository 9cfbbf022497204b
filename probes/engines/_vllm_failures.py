"""Which log lines tell of a failure, and which of them is the cause: one record for it, however often it is printed.

A traceback, a validation block and a chain of exceptions are one failure each. What the messages mean is
`_vllm_trouble`'s business.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from probes.engines import _vllm_trouble as trouble
from probes.engines._vllm_text import Piece
from probes.events import Kind

EPISODE = 400
"""Lines within which a second error, or one that only tells of another, belongs to the first."""
TRACE = 12
"""Lines behind a traceback's last frame in which its exception may still come."""
COPIES = 100
"""Lines within which other ranks print the same error."""
_BLOCK = 40
"""Most lines of one validation block."""
_LINK = "For further information"
_VALIDATION = re.compile(r"(\d{1,3}) validation errors? for (\w+)", re.ASCII)
_FRAME = re.compile(r"[^\"']{0,120}?File \"[^\"]{1,300}\", line \d")
_DIGITS = re.compile(r"\d[\d.,]*")


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure: where, what, and the key under which other ranks' copies are known."""

    line: int
    kind: Kind
    fields: Mapping[str, Any]
    piece: Piece
    key: str


class Failures:
    """The failures of one start of the server."""

    def __init__(self) -> None:
        self._causes: dict[str, int] = {}
        self._told_by: dict[str, set[str]] = {}
        self._cause_kind: Kind = "error"
        self._cause_line = self._trace_line = self._chained = -EPISODE
        self._held: Failure | None = None
        self._block: list[str] = []
        self._links = self._wanted = self._block_line = 0
        self._block_piece = Piece("")

    @property
    def open(self) -> bool:
        """Whether a validation block is being read, so that the next line may belong to it."""
        return bool(self._block)

    @property
    def any(self) -> bool:
        """Whether anything has failed in this start."""
        return any(not key.startswith("reject") for key in self._causes) or self._held is not None

    def forget_consequence(self) -> None:
        """The server is ready: what is held back was no failure of the start."""
        self._held = None

    def take(self, line: int, piece: Piece) -> Sequence[Failure] | None:
        """What this record tells: failures, nothing (a part of a traceback), or None when it is no trouble at all."""
        message = piece.message
        if "Traceback (most recent" in message or _FRAME.match(message):
            self._trace_line = line
            return self._whole_trace(line, piece) if "\n" in message else ()
        if "above exception" in message:
            self._chained = line
            return ()
        if piece.known and piece.level not in {"ERROR", "CRITICAL"}:
            return None
        if piece.known and (message[:1].isspace() or message.startswith("Dumping ")):
            return ()  # inside a traceback; or the configuration and the batch, shown before one
        block = _VALIDATION.search(message)
        if block is not None:
            self._block, self._block_line, self._block_piece = [message], line, piece
            self._links, self._wanted = 0, int(block[1])
            return ()
        found = trouble.exception(message if piece.known else trouble.tail(message))
        if found is None:
            if piece.known or trouble.USAGE.search(message):
                found = trouble.diagnose(message)
            elif (found := trouble.ended(message)) is not None:
                return self._judge(line, piece, found)
        elif not piece.known and line - self._trace_line > TRACE and not found.hint:
            return None
        return None if found is None else self._judge(line, piece, found)

    def continues(self, line: int, piece: Piece) -> bool:  # noqa: ARG002  (the shape of `take`)
        """Whether this record still belongs to the validation block: fields, reasons and links, no more."""
        if len(self._block) >= _BLOCK or (piece.known and piece.level not in {"ERROR", "CRITICAL"}):
            return False
        if self._links >= self._wanted:
            return False
        self._block.append(piece.message)
        self._links += _LINK in piece.message
        return True

    def end_block(self) -> Sequence[Failure]:
        """The validation block as one failure."""
        rest, self._block = self._block[1:], []
        return self._judge(self._block_line, self._block_piece, trouble.pydantic(rest))

    def close(self) -> Sequence[Failure]:
        """What is still held: an unfinished block, or a consequence whose cause never came."""
        out = [*self.end_block()] if self._block else []
        if self._held is not None:
            out.append(self._held)
            self._held = None
        return out

    def _whole_trace(self, line: int, piece: Piece) -> Sequence[Failure]:
        """A traceback in one message (JSON logs): its last line is the exception."""
        last = piece.message.rstrip().rpartition("\n")[2]
        found = trouble.exception(last)
        return () if found is None else self._judge(line, piece._replace(message=last), found)

    def _judge(self, line: int, piece: Piece, found: trouble.Trouble) -> Sequence[Failure]:
        """Keep a cause once; hold a consequence back until it is clear that no cause comes."""
        fields: dict[str, Any] = {"cause": found.cause, "reason": found.reason}
        if found.hint:
            fields["hint"] = found.hint
        fields |= found.extras
        key = found.kind + _DIGITS.sub("#", found.reason)
        recent = line - self._cause_line <= EPISODE
        if found.consequence:
            return self._follows(Failure(line, found.kind, fields, piece, key), found, recent=recent)
        if recent and line - self._chained <= EPISODE and not found.hint:
            return ()
        before, rank = self._causes.get(key), str(piece.rank)
        told_by = self._told_by.setdefault(key, set()) if len(self._told_by) < 256 else set()
        ranked = piece.rank is not None and bool(piece.rank.keys() - {"DP"}) and rank not in told_by
        told_by.add(rank)
        if before is not None and not (ranked and line - before <= COPIES):
            self._cause_line = line if recent else self._cause_line
            return ()
        if len(self._causes) < 256:
            self._causes.setdefault(key, line)
        if found.kind == "reject":  # of one request: nothing follows from it
            return [Failure(line, found.kind, fields, piece, key)]
        self._cause_line, self._cause_kind = line, found.kind
        died = self._held is not None and self._held.kind == "crash"
        self._held = None
        return [Failure(line, "crash" if died and found.kind == "error" else found.kind, fields, piece, key)]

    def _follows(self, failure: Failure, found: trouble.Trouble, *, recent: bool) -> Sequence[Failure]:
        """What only tells that something else failed: held back without a cause, else of the cause's episode.

        That an engine died while it served is told once even so, unless its cause is a crash by itself.
        """
        if not recent:
            vague = self._held is not None and self._held.fields["cause"] == "consequence"
            if self._held is None or (vague and found.cause != "consequence"):
                self._held = failure
            return ()
        self._cause_line = failure.line
        if found.cause != "died" or self._cause_kind == "crash":
            return ()
        self._cause_kind = "crash"
        return [failure]
