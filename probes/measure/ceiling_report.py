"""From what a ceiling plan measured to its result: each load with its verdict, and what every experiment says of it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from probes.events import Ceiling
from probes.measure.steps import Measured
from probes.stats.ceiling_advice import Server, admits
from probes.stats.ceiling_trials import Change, Seen, conclude, effect, seen

ORDER = {"high": 3, "medium": 2, "low": 1}


def report(
    outcomes: Sequence[Measured], *, run: str, engine: str, simulated: bool, drafter: str = ""
) -> dict[str, Any]:
    """The result of `draftdial ceiling`, however much of the plan was carried out. `drafter`: kind of the dial."""
    loads = [o for o in outcomes if o.step.arm.startswith("load") and "x" not in o.step.arm]
    found = []
    for load in loads:
        trials = [o for o in outcomes if o.step.arm.startswith(f"{load.step.arm[:-1]}x")]
        step = load.step
        server = Server(engine, step.depth or 0, drafter, _prompt(load, outcomes), step.settings)
        found.append(_load(load, trials, server))
    best = max(found, key=_weight, default=None)
    return {
        "kind": "result",
        "what": "ceiling",
        "run": run,
        "engine": engine,
        "simulated": simulated,
        "ceiling": _after(best) if best else None,
        "loads": found,
        "experiments": [{"load": f["load"], **e} for f in found for e in f["experiments"]],
        "admits": best["admits"] if best else None,
        "failed_points": [{"point": o.step.why, "why": o.failed} for o in outcomes if o.failed],
    }


def _weight(load: dict[str, Any]) -> tuple[bool, int]:
    sure = ORDER[load["ceiling"]["confidence"]] if load["settled"] == load["ceiling"]["verdict"] else ORDER["medium"]
    return load["settled"] not in {"unknown", "none"} and not load["failed"], sure


def _after(load: dict[str, Any]) -> dict[str, Any]:
    """The verdict of a load after its experiments: one that they contradict is none, one that they leave is one."""
    ceiling: dict[str, Any] = dict(load["ceiling"])
    settled = load["settled"]
    if load["failed"]:
        text = f"The load was not carried out: {load['failed']}. {ceiling['sentence']}".rstrip()
        return ceiling | {"verdict": "unknown", "confidence": "low", "sentence": text}
    if settled == ceiling["verdict"]:
        return ceiling
    if settled == "unknown":
        rivals = [ceiling["verdict"], *(r for r in ceiling["rivals"] if r != ceiling["verdict"])]
        text = f"The load looked like {ceiling['verdict']}, but {load['because']}. {ceiling['sentence']}"
        return ceiling | {"verdict": "unknown", "confidence": "low", "rivals": rivals, "sentence": text}
    text = f"The load alone did not tell; {load['because']}. {ceiling['sentence']}"
    return ceiling | {"verdict": settled, "confidence": "medium", "rivals": [], "sentence": text}


def _prompt(load: Measured, outcomes: Sequence[Measured]) -> int | None:
    """Tokens of this load's longest prompt, as the server counted them in any load with prompts of that length."""
    burst = load.step.burst
    if burst is None:
        return None
    same = [o for o in outcomes if o.step.burst is not None and o.step.burst.prompt_tokens == burst.prompt_tokens]
    return max((r.prompt_tokens for o in same for r in o.requests if r.prompt_tokens is not None), default=None)


def _load(before: Measured, trials: Sequence[Measured], server: Server) -> dict[str, Any]:
    ceiling = before.ceiling or Ceiling("unknown")
    was = _seen(before)
    effects, told = [], []
    for trial in trials:
        if trial.failed:
            told.append({"name": trial.step.why, "failed": trial.failed})
            continue
        now = _seen(trial)
        found = effect(_change(before, trial), was, now)
        effects.append(found)
        trial_told: dict[str, Any] = {"name": trial.step.why, "change": _change(before, trial)}
        trial_told["says"] = found[2]
        trial_told |= {"before": _shown(was), "after": _shown(now)}
        trial_told |= {"for": list(map(str, sorted(found[0]))), "against": list(map(str, sorted(found[1])))}
        told.append(trial_told)
    says, why, settled = conclude(ceiling, effects)
    return {
        "load": before.step.why,
        "failed": before.failed,
        "ceiling": msgspec.to_builtins(ceiling),
        "measured": _shown(was),
        "experiments": told,
        "conclusion": says,
        "because": why,
        "settled": settled,
        "admits": None if before.failed else admits(settled, was, before.capacity, server),
    }


def _change(before: Measured, after: Measured) -> Change:
    old, new = before.step.burst, after.step.burst
    if old is not None and new is not None and new.prompt_tokens != old.prompt_tokens:
        return "prompt"
    return "lanes" if dict(before.step.settings) != dict(after.step.settings) else "output"


def _seen(measured: Measured) -> Seen:
    burst = measured.step.burst
    outcomes = Counter(str(r.outcome) for r in measured.requests if not r.warmup)
    return seen(
        measured.queue, streams=burst.streams if burst else 0, max_tokens=burst.max_tokens if burst else 0,
        prompt_tokens=burst.prompt_tokens if burst else 0, ceiling=measured.ceiling, capacity=measured.capacity,
        outcomes=outcomes,
    )  # fmt: skip


def _shown(load: Seen) -> dict[str, Any]:
    return dataclasses.asdict(load)
