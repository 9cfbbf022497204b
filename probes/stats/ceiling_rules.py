"""The rule table: what a stretch in which requests waited says about the limit that held them back.

One table for all engines, in the words of pools, lanes and steps; the first rule whose evidence is complete answers.
A wrong verdict is worse than none. Thresholds come from the engines' admission code and operators' rules: a pool over
0.9 refuses ordinary prompts; three reports, or two that span an interval, make a stretch.
"""

from __future__ import annotations

from probes.events import Verdict
from probes.stats.ceiling_pools import (
    arithmetic,
    at_cap,
    never_decodes,
    one_short,
    pool_full,
    prompts_only,
    state_short,
)
from probes.stats.ceiling_scene import HALF, MOSTLY, Finding, Scene, counted, pct, ran
from probes.stats.ledger import Pool
from probes.stats.windows import HIGH

STEPS = "how many prompt tokens each step takes: the pool has room for a prompt of any length"


def find(scene: Scene) -> Finding:
    """The finding for one stretch with a queue. First rule whose evidence is complete; `unknown` when none is."""
    for rule in (_stuck, arithmetic, at_cap, pool_full, state_short, _prefill, _delay, one_short):
        found = rule(scene)
        if found is not None:
            return found
    return _unknown(scene)


def _stuck(scene: Scene) -> Finding | None:
    """Requests wait and nothing runs, or all that wait are held back for reasons that are no pool."""
    w = scene.window
    if w.n and w.running.high == 0 and not w.admitted:
        return Finding(
            "unknown", "low", "Requests wait while nothing runs: the engine is stuck or paused, or the first in line "
            "can never fit.", missing=("whether the first request in line fits the pool at all",),
        )  # fmt: skip
    made, read = w.gen_tps, w.prompt_tps
    # Means of an interval: the first ones may still tell of work before it stopped.
    stopped = made.n >= MOSTLY * w.n and made.last == 0 and read.last == 0 and made.mean <= 0.34 * made.high
    if w.n >= 3 and stopped and read.mean <= 0.34 * read.high:
        return Finding(
            "unknown", "low", f"{ran(scene)[0].upper()}{ran(scene)[1:]} and no token is computed any more: the engine "
            "hangs, or works at one long prompt.", missing=("whether the server still answers",),
        )  # fmt: skip
    if w.deferred and w.deferred >= MOSTLY * w.waiting.n:
        return Finding(
            "unknown", "low", "All that wait are deferred: held back by adapters, a cache transfer or a grammar, not "
            "by capacity.", missing=("why the engine defers them",),
        )  # fmt: skip
    return None


def _prefill(scene: Scene) -> Finding | None:
    """Prompts are computed back to back and the number that runs grows: a step's budget, not a pool."""
    w, c = scene.window, scene.capacity
    alone = prompts_only(scene)
    held = w.capped > 0 and w.at_cap + w.near_cap > (1 - MOSTLY) * w.n and not (alone and never_decodes(scene))
    if not w.n or w.events or (w.kv.n and w.kv.high >= HIGH) or held:
        return None
    growing = w.running.last > w.running.first or w.waiting.last < w.waiting.first
    # A number that has stood still for a while stands at some limit, however busy the prompts.
    never_fell = w.running.falls * 3 <= w.running.rises and w.level <= max(1, 0.3 * w.n)
    signs = w.prefilling >= 0.6 * w.n
    room = f", the KV pool is at {pct(w.kv.high)} at most" if w.kv.n else ""
    lanes = f" of {c.lanes}" if c.lanes else ""
    ran = f"running goes from {w.running.first:.0f} to {w.running.last:.0f}{lanes}"
    moved = f"{ran} while {w.waiting.first:.0f} to {w.waiting.last:.0f} wait{room}"
    # Far below every other limit, steps that are filled in nearly every report are the limit even if nothing grows.
    far = w.capped > 0 and w.running.high <= MOSTLY * (c.lanes or 0) and not w.kv_tight and w.n >= 3
    set_aside = _set_aside(scene)
    roomy = far and w.kv.n > 0 and w.kv.high < MOSTLY and (set_aside or 0.0) < HIGH
    if signs and ((growing and never_fell) or (roomy and w.full_steps >= 0.6 * w.n)):
        text = f"A prompt is being computed in {w.prefilling} of {w.n} reports; {moved}."
        return Finding("prefill", "medium", text, ("prefill",), cites=("batch_tokens",))
    # Nothing decodes, so no lane and no pool is short: the steps of one long prompt leave no room for the next.
    if alone:
        text = f"Prompts alone fill {w.alone} of {w.n} steps, nothing decodes; {moved}."
        return Finding("prefill", "medium" if w.capped else "low", text, ("prefill",), cites=("batch_tokens", "lanes"))
    # Reports of an interval's means: much prompt, while ever more run and the pool has room. Tokens count when a prompt
    # is done, so means of few long prompts jump; an unchanging number needs a steadier sign.
    prompts = w.prompt_tps
    # A report without a rate is one without a prompt, and a number that has stood still stands at some limit.
    busy = prompts.n >= max(2, MOSTLY * w.n) and prompts.mean >= HALF * prompts.high
    if not busy or w.prefills or not w.gen_tps.n or prompts.mean <= 2 * w.gen_tps.mean:
        return None
    still = w.level > max(1, 0.3 * w.n)
    rose = w.running.falls == 0 and w.running.last >= 1.2 * w.running.first
    climbing = rose and not still and w.waiting.last < w.waiting.first
    steady = prompts.low >= HALF * prompts.high
    if climbing or (steady and roomy and not scene.traits.delays and scene.reserving is False):
        text = f"Prompts run at {'a steady ' if steady else ''}{prompts.mean:,.0f} tokens/s; {moved}."
        return Finding("prefill", "medium", text, ("any",), cites=("batch_tokens",))
    return None


def _delay(scene: Scene) -> Finding | None:
    """Lanes and pools have room, nothing is admitted for seconds, and the queue grows: the engine holds back."""
    w, c, boot = scene.window, scene.capacity, scene.boot
    below = w.capped > 0 and w.at_cap + w.near_cap <= (1 - MOSTLY) * w.n
    if not below or not scene.traits.delays or not w.kv.n or w.kv.high >= HIGH or w.events or w.n < 3:
        return None
    if (w.state.n and w.state.high >= HIGH) or boot.get("disaggregation_mode") == "decode":
        return None  # a server that only decodes never shows a prefill
    idle = w.prefills == 0 or w.quiet_s >= 5.0
    stalled = w.running.last <= w.running.first and w.waiting.last >= w.waiting.first
    if not (idle and stalled):
        return None
    set_aside = _set_aside(scene)
    armed = bool(boot.get("delayer"))
    text = (
        f"Running goes from {w.running.first:.0f} to {w.running.last:.0f} of {c.lanes} lanes and the queue from "
        f"{w.waiting.first:.0f} to {w.waiting.last:.0f} with no prefill, the KV pool at {pct(w.kv.high)} at most"
    )
    if set_aside is not None and set_aside < HIGH:
        said = f"; even with the most it sets aside for running requests {pct(set_aside)} would be taken"
        if armed:
            return Finding(
                "admission_delay",
                "high",
                f"{text}{said}, and a prefill delay is switched on.",
                cites=("lanes", "kv_pool_tokens"),
            )
        return Finding(
            "admission_delay",
            "low",
            f"{text}{said}.",
            cites=("lanes", "kv_pool_tokens"),
            missing=("whether a prefill delay is switched on",),
        )
    if armed and w.kv.high < HALF:
        return Finding(
            "admission_delay",
            "medium",
            f"{text}, and a prefill delay is switched on.",
            rivals=("kv_pool",),
            cites=("lanes",),
        )
    return Finding(
        "unknown", "low", f"{text}.", rivals=("admission_delay", "kv_pool"),
        missing=("max_tokens of the running requests: room may be set aside for them",), cites=("lanes",),
    )  # fmt: skip


def _set_aside(scene: Scene) -> float | None:
    """Share of the pool that is used or could be set aside for future output at the very most."""
    w, most, pool = scene.window, scene.traits.estimate_tokens, scene.capacity.kv_pool_tokens
    if most is None or not pool:
        return None
    return w.kv.high + w.running.high * most / pool


def _unknown(scene: Scene) -> Finding:
    """No rule has all of its evidence: name what is missing and who remains."""
    w, c = scene.window, scene.capacity
    missing: list[str] = []
    rivals: list[Verdict] = []
    if c.lanes is None:
        missing.append("the number of lanes")
        rivals.append("lanes")
    elif w.n and w.at_cap + w.near_cap >= HALF * w.n:
        rivals.append("lanes")
    if not w.n:
        missing.append("how many requests run")
    if scene.reserving is not False and not w.kv.n:
        missing.append("prompt and output lengths of the requests in flight")
        if Pool.of(c) is None:
            missing.append("the size of the KV pool")
        rivals.append("kv_pool")
    elif not w.kv.n:
        missing.append("how full the KV pool is")
        rivals.append("kv_pool")
    elif w.kv.high >= HALF or (_set_aside(scene) or 0.0) >= HIGH:
        rivals.append("kv_pool")  # what is set aside for output to come fills a pool as well
    if w.state.n and w.state.high >= HALF:  # a request sets more state slots aside than it fills
        rivals.append("state_pool")
    if w.prefilling:
        rivals.append("prefill")
    if scene.traits.delays and w.kv.n and w.kv.high < HIGH and not w.prefilling:
        rivals.append("admission_delay")
    if not missing and scene.boot.get("disaggregation_mode") == "decode":
        missing.append("the log of the server that computes the prompts")
    if not missing:
        missing.append(_what_decides(scene))
        if missing == [STEPS]:
            rivals.append("prefill")
    run = ran(scene) if w.n else "an unknown number runs"
    room = f", the KV pool at {pct(w.kv.high)} at most" if w.kv.n else ""
    queue = counted(int(w.waiting.high), "waits", "wait")
    text = f"Up to {queue} while {run}{room}; the log does not say what holds them back."
    return Finding(
        "unknown", "low", text, rivals=tuple(dict.fromkeys(rivals)), missing=tuple(missing), cites=("lanes",)
    )


def _what_decides(scene: Scene) -> str:
    """What would tell, where lanes and pool are known and neither is full."""
    w, c = scene.window, scene.capacity
    if scene.traits.delays:
        set_aside = _set_aside(scene)
        roomy = set_aside is not None and set_aside < HIGH
        return "one load that stays the same" if roomy else "max_tokens of the running requests"
    pool, longest = c.kv_pool_tokens, c.max_context
    roomy = pool is not None and longest is not None and w.kv.high * pool + longest <= pool
    return STEPS if roomy else "the next prompt's length"
