"""One server under test and everything that watches it: its log, its metrics, memory, and the load process.

It starts, stops and reads back; what is measured in which order is the lab's business.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shlex
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from probes import engines, fetch, models
from probes.credentials import bearer
from probes.diagnosis import Diagnosis
from probes.dictated import doubted
from probes.events import (
    Capacity,
    CapacityRead,
    Ceiling,
    CeilingChanged,
    EngineSample,
    Event,
    FlagsInForce,
    LogLines,
    LogRecords,
    Notice,
    Record,
    RequestDone,
    RequestSent,
    ServerChanged,
)
from probes.launch import container_id, launch
from probes.load.process import LoadProcess
from probes.masking import mask
from probes.measure.ceiling import LANES
from probes.memorywatch import MemoryWatch
from probes.recipe import Recipe, Refused
from probes.server import Server, Start, ask, exposed, pick_port, served
from probes.store import Run
from probes.tail import HEADER, Tail

TICK_S = 0.1
FOLLOWED_BYTES = 1 << 18
"""Of a log that runs ahead, at a time: between two such pieces everything else has its turn, Ctrl-C first of all."""
METRICS_S, METRICS_LIMIT_S = 1.0, 2.0
LOOK_S = 1.0
"""Seconds between two looks at a server that is not ours."""
BOOT_RECORDS = 400
"""Records of a start that are kept to read flags back from."""
REQUEST_RECORDS = 4096
LANES_AS_ASKED = frozenset({"ninfer", "vllm"})
"""Engines that run as many requests as they were asked to, or don't start: memory cuts nothing off."""
Emit = Callable[[Event], None]


@dataclasses.dataclass(frozen=True, slots=True)
class Attached:
    """A server that someone else started: where it answers, its log if we may read it, its process group if local."""

    url: str
    log: Path | None = None
    pgid: int | None = None
    argv: tuple[str, ...] = ()
    """Its command line, where it runs on this machine."""


class Bench:
    """Everything about one server that is not a plan. All methods belong to one event loop."""

    def __init__(self, recipe: Recipe, run: Run, emit: Emit, attached: Attached | None = None) -> None:
        self.recipe = recipe
        self.attached = attached
        """Someone else's server: it is watched and may be sent load, and is never started or stopped."""
        self.engine = engines.engine(recipe.engine)
        self.settings: dict[str, Any] = dict(recipe.settings)
        self.depth: int | None = None
        """The depth of the server that runs, or was last started."""
        self.restart = 0
        self.boots: list[float] = []
        self.requested: int | None = None
        """How many requests the next load means to keep in flight, if it means to keep a number."""
        self.trouble: str | None = None
        """Why the last start failed."""
        self.sending = asyncio.Event()
        """Set when the load process has sent something."""
        self._metrics_tell = False
        self.capacity: Capacity | None = None
        """What the present server announced that it can hold."""
        self.unverified: set[int] = set()
        self.model_id = recipe.model_id or recipe.model
        self.load = LoadProcess(run.load_log, self._on_load)
        self.server = Server(run.server_log, recipe.limits, self._on_server, self._explain)
        self._emit = emit
        self._name = f"{run.name}-{os.getpid()}"
        self._tail = Tail(attached.log if attached and attached.log else run.server_log, self.engine)
        self.memory = MemoryWatch(emit)
        self._tasks: list[asyncio.Task[None]] = []
        self._boot_records: list[Record] = []
        self.request_records: deque[Record] = deque(maxlen=REQUEST_RECORDS)
        """What the log of the present start tells of finished requests."""
        self._resolved: Recipe | None = None
        self._diagnosis = Diagnosis(self.engine, recipe.speed)

    async def open(self) -> None:
        """Begin to watch."""
        for note in await self.memory.open({**os.environ, **self.recipe.env}):
            self.notice("warning", note)
        if not self.attached and (reached := exposed(self.recipe)):
            self.notice("warning", reached)
        works: tuple[Coroutine[Any, Any, None], ...] = (self._follow(), self._ask_metrics())
        self._tasks = [asyncio.create_task(work) for work in works]
        if self.attached:
            self._tasks.append(asyncio.create_task(self._stay_attached(self.attached)))

    async def close(self, *, leave: bool = False) -> None:
        """Stop everything that was started; with `leave`, the server stays."""
        await self.load.cancel()
        await self.load.close()
        if leave and self.server.state == "ready":
            await self.server.release()
        elif not self.attached:
            await self.server.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.memory.close()
        self.poll_log()
        for event in self._tail.close():
            self._emit(event)

    # ------------------------------------------------------------------------------------------------ start and stop

    async def apply(self, depth: int | None, settings: Mapping[str, Any]) -> bool:
        """Start the server, or start it again, with this depth and these settings. False when it did not start."""
        wanted = {**self.settings, **settings}
        if self.attached:
            self._tell_command(self.attached, wanted, depth)
            return False
        try:
            bearer(self.recipe.api_key_env)  # refuse before anything is stopped
            self.engine.command(self.recipe, wanted, depth, self.recipe.port or 1)
            recipe = await self._resolve()
            await self.stop()
            port = await asyncio.to_thread(pick_port, recipe.host, recipe.port)
            argv = self.engine.command(recipe, wanted, depth, port)
            env = {**self.engine.environment(recipe, wanted, depth), **recipe.env}
        except Refused as problem:
            self.trouble = str(problem)
            self.notice("error", self.trouble)
            return False
        self.restart += 1
        self.trouble = None
        self.depth, self.settings = depth, wanted
        self._boot_records = []
        self.request_records.clear()
        self.capacity = None
        self._diagnosis.begin(self.restart, self.requested)
        self.memory.about(phase="boot", restart=self.restart)
        if blocked := await self.memory.before_start(recipe, wanted):
            self.notice("warning", blocked)
        made = launch(recipe, argv, env, port, f"draftdial-{self._name}-{self.restart}")
        start = Start(
            self.restart, made.argv, {**env, **made.env}, made.host, port, self.engine.ready_path(), depth,
            cleanup=made.cleanup,
        )  # fmt: skip
        if not await self.server.start(start):
            self.memory.about(phase="idle", gone=True)
            return False
        self.boots.append(self.server.boot_s or 0.0)
        inside = await asyncio.to_thread(container_id, made)
        self.memory.about(phase="idle", pgid=self.server.pid, container=inside)
        await self._read_back(recipe, start.url)
        return True

    async def give_up(self) -> None:
        """End a start that is under way: engines may need minutes, and whoever waits may have changed their mind."""
        if self.server.state in {"starting", "loading"}:
            await self.server.stop()

    def _tell_command(self, attached: Attached, wanted: Mapping[str, Any], depth: int | None) -> None:
        """What its owner would run to have this setting; without a preset, what runs now."""
        try:
            port = urlsplit(attached.url).port or 1
            argv = self.engine.command(self.recipe, wanted, depth, port) if self.recipe.binary else []
        except Refused as problem:
            self.notice("error", str(problem))
            return
        if argv:
            self.notice("info", f"this server is not ours; its owner would start it so: {shlex.join(mask(argv))}")
        else:
            runs = f"; it runs as: {shlex.join(mask(attached.argv))}" if attached.argv else ""
            self.notice("info", f"this server is not ours, and attach --preset would tell what to run{runs}")

    async def stop(self) -> None:
        """Close our streams, then end the server and all it started."""
        await self.load.cancel()
        if self.attached or self.server.state in {"stopped", "failed"}:
            return
        await self.server.stop()
        self.memory.about(phase="idle", gone=True)
        if left := await self.memory.after_stop(self.recipe.limits.memory_s):
            self.notice("warning", left)

    async def _stay_attached(self, attached: Attached) -> None:
        """Look whether the server answers, and read it back each time that it has come up."""
        while True:
            up = await self.server.look(attached.url, self.engine.ready_path())
            if up and self.server.state != "ready":
                self.restart += 1
                self.capacity = self.capacity if attached.log else None
                self.memory.about(phase="idle", restart=self.restart, pgid=attached.pgid)
                self.poll_log()
                self.server.adopt(self.restart, attached.url)
                await self._read_back(self.recipe, attached.url)
            elif not up and self.server.state != "failed":
                self.server.lost(attached.url)
            await asyncio.sleep(LOOK_S)

    async def _resolve(self) -> Recipe:
        """The recipe with model words made paths; derives the small draft when it is asked for and missing."""
        if self._resolved is None:
            loop = asyncio.get_running_loop()
            told = 0.0

            def progress(share: float) -> None:
                nonlocal told
                if share - told >= 0.1:
                    told = share
                    loop.call_soon_threadsafe(self.notice, "info", f"deriving the small draft model, once: {share:.0%}")

            self._resolved = await asyncio.to_thread(models.resolve, self.recipe, progress)
            if told:
                self.notice("info", "the small draft model is ready")
        return self._resolved

    async def _read_back(self, recipe: Recipe, url: str) -> None:
        """What the server says of itself: its model's id, and the flags in force."""
        paths = ["/v1/models", *[p for p in self.engine.state_paths() if p != "/v1/models"]]
        replies = await ask(url, paths, bearer(recipe.api_key_env))
        ids = served(replies)
        self.model_id = recipe.model_id or (ids[0] if ids else recipe.model)
        if ids and self.model_id not in ids:
            self.notice("error", f"model_id {self.model_id!r} is not served; the server has {', '.join(ids)}")
        self.poll_log()
        if self.capacity is None and (said := self.engine.announced(replies)) != Capacity():
            self.capacity = said  # the log says more, where there is one: what it says comes later and counts
            event = CapacityRead(0 if self.attached else self.restart, said)
            self._diagnosis.see(event)
            self._emit(event)
        flags = self.engine.in_force(recipe, self.settings, self.depth, replies, self._boot_records)
        if self.attached:  # nothing was asked by us: what is in force is what there is
            told = flags.in_force.get("depth")
            self.depth = told if isinstance(told, int) else self.depth
            flags = dataclasses.replace(flags, asked={}, proven=self.depth is not None, notes=())
        flags = doubted(flags, self.attached or self.server.now, recipe.env)
        self.set_flags(dataclasses.replace(flags, restart=self.restart, depth=self.depth))

    def set_flags(self, flags: FlagsInForce) -> None:
        """Tell flags asked against flags in force; a depth that is not proven cannot win."""
        self._emit(flags)
        if flags.depth is not None:
            (self.unverified.discard if flags.proven else self.unverified.add)(flags.depth)
        if not flags.proven:
            self.notice("warning", "flags not proven: " + ("; ".join(flags.notes) or "the engine does not say"))

    def notice(self, level: str, text: str) -> None:
        """One line for the person."""
        self._emit(
            Notice(time.time(), "error" if level == "error" else "warning" if level == "warning" else "info", text)
        )

    # ------------------------------------------------------------------------------------------------ what is watched

    def poll_log(self) -> None:
        """Take what the log has now."""
        for read in self._tail.poll():
            event = read if self.attached else completed(read, self.engine.name, self.settings)
            if isinstance(event, LogLines) and event.restart in {0, self.restart}:
                self.server.lines.see(event.texts)
                said = list(takewhile(lambda text: not HEADER.match(text), reversed(event.texts)))
                self.server.progress = said[0][:400] if said else ""
            if isinstance(event, LogRecords) and event.restart == (0 if self.attached else self.restart):
                self._boot_records.extend(event.records[: BOOT_RECORDS - len(self._boot_records)])
                told = [r for r in event.records if r.kind == "request" and "drafted" in r.fields]
                self.request_records.extend(told)
                ready = next((r.line for r in event.records if r.kind == "ready"), None)
                self.server.ready_line = self.server.ready_line or ready
            if isinstance(event, CapacityRead):
                self.capacity = event.capacity
            mine = isinstance(event, LogRecords) and event.restart == (0 if self.attached else self.restart)
            if isinstance(event, LogRecords) and mine and not self._metrics_tell:
                for sample in queue_told(event, self.restart, omits_zero=self._diagnosis.omits_zero):
                    self._emit(sample)
            self._diagnosis.see(event)
            self._emit(event)
        if (ceiling := self._diagnosis.news()) is not None:
            self._emit(CeilingChanged(time.time(), self.restart, ceiling))
        if self.server.state in {"starting", "loading"} and self._tail.partial:
            self.server.progress = self._tail.partial

    async def _follow(self) -> None:
        old = self.attached is not None
        while True:
            self.poll_log()
            if old and not self._tail.behind:
                old = False
                self._diagnosis.caught_up()
            await asyncio.sleep(0 if self._tail.behind else TICK_S)

    async def _ask_metrics(self) -> None:
        """The engine's own metrics once a second, while it is ready; silent where there are none."""
        async with httpx.AsyncClient(trust_env=False, timeout=2.0, headers=bearer(self.recipe.api_key_env)) as http:
            while True:
                await asyncio.sleep(max(METRICS_S / self.recipe.speed, TICK_S / 2))
                start = self.server.now
                if self.server.state != "ready" or start is None:
                    continue
                reply = await fetch.get(http, f"{start.url}/metrics", METRICS_LIMIT_S)
                if reply and reply.status == 200 and (fields := self.engine.metrics(reply.text)):
                    self._metrics_tell = self._metrics_tell or "running" in fields
                    self._emit(EngineSample(time.time(), self.restart, {**fields, "source": "/metrics"}))
                    self._diagnosis.metrics(fields)

    def held_back(self, *, forget: bool = False) -> tuple[Ceiling, tuple[tuple[int, int], ...]]:
        """What holds requests back now, and running and waiting in every report of this start.

        With `forget`, the next load of the same start is judged by itself.
        """
        self.poll_log()
        found = self._diagnosis.so_far(), tuple(self._diagnosis.queue)
        if forget:
            self._diagnosis.forget(self.requested)
        return found

    def _on_load(self, event: RequestSent | RequestDone) -> None:
        self.sending.set()
        self._diagnosis.see(event)
        self._emit(event)

    def _explain(self, _: Sequence[str], code: int | None) -> tuple[str | None, str | None]:
        """Reason and cure of a failure, by all that the log has now: the reason is often its very last line."""
        self.poll_log()
        while self._tail.behind:
            self.poll_log()
        return self.engine.failure(self.server.lines.all(), code)

    def _on_server(self, event: ServerChanged) -> None:
        if event.state == "failed":
            self.trouble = event.reason
            self.poll_log()
            self.memory.about(phase="idle", gone=True)
        elif event.state == "loading":  # from here on what it holds is ours, not a stranger's
            self.memory.about(pgid=event.pid)
        self._emit(event)


def completed(event: Event, engine: str, settings: Mapping[str, Any]) -> Event:
    """A capacity with the lanes that we asked for ourselves, where a log does not tell them and nothing cuts them."""
    if not isinstance(event, CapacityRead) or event.capacity.lanes is not None or engine not in LANES_AS_ASKED:
        return event
    asked = settings.get(LANES[engine])
    return dataclasses.replace(event, capacity=dataclasses.replace(event.capacity, lanes=asked)) if asked else event


async def hold(bench: Bench, job: dict[str, Any], seconds: float) -> str | None:
    """Keep a load up for so long, from its first request on, then cut it. None, or why it went wrong before."""
    bench.sending.clear()
    task = asyncio.ensure_future(bench.load.run(job))
    begun = asyncio.ensure_future(bench.sending.wait())
    await asyncio.wait({task, begun}, return_when=asyncio.FIRST_COMPLETED)
    begun.cancel()
    done, _ = await asyncio.wait({task}, timeout=seconds)
    if not done:
        await bench.load.cancel()
        await task
        return None
    return task.result()


def queue_told(event: LogRecords, restart: int, *, omits_zero: bool) -> list[EngineSample]:
    """The newest report of running and waiting requests in these records, for engines whose metrics don't tell."""
    told = next((r for r in reversed(event.records) if "running" in r.fields), None)
    if told is None:
        return []
    zero = {"waiting": 0} if omits_zero else {}
    return [EngineSample(time.time(), restart, {**zero, **told.fields, "source": f"log line {told.line}"})]
