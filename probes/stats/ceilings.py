"""Which limit held requests back: a judge that follows a log's records, or a live server, and can be asked any time.

It keeps bounded state for any number of records. The rules are in `ceiling_rules`, the grouping in
`windows`, the arithmetic of promised pages in `ledger`, the composing in `ceiling_verdict`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from probes.events import Capacity, Ceiling, Record, RequestDone, RequestSent, Verdict
from probes.stats.ceiling_rules import find
from probes.stats.ceiling_scene import Scene, long_enough
from probes.stats.ceiling_verdict import EVIDENCE, Seen, Tally, compose
from probes.stats.ledger import Ledger, View
from probes.stats.timeline import Stretch, Timeline
from probes.stats.windows import Streams, Traits, Window

__all__ = ["Judge", "Stretch", "Traits"]

SAMPLES = frozenset({"decode", "prefill", "throughput"})
BEGINS = frozenset({"boot", "weights"})
VIEWS = 12
CALM = 3
"""Reports without a queue after which a queue is over; a lone one between two queues is not its end."""


class Judge:
    """Follows records in order; `verdict` may be asked at any time and judges the last start seen.

    `traits`: of the engine. `requested`: how many requests the client means to keep in flight (None: not known); only
    with it can `client` be the verdict.
    """

    def __init__(self, traits: Traits, *, requested: int | None = None) -> None:
        self._timeline = Timeline()
        self._seen = Seen(traits, requested=requested)
        self._streams = Streams(traits)
        self._ledger = Ledger()
        self._live = False
        self.starts = 0
        """Starts of the server seen, beyond the first."""

    # -------------------------------------------------------------------------------------------------- facts in

    def capacity(self, capacity: Capacity) -> None:
        """What the current start announced."""
        self._seen.capacity = capacity

    def see(self, record: Record) -> None:
        """Take the next record of the log."""
        kind = record.kind
        if kind in SAMPLES:
            self._seen.loaded = True
            if "pool_exhausted" in record.fields or "deferred_task" in record.fields:
                self._say(record)
            closed = self._streams.take(record, self._seen.capacity)
            if closed is not None:
                self._close(closed)
            if record.fields.get("waiting") and (self._ledger.flight or self._live):
                self._look(record)
        elif kind == "request":
            self._request(record)
        elif kind in BEGINS and self._seen.loaded:
            self.restart(record.line)
            self._note(record)
        elif kind in {"boot", "weights", "pool", "capacity", "ready"}:
            self._note(record)
        else:
            self._say(record)

    def sent(self, request: RequestSent) -> None:
        """The client put a request on the wire."""
        self._live = True
        self._ledger.sent(f"live {request.id}", request.max_tokens, request.prompt_tokens)

    def done(self, request: RequestDone) -> None:
        """A request ended, however."""
        self._ledger.done(f"live {request.id}", request.prompt_tokens)

    def restart(self, line: int) -> None:  # noqa: ARG002  (kept for callers that know where)
        """Another start of the server begins."""
        for window in self._streams.close():
            self._close(window)
        self._streams.start += 1
        self.starts += 1
        self._seen = Seen(self._seen.traits, requested=self._seen.requested)
        self._ledger.clear()

    # ------------------------------------------------------------------------------------------------ the reading

    def _note(self, record: Record) -> None:
        """Keep what a start-up line says that later judgments need."""
        for name, value in record.fields.items():
            if value is not None and len(self._seen.boot) < 512:
                self._seen.boot[name] = value
        if record.fields.get("capped_by") is not None and len(self._seen.boot_kept) < EVIDENCE:
            self._seen.boot_kept.append((record.line, record.text))

    def _request(self, record: Record) -> None:
        """A request's start or end line: the log's own ledger."""
        get = record.fields.get
        phase, name = get("phase"), get("request_id")
        if (queued := get("queue_ms")) is not None and queued >= 1000 * self._seen.traits.report_s:
            self._seen.queued += 1
        if phase == "started":
            self._seen.loaded = True
            if not self._live and name is not None:
                self._ledger.sent(str(name), get("max_tokens"), get("prompt_tokens"))
            return
        self._seen.loaded = True
        self._seen.requests += 1
        if not self._live and name is not None:
            self._ledger.done(str(name), get("prompt_tokens"))
        if get("deferred_task") is not None:
            self._say(record)

    def _say(self, record: Record) -> None:
        """The engine said that it found no room, no lane, or refused a request."""
        get = record.fields.get
        if record.kind in {"retract", "preempt"} or get("pool_exhausted"):
            self._seen.loaded = True
            self._streams.event(record)
            self._seen.full.add(record)
        elif get("deferred_task") is not None or get("no_slot"):
            self._seen.loaded = True
            self._seen.no_lane.add(record)
        elif record.kind in {"exit", "crash"}:
            self._seen.loaded = True
        if record.kind in {"reject", "error"} and not self._live and (name := get("request_id")) is not None:
            self._ledger.done(str(name), get("prompt_tokens"))

    def _look(self, record: Record) -> None:
        """Remember who runs, who waits and how full the pool is in this report, a few times a stretch."""
        rank = record.rank.get("DP") if record.rank else None
        window = self._streams.open.get(rank)
        running, waiting = record.fields.get("running"), record.fields.get("waiting")
        if window is None or window.free or running is None or waiting is None or window.n % window.every:
            return
        view = self._ledger.view(running, waiting)
        if view is None:
            return
        if len(window.views) == VIEWS:  # keep every other one, and look half as often: they span the whole stretch
            window.views, window.every = window.views[1::2], 2 * window.every
        window.views.append((*view, record.fields.get("kv_usage")))

    # ---------------------------------------------------------------------------------------------- closed windows

    def _scene(self, window: Window) -> Scene:
        views: list[View] = [(v[0], v[1]) for v in window.views]
        used: list[float | None] = [v[2] for v in window.views]
        return Scene(window, self._seen.capacity, self._seen.traits, self._seen.boot, views, used)

    def _close(self, window: Window) -> None:
        """File a stretch that ended under what it says, and add it to the timeline."""
        verdict = self._file(window, self._seen.tally, ended=True)
        if window.n or window.waiting.n:
            self._timeline.add(_stretch(window, verdict))

    def _file(self, window: Window, tally: Tally, *, ended: bool) -> Verdict:
        if window.elsewhere.n:
            tally.elsewhere += window.elsewhere.n
            tally.elsewhere_top = max(tally.elsewhere_top, int(window.elsewhere.high))
            if len(tally.elsewhere_kept) < EVIDENCE:
                tally.elsewhere_kept.extend(window.kept.get("elsewhere", []))
        if window.free:
            tally.free += window.n
            tally.free_top = max(tally.free_top, int(window.running.high))
            if len(tally.free_kept) < EVIDENCE:
                tally.free_kept.extend(window.kept.get("any", [])[:2])
            return "none"
        if not long_enough(window, self._seen.traits):
            tally.short += 1
            tally.short_reports += window.waiting.n
            tally.short_open = not ended
            if len(tally.short_kept) < EVIDENCE:
                tally.short_kept.extend(window.kept.get("any", []))
            return "none"
        finding = find(self._scene(window))
        weight = window.waiting.n
        tally.weight[finding.verdict] = tally.weight.get(finding.verdict, 0) + weight
        if finding.verdict == "unknown":
            for rival in set(finding.rivals):
                tally.may_be[rival] = tally.may_be.get(rival, 0) + weight
        if finding.verdict not in tally.best or tally.best[finding.verdict][0] < weight:
            tally.best[finding.verdict] = (weight, finding, window)
        return finding.verdict

    def timeline(self) -> list[Stretch]:
        """Which limit held when, over all starts, with the stretches that are still open."""
        still = [
            _stretch(w, self._file(w, Tally(), ended=False)) for w in self._streams.open.values() if w.n or w.waiting.n
        ]
        return self._timeline.strips(still)

    # ------------------------------------------------------------------------------------------------- the verdict

    def verdict(self) -> Ceiling:
        """The judgment over the last start, from everything up to now."""
        own = self._seen.tally
        tally = replace(
            own,
            weight=dict(own.weight),
            may_be=dict(own.may_be),
            best=dict(own.best),
            free_kept=list(own.free_kept),
            short_kept=list(own.short_kept),
            elsewhere_kept=list(own.elsewhere_kept),
        )
        for window in self._streams.open.values():
            self._file(window, tally, ended=False)
        return compose(replace(self._seen, tally=tally))

    def present(self) -> Ceiling | None:
        """The judgment over the queue that there is now, by the stretches still open; None: none, or too short yet."""
        tally = Tally()
        for window in self._streams.open.values():
            if not window.free and long_enough(window, self._seen.traits):
                self._file(window, tally, ended=False)
        return compose(replace(self._seen, tally=tally)) if tally.weight else None

    @property
    def waited(self) -> bool:
        """Whether any queue was seen in this start that is worth a verdict, or still goes on."""
        seen = self._seen
        queues = any(not w.free for w in self._streams.open.values())
        return queues or bool(seen.tally.weight or seen.full.count or seen.no_lane.count)

    @property
    def calm(self) -> bool:
        """Whether the newest reports of every rank, three at least, show no queue."""
        return bool(self._streams.open) and all(w.calm >= CALM for w in self._streams.open.values())

    def fresh(self, requested: int | None) -> Judge:
        """Another judge of the same start, which knows its boot and what is on the wire but saw no report yet."""
        seen = self._seen
        other = Judge(seen.traits, requested=requested)
        other._seen = Seen(seen.traits, seen.capacity, requested, boot=dict(seen.boot), boot_kept=list(seen.boot_kept))
        other._streams.ran = dict(self._streams.ran)
        other._ledger = self._ledger.copy()
        other._live = self._live
        return other


def _stretch(window: Window, verdict: Verdict) -> Stretch:
    most, queue = (int(band.high) if band.n else None for band in (window.running, window.waiting))
    return Stretch(
        window.start, window.first_line, window.last_line, window.first_at, window.last_at, verdict,
        max(window.n, window.waiting.n), most, queue,
    )  # fmt: skip


def judge_all(traits: Traits, records: Iterable[Record], capacity: Capacity) -> Ceiling:
    """The verdict over a whole list of records of one start, for tests and small logs."""
    judge = Judge(traits)
    judge.capacity(capacity)
    for record in records:
        judge.see(record)
        judge.capacity(capacity)
    return judge.verdict()
