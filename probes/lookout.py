"""Looks at what a point is about to send, and at what came of it, for reasons why its figures would mean nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from probes.bench import Bench
from probes.events import RequestDone
from probes.load.pitfalls import pitfalls


def look_out(bench: Bench, entries: Sequence[Mapping[str, Any]], known: Iterable[RequestDone]) -> str | None:
    """Why these requests must not be sent to the present server, in one line; None: send them.

    What only bends some figures is told to the person. `known`: requests of this run that have ended.
    """
    start = bench.server.now
    argv = bench.attached.argv if bench.attached else start.argv if start else ()
    found = pitfalls(
        entries,
        known,
        context=bench.capacity.max_context if bench.capacity else None,
        rejects_long=bench.engine.rejects_long,
        cache=bench.engine.prefix_cache(argv) if argv else None,
        restart=bench.restart,
    )
    for pitfall in found:
        if not pitfall.fatal:
            bench.notice("warning", pitfall.text)
    return next((pitfall.text for pitfall in found if pitfall.fatal), None)


def all_refused(requests: Iterable[RequestDone]) -> str | None:
    """Why a load was none: every request of it was refused. None when the server took one."""
    done = list(requests)
    if not done or any(r.outcome != "rejected" for r in done if r.outcome != "aborted"):
        return None
    errors = Counter(r.error for r in done if r.outcome == "rejected" and r.error)
    if not errors:
        return None
    ((error, _),) = errors.most_common(1)
    return f"the server refused every request: {error}"


def unwell(left: int, requests: Iterable[RequestDone]) -> str:
    """Of how many requests nothing came, with their outcomes and the first error."""
    bad = [r for r in requests if r.outcome != "ok"]
    names = ", ".join(sorted({r.outcome for r in bad})) or "no record"
    return f"{left} requests did not end well ({names})" + next((f": {r.error}" for r in bad if r.error), "")
