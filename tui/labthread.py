"""The lab in a thread with an event loop of its own, so that neither the screen nor the lab waits for the other."""

from __future__ import annotations

import asyncio
import shlex
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from probes import store
from probes.events import Event, Notice, RequestDone
from probes.recipe import Recipe, Refused
from probes.store import Run
from tui.beside import Beside
from tui.messages import Apply, Cancel, Compare, Diagnose, Intent, Pause, Probe, StopServer, Sweep

if TYPE_CHECKING:
    from probes.bench import Attached
    from probes.lab import Lab


WORK = (Apply, Probe, Sweep, Compare, Diagnose)
"""What keeps the lab busy until it is over; the lab does one of them at a time."""


class LabThread:
    """Events come out of `drain`, intents go in through `ask`; both may be called from the screen's thread only."""

    past = False

    def __init__(self, recipe: Recipe, run: Run, attached: Attached | None = None) -> None:
        self.recipe: Recipe | None = recipe
        self._attached = attached
        self.run = run
        self.doing: str | None = None
        """What is being carried out, in words; None when the lab is free."""
        self.paused = False
        """Whether what runs was asked to hold before its next point."""
        self.left: str | None = None
        """How to attach to a server that was left running."""
        self.beside: Beside | None = None
        """The A/B or the diagnosis that was asked for last, in a run of its own."""
        self._recipe = recipe
        self._events: deque[Event] = deque()
        self._thread = threading.Thread(target=self._main, name="lab", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lab: Lab | None = None
        self._up = threading.Event()
        self._over: asyncio.Event | None = None
        self._leave = False
        self._last: type | None = None
        """What kind of work was asked for last."""
        self._early: deque[Intent] = deque()
        """What was asked before the lab was open."""
        self._done = 0
        self._blocks = 0
        """Blocks of the sweep that are complete."""

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def drain(self) -> list[Event]:
        """What happened since the last call, in order."""
        found: list[Event] = []
        while self._events:
            found.append(self._events.popleft())
        self._done += sum(isinstance(e, RequestDone) for e in found)
        if self.doing and self.doing.startswith("probing"):
            count = len(self._recipe.workload.categories) * self._recipe.workload.prompts_per_category
            self.doing = f"{self.doing.partition(':')[0]}: {self._done} of {count} requests"
        return found

    def ask(self, intent: Intent) -> None:
        """Have an intent carried out; returns at once.

        The lab does one thing at a time: of two keys pressed before the screen could say busy, the first counts.
        """
        loop, lab = self._loop, self._lab
        if self._up.is_set() and lab is None:
            self._say("error", "this run has ended: nothing can be started in it")
            return
        if isinstance(intent, (Pause, Cancel)):
            self.paused = isinstance(intent, Pause) and intent.on
        if isinstance(intent, WORK):
            if self.doing is not None:
                if type(intent) is not self._last:
                    self._say("warning", f"busy: {self.doing}")
                return
            self.doing, self._last, self.paused = "starting", type(intent), False
        if loop is None or lab is None:
            self._early.append(intent)
        elif not loop.is_closed():
            asyncio.run_coroutine_threadsafe(self._carry_out(lab, intent), loop)

    def close(self, *, leave: bool = False) -> None:
        """End everything and wait for it; with `leave` a ready server stays. Blocks: call it off the screen's loop."""
        self._up.wait(10.0)
        self._leave = leave
        if self._loop is not None and self._over is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._over.set)
        if self._thread.is_alive():
            self._thread.join()

    # ------------------------------------------------------------------------------------------------ in the thread

    def _main(self) -> None:
        try:
            asyncio.run(self._live())
        except Refused as problem:
            self._say("error", str(problem))
        except Exception as problem:  # noqa: BLE001  (a thread's end must be seen on the screen, whatever it was)
            self._say("error", f"the lab ended: {type(problem).__name__}: {problem}")
        finally:
            self._lab = None
            self._up.set()

    async def _live(self) -> None:
        from probes.lab import Lab

        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        lab = Lab(self._recipe, self.run, self._events.append, attached=self._attached)
        await lab.open()
        self._lab = lab
        self._up.set()
        first = [asyncio.create_task(self._carry_out(lab, self._early.popleft())) for _ in range(len(self._early))]
        try:
            await self._over.wait()
        finally:
            if self.beside is not None:
                await self.beside.end()
            server = lab.bench.server
            await lab.close(leave=self._leave)
            if self._leave and server.state == "ready" and server.now is not None:
                self.left = attach(server.pid, server.now.url, self.run, self._recipe)
            await asyncio.gather(*first, return_exceptions=True)

    async def _carry_out(self, lab: Lab, intent: Intent) -> None:
        verbs: dict[type, Any] = {
            Apply: self._apply, Probe: self._probe, Sweep: self._sweep, Pause: self._pause, Cancel: self._cancel,
            StopServer: self._stop, Compare: self._aside, Diagnose: self._aside,
        }  # fmt: skip
        try:
            await verbs[type(intent)](lab, intent)
        except Refused as problem:
            self._say("error", str(problem))
        except Exception as problem:  # noqa: BLE001  (a failed verb must be seen on the screen, whatever it was)
            self._say("error", f"{type(intent).__name__.lower()} failed: {type(problem).__name__}: {problem}")
        finally:
            if not isinstance(intent, (Pause, Cancel)):
                self.doing = None

    async def _apply(self, lab: Lab, intent: Apply) -> None:
        self.doing = f"starting depth {intent.depth}"
        await lab.apply(intent.depth, intent.settings)

    async def _probe(self, lab: Lab, intent: Probe) -> None:  # noqa: ARG002  (one shape for all verbs)
        self._done, self.doing = 0, f"probing depth {lab.bench.depth}"
        await lab.probe()

    async def _sweep(self, lab: Lab, intent: Sweep) -> None:
        from probes.measure.sweep import sweep

        lab.bench.settings |= intent.settings
        rounds = self._blocks + 1
        self.doing = f"sweeping {len(lab.depths)} depths, block {rounds}"
        plan = sweep(lab.depths, rounds, lab.recipe.workload.prompts_per_category)
        total = len(lab.depths) * rounds
        outcomes = await lab.carry_out("sweep", plan, total)
        if len(outcomes) == total and not any(o.failed for o in outcomes):
            self._blocks = rounds

    async def _aside(self, lab: Lab, intent: Compare | Diagnose) -> None:
        """In a run of its own; the server of this run makes room for it first."""
        self.doing = "stopping the server"
        if self._attached is None:
            await lab.stop_server()
        if self._over is None or self._over.is_set():
            return
        self.beside = beside = Beside(intent, store.create(self.run.path.parent))
        key = "a" if isinstance(intent, Compare) else "d"
        self.doing = f"{beside.name} in run {beside.run.name} · {key} shows it"
        await beside.carry_out(self._recipe, self._attached)
        again = "" if self._attached else "; enter starts the server of this run again"
        self._say("info", f"the {beside.name} is over, its figures are in run {beside.run.name}{again}")

    async def _pause(self, lab: Lab, intent: Pause) -> None:
        (self._aside_now or lab).pause(on=intent.on)

    async def _cancel(self, lab: Lab, intent: Cancel) -> None:  # noqa: ARG002
        await (self._aside_now or lab).cancel()

    @property
    def _aside_now(self) -> Beside | None:
        """The run beside this one, while it goes on."""
        return self.beside if self.beside is not None and not self.beside.over else None

    async def _stop(self, lab: Lab, intent: StopServer) -> None:  # noqa: ARG002
        self.doing = "stopping the server"
        if self._aside_now is not None:
            await self._aside_now.end()
        await lab.stop_server()

    def _say(self, level: Any, text: str) -> None:
        self._events.append(Notice(time.time(), level, text))


def attach(pid: int | None, url: str, run: Run, recipe: Recipe) -> str:
    """What to print about a server that was left running."""
    again = shlex.join(["draftdial", "attach", url, "--log", str(run.server_log), "--engine", recipe.engine])
    return f"the server runs on (pid {pid}); attach again with:\n  {again}"
