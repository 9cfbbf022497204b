"""The simulated engine as a process: boots, serves, obeys signals, and fails on request, at any speed of time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from probes.sim.core import Ask
from probes.sim.front import CHAT, BadStartError, Chat, Front, stops
from probes.sim.wire import Answer, Asked, Client

BATCH = 400
"""Happenings computed before the loop may look at its sockets."""
FAULTS = ("crash", "hang", "oom-boot", "oom", "torn")


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong: `kind` of `FAULTS`, with the `nth` request (for `torn`: with every nth)."""

    kind: str = ""
    nth: int = 1

    @classmethod
    def of(cls, text: str) -> Fault:
        """`crash@3` as a fault. Raises ValueError."""
        kind, at, nth = text.partition("@")
        if (kind and kind not in FAULTS) or (at and not (nth.isdecimal() and int(nth))):
            raise ValueError(f"fault {text!r}: want one of {', '.join(FAULTS)}, as crash or crash@3")
        return cls(kind, int(nth) if nth else 1)


class Clock:
    """Simulated seconds since this process began, `speed` times as fast as real ones."""

    def __init__(self, speed: float) -> None:
        self.speed = speed
        self._zero = time.monotonic() - _age()

    def now(self) -> float:
        """Simulated seconds."""
        return (time.monotonic() - self._zero) * self.speed

    def real(self, seconds: float) -> float:
        """Real seconds from now until a simulated moment."""
        return max(0.0, seconds / self.speed - (time.monotonic() - self._zero))


def _age() -> float:
    """How long this process has been there: interpreters take a while to start, which is no simulated time."""
    with contextlib.suppress(OSError, ValueError, IndexError, AttributeError):
        ticks = int(Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
        return max(0.0, min(age, 10.0))
    return 0.0


class Process:
    """One server under way."""

    def __init__(self, front: Front, clock: Clock, fault: Fault) -> None:
        self.front = front
        self.core = front.core
        self.clock = clock
        self.fault = fault
        self.boot_s: float | None = None
        self._chats = 0
        self._wake = asyncio.Event()
        self._over: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._clients: set[Client] = set()

    async def serve(self) -> int:
        """From the start to the end; the exit code (negative: to die of that signal)."""
        loop = asyncio.get_running_loop()
        sock = socket.socket(socket.AF_INET6 if ":" in self.front.host else socket.AF_INET)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server: asyncio.Server | None = None
        try:
            if self.front.binds_at_once:
                self._bind(sock)
                server = await self._listen(sock)
            for at, line in self.front.boot():
                await asyncio.sleep(self.clock.real(at))
                self.front.world.log(at, line)
                self.boot_s = at
            if server is None:
                self._bind(sock)
        except BadStartError as problem:
            sock.close()
            for line in problem.lines:
                self.front.world.log(0.0, line)
            return problem.code
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signal, number)
        self.core.at = self.boot_s or 0.0
        self.core.broke = self._die
        self.front.ready(self.core.at)
        if server is None:
            server = await self._listen(sock)
        pump = asyncio.create_task(self._pump())
        pump.add_done_callback(lambda task: self._failed(task.exception() if not task.cancelled() else None))
        try:
            return await self._over
        finally:
            pump.cancel()
            server.close()
            for client in list(self._clients):
                client.cut()

    def _bind(self, sock: socket.socket) -> None:
        try:
            sock.bind((self.front.host, self.front.port))
            sock.listen(256)
        except (OSError, OverflowError) as problem:  # a port that is none, too
            raise BadStartError(self.front.no_port(), 1) from problem

    async def _listen(self, sock: socket.socket) -> asyncio.Server:
        def client() -> Client:
            made = Client(self._handle, self._marks)
            self._clients.add(made)
            return made

        return await asyncio.get_running_loop().create_server(client, sock=sock)

    def _marks(self) -> Mapping[str, str]:
        """What every reply says of itself."""
        marks = {"X-Simulated-Speed": f"{self.clock.speed:g}"}
        if self.boot_s is not None:
            marks["X-Simulated-Boot"] = f"{self.boot_s:.3f}"
        return marks

    # ------------------------------------------------------------------------------------------------ time

    async def _pump(self) -> None:
        """Let simulated time pass."""
        while True:
            self._wake.clear()
            while not self.core.advance(self.clock.now(), BATCH):  # noqa: ASYNC110  (sockets get their turn)
                await asyncio.sleep(0)
            wait = min(self.clock.real(self.core.next_time), 0.5)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), wait)

    def _failed(self, problem: BaseException | None) -> None:
        if problem is not None and not self._over.done():
            self._over.set_exception(problem)

    def _signal(self, number: int) -> None:
        if not self._over.done():
            self._over.set_result(self.front.stopping(self.clock.now(), signal.Signals(number).name))

    # ------------------------------------------------------------------------------------------------ requests

    def _handle(self, client: Client, asked: Asked) -> None:
        if self.boot_s is None or not self.core.at:
            answer = self.front.loading(asked)
            if answer is not None:
                client.answer(answer)
            return
        if asked.method == "POST" and asked.path in CHAT:
            self._chat(client, asked)
            return
        answer = self.front.get(asked)
        self.front.access(asked, answer.status, self.clock.now())
        client.answer(answer)

    def _chat(self, client: Client, asked: Asked) -> None:
        self.core.advance(self.clock.now(), BATCH)
        chat = self.front.chat(asked)
        if isinstance(chat, Answer):
            self.front.access(asked, chat.status, self.core.at)
            client.answer(chat)
            return
        self._chats += 1
        ask = chat.ask
        torn = self.fault.kind == "torn" and self._chats % self.fault.nth == 0
        if self.fault.kind in {"crash", "hang", "oom"} and self._chats == self.fault.nth:
            self.core.when(self.core.at + 1.0, self._break)
        self.core.submit(ask, self.core.at)
        self.core.advance(self.core.at)
        if ask.ended is not None:
            self.front.over(chat, self.core.at)
            answer, _ = self.front.failed(chat)
            self.front.access(asked, answer.status, self.core.at)
            client.answer(answer)
            return
        self.front.started(chat)

        def gone() -> None:
            self.core.cancel(ask, self.clock.now())
            self._wake.set()

        client.gone = gone
        Stream(self, client, asked, chat, torn=torn)
        self._wake.set()

    def _break(self) -> None:
        """The fault that was asked for."""
        if self.fault.kind == "hang":
            self.core.hung = True
        else:
            self._die(self.fault.kind)

    def _die(self, kind: str) -> None:
        if not self._over.done():
            self.core.hung = True
            self._over.set_result(self.front.crash(self.core.at, kind))


class Stream:
    """One reply on its way out, as events or in one piece."""

    def __init__(self, process: Process, client: Client, asked: Asked, chat: Chat, *, torn: bool) -> None:
        self._process, self._client, self._asked, self._chat = process, client, asked, chat
        self._torn = torn
        self._stops = stops(chat.body)
        self._tail = ""
        chat.ask.told, chat.ask.over = self._told, self._over
        if chat.stream:
            client.begin({"X-Request-Id": chat.id})
            client.event(process.front.chunk(chat, ""), self._mark(process.core.at))

    def _mark(self, at: float) -> str | None:
        """Simulated seconds since the request came; at the speed of real time arrival says it."""
        if self._process.clock.speed == 1:
            return None
        return f"simulated +{max(0.0, at - self._chat.ask.arrived):.6f}"

    def _told(self, ask: Ask, at: float, count: int) -> None:
        chat = self._chat
        words, stopped = self._until_stop(chat.text.take(count))
        chat.said += words if not chat.stream else ""
        if chat.stream and words and self._client.open:
            self._client.event(self._process.front.chunk(chat, words), self._mark(at))
        if stopped:
            ask.finish = "stop"
            self._process.core.end(ask, "stop")
            return
        if self._torn and chat.stream and self._client.open and ask.made >= 8:
            self._process.core.end(ask, "torn")

    def _until_stop(self, words: str) -> tuple[str, bool]:
        """New text up to the first stop string that it completes, and whether there was one.

        What of the string was sent before stays sent: no text is held back here.
        """
        if not self._stops:
            return words, False
        whole = self._tail + words
        ends = [place for text in self._stops if (place := whole.find(text)) >= 0]
        if ends:
            return whole[len(self._tail) : max(min(ends), len(self._tail))], True
        self._tail = whole[-max(map(len, self._stops)) :]
        return words, False

    def _over(self, ask: Ask, at: float) -> None:
        front, chat, client = self._process.front, self._chat, self._client
        front.over(chat, at)
        if ask.outcome == "torn":
            client.cut()
            return
        if not client.open or ask.outcome == "cancelled":
            return
        good = ask.outcome in {"stop", "length"}
        answer, frames = (Answer(200, None), front.last(chat)) if good else front.failed(chat)
        front.access(self._asked, 200 if chat.stream else answer.status, at)
        if chat.stream:
            for frame in frames:
                client.event(frame, self._mark(at))
            client.finish()
        elif good:
            client.answer(Answer(200, front.whole(chat)))
        else:
            client.answer(answer)
