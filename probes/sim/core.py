"""The heart of a simulated engine: requests, steps and simulated time, a discrete-event simulation without a clock.

What is admitted and what a step computes is a policy's business (one per engine). Nothing here waits, reads or writes:
`advance` computes everything that happens up to a moment and calls back.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from probes.sim.draft import Drafts, Noise
from probes.sim.tables import Table


@dataclass(slots=True, eq=False)
class Ask:
    """One request inside the engine. Times are simulated seconds; `told` hears of tokens, `over` of the end.

    `output`: tokens after which it ends, with `finish`; `need`: tokens to compute before the next one can be made.
    """

    name: str
    prompt: int
    limit: int
    output: int
    finish: str
    drafts: Drafts
    kind: str = ""
    hash: str = ""
    pace: float = 1.0
    arrived: float = 0.0
    admitted: float | None = None
    first: float | None = None
    ended: float | None = None
    cached: int = 0
    computed: int = 0
    need: int = 0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    made: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    positions: list[int] = field(default_factory=list)
    put_back: int = 0
    outcome: str = ""
    told: Callable[[Ask, float, int], None] = lambda *_: None
    over: Callable[[Ask, float], None] = lambda *_: None

    @property
    def context(self) -> int:
        """Tokens it has in the pool once its prompt is computed."""
        return self.prompt + self.made

    @property
    def decoding(self) -> bool:
        """Whether its prompt is computed."""
        return self.admitted is not None and self.computed >= self.need


@dataclass(slots=True)
class Step:
    """One step: parts of prompts to compute and rows to decode, at a draft depth."""

    prefill: list[tuple[Ask, int]] = field(default_factory=list)
    rows: list[Ask] = field(default_factory=list)
    depth: int = 0
    seconds: float = 0.0
    tokens: int = 0
    """Tokens that its rows made, the first tokens of prompts not among them."""


class Policy(Protocol):
    """What one engine decides."""

    def arrive(self, core: Core, ask: Ask) -> None:
        """A request came: queue it (`core.queue`) or refuse it (`core.end`)."""
        ...

    def admit(self, core: Core) -> None:
        """Let in from the queue what may run now (`core.start`)."""
        ...

    def plan(self, core: Core) -> Step | None:
        """The next step; None when there is nothing to compute."""
        ...

    def stepped(self, core: Core, step: Step) -> None:
        """A step has ended; its tokens are made."""
        ...

    def freed(self, core: Core, ask: Ask) -> None:
        """A request has left, however: give back what it held."""
        ...


class Core:
    """Requests in a queue and in lanes, one step at a time, in simulated seconds since the server's start."""

    def __init__(self, policy: Policy, table: Table, noise: Noise, pace: float = 1.0) -> None:
        self.policy = policy
        self.table = table
        self.noise = noise
        self.pace = pace
        self.at = 0.0
        self.queue: deque[Ask] = deque()
        self.running: list[Ask] = []
        self.hung = False
        """Nothing moves any more: a fault."""
        self.broke: Callable[[str], None] = lambda _kind: None
        """Told when the engine dies of itself, as of memory that a step lacks."""
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._step: Step | None = None
        self._step_end = inf

    # ------------------------------------------------------------------------------------------------ from outside

    def when(self, at: float, act: Callable[[], None]) -> None:
        """Do something at a moment, not before what happened until then."""
        self._count += 1
        heapq.heappush(self._events, (max(at, self.at), self._count, act))

    def submit(self, ask: Ask, at: float) -> None:
        """A request comes in at that moment."""

        def come() -> None:
            ask.arrived = self.at
            self.policy.arrive(self, ask)

        self.when(at, come)

    def cancel(self, ask: Ask, at: float) -> None:
        """Its client has gone."""
        self.when(at, lambda: self.end(ask, "cancelled"))

    @property
    def next_time(self) -> float:
        """When something happens next, if nothing new comes."""
        return min(self._events[0][0] if self._events else inf, inf if self.hung else self._step_end)

    def advance(self, until: float, most: int = 1_000_000) -> bool:
        """Compute everything up to a moment, at most so many happenings. Whether all was done."""
        for _ in range(most):
            at = self.next_time
            if at > until:
                self.at = max(self.at, until)
                return True
            self.at = max(self.at, at)
            if self._events and self._events[0][0] <= self._step_end:
                heapq.heappop(self._events)[2]()
            else:
                self._finish_step()
            if self._step is None and not self.hung:
                self._begin()
        return False

    # ------------------------------------------------------------------------------------------------ for policies

    def start(self, ask: Ask) -> None:
        """Take a request from the queue into a lane."""
        self.queue.remove(ask)
        self.running.append(ask)
        if ask.admitted is None:
            ask.admitted = self.at
        ask.need = ask.context
        ask.computed = min(ask.cached, ask.need - 1) if not ask.made else 0

    def back(self, ask: Ask, *, front: bool = True) -> None:
        """Put a running request back into the queue; what it had computed is lost."""
        self.running.remove(ask)
        ask.put_back += 1
        ask.computed = 0
        self.policy.freed(self, ask)
        (self.queue.appendleft if front else self.queue.append)(ask)

    def end(self, ask: Ask, outcome: str) -> None:
        """A request ends, wherever it is."""
        if ask.ended is not None:
            return
        ask.ended, ask.outcome = self.at, outcome
        if ask in self.running:
            self.running.remove(ask)
            self.policy.freed(self, ask)
        elif ask in self.queue:
            self.queue.remove(ask)
        ask.over(ask, self.at)

    def seconds(self, step: Step) -> float:
        """How long a step takes."""
        took = 0.0
        for ask, count in step.prefill:
            took += self.table.prefill_s(count, ask.computed) * ask.pace
            if ask.computed + count >= ask.need:
                took += self.table.prefill_ms / 1000
        if step.rows:
            rows = len(step.rows)
            context = sum(ask.context for ask in step.rows) / rows
            pace = sum(ask.pace for ask in step.rows) / rows
            took += self.table.step_s(step.depth, rows, context) * pace
        return took * self.pace * self.noise.heat(self.at)

    # ------------------------------------------------------------------------------------------------ inside

    def _begin(self) -> None:
        self.policy.admit(self)
        step = self.policy.plan(self)
        if step is None:
            return
        step.seconds = self.seconds(step)
        self._step, self._step_end = step, self.at + step.seconds

    def _finish_step(self) -> None:
        step, self._step, self._step_end = self._step, None, inf
        if step is None:
            return
        for ask, count in step.prefill:
            if ask.ended is not None or ask not in self.running:
                continue
            ask.computed += count
            ask.prefill_s += step.seconds
            if ask.computed >= ask.need:
                self._make(ask, 1)
        for ask in step.rows:
            if ask.ended is None and ask in self.running:
                self._round(ask, step)
        self.policy.stepped(self, step)
        for ask in [*step.rows, *(a for a, _ in step.prefill)]:
            if ask.ended is None and ask.made >= ask.output:
                self.end(ask, ask.finish)

    def _round(self, ask: Ask, step: Step) -> None:
        """One verify round of one row: the bonus token and the drafts accepted before it."""
        taken = ask.drafts.next(ask.context) if step.depth else 0
        ask.decode_s += step.seconds
        ask.rounds += 1
        ask.drafted += step.depth
        taken = min(taken, step.depth)
        ask.accepted += taken
        if step.depth:
            ask.positions = ask.positions or [0] * step.depth
            for place in range(taken):
                ask.positions[place] += 1
        step.tokens += self._make(ask, 1 + taken)

    def _make(self, ask: Ask, count: int) -> int:
        count = min(count, ask.output - ask.made)
        if ask.first is None:
            ask.first = self.at
        ask.made += count
        ask.need = ask.context  # everything up to here is in the pool
        ask.computed = ask.need
        if count:
            ask.told(ask, self.at, count)
        return count


def drive(core: Core, until: float, pause: Sequence[float] = ()) -> None:
    """Advance without a clock, for tests and teaching; `pause` are moments at which the state may be looked at."""
    for moment in (*pause, until):
        core.advance(moment)
