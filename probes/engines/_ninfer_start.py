"""Start-up and shutdown lines of ninfer: what one start of the server says of itself, and its capacity put together."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from probes.engines import _ninfer_pool as pool
from probes.engines._ninfer_clauses import cache
from probes.engines._ninfer_text import BYTES, DURATION, Clipped, clauses, duration_ms, size
from probes.engines._ninfer_trouble import Cause, cause
from probes.events import Capacity, Kind

Fields = dict[str, Any]
Found = tuple[Kind, Fields] | None

_URL = re.compile(r"listening on (\S+)(?: \(model id: ([^,)]+), auth: (\w+)\))?")


@dataclass(slots=True)
class Start:
    """One start so far.

    `newer`: the log is of format N or P, whose admission may not reserve a whole output; None: not told yet.
    `pauses`: it is P, whose admission promises nothing and pauses a running request when pages run out.
    """

    pool: pool.Pool | None = None
    pool_line: int = 0
    lanes: int | None = None
    lanes_line: int = 0
    cached: int | None = None
    weights_bytes: int | None = None
    weights_line: int = 0
    newer: bool | None = None
    pauses: bool = False
    ready: Fields = field(default_factory=dict)
    failed_phase: str | None = None

    def capacity(self) -> Capacity:
        """What this start can hold, each figure with the line that it comes from."""
        reserving = False if self.pauses else True if self.newer is False else None
        told = pool.capacity(self.pool, self.lanes, self.cached, reserving=reserving)
        if told == Capacity():
            return Capacity(weights_bytes=self.weights_bytes, lines=self._weights_from())
        came = dict.fromkeys(("lanes", "max_context", "reserving"), self.lanes_line)
        skip = {"lines", "explain", "per"}
        names = [name for name in told.__slots__ if name not in skip and getattr(told, name) is not None]
        where = {name: came.get(name) or self.pool_line for name in names}
        where = {name: line for name, line in where.items() if line}
        return replace(told, weights_bytes=self.weights_bytes, lines=where | self._weights_from())

    def _weights_from(self) -> dict[str, int]:
        return {"weights_bytes": self.weights_line} if self.weights_bytes is not None else {}


def starting(start: Start, number: int, text: str) -> Found:
    """`starting engine`."""
    del start, number, text
    return "boot", {}


def weights(start: Start, number: int, text: str) -> Found:
    """`weights ready | 18.9 GiB | 2.9s | 6.59 GiB/s`."""
    fields: Fields = {}
    for part in clauses(text)[1:]:
        if re.fullmatch(BYTES, part) and not fields:
            fields["weights_bytes"] = start.weights_bytes = size(part)
            start.weights_line = number
        elif re.fullmatch(DURATION, part):
            fields["load_ms"] = duration_ms(part)
    if "load_ms" not in fields:
        raise Clipped
    return "weights", fields


def engine_ready(start: Start, number: int, text: str) -> Found:
    """Not the readiness of the server (that is `listening on`): its facts go into that record."""
    for part in clauses(text)[1:]:
        label, _, value = part.partition(" ")
        if label == "total" and re.fullmatch(DURATION, value):
            start.ready["boot_ms"] = duration_ms(value)
        elif label == "weights" and re.fullmatch(BYTES, value) and start.weights_bytes is None:
            start.weights_bytes, start.weights_line = size(value), number
        elif not value:
            start.ready["weights_name"] = part
    return None


def capacity(start: Start, number: int, text: str) -> Found:
    """`capacity | KV 224,000 tokens, int8, explicit | pages 3,500/10,500 | runtime 8.64 GiB | free 3.26 GiB`."""
    read = pool.read(text)
    start.pool, start.pool_line = read, number
    named = {
        "kv_pool_tokens": read.tokens,
        "kv_dtype": read.dtype,
        "kv_mode": read.mode,
        "pages": read.pages,
        "worst_case_pages": read.worst,
        "runtime_bytes": read.runtime_bytes,
        "free_bytes": read.free_bytes,
    }
    return "capacity", {name: value for name, value in named.items() if value is not None}


def device_states(start: Start, number: int, text: str) -> Found:
    """`context cache | 3 active + …` (L), `prefix cache | …` (N) or `context | history on | …` (P): the lanes."""
    start.pauses = text.startswith("context | ")
    start.newer = start.pauses or text.startswith("prefix")
    fields = cache(text)
    if "lanes" in fields:
        start.lanes, start.lanes_line = fields["lanes"], number
        start.cached = fields.get("cached_states")
    return "pool", fields


def listening(start: Start, number: int, text: str) -> Found:
    """`listening on URL …`: from here on requests are served."""
    del number
    match = _URL.match(text)
    fields: Fields = dict(start.ready)
    if match:
        fields["url"] = match[1]
        if match[2]:
            fields["model"], fields["auth"] = match[2], match[3]
    for part in text.split(" | ")[1:]:
        label, _, value = part.partition(" ")
        if label in {"model", "auth"} and value:
            fields[label] = value
    return "ready", fields


def stopped(start: Start, number: int, text: str) -> Found:
    """`server stopped`, after a signal."""
    del start, number, text
    return "exit", {"clean": True, "reason": "stopped as asked"}


def startup_failed(start: Start, number: int, text: str) -> Found:
    """`startup failed | PHASE | 2.1s`: the reason is on the next line, if that is still written."""
    del number
    parts = clauses(text)
    if len(parts) < 3 or not re.fullmatch(DURATION, parts[-1]):
        raise Clipped
    start.failed_phase = parts[1]
    return broken(start, cause(text))


def fault(start: Start, number: int, text: str) -> Found:
    """`engine | worker crash: WHY`: the process lives on and answers 503 to everything."""
    del start, number
    reason = text.split(" | ", 1)[-1]
    return "crash", {"reason": reason, "hint": "the engine answers HTTP 503 from now on: restart the server"}


def failed(start: Start, number: int, text: str) -> Found:
    """The reason of a failed start or warm-up."""
    del number
    return broken(start, cause(text.rsplit(" | ", maxsplit=1)[-1], start.failed_phase))


def ledger(start: Start, number: int, text: str) -> Found:
    """`memory ledger | after weights X | …`, printed at debug level only."""
    del start, number
    fields: Fields = {}
    for part in clauses(text)[1:]:
        if match := re.fullmatch(rf"([A-Za-z ]+) ({BYTES})", part):
            fields[match[1].lower().replace(" ", "_") + "_bytes"] = size(match[2])
    return "pool", fields


def broken(start: Start, why: Cause) -> tuple[Kind, Fields]:
    """The record of a failure."""
    fields: Fields = {"reason": why.reason, **why.clues}
    if why.hint:
        fields["hint"] = why.hint
    if start.failed_phase:
        fields["phase"] = start.failed_phase
    return why.kind, fields


LINES: dict[str, Callable[[Start, int, str], Found]] = {
    "starting engine": starting,
    "weights ready": weights,
    "engine ready": engine_ready,
    "capacity": capacity,
    "context cache": device_states,
    "prefix cache": device_states,
    "context": device_states,
    "server stopped": stopped,
    "startup failed": startup_failed,
    "server failed during startup": failed,
    "warmup failed": failed,
    "memory ledger": ledger,
    "engine": fault,
}
"""By a message's first clause."""
