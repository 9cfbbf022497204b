"""What a llama-server log counts outside any request: tasks that wait for a slot, and drafts over the server's life.

Counters that run on never become a request's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from probes.engines._llamacpp_lines import Line
from probes.engines._llamacpp_requests import HELD_MAX, Requests, record
from probes.events import Record

_TASK = re.compile(r"(?:id_task|task,? id) = (\d{1,15})")
_STATISTICS = re.compile(r"statistics\s+([\w.+-]+): ")
_COUNTS = {
    "total_drafts": re.compile(r"#gen drafts =\s*(\d{1,15}),"),
    "total_drafted": re.compile(r"#gen tokens =\s*(\d{1,15}),"),
    "total_accepted": re.compile(r"#acc tokens =\s*(\d{1,15}),"),
}
_DURATIONS = re.compile(r"dur\(b,g,a\) =\s*[\d.]+,\s*(\d{1,12}\.\d{3}),\s*[\d.]+ ms")


def queue_line(state: Requests, line: Line, lanes: int | None) -> Iterator[Record]:
    """Deferred tasks, told at verbosity 5 only: every slot is busy when one is deferred."""
    text = line.message
    if text.startswith("no slot is available, defer task"):
        found = _TASK.search(text)
        if found:
            state.deferred.add(int(found[1]))
            if len(state.deferred) > HELD_MAX:
                state.deferred.pop()
            yield record(line, "throughput", _queue(state, lanes) | {"deferred_task": int(found[1]), "no_slot": True})
    elif text.startswith("pop deferred task"):
        found = _TASK.search(text)
        if found:
            state.deferred.discard(int(found[1]))
            yield record(line, "throughput", {"waiting": len(state.deferred), "resumed_task": int(found[1])})


def _queue(state: Requests, lanes: int | None) -> dict[str, Any]:
    return {"waiting": len(state.deferred)} | ({"running": lanes} if lanes else {})


def statistics(line: Line) -> Iterator[Record]:
    """Counters of one speculator over the server's life: under names of their own, never to be added to requests."""
    found = _STATISTICS.match(line.message)
    if found is None:
        return
    fields: dict[str, Any] = {"impl": found[1]}
    for name, pattern in _COUNTS.items():
        count = pattern.search(line.message)
        if count is None:
            return
        fields[name] = int(count[1])
    spent = _DURATIONS.search(line.message)
    if spent:
        fields["total_draft_ms"] = float(spent[1])
    yield record(line, "spec", fields)
