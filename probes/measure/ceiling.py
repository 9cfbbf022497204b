"""Provokes a queue and runs the experiments that tell one limit from another. A pure generator: it starts nothing.

First a look at what the server announces, then the loads; each load with a queue is followed by the same load changed
in one thing: half the output, shorter prompts, one lane more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from probes.events import Capacity
from probes.measure.steps import Burst, Measure, Measured, Plan

SMALL_TOKENS = 1200
LOOK = Burst(streams=1, max_tokens=8, seconds=20.0)
OVER = 1.34
"""How much more than the pool a load asks for: three requests on three lanes then fit two and a half times."""
LANE_PROMPT = 60
TEMPLATE = 100
"""Tokens that a chat template, and a tokenizer that cuts words finer than most, may add to a prompt."""
LANES = {"ninfer": "max_concurrency", "sglang": "max_running_requests", "vllm": "lanes", "llamacpp": "parallel"}
"""The knob that sets how many requests run at once."""
LANES_MOST = {"ninfer": 8}
LEAST_TOKENS = 16
"""Output below which a request is over before it tells anything."""
LONG_PROMPT = 512
"""From this many prompt tokens on, shortening prompts is worth an experiment."""


@dataclass(frozen=True, slots=True)
class Load:
    """A load to provoke a queue with: `name` says what it is meant to meet."""

    name: str
    burst: Burst


@dataclass(frozen=True, slots=True)
class Ask:
    """What is to be found out. `loads`: given by the person; none: chosen from what the server announces."""

    engine: str
    depth: int | None
    settings: Mapping[str, Any]
    reserving: bool | None
    report_s: float
    loads: tuple[Load, ...] = ()
    experiments: bool = True

    @property
    def seconds(self) -> float:
        """How long a load is kept up: long enough for four reports."""
        return max(10.0, min(60.0, 4.6 * self.report_s))


def loads_for(ask: Ask, capacity: Capacity | None) -> list[Load]:
    """Loads that should meet the pool and the lanes, from what the server says it has."""
    lanes = (capacity.lanes if capacity else None) or ask.settings.get(LANES.get(ask.engine, "")) or 1
    pool = capacity.kv_pool_tokens if capacity else None
    longest = (capacity.max_context if capacity else None) or ask.settings.get("max_context") or pool
    seconds = ask.seconds
    found = []
    if pool and longest:
        each = int(pool * OVER / max(lanes, 2))
        streams = max(lanes, 2)
        reserving = ask.reserving is not False and ask.engine == "ninfer"
        if each < longest and reserving:
            found.append(Load("the pool, by what is asked for", Burst(streams, each - 60, 60, seconds)))
        elif each + 256 < longest:
            found.append(Load("the pool, by what is used", Burst(streams, 512, max(60, each - 512), seconds)))
    streams = lanes + more_lanes(lanes)
    # Long enough to outlast the load where that leaves the pool half empty: no gaps between requests then.
    tokens = max(SMALL_TOKENS, min(longest or SMALL_TOKENS, (pool or 0) // streams) // 4)
    if longest:  # a request that asks for more than its context is refused by some engines, and cut by others
        tokens = min(tokens, max(longest - LANE_PROMPT - TEMPLATE, longest // 2))
    found.append(Load("the lanes", Burst(streams, tokens, LANE_PROMPT, seconds)))
    return found


def more_lanes(lanes: int) -> int:
    """One lane more, or an eighth more where there are many."""
    return max(1, lanes // 8)


def variants(ask: Ask, load: Load, before: Measured) -> list[Measure]:
    """The same load changed in one thing each time."""
    burst, capacity = load.burst, before.capacity
    found = []
    if burst.max_tokens >= 2 * LEAST_TOKENS:
        half = replace(burst, max_tokens=burst.max_tokens // 2)
        found.append(Measure(ask.depth, 0, ask.settings, why=f"{load.name}: half the output", burst=half))
    if burst.prompt_tokens >= LONG_PROMPT:
        short = replace(burst, prompt_tokens=burst.prompt_tokens // 8)
        found.append(Measure(ask.depth, 0, ask.settings, why=f"{load.name}: prompts an eighth as long", burst=short))
    knob, lanes = LANES.get(ask.engine), capacity.lanes if capacity else None
    if knob and lanes and lanes + more_lanes(lanes) <= LANES_MOST.get(ask.engine, 1 << 20):
        count = lanes + more_lanes(lanes)
        settings = {**ask.settings, knob: count, **kept(ask.engine, capacity, count)}
        found.append(Measure(ask.depth, 0, settings, why=f"{load.name}: {count} lanes", burst=burst))
    return found


def kept(engine: str, capacity: Capacity | None, lanes: int) -> dict[str, Any]:
    """Settings that must go with another number of lanes so that only the lanes change."""
    if capacity is None:
        return {}
    if engine == "sglang" and capacity.state_slots:
        return {"max_mamba_cache_size": capacity.state_slots}
    if engine == "llamacpp" and capacity.max_context and capacity.kv_pool_tokens != capacity.max_context:
        return {"ctx": capacity.max_context * lanes}
    return {}


def ceiling(ask: Ask) -> Plan:
    """Look, provoke, and where something waited, separate. Every point is a start of its own."""
    block = 0

    def numbered(step: Measure, arm: str) -> Measure:
        nonlocal block
        block += 1
        return replace(step, block=block, arm=f"{arm}-")

    loads = list(ask.loads)
    if not loads:
        look = yield numbered(Measure(ask.depth, 0, ask.settings, why="a look at what it can hold", burst=LOOK), "look")
        if look.failed:
            return
        loads = loads_for(ask, look.capacity)
    for number, load in enumerate(loads, 1):
        why = f"{load.name}: {load.burst.streams} × {load.burst.max_tokens:,} tokens"
        before = yield numbered(Measure(ask.depth, 0, ask.settings, why=why, burst=load.burst), f"load{number}")
        if before.failed or not ask.experiments or not waited(before):
            continue
        for part, step in enumerate(variants(ask, load, before), 1):
            yield numbered(step, f"load{number}x{part}")


def waited(measured: Measured) -> bool:
    """Whether something waited in a fifth of the reports with load, and in two at least."""
    busy = [pair for pair in measured.queue if pair[0] or pair[1]]
    late = [pair for pair in busy if pair[1]]
    return len(late) >= max(2, len(busy) // 5)
