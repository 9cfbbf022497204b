"""What vLLM itself puts around a message: process prefix, level, stamp, source file; or one JSON object a record.

Splits a line into the records that it holds (they get glued when two processes write at once). Foreign wrapping is
`_unwrap`'s business; what a message means is the reader's. Pure.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from probes.engines._unwrap import REPEATED, unwrap
from probes.events import Rank

_PROCESS = (
    r"\((?P<proc>[A-Za-z][\w-]{0,60})(?: rank=(?P<rank>\d{1,5}))?(?: pid=(?P<pid>\d{1,9}))(?:, ip=[\w.:]{1,45})?\) "
)
_STAMP = (
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<day>\d\d-\d\d) (?P<clock>\d\d:\d\d:\d\d(?:[.,]\d{1,6})?) "
    r"\[?(?P<file>[\w./<>-]{1,120}):\d{1,6}\] ?"
)
_HEAD = re.compile(rf"(?:{_PROCESS}(?:[^()]{{0,80}}? )?)?{_STAMP}", re.ASCII)
"""A record's beginning; what `VLLM_LOGGING_PREFIX` puts in between is skipped."""
_PLAIN = re.compile(
    r"\(([A-Za-z][\w-]{0,60}) pid=(\d{1,9})\) ([A-Z]{4,8}) (\d\d-\d\d) (\d\d:\d\d:\d\d) "
    r"\[[\w./-]{1,120}:\d{1,6}\] ",
    re.ASCII,
).match
"""The commonest beginning, 0.10 on, tried first."""
_BARE = re.compile(_PROCESS.rstrip(" ") + " ?", re.ASCII)
"""The process prefix alone, as 0.10 to 0.30 put it before raw prints, tracebacks and uvicorn lines."""
_LOGGER = r"\[?vllm(?:\.\w{1,60}){0,8}\]?(?::\d{1,6})?"
_LEVELS = r"\[?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\]?"
_GAP = r"[\s|:-]{1,8}"
_FOREIGN = re.compile(
    rf"(?:\[?(20\d\d-\d\d-\d\d)[ T](\d\d:\d\d:\d\d(?:[.,]\d{{1,6}})?)Z?\]?{_GAP})?"
    rf"(?:({_LEVELS}){_GAP}{_LOGGER}|{_LOGGER}{_GAP}({_LEVELS})){_GAP}",
    re.ASCII,
)
"""A record's beginning under a logging configuration of the user's: stamp, logger's name and level in either order."""
_GROUP = re.compile(r"(DP|PP|TP|EP|PCP|DCP)(\d{1,5})(?![a-z0-9])", re.ASCII)
_CORE = re.compile(r"EngineCore_(\d{1,5})$", re.ASCII)
_QUOTING = ("Received request", "Generated response", "Request ")
"""Messages that repeat what a client or the model wrote: nothing behind them on the line is the server's word."""


class Piece(NamedTuple):
    """One record, or a raw print: `message` keeps its indentation; `at` is the stamp as printed, without a year.

    `known` tells whether vLLM's own header was there, so that the message starts where it should.
    """

    message: str
    at: str | None = None
    process: str = ""
    pid: str = ""
    rank: Rank | None = None
    level: str = ""
    known: bool = False


def pieces(text: str) -> list[Piece]:
    """The records of one line, in order."""
    first = _PLAIN(text)
    if first is not None and text.find("] ", first.end()) < 0 and "\x1b" not in text and "\r" not in text:
        process, pid, level, day, clock = first.groups()
        rank = _rank(process, None) if "_" in process else None
        return [Piece(text[first.end() :].rstrip(), f"{day}T{clock}", process, pid, rank, level, True)]
    found: list[Piece] = []
    for part in unwrap(text):
        if '"message"' in part and (record := _from_json(part[part.find('{"') :])) is not None:
            found.append(record)
        elif not part.startswith('{"'):  # an object that no collector made is a request's or an answer's
            found.extend(_split(part))
    return found


def _split(text: str) -> list[Piece]:
    """Cut at every header; what stands before the first one is a raw print of its own."""
    if " across cluster]" in text:
        text = REPEATED.sub("", text)
    heads = list(_HEAD.finditer(text))
    if not heads:
        return [_raw(text)]
    found = []
    before = text[: heads[0].start()]
    if before.strip():
        found.append(_raw(before))
    for here, after in zip(heads, [*heads[1:], None], strict=True):
        message = text[here.end() : after.start() if after else len(text)]
        found.append(_piece(here, message))
        if message.startswith(_QUOTING):
            break
    return found


def _piece(head: re.Match[str], message: str) -> Piece:
    process, rank, pid, level, day, clock, _ = head.groups()
    return Piece(
        message.rstrip(),
        f"{day}T{clock.replace(',', '.')}",
        process or "",
        pid or "",
        _rank(process, rank),
        level,
        True,
    )


def _raw(text: str) -> Piece:
    bare = _BARE.match(text)
    if bare is None:
        other = _FOREIGN.search(text, 0, 200) if "vllm" in text[:160] else None
        if other is None or other.start() > 80 or '"' in text[: other.start()] or "'" in text[: other.start()]:
            return Piece(text.rstrip())
        day, clock, first, last = other.groups()
        at = f"{day}T{clock.replace(',', '.')}" if day else None
        return Piece(text[other.end() :].rstrip(), at, level=(first or last).strip("[]"), known=True)
    process, rank, pid = bare.groups()
    return Piece(text[bare.end() :].rstrip(), None, process, pid or "", _rank(process, rank))


def _rank(process: str | None, number: str | None) -> Rank | None:
    """`Worker_DP4_TP0_EP8` -> DP 4, TP 0, EP 8; `VllmWorker rank=1` -> TP 1; `EngineCore_2` -> DP 2."""
    if not process:
        return None
    if number is not None:
        return {"TP": int(number)}
    if "_" not in process:
        return None
    core = _CORE.match(process)
    if core:
        return {"DP": int(core[1])}
    return {name: int(value) for name, value in _GROUP.findall(process)} or None


def _from_json(text: str) -> Piece | None:
    """A record of the JSON formatter: `message` beside `asctime` or `levelname`."""
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("message"), str):
        return None
    process = next((str(found[k]) for k in ("vllm_process_name", "processName") if isinstance(found.get(k), str)), "")
    stamp = found.get("asctime")
    at = stamp.replace(" ", "T", 1).replace(",", ".") if isinstance(stamp, str) and stamp else None
    message = found["message"]
    if isinstance(found.get("exc_info"), str):
        message = f"{message}\n{found['exc_info']}"
    return Piece(
        message.rstrip(),
        at,
        process,
        str(found.get("process", "")),
        _rank(process, None),
        str(found.get("levelname", "")),
        True,
    )
