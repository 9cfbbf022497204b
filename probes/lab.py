"""Carries out plans on a bench and judges what came of them. The one object that both front ends hold.

Every fact goes to disk first and then to the sink. Nothing here draws or prints.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from probes.bench import Attached, Bench, hold
from probes.describe import Description
from probes.events import Event, FlagsInForce, Judged, Notice, PlanProgress, RequestDone, RunStarted, ServerChanged
from probes.gpu.throttle import Slowed
from probes.load.chunks import drafting
from probes.load.plan import plan_burst, plan_job, plan_requests
from probes.lookout import all_refused, look_out, unwell
from probes.measure.steps import NO_START, Measure, Measured, Plan
from probes.recipe import Recipe, Refused
from probes.stats.match import enrich
from probes.store import Run

JUDGE_S = 0.7
"""Seconds between two judgments while requests keep coming in."""
ENOUGH_TO_MISS_DRAFTS = 3
"""Requests without a single drafted token after which speculation that was asked for counts as not in force."""
MAY_NOT_TELL = frozenset({"vllm", "sglang"})
"""Engines of which some versions do not tell a request's drafts: their silence is no zero."""
END_TOLD_S = 0.5
"""How long after its streams broke off a server may take to be known dead."""
LOG_LOOKS, LOG_LOOK_S = 10, 0.03
"""How often and how long to wait for a log that is a little behind the last reply."""
Judgment = Callable[[Sequence[RequestDone]], dict[str, Any]]


class Lab:
    """One run: a recipe, a directory, a bench, plans. All methods belong to one event loop."""

    def __init__(
        self,
        recipe: Recipe,
        run: Run,
        sink: Callable[[Event], None],
        depths: Sequence[int] = (),
        attached: Attached | None = None,
    ) -> None:
        self.recipe = recipe
        self.run = run
        self.depths = tuple(depths) or recipe.dial.values
        self.requests: dict[str, RequestDone] = {}
        self.mix: Mapping[str, float] | None = None
        self.slowed = Slowed()
        self.judgment: Judgment | None = None
        """What the finished requests mean; None: a sweep."""
        self.bench = Bench(recipe, run, self._emit, attached)
        self.lost: str | None = None
        """Why nothing more can be kept, such as a full disk."""
        self._ending: asyncio.Task[None] | None = None
        self.wall_s = 0.0
        """Seconds that plans and probes took, boots and stops included."""
        self._sink = sink
        self._description: Description | None = None
        self._due = asyncio.Event()
        self._go = asyncio.Event()
        self._go.set()
        self._cancelled = False
        self._leave = False
        """Whether the server is to stay when the run is let go: then the end of a plan does not stop it either."""
        self._busy = asyncio.Lock()
        self._judge: asyncio.Task[None] | None = None

    async def open(self, about: Mapping[str, Any] | None = None) -> None:
        """Take the run, read again what it already holds, and begin to watch."""
        self.run.open()
        for event in self.run.events():
            self._remember(event)
        self.requests.update((r.id, r) for r in self.run.requests())
        self.bench.restart = max([self.bench.restart, *(r.restart for r in self.requests.values())])
        self._description = Description(self.run, self.recipe, self.bench, about or {})
        try:
            await self._description.open()
        except Refused:
            self.run.close()
            raise
        self._emit(
            RunStarted(
                at=time.time(),
                run=self.run.name,
                engine=self.bench.engine.name,
                preset=self.recipe.name,
                model=self.recipe.model,
                dial=self.recipe.dial.label,
                depths=self.depths,
                categories=self.recipe.workload.categories,
                simulated=self.recipe.simulated,
                attached=self.bench.attached is not None,
                knobs=dict(self.bench.settings),
            )
        )
        await self.bench.open()
        self._judge = asyncio.create_task(self._keep_judging())

    async def close(self, *, leave: bool = False) -> None:
        """End the plan, the load and the server (with `leave`, the server stays), and let the run go."""
        self._leave = leave
        await self.cancel()
        if self._judge:
            self._judge.cancel()
            await asyncio.gather(self._judge, return_exceptions=True)
        await self.bench.close(leave=leave)
        if self._description:
            await self._description.close()
        self.run.close()

    # ------------------------------------------------------------------------------------------------ what one may ask

    @property
    def busy(self) -> bool:
        """Whether something is being started, stopped or measured."""
        return self._busy.locked()

    async def apply(self, depth: int | None, settings: Mapping[str, Any] | None = None) -> bool:
        """Start the server, or start it again, with this depth and these settings. False when it did not start."""
        async with self._busy:
            return await self.bench.apply(depth, settings or {})

    async def stop_server(self) -> None:
        """End the plan, if one runs, and the server."""
        await self.cancel()
        async with self._busy:
            await self.bench.stop()

    async def probe(self) -> None:
        """Send the workload once to the server that runs, with prompts new to this depth while there are any."""
        depth = self.bench.depth
        block = 1 + max((r.block for r in self.requests.values() if r.depth == depth), default=-1)
        offset = block * self.recipe.workload.prompts_per_category
        async with self._busy:
            if self.bench.server.state != "ready":
                self.bench.notice("error", "no server is ready: apply a depth first")
                return
            began, self._cancelled = time.monotonic(), False
            await self._measure(Measure(depth, block, offset=offset, fresh=False, why="probe"))
            self.wall_s += time.monotonic() - began
        await self.judge(final=True)

    async def carry_out(self, name: str, plan: Plan, total: int, *, judged: bool = False) -> list[Measured]:
        """A plan to its end, or until `cancel`. Points that failed twice are left out and named in what is returned.

        With `judged`, each point's outcome carries the judgment so far; `total` is then the fewest points expected.
        """
        outcomes: list[Measured] = []
        async with self._busy:
            began, self._cancelled = time.monotonic(), False
            self._go.set()  # a pause that came too late for the plan before is not meant for this one
            await self.bench.load.warm()
            step = next(plan, None)
            while step is not None and not self._cancelled:
                self._progress(name, len(outcomes), total, step.why, began)
                await self._go.wait()
                outcome = await self._point(step)
                if judged:
                    outcome = dataclasses.replace(outcome, judged=await self.judge())
                outcomes.append(outcome)
                step = None
                with contextlib.suppress(StopIteration):
                    step = plan.send(outcomes[-1])
            plan.close()
            if not self._leave:
                await self.bench.stop()
            self.wall_s += time.monotonic() - began
            total = len(outcomes) if judged else total
            end = "stopped: what was measured is kept" if self._cancelled else "done"
            whole = sum(o.failed is None for o in outcomes)  # a point that was given up is no point that is done
            self._progress(name, whole, max(total, len(outcomes)), end, began, finished=True)
        await self.judge(final=True)
        return outcomes

    def pause(self, *, on: bool) -> None:
        """Hold the plan before its next point, or let it go on."""
        (self._go.clear if on else self._go.set)()
        self.bench.notice("info", "paused before the next point" if on else "going on")

    async def cancel(self) -> None:
        """End what runs: close the streams, give up a start that is under way, and keep what was measured."""
        self._cancelled = True
        self._go.set()
        await self.bench.load.cancel()
        await self.bench.give_up()

    # ------------------------------------------------------------------------------------------------ one point

    async def _point(self, step: Measure) -> Measured:
        """One point; tried once more when the server or the load process died under it."""
        outcome = await self._measure(step)
        if outcome.failed and not self._cancelled and not outcome.hopeless:
            self.bench.notice("warning", f"{step.why}: {outcome.failed}; trying once more")
            outcome = await self._measure(step)
        if outcome.failed and not self._cancelled:
            self.bench.notice("error", f"{step.why}: given up: {outcome.failed}")
        return outcome

    async def _measure(self, step: Measure) -> Measured:
        """Start what the step needs, send what of it is not yet measured, and gather."""
        bench = self.bench
        recipe = arm(self.recipe, step)
        todo, have = self._split(recipe, step)
        if not todo:
            return Measured(step, tuple(have))
        bench.requested = step.burst.streams if step.burst and step.burst.streams > 1 else None
        if step.fresh or bench.server.state != "ready":
            if not await bench.apply(step.depth, step.settings):
                why = "stopped" if self._cancelled else NO_START + (f": {bench.trouble}" if bench.trouble else "")
                return Measured(step, tuple(have), failed=why)
            todo, have = self._split(recipe, step)
        if bench.server.now is None or self._cancelled:
            return Measured(step, tuple(have), failed="stopped")
        if trap := look_out(bench, todo, self.requests.values()):
            return Measured(step, tuple(have), failed=trap, hopeless=True)
        if step.burst and not step.fresh:
            bench.held_back(forget=True)
        streams = step.burst.streams if step.burst else step.concurrency
        job = plan_job(recipe, bench.server.now.url, todo, concurrency=streams, known=self.requests.values())
        bench.memory.about(phase="load" if job["concurrency"] > 1 else "probe")
        trouble = await (hold(bench, job, step.burst.seconds / recipe.speed) if step.burst else bench.load.run(job))
        bench.memory.about(phase="idle")
        if step.burst:
            ceiling, queue = bench.held_back()
            have = [r for r in self.requests.values() if r.restart == bench.restart and r.id.startswith(step.arm)]
            refused = all_refused(have)
            failed = refused if bench.server.state == "ready" else "the server ended"
            return Measured(
                step, tuple(have), bench.server.boot_s, failed, ceiling=ceiling, capacity=bench.capacity, queue=queue,
                hopeless=failed is not None and failed == refused,
            )  # fmt: skip
        await self._join_log()
        left, have = self._split(recipe, step)
        self._check_drafts(have)
        if left and not trouble:
            trouble = unwell(len(left), (r for r in self.requests.values() if r.restart == bench.restart))
        if left and await bench.server.ended(END_TOLD_S):
            trouble = f"the server ended; {trouble}"
        return Measured(step, tuple(have), bench.server.boot_s, trouble if left else None)

    def _split(self, recipe: Recipe, step: Measure) -> tuple[list[dict[str, Any]], list[RequestDone]]:
        """The step's requests that are still to be sent (a warm-up first), and those that are measured already."""
        if step.burst:
            waves = plan_burst(recipe, step.burst, step.depth, self.bench.restart, step.block, self.bench.model_id)
            return [{**entry, "id": step.arm + entry["id"]} for entry in waves], []
        wanted = plan_requests(
            recipe, step.depth, self.bench.restart, step.block, self.bench.model_id, None,
            warmups=1 if step.fresh else 0, offset=step.offset,
        )  # fmt: skip
        prefix = step.arm + ("" if step.depth is None else f"d{step.depth}-")
        done = {
            r.prompt_id: r
            for r in self.requests.values()
            if r.outcome == "ok" and not r.warmup and r.block == step.block and r.id.startswith(prefix)
        }
        todo = [{**e, "id": prefix + e["id"]} for e in wanted if e["warmup"] or e["prompt_id"] not in done]
        have = [done[e["prompt_id"]] for e in wanted if e["prompt_id"] in done]
        return ([] if all(e["warmup"] for e in todo) else todo), have

    async def _join_log(self) -> None:
        """What only the server's log tells of the requests of this start: acceptance by position, counted steps."""
        mine = [
            r for r in self.requests.values() if r.restart == self.bench.restart and r.drafted and r.outcome == "ok"
        ]
        if all(r.per_position for r in mine):
            return
        for _ in range(LOG_LOOKS):
            self.bench.poll_log()
            if len(self.bench.request_records) >= len(mine):
                break
            await asyncio.sleep(LOG_LOOK_S)
        for request in enrich(mine, self.bench.request_records):
            self.run.append_request(request)
            self._emit(request)

    def _check_drafts(self, have: Sequence[RequestDone]) -> None:
        """A server that is up, was asked to speculate and never drafts is said to be so."""
        depth = self.bench.depth
        if not depth or len(have) < ENOUGH_TO_MISS_DRAFTS or any(map(drafting, have)):
            return
        if self.bench.engine.name in MAY_NOT_TELL and all(r.drafted is None for r in have):
            return
        note = f"speculation was asked for (depth {depth}) and nothing was drafted in {len(have)} requests"
        self.bench.set_flags(
            FlagsInForce(self.bench.restart, depth, {"depth": depth}, {"drafted": 0}, proven=False, notes=(note,))
        )

    def _progress(self, name: str, done: int, total: int, step: str, began: float, *, finished: bool = False) -> None:
        left = (time.monotonic() - began) / done * (total - done) if done and not finished else None
        paused = not self._go.is_set()
        self._emit(PlanProgress(time.time(), name, done, total, step, left, paused=paused, finished=finished))

    # ------------------------------------------------------------------------------------------------ judgment

    async def judge(self, *, final: bool = False) -> dict[str, Any]:
        """The result so far, computed off the loop; a final one is stored."""
        self._due.clear()
        judgment = self.judgment or self._sweep_judgment()
        result = await asyncio.to_thread(judgment, list(self.requests.values()))
        result |= {"wall_s": round(self.wall_s, 3), "boot_s": [round(b, 3) for b in self.bench.boots]}
        if final:
            result["final"] = True
            try:
                await asyncio.to_thread(self.run.write_result, result)
            except OSError as problem:
                self._end_lost(problem)
        self._emit(Judged(time.time(), result))
        return result

    def judge_soon(self) -> None:
        """Have what was measured judged again, off the plan."""
        self._due.set()

    def _sweep_judgment(self) -> Judgment:
        """What a sweep means; numpy and scipy are imported in the thread that judges."""
        measured = {r.depth for r in self.requests.values() if r.depth is not None}
        depths = sorted(measured | set(self.depths))
        about: dict[str, Any] = {
            "engine": self.bench.engine.name,
            "run": self.run.name,
            "categories": self.recipe.workload.categories,
            "simulated": self.recipe.simulated or any("simulated_speed" in r.raw for r in self.requests.values()),
            "unverified": frozenset(self.bench.unverified),
            "mix": self.mix,
            "throttled": self.slowed.by_depth(self.requests.values()),
            "concurrency": self.recipe.workload.concurrency,
            "greedy": self.recipe.workload.temperature == 0,
        }

        def judged(requests: Sequence[RequestDone]) -> dict[str, Any]:
            from probes.stats.result import judge_sweep

            return judge_sweep(requests, depths=depths, **about)

        return judged

    async def _keep_judging(self) -> None:
        """Judge again when requests have come in, but not more often than a person can read."""
        while True:
            await self._due.wait()
            self._due.clear()
            with contextlib.suppress(ValueError, ArithmeticError):
                await self.judge()
            await asyncio.sleep(JUDGE_S)

    def _emit(self, event: Event) -> None:
        """Disk first, then whoever looks; what can't be kept is not shown either."""
        try:
            self.run.append(event)
        except OSError as problem:
            self._end_lost(problem)
            return
        self._remember(event)
        if isinstance(event, RequestDone) and self._judge:
            self._due.set()
        elif isinstance(event, ServerChanged) and self._description:
            self._description.see(event)
        self._sink(event)

    def _end_lost(self, problem: OSError) -> None:
        """Nothing more can be kept: say so once, and end the plan."""
        if self.lost is None:
            self.lost = f"{self.run.path}: {problem.strerror or problem}: what is on disk is kept, the plan ends here"
            self._sink(Notice(time.time(), "error", self.lost))
            self._ending = asyncio.get_running_loop().create_task(self.cancel())

    def _remember(self, event: Event) -> None:
        """What a later session on this run must know again."""
        self.slowed.see(event)
        if isinstance(event, RequestDone):
            self.requests[event.id] = event
        elif isinstance(event, FlagsInForce) and event.depth is not None:
            (self.bench.unverified.discard if event.proven else self.bench.unverified.add)(event.depth)
        elif isinstance(event, ServerChanged):
            self.bench.restart = max(self.bench.restart, event.restart)
            if event.boot_s is not None and not self._judge:
                self.bench.boots.append(event.boot_s)
        elif isinstance(event, Judged) and not self._judge:
            self.wall_s = max(self.wall_s, float(event.result.get("wall_s") or 0.0))
            self.bench.boots = list(event.result.get("boot_s") or self.bench.boots)


def arm(recipe: Recipe, step: Measure) -> Recipe:
    """The recipe with the step's own load."""
    asked: dict[str, Any] = {
        "prompts_per_category": step.prompts,
        "concurrency": step.concurrency,
        "max_tokens": step.max_tokens,
        "categories": step.categories,
    }
    mine = {name: value for name, value in asked.items() if value is not None}
    return dataclasses.replace(recipe, workload=dataclasses.replace(recipe.workload, **mine)) if mine else recipe
