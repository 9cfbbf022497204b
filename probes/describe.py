"""Keeps run.yaml true while a run goes on: what was asked, the fingerprint, and every start's command line.

Gathering hashes files, so it runs beside the first start in a thread and is written when it is there.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from probes import fingerprint, models
from probes.bench import Bench
from probes.events import ServerChanged
from probes.masking import masked
from probes.recipe import Recipe, Refused
from probes.store import Run


class Description:
    """run.yaml of an open run. All methods belong to one event loop."""

    def __init__(self, run: Run, recipe: Recipe, bench: Bench, about: Mapping[str, Any]) -> None:
        self._run, self._recipe, self._bench = run, recipe, bench
        before = run.description()
        kept = {k: v for k, v in before.items() if k not in {"draftdial", "recipe", "fingerprint", "starts"}}
        self._about = {"made": time.strftime("%Y-%m-%dT%H:%M:%S%z"), **kept, **about}
        print_ = before.get("fingerprint")
        self._fingerprint: dict[str, Any] | None = print_ if isinstance(print_, dict) else None
        starts = before.get("starts")
        self._starts: dict[str, Any] = dict(starts) if isinstance(starts, dict) else {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._writing = asyncio.Lock()
        self._gathered = False

    async def open(self) -> None:
        """Write run.yaml. A run that goes on must be on what it began on: raises `Refused` with what differs."""
        if self._fingerprint is not None:
            now = await asyncio.to_thread(self._now)
            if why := fingerprint.unlike(self._fingerprint, now):
                raise Refused(f"{self._run.name} can't be resumed, it was measured on something else: {why}")
            self._gathered = True
        await self._write()

    def see(self, event: ServerChanged) -> None:
        """Take note of a start; the first one has the fingerprint gathered."""
        begins = event.state == "starting" or (event.state == "ready" and self._bench.attached is not None)
        if not begins or str(event.restart) in self._starts:
            return
        self._starts[str(event.restart)] = {
            "depth": event.depth,
            "settings": masked(self._bench.settings),
            "argv": list(event.argv),
        }
        self._soon(self._write())
        if not self._gathered:
            self._gathered = True
            self._soon(self._gather())

    async def close(self) -> None:
        """Until all of it is written."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _now(self) -> dict[str, Any]:
        """The fingerprint of this machine now, before anything watches its GPUs."""
        recipe = self._recipe if self._bench.attached else models.resolve(self._recipe)
        seen = fingerprint.look({**os.environ, **recipe.env})
        return fingerprint.gather(recipe, self._recipe.settings, seen)

    async def _gather(self) -> None:
        resolve: Callable[[Recipe], Recipe] = (lambda r: r) if self._bench.attached else models.resolve
        seen = self._bench.memory.hardware()

        def whole() -> dict[str, Any]:
            return fingerprint.gather(
                resolve(self._recipe), self._recipe.settings, fingerprint.hardware(seen.devices, seen.drivers)
            )

        try:
            self._fingerprint = await asyncio.to_thread(whole)
        except Exception as problem:  # noqa: BLE001  (whatever a file system does, the measurement goes on)
            self._bench.notice("warning", f"the fingerprint of this run can't be taken: {problem}")
            return
        await self._write()

    async def _write(self) -> None:
        async with self._writing:
            more = dict(self._about)
            if self._fingerprint is not None:
                more["fingerprint"] = self._fingerprint
            if self._starts:
                more["starts"] = dict(self._starts)
            await asyncio.to_thread(self._run.describe, harmless(self._recipe), more)

    def _soon(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(problem := task.exception(), OSError):
            self._bench.notice("warning", f"run.yaml can't be written: {problem.strerror or problem}")


def harmless(recipe: Recipe) -> Recipe:
    """The recipe without the secrets that its flags may hold."""
    return dataclasses.replace(
        recipe,
        flags=masked(recipe.flags),
        dial=dataclasses.replace(recipe.dial, flags=masked(recipe.dial.flags)),
        settings=masked(recipe.settings),
        launcher_options=masked(recipe.launcher_options),
        workload=dataclasses.replace(recipe.workload, extra=masked(recipe.workload.extra)),
    )
