"""Reads an SGLang log of any version, one line at a time, into canonical records; keeps bounded state.

Extras besides canonical fields: `iteration`, `clipped` (a damaged line: what it lost is left out), names of
`_sglang_lines.NAMES` that are no canonical field, and those of `_sglang_boot`. A retraction has `new_token_ratio`,
`tokens_gained`, `state_slots_gained`, `aborted`, `reason` and `hint`; a trouble has `cause`, `phase` (start, serving),
`reason`, `hint` and the numbers of `_sglang_trouble.details`.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from typing import Any

from probes.engines import _sglang_boot as boot
from probes.engines import _sglang_trouble as trouble
from probes.engines._ranks import Merger
from probes.engines._sglang_accept import Acceptance, Era
from probes.engines._sglang_crash import Crash
from probes.engines._sglang_half import Half
from probes.engines._sglang_lines import ENDS, STAMP, Heads, Pairs, Shapes, from_json, without_secrets
from probes.engines._sglang_retract import retraction
from probes.engines._sglang_start import Start, capacity, warnings
from probes.engines._unwrap import plain, unwrap
from probes.events import Capacity, Kind, Rank, Record, Warn

_REFUSED = re.compile(r'"POST [^"]{1,300} HTTP/1\.\d" (429|503)\b')
_DIGITS = b"0123456789"
_DULL_MOST = 2048
_NOTHING: Sequence[Record] = ()


class Clipped:
    """How many lines were damaged, and the first of them."""

    def __init__(self) -> None:
        self._first = self._count = 0

    def add(self, line: int) -> None:
        """One more."""
        self._first = self._first or line
        self._count += 1

    def warning(self) -> list[Warn]:
        """One warning for all of them."""
        if not self._count:
            return []
        lines = "a line is" if self._count == 1 else f"{self._count} lines are"
        return [Warn(self._first, f"{lines} clipped, damaged or of an unknown form: what is in doubt is left out")]


class Reader:
    """Follows `LogReader`: `feed` each line, then `close`; `capacity` is of the last start."""

    def __init__(self) -> None:
        self._heads = Heads()
        self._merge = Merger(smallest=("free_bytes",))
        self._crash: Crash | None = None
        self._behind: list[tuple[Record, Hashable | None]] = []
        self._half: Half | None = None
        self._clipped = Clipped()
        self._begin()

    def _begin(self) -> None:
        """Another start of the server."""
        self._dull: set[bytes] = set()
        self._start = Start()
        self._era = Era()
        self._accept = Acceptance()
        self._shapes = Shapes()
        self._usual_end: dict[str, str] = {}
        self._stopped = False

    # ----------------------------------------------------------------------------------------------------- protocol

    def feed(self, line: int, text: str) -> Sequence[Record]:
        """Take one line; see `LogReader.feed`."""
        if not text.startswith("[20") or "\r" in text or "\x1b" in text or text.find("[20", 20) > 0:
            return self._wrapped(line, text)
        return self._piece(line, text)

    def close(self) -> Sequence[Record]:
        """What is held back; see `LogReader.close`. More lines may follow."""
        out = [*self._end_half(), *self._end_crash()]
        out.extend(self._merge.flush())
        return out

    @property
    def dialect(self) -> str | None:
        """The versions that the lines fit, e.g. `0.5.11+`."""
        return self._era.dialect

    @property
    def capacity(self) -> Capacity:
        """Of the last start; see `LogReader.capacity`."""
        return capacity(self._start)

    @property
    def warnings(self) -> Sequence[Warn]:
        """What to know before believing a number; see `LogReader.warnings`."""
        out = warnings(self._start)
        out.extend(self._clipped.warning())
        return sorted(out, key=lambda w: w.line)

    # -------------------------------------------------------------------------------------------------- lines, pieces

    def _wrapped(self, line: int, text: str) -> Sequence[Record]:
        """A line that may be in somebody's wrapping, or hold several records."""
        out: list[Record] = []
        for unwrapped in unwrap(text):
            piece = from_json(unwrapped) if unwrapped.startswith("{") else unwrapped
            if piece.startswith('{"'):
                continue  # a request or its answer as an object: what they quote is not the server's word
            starts = [m.start() for m in STAMP.finditer(piece)]
            if not starts or "obj=Generate" in piece:  # a request's own text may quote a log
                out.extend(self._piece(line, piece))
                continue
            for begin, end in zip([0, *starts], [*starts, len(piece)], strict=True):
                if end > begin:
                    out.extend(self._piece(line, piece[begin:end]))
        return out

    def _piece(self, line: int, text: str) -> Sequence[Record]:
        """One record, a part of one, or something else."""
        at = text.find("Decode batch")
        if at >= 0:
            return self._batch(line, text, at, at + 12, "decode")
        at = text.find("Prefill batch")
        if at >= 0:
            return self._batch(line, text, at, at + 13, "prefill")
        if '" 200' in text and "INFO: " in text:
            return self._due(line, text)
        return self._other(line, text)

    def _due(self, line: int, text: str) -> Sequence[Record]:
        """What can be let go because this line has been reached, or its stamp `[2026-01-01 hh:mm:ss`."""
        return _NOTHING if self._merge.deadline is None else self._merge.due(line, text[12:20])

    def _emit(self, record: Record, key: Hashable | None = None) -> Sequence[Record]:
        key = key if record.rank else None
        if self._crash is not None:  # its record comes first, once it is whole
            self._behind.append((record, key))
            return _NOTHING
        return self._merge.add(record, key)

    # --------------------------------------------------------------------------------------------------- batch lines

    def _batch(self, line: int, text: str, at: int, end: int, kind: Kind) -> Sequence[Record]:
        """A prefill or decode line."""
        head = text[:at]
        begin = text.find("#", end, end + 40)
        if begin < 0 or text[begin : begin + 4] not in ("#run", "#new") or "obj=" in head:
            return self._due(line, text)
        if head and not head.endswith("] ") and (head[0] in " \t" or '"' in head or "'" in head):
            return self._other(line, text)  # quoted in a traceback or a message
        stamp, rank = self._heads.read(head)
        held = _NOTHING
        if self._half is not None or self._crash is not None:
            held = [*self._end_half(), *(self._end_crash() if self._crash and self._crash.ends_with(rank) else ())]
        fields = self._shapes.read(kind, text, begin)
        if fields is None:
            fields = self._carefully(line, kind, text[begin:], text[end:begin].strip()[:1])
            if fields is None:
                return held
        if begin - end > 3 and (number := text[end:begin].strip(" [],")).isdecimal():
            fields["iteration"] = int(number)
        if kind == "decode":
            note = self._accept.add(fields, self._era.draft_only)
            if note is not None:
                self._start.note(line, note)
        self._start.served = True
        shown = text if (bracket := head.rfind("[")) <= 0 else text[bracket:]
        if len(shown) > 500 or not shown.isprintable():
            shown = plain(shown)
        record = Record(line, kind, fields, stamp, rank, (), shown)
        if rank is None and self._crash is None and self._merge.deadline is None:
            return [*held, record] if held else (record,)  # nothing to wait for, and no copy of it will come
        key = (kind, rank.get("DP"), text[at:]) if rank and "PP" in rank else None
        out = self._emit(record, key)
        return [*held, *out] if held else out

    def _carefully(self, line: int, kind: str, body: str, after: str) -> dict[str, Any] | None:
        """The fields of a line of a new form, or a damaged one; None when nothing of it can be trusted."""
        pairs = Pairs(body, self._usual_end.get(kind))
        if pairs.damaged:
            self._clipped.add(line)
            pairs.fields["clipped"] = True
            return pairs.fields if pairs.names else None
        if self._shapes.learn(kind, pairs):
            self._era.shape(kind, pairs.names, after, closed=pairs.closed)
        last = pairs.names[-1]
        if pairs.closed or last in ENDS or (kind == "prefill" and last.endswith(" graph")):
            self._usual_end.setdefault(kind, "," if pairs.closed else last)
        return pairs.fields

    # --------------------------------------------------------------------------------------------------- other lines

    def _other(self, line: int, text: str) -> Sequence[Record]:
        """Start-up lines, troubles, stops; most are none of these."""
        end = text.find("] ", 0, 120)
        stamped = end >= 0 and (text[0] == "[" or text[:2] == "20")
        head, message = (text[: end + 2], text[end + 2 :]) if stamped else ("", text)
        # Chatter repeats itself with other numbers: what was none of our business once is skipped from then on.
        plainly = self._half is None and self._crash is None and len(message) < 400
        shape = message.encode("utf-8", "surrogatepass").translate(None, _DIGITS) if plainly else b""
        if shape and shape in self._dull:
            return self._due(line, text)
        at, rank = self._heads.read(head) if stamped else (None, None)
        out: list[Record] = []
        if self._half is not None:
            joined = self._half.take(text)
            if joined is None:
                out.extend(self._end_half())
            elif joined.whole:
                self._half = None
                found = self._read(joined.line, joined.text, joined.text, joined.at, joined.rank)
                return found if found is not None else _NOTHING
            else:
                self._half = joined
                return _NOTHING
        if self._crash is not None:
            if not (at or rank) and self._crash.take(message):
                return self._due(line, text)
            if self._crash.ends_with(rank):
                out.extend(self._end_crash())
        found = self._read(line, text, message, at, rank)
        if found is None:
            idle = self._half is None and self._crash is None and len(self._dull) < _DULL_MOST
            if shape and idle and "HTTP/" not in message and "Errno" not in message:
                self._dull.add(shape)
            found = self._due(line, text)
        out.extend(found)
        return out

    def _read(self, line: int, text: str, message: str, at: str | None, rank: Rank | None) -> Sequence[Record] | None:
        """The records of a line, or None when it is none of this file's business."""
        if "obj=Generate" in message:
            return None
        for needle, read in boot.READERS:
            if needle in message:
                told = read(self._line(line, needle, message, rank))
                if told is not None:
                    shown = without_secrets(text[:4000]) if told.kind == "boot" else text
                    return self._emit(Record(line, told.kind, told.fields, at, rank, (), plain(shown)), told.key)
                if needle == "is capped to":
                    self._half = Half(line, message[:500], at, rank)
                break
        if "etract" in message or "out of memory happened" in message:
            fields = retraction(message, self._era)
            if fields is not None:
                if "clipped" in fields:
                    self._clipped.add(line)
                key = ("retract", rank.get("DP") if rank else None, message)
                return self._emit(Record(line, "retract", fields, at, rank, (), plain(text)), key)
        if "fired up and ready to roll" in message:
            self._start.ready = True
            out = [*self._end_crash(), *self._merge.flush()]  # every rank is through with its start
            out.extend(self._emit(Record(line, "ready", {}, at, rank, (), plain(text))))
            return out
        if "Tree cache initialized" in message:
            boot.tree_cache(self._line(line, "", message, rank))
        for note in boot.NOTES:
            if note in message:
                self._start.note(line, plain(message, 200))
        return self._trouble(line, text, message, at, rank)

    def _line(self, line: int, needle: str, message: str, rank: Rank | None) -> boot.Line:
        """A start-up message with the start it belongs to: a new one where this line can't be of the old."""
        start = self._start
        spent = start.ready or start.served
        again = (
            (needle == "server_args=" and (spent or bool(start.args) or bool(start.ranks)))
            or (needle in ("for speculative decoding", "Load weight") and spent)
            or (needle == "avail mem=" and spent and "Load weight begin" in message)
            or (needle == "max_total_num_tokens=" and spent and "max_total_num_tokens" in start.rank(rank).said)
        )
        if again:
            self._begin()
        if needle == "max_total_num_tokens=":
            message = message[message.find(needle) :]
        return boot.Line(line, message, rank, self._start, self._accept, self._era)

    def _end_half(self) -> Sequence[Record]:
        """A message whose rest never came."""
        if self._half is None:
            return _NOTHING
        half, self._half = self._half, None
        self._clipped.add(half.line)
        return self._emit(half.clipped())

    # ------------------------------------------------------------------------------------------------------- trouble

    def _trouble(
        self, line: int, text: str, message: str, at: str | None, rank: Rank | None
    ) -> Sequence[Record] | None:
        """Exceptions, refused starts and requests, stops."""
        phase = "serving" if self._start.ready or self._start.served else "start"
        if Crash.opens(message, stamped=bool(at or rank)):
            out = self._end_crash()
            self._crash = Crash(line, text, message, at, rank, phase)
            return out or self._due(line, text)
        if (refused := _REFUSED.search(message)) is not None:
            if phase == "start":
                return None  # a client that asks while the server is not there yet
            reason = "too many requests wait (HTTP 429)" if refused[1] == "429" else "refused for now (HTTP 503)"
            fields = {"status": int(refused[1]), "reason": reason}
            return self._emit(Record(line, "reject", fields, at, rank, (), plain(text)))
        if "INFO:  " in message and "HTTP/1" in message:
            return None
        known = trouble.find(message)
        if known is None and (trouble.is_usage_error(message) and not at):
            known = trouble.Trouble("error", "bad_flag", "see the options of this version with --help")
        if known is None and message.startswith("INFO: ") and "Shutting down" in message:
            known = trouble.Trouble("exit", "stopped", "")
        if known is None or (known.kind == "exit" and self._stopped):
            return None
        self._stopped = known.kind == "exit"
        fields = {"cause": known.cause, "phase": phase, "reason": plain(message, 200), **trouble.details(message)}
        if known.hint:
            fields["hint"] = known.hint
        key = (known.kind, rank.get("DP") if rank else None, re.sub(r"\d+", "", message[:200]))
        return self._emit(Record(line, known.kind, fields, at, rank, (), plain(text)), key)

    def _end_crash(self) -> Sequence[Record]:
        """The record of a traceback that is complete."""
        if self._crash is None:
            return _NOTHING
        crash, self._crash = self._crash, None
        behind, self._behind = self._behind, []
        out = list(self._emit(*crash.done()))
        for record, key in behind:
            out.extend(self._emit(record, key))
        return out
