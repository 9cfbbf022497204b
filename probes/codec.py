"""Events as JSON lines and back. A line that cannot be read is told apart from one torn at the end of a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from probes import events

KINDS: Mapping[str, type[Any]] = {
    "run": events.RunStarted,
    "server": events.ServerChanged,
    "flags": events.FlagsInForce,
    "log": events.LogLines,
    "record": events.LogRecords,
    "capacity": events.CapacityRead,
    "ceiling": events.CeilingChanged,
    "sent": events.RequestSent,
    "done": events.RequestDone,
    "memory": events.MemorySample,
    "engine": events.EngineSample,
    "progress": events.PlanProgress,
    "notice": events.Notice,
    "judged": events.Judged,
}
NAMES: Mapping[type[Any], str] = {cls: name for name, cls in KINDS.items()}
_ENCODER = msgspec.json.Encoder()


def plain(event: events.Event) -> dict[str, Any]:
    """An event as plain values, with its `kind` first."""
    return {"kind": NAMES[type(event)], **msgspec.to_builtins(event)}


def encode(event: events.Event) -> bytes:
    """An event as one JSON line, with its newline. NaN and infinity become null."""
    return _ENCODER.encode(plain(event)) + b"\n"


def decode(line: bytes | str) -> events.Event:
    """The event of one JSON line. Raises ValueError when it is none; fields it does not know are left out."""
    try:
        found = msgspec.json.decode(line)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not isinstance(found, dict) or found.get("kind") not in KINDS:
        raise ValueError("no event")
    event: events.Event = msgspec.convert(found, KINDS[found["kind"]])
    return event


def read(path: Path) -> Iterator[events.Event | events.Notice]:
    """The events of a file in order. A torn last line and unreadable lines come as notices, where they stand."""
    if not path.exists():
        return
    try:
        lines = path.open("rb")
    except OSError as problem:
        yield events.Notice(0.0, "warning", f"{path.name} can't be read: {problem.strerror or problem}")
        return
    with lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                yield decode(line)
            except ValueError:
                what = "is unreadable and was left out" if line.endswith(b"\n") else "was torn and is left out"
                yield events.Notice(0.0, "warning", f"{path.name}:{number}: this line {what}")
