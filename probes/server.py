"""One server process: start, readiness, stop, and what its end meant. It reads no log and sends no load.

The process is started through `probes.guard`, so that nothing is left behind however the console ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shlex
import signal
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil

from probes import fetch
from probes.events import ServerChanged, State
from probes.link import Link
from probes.masking import mask
from probes.recipe import Limits, Recipe, Refused

ASK_S, STATE_S = 2.0, 5.0
"""Seconds for a health check, and for what a server says of itself."""
HEALTH_BYTES = 1 << 16
NO_PATH = frozenset({401, 403, 404, 405})
"""Answers of a server that is up, and has no such path or keeps it for those with a key."""
FIRST_LINES, LAST_LINES = 300, 300
"""Lines of a start that are kept to explain a failure: the reason is often the first line, the usage text the last."""
LOCAL = ("127.0.0.1", "localhost", "::1", "0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class Start:
    """Everything about one start: what to run, where it will answer, and how it is shown."""

    restart: int
    argv: tuple[str, ...]
    env: Mapping[str, str]
    host: str
    port: int
    ready_path: str
    depth: int | None = None
    cleanup: tuple[str, ...] = ()
    """A command that ends the server where signals to our own child would not reach it (containers, other hosts)."""
    address: str | None = None
    """The URL, where it is not made of host and port (a server behind a tunnel, https)."""

    @property
    def url(self) -> str:
        """Where the server answers."""
        if self.address:
            return self.address
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


@dataclass(slots=True)
class Lines:
    """The lines of this start, the first and the last of them, to explain a failure."""

    first: list[str] = field(default_factory=list)
    last: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_LINES))
    count: int = 0

    def see(self, texts: Sequence[str]) -> None:
        """Keep what is worth keeping of new lines."""
        self.count += len(texts)
        if len(self.first) < FIRST_LINES:
            self.first.extend(texts[: FIRST_LINES - len(self.first)])
        self.last.extend(texts[-LAST_LINES:])

    def all(self) -> list[str]:
        """First and last lines, none of them twice."""
        overlap = max(0, len(self.first) + len(self.last) - self.count)
        return self.first + list(self.last)[overlap:]


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nothing listens on now. Raises `Refused` when this machine has no such address."""
    try:
        with socket.create_server((host, 0), family=_family(host)) as probe:
            return int(probe.getsockname()[1])
    except OSError as problem:
        raise _no_address(host, problem) from problem


def port_owner(host: str, port: int) -> str | None:
    """Who holds a port, in words; None when it is free. Raises `Refused` when this machine has no such address."""
    with socket.socket(_family(host)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except PermissionError:
            return "the system (ports below 1024 need root)"
        except OSError as problem:
            if problem.errno != errno.EADDRINUSE:
                raise _no_address(host, problem) from problem
        else:
            return None
    with contextlib.suppress(psutil.Error, OSError):
        for found in psutil.net_connections("inet"):
            if found.laddr and found.laddr.port == port and found.status == psutil.CONN_LISTEN and found.pid:
                return f"{psutil.Process(found.pid).name()} (pid {found.pid})"
    return "another process"


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _no_address(host: str, problem: OSError) -> Refused:
    why = (problem.strerror or str(problem)).partition(" (while")[0]
    return Refused(f"host {host}: this machine can't listen there ({why}); 127.0.0.1 always works")


def exposed(recipe: Recipe) -> str | None:
    """Who else reaches a server of this preset, in one sentence; None when only this machine does."""
    network = str(recipe.launcher_options.get("args", ""))  # a container on a network of its own must listen to all
    if "--net" in network or recipe.host in {"127.0.0.1", "localhost", "::1"} or recipe.host.startswith("127."):
        return None
    where = "any address of this machine" if recipe.host in {"0.0.0.0", "::"} else recipe.host
    return f"host {recipe.host}: whoever reaches {where} can use this server; 127.0.0.1 keeps it to this machine"


Explain = Callable[[Sequence[str], int | None], tuple[str | None, str | None]]
"""Reason and cure of a failed start, from its log lines and exit code."""


class Server:
    """The server of one lab. All methods belong to one event loop."""

    def __init__(self, log: Path, limits: Limits, emit: Callable[[ServerChanged], None], explain: Explain) -> None:
        self.log = log
        self.limits = limits
        self.state: State = "stopped"
        self.now: Start | None = None
        self.pid: int | None = None
        self.boot_s: float | None = None
        self.lines = Lines()
        self.progress = ""
        """The last line or progress bar, for the screen while it boots."""
        self.ready_line: int | None = None
        """The line of the log that says it is ready, once it was read."""
        self._emit = emit
        self._explain = explain
        self._given_up = False
        """Whether the start that is under way was ended on purpose: it has no failure to explain."""
        self._link: Link | None = None
        self._facts: dict[str, Any] = {}
        self._told = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None
        self._began = 0.0

    # ------------------------------------------------------------------------------------------------ start

    async def start(self, start: Start) -> bool:
        """Start and wait until it answers. False when it failed; why is in the event and the log."""
        if self._link is not None:
            raise RuntimeError("stop the running server first")
        owner = None
        if start.host in LOCAL:
            owner = await asyncio.to_thread(port_owner, start.host, start.port)
        if owner is not None:
            self.now = start
            self._say("failed", reason=f"port {start.port} is taken by {owner}", hint="choose port: auto, or stop it")
            return False
        self.now, self.lines, self.progress, self.ready_line = start, Lines(), "", None
        self.pid, self.boot_s, self._facts = None, None, {}
        self._told.clear()
        self._began = time.monotonic()
        self._say("starting")
        header = f"# draftdial restart {start.restart} · {time.strftime('%Y-%m-%dT%H:%M:%S%z')}"
        if start.depth is not None:
            header += f" · depth {start.depth}"
        header += f" · {shlex.join(mask(start.argv))}"
        self._link = Link(self.log, header, start.argv, {**os.environ, **start.env}, self._hear, start.cleanup)
        self._watcher = asyncio.create_task(self._until_over(self._link))
        self._given_up = False
        ready = await self._until_ready(start)
        if self._given_up:
            return False
        if ready:
            self.boot_s = self._facts.get("simulated_boot_s", time.monotonic() - self._began)
            self._say("ready", boot_s=self.boot_s)
            return True
        if self.state != "failed":
            await self._failed()
        return False

    async def _until_ready(self, start: Start) -> bool:
        """Ask the ready path until it answers 200, the process ends, or the time limit passes.

        A server whose log says that it is ready need not have the path, or may want a key for it: any answer will do.
        """
        pause, told_at = 0.01, 0.0
        async with httpx.AsyncClient(trust_env=False, timeout=ASK_S) as http:
            while time.monotonic() - self._began < self.limits.boot_s:
                if "exit" in self._facts or "error" in self._facts:
                    return False
                left = self.limits.boot_s - (time.monotonic() - self._began)
                reply = await fetch.get(http, start.url + start.ready_path, min(ASK_S, max(left, 0.1)), HEALTH_BYTES)
                well = reply is not None and (reply.status == 200 or (self.ready_line and reply.status in NO_PATH))
                if reply is not None and well and "exit" not in self._facts:
                    # The simulated engine tells its own boot time: its clock may run faster than ours.
                    with contextlib.suppress(KeyError, ValueError):
                        self._facts["simulated_boot_s"] = float(reply.headers["x-simulated-boot"])
                    return True
                now = time.monotonic()
                if now - told_at >= 0.2 and not self._given_up:
                    told_at = now
                    self._say("loading" if self.pid else "starting")
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._told.wait(), pause)
                self._told.clear()
                pause = min(pause * 1.3, 0.25)
        last, line = self.progress, self.ready_line  # of its start: what it says when it is ended explains nothing
        await self._end()
        if line:
            why = f"line {line} of its log says that it is ready, and {start.url}{start.ready_path} does not answer"
            self._say("failed", reason=why, hint="do the preset's flags move its host, port or paths?")
            return False
        self._say(
            "failed",
            reason=f"not ready after {self.limits.boot_s:g} s; last line: {last or 'none'}",
            hint="raise limits.boot_s in the preset if this engine needs longer",
        )
        return False

    def _hear(self, fact: dict[str, Any]) -> None:
        """What the guard tells."""
        self._facts.update(fact)
        self.pid = self._facts.get("pid", self.pid)
        self._told.set()

    async def _until_over(self, link: Link) -> None:
        """Until the guard has gone. A server that ended in use is told; a killed guard's server is ended."""
        await link.over.wait()
        if "gone" not in self._facts and self.pid:  # the guard was killed: the kernel ends the server, we its group
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
            self._facts.setdefault("exit", -signal.SIGKILL)
        self._told.set()
        if self.state == "ready" and self._link is link:
            self._link = None
            self._say_end("the server ended by itself")

    async def _failed(self) -> None:
        """A start that ended before it was ready: wait for the last lines, then explain."""
        await self._gone(5.0)
        self._link = None
        self._say_end("it ended before it was ready")

    def _say_end(self, what: str) -> None:
        code = self._facts.get("exit")
        reason, hint = self._explain(self.lines.all(), code)
        if "error" in self._facts:
            reason, hint = str(self._facts["error"]), "give the binary's path in the preset, or put it on PATH"
        name = (
            signal.Signals(-code).name if isinstance(code, int) and code < 0 and -code in set(signal.Signals) else None
        )
        if reason is None:
            end = f"by {name}" if name else f"with exit code {code}" if code is not None else "for a reason unknown"
            reason = f"{what} ({end}); last line: {self.progress or 'none'}"
            hint = hint or f"{self.log} has all that it said"
        self._say("failed", reason=reason, hint=hint, exit_code=code, signal=name)

    # ------------------------------------------------------------------------------------------------ stop

    async def stop(self) -> None:
        """End the server and everything it started, also amid its start. Close streams first: engines wait for them."""
        self._given_up = self.state in {"starting", "loading"} or (self._given_up and self.state == "draining")
        if self._link is None:
            if self.state != "failed":
                self._say("stopped")
            return
        self._say("draining")
        await self._end()
        self._say("stopped", exit_code=self._facts.get("exit"))

    async def ended(self, seconds: float) -> bool:
        """Whether the server is gone; waits that long for its guard to tell, as streams break off before that."""
        link = self._link
        if link is not None and self._watcher is not None and await self._gone(seconds):
            await asyncio.wait({self._watcher}, timeout=seconds)
        return self.state != "ready"

    async def release(self) -> None:
        """Leave the server running when the console goes."""
        if self._link is not None:
            link, self._link = self._link, None
            link.let_go()
            if self._watcher:
                self._watcher.cancel()

    # ------------------------------------------------------------------------------------------------ not ours

    async def look(self, url: str, path: str) -> bool:
        """Whether a server that is not ours answers."""
        async with httpx.AsyncClient(trust_env=False, timeout=ASK_S) as http:
            reply = await fetch.get(http, url + path, ASK_S, HEALTH_BYTES)
        return reply is not None and reply.status == 200

    def adopt(self, restart: int, url: str) -> None:
        """A server that someone else started is there."""
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        self.now = Start(restart, (), {}, parts.hostname or "", port, "", address=url)
        self._began = time.monotonic()
        self._say("ready")

    def lost(self, url: str) -> None:
        """A server that someone else started does not answer."""
        self._say(
            "failed", reason=f"{url} does not answer", hint="it is not ours to start; this looks again each second"
        )

    async def _end(self) -> None:
        """SIGTERM, again, SIGKILL; llama-server ignores the first while a stream is open."""
        limit = self.limits.stop_s
        for word, seconds in (("term", limit * 0.6), ("term", limit * 0.3), ("kill", 5.0)):
            if self._link is not None:
                self._link.say(word)
            if await self._gone(seconds):
                break
        self._link = None

    async def _gone(self, seconds: float) -> bool:
        """Whether the server and all it started are gone within that time."""
        link = self._link  # a start that is given up and the end of its plan may both be waiting here
        if link is None:
            return True
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(link.over.wait(), seconds)
        return link.over.is_set()

    def _say(self, state: State, **more: Any) -> None:
        self.state = state
        now = self.now
        self._emit(
            ServerChanged(
                at=time.time(),
                state=state,
                restart=now.restart if now else 0,
                depth=now.depth if now else None,
                pid=self.pid if state not in {"stopped", "failed"} else None,
                url=now.url if now else None,
                argv=mask(now.argv) if now else (),
                elapsed_s=time.monotonic() - self._began if self._began else None,
                last_line=self.progress or None,
                **more,
            )
        )


async def ask(url: str, paths: Sequence[str], headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The replies of some paths by path: parsed JSON, else text; None where there was no 200."""
    found: dict[str, Any] = {}
    async with httpx.AsyncClient(trust_env=False, timeout=STATE_S, headers=dict(headers or {})) as http:

        async def one(path: str) -> None:
            reply = await fetch.get(http, url + path, STATE_S)
            found[path] = reply.value() if reply is not None and reply.status == 200 else None

        waits: list[Awaitable[None]] = [one(p) for p in paths]
        await asyncio.gather(*waits)
    return found


def served(replies: Mapping[str, Any]) -> list[str]:
    """The ids of the models that `/v1/models` lists, as far as it is a list of models."""
    listed = replies.get("/v1/models")
    models = listed.get("data") if isinstance(listed, dict) else None
    found = models if isinstance(models, list) else []
    return [m["id"] for m in found if isinstance(m, dict) and isinstance(m.get("id"), str)]


def pick_port(host: str, port: int | None) -> int:
    """The port to use: the preset's own if it is free, else a free one where it says auto."""
    if port is None:
        return free_port(host)
    if (owner := port_owner(host, port)) is not None:
        raise Refused(f"port {port} is taken by {owner}; set port: auto, or stop it")
    return port
