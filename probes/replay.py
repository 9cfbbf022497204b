"""A finished run as events again: its files, followed once. What a live session saw, in an order that ends the same."""

from __future__ import annotations

from collections.abc import Iterator

from probes import engines
from probes.events import Event, RunStarted
from probes.store import Run, notices
from probes.tail import Tail


def replay(run: Run) -> Iterator[Event]:
    """Every event of a run. Texts of requests come from load.jsonl, log lines and records from server.log."""
    texts = {r.id: r for r in run.requests()}
    engine: str | None = None
    for event in run.events():
        if isinstance(event, RunStarted):
            engine = event.engine
        yield texts.get(getattr(event, "id", ""), event)
    yield from notices(run)
    if engine is None or engine not in engines.names():
        return
    tail = Tail(run.server_log, engines.engine(engine))
    while found := tail.poll():
        yield from found
    yield from tail.close()
