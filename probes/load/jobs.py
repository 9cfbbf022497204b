"""Jobs as JSON lines on stdin, facts as JSON lines on stdout: the load process as the lab drives it.

A record is in the log before it is printed, and printing never holds up the loop: a reader that stands still must not
make arrival stamps late.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import os
import queue
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from probes.credentials import bearer
from probes.events import RequestDone, RequestSent
from probes.load.client import Job, Run
from probes.load.counters import Counters
from probes.load.record import ReplyFacts, Request
from probes.load.wire import encode, target
from probes.recipe import Refused

_encode = msgspec.json.Encoder().encode


def line(fact: RequestSent | RequestDone) -> bytes:
    """A fact as one line of JSON, `kind` first. Whatever a server put into `raw`, this gives a line."""
    kind = "sent" if isinstance(fact, RequestSent) else "done"
    head = b'{"kind":"' + kind.encode() + b'",'
    try:
        return head + _encode(fact)[1:] + b"\n"
    except (TypeError, ValueError, OverflowError, RecursionError, UnicodeError, msgspec.MsgspecError):
        if not isinstance(fact, RequestDone):
            raise
        text = fact.text.encode("utf-8", "replace").decode()
        error = None if fact.error is None else fact.error.encode("utf-8", "replace").decode()
        raw = {"unread": "the server's own figures can't be written as JSON"}
        return head + _encode(dataclasses.replace(fact, text=text, error=error, raw=raw))[1:] + b"\n"


class Printer:
    """Writes lines to a file descriptor from a thread of its own, in order; a closed reader is not an error."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="printer", daemon=True)
        self._thread.start()
        self.broken = False

    def put(self, data: bytes) -> None:
        """Print this when its turn comes."""
        self._queue.put(data)

    def close(self, wait_s: float = 2.0) -> None:
        """Wait until all is printed, but not for ever: the reader may be gone or stopped."""
        self._queue.put(None)
        self._thread.join(wait_s)

    def _work(self) -> None:
        while (data := self._queue.get()) is not None:
            try:
                write_all(self._fd, data)
            except OSError:
                self.broken = True


def write_all(fd: int, data: bytes) -> None:
    """Write all of it; a file opened for append takes a line in one call."""
    while data:
        data = data[os.write(fd, data) :]


def open_log(path: str) -> int:
    """Open a file for append, made if it isn't there. Raises `Refused`."""
    try:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from None


def facts_of(engine: str | None) -> ReplyFacts | None:
    """How that engine reports about a request; None for the forms that servers share. Raises `Refused`."""
    if engine in {None, "", "generic"}:
        return None
    from probes import engines

    return engines.engine(str(engine)).reply


COUNTED = frozenset({"vllm"})
"""Engines of which many versions tell drafts in `/metrics` alone (vLLM before 0.30)."""


def counters_of(
    engine: str | None, url: str, concurrency: int, headers: Mapping[str, str] | None = None
) -> Counters | None:
    """What looks at the server's counters around each request; None where they could not be told apart, or need not."""
    if engine not in COUNTED or concurrency != 1:
        return None
    from probes import engines

    return Counters(url, engines.engine(str(engine)).metrics, headers)


def secret_headers(names: Mapping[str, str]) -> dict[str, str]:
    """Headers whose values come from the environment: header -> variable. Raises `Refused`, never naming a value."""
    found = {}
    for header, variable in names.items():
        value = os.environ.get(variable)
        if value is None:
            raise Refused(f"header {header}: the environment has no variable {variable!r}")
        found[header] = value
    return found


class Entry(msgspec.Struct):
    """A request of a job, as it comes in."""

    id: str
    body: dict[str, Any]
    prompt_id: str = ""
    prompt_hash: str = ""
    category: str = ""
    max_tokens: int | None = None
    depth: int | None = None
    restart: int | None = None
    block: int | None = None
    warmup: bool | None = None
    step_drafts: int | None = None
    prompt_tokens: int | None = None


class Order(msgspec.Struct):
    """A job, as it comes in; labels given here hold for each request that doesn't carry its own."""

    url: str
    requests: list[Entry]
    concurrency: int = 1
    timeout_s: float = 300.0
    retries: int = 0
    engine: str | None = None
    header_env: dict[str, str] = {}
    bearer_env: str | None = None
    job: str | int | None = None
    depth: int | None = None
    restart: int = 0
    block: int = 0
    warmup: bool = False


def read_command(data: bytes) -> Order | dict[str, str]:
    """One line of stdin: a job, or `{"cmd": "cancel"}` or `{"cmd": "quit"}`. Raises `Refused` with one line."""
    try:
        tree = msgspec.json.decode(data)
        if not isinstance(tree, dict) or "cmd" not in tree:
            return msgspec.convert(tree, Order)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(str(error)) from None
    if tree["cmd"] not in {"cancel", "quit"}:
        raise Refused(f"unknown cmd {str(tree['cmd'])[:40]!r}: there are cancel and quit")
    return {"cmd": tree["cmd"]}


def build(order: Order) -> Job:
    """Everything encoded and checked before the clock starts. Raises `Refused` with one line."""
    if order.concurrency < 1:
        raise Refused(f"concurrency {order.concurrency}: want 1 or more")
    if not order.timeout_s > 0:
        raise Refused(f"timeout_s {order.timeout_s}: want more than 0 seconds")
    where = target(order.url)
    key = bearer(order.bearer_env)
    secrets = {**key, **secret_headers(order.header_env)}
    requests = []
    for one in order.requests:
        limit = one.max_tokens if one.max_tokens is not None else one.body.get("max_tokens")
        request_id = "".join(c if 32 < ord(c) < 127 else "_" for c in one.id)
        requests.append(
            Request(
                id=one.id,
                prompt_id=one.prompt_id,
                prompt_hash=one.prompt_hash,
                category=one.category,
                wire=encode(where, _encode(one.body), {"X-Request-Id": request_id, **secrets}),
                max_tokens=limit if isinstance(limit, int) else 0,
                depth=order.depth if one.depth is None else one.depth,
                restart=order.restart if one.restart is None else one.restart,
                block=order.block if one.block is None else one.block,
                warmup=order.warmup if one.warmup is None else one.warmup,
                prompt_tokens=one.prompt_tokens,
                step_drafts=one.step_drafts if order.concurrency == 1 else None,
            )
        )
    tls = ssl.create_default_context() if where.tls else None
    engine = facts_of(order.engine)
    counters = counters_of(order.engine, order.url, order.concurrency, key)
    return Job(where, tuple(requests), order.concurrency, order.timeout_s, max(0, order.retries), engine, tls, counters)


async def carry_out(job: Job, emit: Callable[[RequestSent | RequestDone], None], holder: list[Run]) -> float | None:
    """Run one job with the garbage collector held, as a collection would make stamps late.

    The seconds of CPU that this process spent on it, or None when it was cancelled.
    """
    run = Run(job, emit)
    holder.append(run)
    gc.collect()
    gc.freeze()
    gc.disable()
    before = time.process_time()
    try:
        await run.run()
    finally:
        gc.enable()
        holder.remove(run)
    return None if run.cancelled else time.process_time() - before


async def serve(fd_in: int, printer: Printer, log: int | None) -> None:
    """Take jobs until stdin ends; then close all streams at once and return."""
    loop = asyncio.get_running_loop()
    inbox: asyncio.Queue[Any] = asyncio.Queue()
    running: list[Run] = []

    def emit(fact: RequestSent | RequestDone) -> None:
        data = line(fact)
        if log is not None and isinstance(fact, RequestDone):
            write_all(log, data)
        printer.put(data)

    def say(kind: str, **fields: Any) -> None:
        printer.put(_encode({"kind": kind, **fields}) + b"\n")

    def cancel() -> None:
        while not inbox.empty():
            left = inbox.get_nowait()
            if left is not None:
                say("idle", job=left.job, cancelled=True)
        for run in running:
            run.cancel()

    def take(data: bytes | None) -> None:
        try:
            command = {"cmd": "quit"} if data is None else read_command(data)
        except Refused as error:
            say("error", error=f"stdin: {error}")
            return
        if isinstance(command, Order):
            inbox.put_nowait(command)
            return
        cancel()
        if command["cmd"] == "quit":
            inbox.put_nowait(None)

    threading.Thread(target=_lines, args=(fd_in, loop, take), name="stdin", daemon=True).start()
    while (order := await inbox.get()) is not None:
        cpu_s = None
        try:
            cpu_s = await carry_out(build(order), emit, running)
        except (Refused, OSError) as error:
            say("error", error=str(error), job=order.job)
        say("idle", job=order.job, cancelled=cpu_s is None, cpu_s=cpu_s)


def _lines(fd: int, loop: asyncio.AbstractEventLoop, take: Callable[[bytes | None], None]) -> None:
    """Read lines in a thread, as stdin may be of any kind; None at its end."""
    rest = b""
    with contextlib.suppress(RuntimeError):  # the loop has gone: so is the need
        while True:
            try:
                data = os.read(fd, 1 << 16)
            except OSError:
                data = b""
            if not data:
                break
            *whole, rest = (rest + data).split(b"\n")
            for one in whole:
                if one.strip():
                    loop.call_soon_threadsafe(take, one)
        if rest.strip():
            loop.call_soon_threadsafe(take, rest)
        loop.call_soon_threadsafe(take, None)
