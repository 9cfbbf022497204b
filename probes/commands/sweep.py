"""`draftdial sweep`: step the dial, restart, measure, decide; the live screen's sweep without the screen."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

import click

from probes.commands import _common as common

ASKED = {
    "preset": str, "depths": str, "rounds": int, "prompts": int | None, "max_tokens": int | None, "set": list,
    "mix": str | None,
}  # fmt: skip
"""What run.yaml keeps of a sweep's command line."""
SEEK_ROUNDS = 4
"""Restarts a depth at most in an adaptive sweep, unless more rounds are asked for."""


@click.command()
@click.argument("preset", required=False)
@click.option("--depths", "depths_text", help="Depths to measure, as 0-4 or 0,2,4 (default: the whole dial).")
@click.option("--rounds", type=click.IntRange(1, 1000), default=1, show_default=True, help="Blocks of restarts.")
@click.option(
    "--prompts", type=click.IntRange(1, 64), help="Prompts of each category in a block (default: the preset's)."
)
@click.option("--max-tokens", type=click.IntRange(1, 1_000_000), help="Tokens a reply at most (default: the preset's).")
@click.option("--set", "settings", multiple=True, metavar="KNOB=VALUE", help="Set a knob of the server.")
@click.option("--mix", metavar="CAT=SHARE,…", help="Your own traffic, as code=.6,story=.1,….")
@click.option("--adaptive", is_flag=True, help="Deepest first, then what decides most.")
@click.option("--resume", metavar="RUN", help="Go on with a run that was interrupted.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line on stdout: events, then the result.")
def command(
    preset: str | None,
    depths_text: str | None,
    rounds: int,
    prompts: int | None,
    max_tokens: int | None,
    settings: tuple[str, ...],
    mix: str | None,
    resume: str | None,
    *,
    adaptive: bool,
    as_json: bool,
) -> None:
    """Step the dial of PRESET, restart, measure every category, and decide."""
    from probes import preset as presets
    from probes import store
    from probes.recipe import Refused

    about: dict[str, Any] = {}
    with common.refusing():
        run = store.find(resume) if resume else None
        if run:
            given = {
                "depths": depths_text, "rounds": rounds if rounds > 1 else None, "prompts": prompts,
                "max_tokens": max_tokens, "set": list(settings) or None, "mix": mix, "adaptive": adaptive or None,
            }  # fmt: skip
            about = _as_begun(common.resumed(run, "sweep", ASKED, preset), given)
            preset, depths_text, rounds, prompts, max_tokens, settings, mix = (about[name] for name in ASKED)
            adaptive = bool(about.get("adaptive"))
        if not preset:
            raise Refused("name a preset (draftdial presets lists them), or --resume RUN")
        recipe = presets.load(preset)
        load = {"prompts_per_category": prompts, "max_tokens": max_tokens}
        asked: dict[str, Any] = {k: v for k, v in load.items() if v is not None}
        recipe = dataclasses.replace(recipe, workload=dataclasses.replace(recipe.workload, **asked))
        chosen = dict(presets.setting(recipe, text) for text in settings)
        if "depth" in chosen:
            raise Refused("--set depth: a sweep steps the depth itself; name the depths with --depths")
        depths = _depths(recipe.dial.values, depths_text)
        shares = _mix(mix, recipe.workload.categories)
        common.ready(recipe, depths, chosen)
        recipe = dataclasses.replace(recipe, settings={**recipe.settings, **chosen})
        run = run or store.create()
    about = {
        "preset": recipe.path or preset, "depths": ",".join(map(str, depths)), "rounds": rounds, "prompts": prompts,
        "max_tokens": max_tokens, "set": list(settings), "mix": mix, "adaptive": adaptive,
    }  # fmt: skip
    raise SystemExit(_run(recipe, run, depths, {"sweep": about}, shares, as_json=as_json))


def _run(recipe: Any, run: Any, depths: tuple[int, ...], about: Any, mix: Any, *, as_json: bool) -> int:
    from probes.commands import _sweep_view as view
    from probes.lab import Lab
    from probes.measure.adaptive import adaptive
    from probes.measure.sweep import sweep
    from probes.recipe import Refused

    work, rounds = recipe.workload, int(about["sweep"]["rounds"])
    seek = bool(about["sweep"]["adaptive"])

    bar = view.bar() if sys.stderr.isatty() and not as_json else None
    lab = Lab(recipe, run, common.printer(as_json=as_json, bar=bar), depths)
    lab.mix = mix

    async def main() -> int:
        try:
            await lab.open(about)
        except Refused as problem:
            common.fail(str(problem))
        try:
            if seek:
                plan = adaptive(depths, work.prompts_per_category, work.max_tokens, max(rounds, SEEK_ROUNDS))
            else:
                plan = sweep(depths, rounds, work.prompts_per_category)
            outcomes = await lab.carry_out("sweep", plan, len(depths) * (1 if seek else rounds), judged=seek)
        finally:
            await lab.close()
        failed = [o for o in outcomes if o.failed]
        result = dict(run.result() or {})
        result["failed_points"] = [{"depth": o.step.depth, "block": o.step.block, "why": o.failed} for o in failed]
        result["run_path"] = str(run.path)
        run.write_result(result)
        if as_json:
            common.line(result)
        else:
            view.show(result)
        code = common.outcome([str(o.failed) for o in failed], len(outcomes))
        return common.INCOMPLETE if lab.lost else code

    return common.run(main(), lab.cancel)


def _as_begun(about: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What a run was begun with; options beside --resume must say the same, but for more rounds."""
    from probes import preset as presets
    from probes.recipe import Refused

    for name, value in given.items():
        begun = about.get(name)
        same = value is None or value == begun
        with contextlib.suppress(ValueError):
            same = same or (name == "depths" and presets.depths(str(value)) == presets.depths(str(begun)))
        if name == "rounds" and value is not None and value > begun:
            about = {**about, name: value}
        elif not same:
            raise Refused(f"--{name.replace('_', '-')}: the run was begun with {begun}; leave it out to resume")
    return about


def _depths(dial: tuple[int, ...], text: str | None) -> tuple[int, ...]:
    from probes.preset import depths
    from probes.recipe import Refused

    if text is None:
        return dial
    try:
        wanted = depths(text)
    except ValueError:
        raise Refused(f"--depths {text}: write 0-4 or 0,2,4") from None
    if bad := [d for d in wanted if d not in dial]:
        raise Refused(f"--depths {text}: {bad[0]} is not on the dial: {', '.join(map(str, dial))}")
    return wanted


def _mix(text: str | None, categories: tuple[str, ...]) -> dict[str, float] | None:
    from probes.recipe import Refused

    if text is None:
        return None
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, share = part.strip().partition("=")
        try:
            value = float(share)
        except ValueError:
            value = -1.0
        if name not in categories or not 0 <= value < 1e9 or name in found:
            raise Refused(f"--mix {text}: write category=share for some of {', '.join(categories)}")
        found[name] = value
    if not sum(found.values()) > 0:
        raise Refused(f"--mix {text}: the shares add up to nothing")
    total = sum(found.values())
    return {name: value / total for name, value in found.items()}
