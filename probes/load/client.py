"""Runs a job: connections opened before the clock starts, requests taken off in order, replies read in the gaps.

One loop, no timer a request, and no reading of a stream before its end, so that stamps are late by microseconds.
Only the load process imports this.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

from probes.events import RequestDone, RequestSent
from probes.load.counters import Counters, told
from probes.load.record import ReplyFacts, Request, digest, sent
from probes.load.wire import Connection, Reply, Target, connect

CONNECT_S = 10.0
TICK_S = 0.1
"""How often time limits are looked at."""
AT_ONCE = 32
"""Connections opened at the same time: servers' accept queues are short."""
STALE_S = 1.0
"""A kept connection that is lost this soon after a request had been closed before it."""
BACKOFF_S = 0.5
"""Before the first retry of a request that the server had no room for; doubles."""


@dataclass(frozen=True, slots=True)
class Job:
    """What to send where. `retries`: how often a request is sent again after the server had no room for it.

    `counters`: looked at around each request, for servers that tell drafts in no other way; one request at a time then.
    """

    target: Target
    requests: tuple[Request, ...]
    concurrency: int = 1
    timeout_s: float = 300.0
    retries: int = 0
    engine: ReplyFacts | None = None
    tls: ssl.SSLContext | None = None
    counters: Counters | None = None


class Run:
    """One job under way. `emit` gets each `RequestSent` and each `RequestDone`, in the order that they happened."""

    def __init__(self, job: Job, emit: Callable[[RequestSent | RequestDone], None]) -> None:
        self._job = job
        self._emit = emit
        self._pending: deque[Request] = deque()
        self._idle: list[Connection] = []
        self._active: dict[Connection, None] = {}
        self._unread: deque[tuple[Request, Reply, Mapping[str, Any]] | RequestSent] = deque()
        self._news = asyncio.Event()
        self._finished = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._looks: set[asyncio.Task[None]] = set()
        """Looks at the counters: their request has ended and keeps its record, even when the job is cancelled."""
        self._open = 0
        """Requests that have no record yet: pending, under way, unread or waiting to be sent again."""
        self._timers: set[asyncio.TimerHandle] = set()
        self._opening: asyncio.Future[list[Connection | BaseException]] | None = None
        self._cancelled = False
        self._keeps = True
        """Whether the server has kept its connections open so far."""

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled

    async def run(self) -> None:
        """Send everything: warm-up requests first and alone, then the rest. Returns when each has its record.

        Raises what `emit` raises, such as `OSError` for a full disk.
        """
        reader = asyncio.create_task(self._read())
        reader.add_done_callback(lambda _: self._finished.set())
        watch = asyncio.create_task(self._watch())
        try:
            for warmup in (True, False):
                wave = [request for request in self._job.requests if request.warmup is warmup]
                if wave and not self._cancelled:
                    await self._wave(wave)
                if reader.done():
                    reader.result()
        finally:
            for task in (reader, watch, *self._tasks, *self._looks):
                task.cancel()
            await asyncio.gather(reader, watch, *self._tasks, *self._looks, return_exceptions=True)
            for connection in (*self._idle, *self._active):
                connection.close()
            self._idle.clear()

    def cancel(self) -> None:
        """Close every stream at once; requests under way end as `aborted`, those not yet sent leave no record."""
        self._cancelled = True
        self._open -= len(self._pending) + len(self._timers)
        self._pending.clear()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._open -= sum(1 for task in self._tasks if task.cancel())
        if self._opening is not None:
            self._opening.cancel()
        for connection in list(self._active):
            connection.close("cancelled", "cancelled by the client")
        self._check()

    # ------------------------------------------------------------------------------------------------------ sending

    async def _wave(self, requests: Sequence[Request]) -> None:
        if self._job.counters is not None:
            await self._job.counters.look()
            if self._cancelled:  # meanwhile: nothing would ever settle what is pending from here on
                return
        self._pending.extend(requests)
        self._open = len(requests)
        self._finished.clear()
        lanes = min(self._job.concurrency, len(requests))
        self._idle = [connection for connection in self._idle if connection.usable]
        missing = lanes - len(self._idle)
        failed = 0
        while missing > 0 and not self._cancelled:
            wanted = min(missing, AT_ONCE)
            opening = asyncio.gather(*(self._connect() for _ in range(wanted)), return_exceptions=True)
            self._opening = opening
            try:
                found = [one for one in await opening if isinstance(one, Connection)]
            except asyncio.CancelledError:
                if not self._cancelled:
                    raise
                return
            finally:
                self._opening = None
            self._idle += found
            failed += wanted - len(found)
            missing -= wanted
        # Lanes without a connection try again with their first request, whose record then says what went wrong.
        ready, self._idle = self._idle[:lanes], self._idle[lanes:]
        for connection in ready:
            self._next(connection)
        for _ in range(failed):
            self._reopen()
        self._check()
        await self._finished.wait()

    async def _connect(self) -> Connection:
        job = self._job
        return await connect(job.target, self._ended, job.tls, min(CONNECT_S, job.timeout_s))

    def _next(self, connection: Connection) -> None:
        """Send the next request on this connection, or on a new one where this can't be used again."""
        if not self._pending:
            if connection.usable:
                self._idle.append(connection)
        elif connection.usable:
            self._send(connection, self._pending.popleft())
        else:
            self._reopen()

    def _send(self, connection: Connection, request: Request) -> None:
        self._active[connection] = None
        reply = connection.send(request.wire, request)
        self._unread.append(sent(request, reply))
        self._news.set()

    def _reopen(self, request: Request | None = None) -> None:
        if request is None:
            if not self._pending:
                return
            request = self._pending.popleft()
        task = asyncio.create_task(self._send_on_new(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_on_new(self, request: Request) -> None:
        try:
            connection = await self._connect()
        except OSError as error:
            now = monotonic()
            reply = Reply(now, request, done=now, end="refused", error=f"no connection: {error}")
            self._unread.append(sent(request, reply))
            self._unread.append((request, reply, {}))
            self._news.set()
            self._reopen()
            return
        self._send(connection, request)

    def _ended(self, connection: Connection, reply: Reply) -> None:
        """Called by the connection at a reply's end: first the next request, then everything else."""
        self._active.pop(connection, None)
        request: Request = reply.label
        unserved = reply.end == "lost" and reply.status is None and reply.done - reply.sent < STALE_S
        if unserved and not reply.fresh and not self._cancelled:
            # A server that closes after each reply although it promised not to (llama-server does, after a stream): the
            # request never reached it. It goes again on a new connection, with a new stamp, and no other meets this.
            self._keeps = False
            self._reopen(request)
            return
        if not self._keeps:
            connection.close()
        if self._job.counters is not None and not self._cancelled:
            task = asyncio.create_task(self._count(connection, request, reply, self._job.counters))
            self._looks.add(task)
            task.add_done_callback(self._looks.discard)
            return
        self._next(connection)
        self._unread.append((request, reply, {}))
        self._news.set()

    async def _count(self, connection: Connection, request: Request, reply: Reply, counters: Counters) -> None:
        """What the counters say of the request that has just ended, before the next one moves them."""
        added = await counters.since()
        self._unread.append((request, reply, added))
        self._news.set()
        self._next(connection)

    # ------------------------------------------------------------------------------------------------------ reading

    async def _read(self) -> None:
        """Turn replies into records, one after the other and in slices between which the loop stamps arrivals."""
        while True:
            while self._unread:
                item = self._unread.popleft()
                if isinstance(item, RequestSent):
                    self._emit(item)
                    continue
                request, reply, added = item
                for record in digest(request, reply, self._job.engine):
                    if record is not None:
                        record = told(record, added)  # noqa: PLW2901  (the same record, completed)
                        self._emit(record)
                        self._settle(request, record)
                    await asyncio.sleep(0)
            self._news.clear()
            if not self._unread:
                await self._news.wait()

    def _settle(self, request: Request, record: RequestDone) -> None:
        """Count the record; send the request again, later, where the server only had no room for it."""
        roomless = record.outcome in {"queue_timeout", "overloaded"}
        if roomless and request.attempt <= self._job.retries and not self._cancelled:
            number = request.attempt + 1
            again = replace(request, id=f"{request.id.removesuffix(f'~{number - 1}')}~{number}", attempt=number)

            def due() -> None:
                self._timers.discard(timer)
                self._again(again)

            timer = asyncio.get_running_loop().call_later(BACKOFF_S * 2 ** (number - 2), due)
            self._timers.add(timer)
            return
        self._open -= 1
        self._check()

    def _again(self, request: Request) -> None:
        self._pending.append(request)
        if len(self._active) + len(self._tasks) < self._job.concurrency:
            if self._idle:
                self._next(self._idle.pop())
            else:
                self._reopen()

    def _check(self) -> None:
        if self._open <= 0:
            self._finished.set()

    async def _watch(self) -> None:
        """The only timer: cut what is over its time."""
        while True:
            await asyncio.sleep(TICK_S)
            limit = monotonic() - self._job.timeout_s
            for connection in list(self._active):
                reply = connection.reply
                if reply is not None and reply.sent < limit:
                    connection.close("timeout", f"no end within {self._job.timeout_s:g} s")
