"""Stamps of replies from a simulated engine whose time runs faster than real: brought to its time, and marked so.

Such an engine names its speed in a header and the simulated time of each event in a comment before it. Without this,
every microsecond that a packet takes would count many times over.
"""

from __future__ import annotations

import re
from dataclasses import replace

from probes.load.sse import Stamped
from probes.load.wire import Reply

SPEED = "x-simulated-speed"
_MARK = re.compile(rb": simulated \+(\d{1,9}\.\d{1,9})\n\n")


def speed_of(reply: Reply) -> float | None:
    """How many simulated seconds a real one is; None: a real engine."""
    try:
        speed = float(reply.headers.get(SPEED, ""))
    except ValueError:
        return None
    return speed if 0 < speed < 1e6 else None


def in_its_time(reply: Reply, speed: float) -> Reply:
    """The reply with all stamps in simulated seconds, on one scale for all requests of this machine."""
    sent = reply.sent * speed
    parts: list[Stamped] = []
    stamp = sent
    pieces = _MARK.split(b"".join(part for _, part in reply.parts))
    if len(pieces) == 1:
        return replace(
            reply, sent=sent, done=reply.done * speed, parts=[(at * speed, part) for at, part in reply.parts]
        )
    for place, piece in enumerate(pieces):
        if place % 2:
            stamp = sent + float(piece)
        elif piece:
            parts.append((stamp, piece))
    done = stamp if reply.end == "complete" else max(stamp, reply.done * speed)
    return replace(reply, sent=sent, done=done, parts=parts)
