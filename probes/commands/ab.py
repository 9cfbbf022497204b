"""`draftdial ab`: A/B of one flag: a noise floor, ABBA blocks of restarts, and a verdict that may be "undecided"."""

from __future__ import annotations

import dataclasses
import math
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from probes.commands import _common as common

ASKED = {
    "preset": str, "a_texts": list, "b_texts": list, "blocks": int | None, "prompts": int | None,
    "max_tokens": int | None, "floor": str | None, "stop_early": bool,
}  # fmt: skip
"""What run.yaml keeps of an A/B's command line."""


@click.command()
@click.argument("preset", required=False)
@click.option("--a", "a_texts", multiple=True, metavar="KNOB=VALUE", help="Arm A (also depth=N); repeat for a bundle.")
@click.option("--b", "b_texts", multiple=True, metavar="KNOB=VALUE", help="Arm B.")
@click.option("--blocks", type=click.IntRange(2, 100), help="Blocks of one restart of each arm (default by boot time).")
@click.option("--prompts", type=click.IntRange(2, 64), help="Prompts of each category (default by boot time).")
@click.option("--max-tokens", type=click.IntRange(2, 1_000_000), help="Tokens a reply at most (default: the preset's).")
@click.option(
    "--floor", metavar="SHARE|RUN", help="A known noise floor (.02), or a run that measured it, instead of A/A."
)
@click.option("--stop-early", is_flag=True, help="Stop as soon as the anytime-valid line has decided.")
@click.option("--resume", metavar="RUN", help="Go on with a run that was interrupted.")
@click.option("--plan", "plan_only", is_flag=True, help="Say what it would take, and stop.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line on stdout.")
def command(preset: str | None, resume: str | None, *, plan_only: bool, as_json: bool, **asked: Any) -> None:
    """Compare two settings of PRESET: is B faster than A?"""
    from probes import preset as presets
    from probes import store
    from probes.measure import ab
    from probes.measure.costs import costs
    from probes.recipe import Refused

    with common.refusing():
        run = store.find(resume) if resume else None
        if run:
            given = {name: value for name, value in asked.items() if value}
            asked = common.resumed(run, "ab", ASKED, preset)
            if other := [name for name, value in given.items() if value != _tupled(asked[name])]:
                option = "--" + other[0].removesuffix("_texts").replace("_", "-")
                raise Refused(f"{option}: the run was begun with {asked[other[0]]}; leave it out to resume")
            preset = asked.pop("preset")
        if not preset or not (asked["a_texts"] or asked["b_texts"]):
            raise Refused("name a preset and what differs, e.g. draftdial ab PRESET --a threads=1 --b threads=2")
        recipe = presets.load(preset)
        if asked["max_tokens"]:
            work = dataclasses.replace(recipe.workload, max_tokens=asked["max_tokens"])
            recipe = dataclasses.replace(recipe, workload=work)
        a, b = (_arm(recipe, asked[name]) for name in ("a_texts", "b_texts"))
        floor = _floor(asked["floor"], recipe, asked["a_texts"])
        boot_s, request_s = costs(recipe.name)
        design = ab.design(boot_s, asked["blocks"], asked["prompts"], 0 if floor is not None else None)
        _tell(recipe, ab.differences(a, b), ab.budgets(recipe, a, b), design, boot_s, request_s)
        if plan_only:
            raise SystemExit(common.DONE)
        run = run or store.create()
    about = {
        "ab": {"preset": recipe.path or preset, **{k: list(v) if isinstance(v, tuple) else v for k, v in asked.items()}}
    }
    raise SystemExit(_run(recipe, run, (a, b), design, about, floor, early=asked["stop_early"], as_json=as_json))


def _arm(recipe: Any, texts: Sequence[str]) -> Any:
    from probes import preset as presets
    from probes.measure.ab import Arm

    chosen = dict(presets.setting(recipe, text) for text in texts)
    depth = chosen.pop("depth", recipe.dial.start)
    settings = {**recipe.settings, **chosen}
    common.ready(recipe, [depth], chosen)
    return Arm(depth, settings)


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _floor(text: str | None, recipe: Any, a_texts: Sequence[str]) -> float | None:
    """A noise floor as log sd: a number, or from a run whose arm A was this one, with the same fingerprint."""
    from probes import fingerprint, models, store
    from probes.recipe import Refused

    if text is None:
        return None
    try:
        share = float(text)
    except ValueError:
        run = store.find(text)
        found = ((run.result() or {}).get("floor") or {}).get("upper")
        if found is None:
            raise Refused(f"--floor {text}: that run measured no floor") from None
        about = run.description()
        theirs = (about.get("ab") or {}).get("a_texts") or []
        if sorted(theirs) != sorted(a_texts):
            said = (" ".join(map(str, side)) or "the preset's own settings" for side in (theirs, a_texts))
            raise Refused(f"--floor {text}: its arm A was {next(said)}, not {next(said)}") from None
        seen = fingerprint.look({**os.environ, **recipe.env})
        now = fingerprint.gather(models.resolve(recipe), recipe.settings, seen)
        if why := fingerprint.unlike(about.get("fingerprint") or {}, now):
            raise Refused(f"--floor {text}: it was measured on something else: {why}") from None
        return float(found)
    if not 0 <= share < 1:
        raise Refused(f"--floor {text}: a share from 0 to 1, as .02, or a run")
    return math.log1p(share)


def _tell(
    recipe: Any,
    differs: Sequence[str],
    budget: Sequence[str],
    design: Any,
    boot_s: float | None,
    request_s: float | None,
) -> None:
    """The plan and its price, before anything starts."""
    for text in differs or ["nothing: this is an A/A"]:
        common.say(f"differs: {text}")
    if len(differs) > 1:
        common.say("warning: more than one knob differs, so this compares two bundles, not one flag")
    for text in budget:
        common.say(f"warning: {text}")
    text = f"plan: {design.restarts} restarts ({design.floor} of A alone, {design.blocks} blocks of A and B)"
    text += f", {design.prompts} prompts of each of {len(recipe.workload.categories)} categories"
    if boot_s and request_s:
        whole = design.seconds(boot_s, request_s, len(recipe.workload.categories)) / recipe.speed
        text += f"; about {whole / 60:.0f} min, as a boot took {boot_s:.1f} s and a request {request_s:.1f} s last time"
    common.say(text)


def _run(
    recipe: Any,
    run: Any,
    arms: tuple[Any, Any],
    design: Any,
    about: Any,
    floor: float | None,
    *,
    early: bool,
    as_json: bool,
) -> int:
    from probes.abtest import compare, lab_for
    from probes.commands import _ab_view as view
    from probes.commands import _sweep_view

    sink = common.printer(as_json=as_json, bar=_sweep_view.bar() if sys.stderr.isatty() and not as_json else None)
    lab = lab_for(recipe, run, arms, sink, floor)

    async def main() -> int:
        await lab.open(about)
        try:
            result = await compare(lab, arms, design, early=early)
        finally:
            await lab.close()
        if as_json:
            common.line(result)
        else:
            view.show(result)
        code = common.outcome([str(point["why"]) for point in result["failed_points"]], result["points"])
        return common.INCOMPLETE if lab.lost else code

    with common.refusing():
        return common.run(main(), lab.cancel)
