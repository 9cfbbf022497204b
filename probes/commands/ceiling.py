"""`draftdial ceiling`: provoke the queue, say which limit it was, and run the experiment that settles it."""

from __future__ import annotations

import sys
from typing import Any

import click

from probes.commands import _common as common


@click.command()
@click.argument("preset")
@click.option("--streams", type=click.IntRange(1, 4096), help="Requests in flight (default: chosen from its capacity).")
@click.option("--max-tokens", type=click.IntRange(1, 1_000_000), help="Tokens that each asks for (default: chosen).")
@click.option("--prompt-tokens", type=click.IntRange(20, 1_000_000), default=60, show_default=True,
              help="Length of each prompt, with --streams.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(1, 3600), help="How long a load is kept up (default: four reports).")
@click.option("--set", "settings", multiple=True, metavar="KNOB=VALUE", help="Set a knob of the server.")
@click.option("--no-experiments", is_flag=True, help="Provoke and judge only.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line on stdout: events, then the result.")
def command(
    preset: str,
    streams: int | None,
    max_tokens: int | None,
    prompt_tokens: int,
    seconds: float | None,
    settings: tuple[str, ...],
    *,
    no_experiments: bool,
    as_json: bool,
) -> None:
    """Provoke a queue on the server of PRESET, name the ceiling, and separate it from its rivals."""
    import dataclasses
    import math

    from probes import preset as presets
    from probes import store
    from probes.recipe import Refused

    with common.refusing():
        recipe = presets.load(preset)
        chosen = dict(presets.setting(recipe, text) for text in settings)
        depth = chosen.pop("depth", recipe.dial.start)
        presets.accept(recipe, [depth], chosen)
        recipe = dataclasses.replace(recipe, settings={**recipe.settings, **chosen})
        if seconds is not None and not math.isfinite(seconds):
            raise Refused("--seconds: a number of seconds from 1 to 3600")
        if max_tokens is not None and streams is None:
            raise Refused("--max-tokens: say how many requests want them, with --streams")
        run = store.create()
    load = None
    if streams is not None:
        load = (streams, max_tokens or recipe.workload.max_tokens, prompt_tokens, seconds)
    raise SystemExit(_run(recipe, run, depth, load, experiments=not no_experiments, as_json=as_json))


def _run(recipe: Any, run: Any, depth: int | None, load: Any, *, experiments: bool, as_json: bool) -> int:
    from probes.commands import _sweep_view as view
    from probes.lab import Lab
    from probes.measure.ceiling import Ask, Load
    from probes.measure.steps import Burst
    from probes.provoke import provoke
    from probes.recipe import Refused

    bar = view.bar() if sys.stderr.isatty() and not as_json else None
    lab = Lab(recipe, run, common.printer(as_json=as_json, bar=bar), [depth] if depth is not None else [])
    loads: tuple[Load, ...] = ()
    if load is not None:
        streams, tokens, prompt, seconds = load
        engine = lab.bench.engine
        usual = Ask(engine.name, depth, {}, engine.reserving, engine.report_s).seconds
        loads = (Load("the load you named", Burst(streams, tokens, prompt, seconds or usual)),)

    async def main() -> int:
        try:
            await lab.open({"ceiling": {"preset": recipe.path, "load": load}})
        except Refused as problem:
            common.fail(str(problem))
        try:
            result = await provoke(lab, loads, depth=depth, experiments=experiments)
        finally:
            await lab.close()
        result["run_path"] = str(run.path)
        run.write_result(result)
        if as_json:
            common.line(result)
        else:
            show(result)
        if not result["loads"]:
            return common.NOT_STARTED
        return common.INCOMPLETE if result["failed_points"] or lab.lost else common.DONE

    return common.run(main(), lab.cancel)


def show(result: dict[str, Any]) -> None:
    """The result for a person."""
    from probes.show import clean

    if result["simulated"]:
        print("SIMULATED: no figure here is of a real machine.")
    for load in result["loads"]:
        was, ceiling = load["measured"], load["ceiling"]
        print(f"\n{clean(load['load'])}")
        print(f"  before      running {_n(was['running'])} of {_n(was['lanes'])} lanes, waiting {_n(was['waiting'])}")
        print(
            f"  verdict     {ceiling['verdict'].upper()} ({ceiling['confidence']}). {clean(ceiling['sentence'], 2000)}"
        )
        if ceiling["rivals"]:
            print(f"  rivals      {', '.join(ceiling['rivals'])}")
        for trial in load["experiments"]:
            print(f"  experiment  {clean(trial['name'])}: {clean(trial.get('says') or trial['failed'])}")
        if load["experiments"]:
            print(f"  conclusion  {load['conclusion']}: {clean(load['because'])}")
        if load["admits"]:
            print(f"  to admit it {clean(load['admits']['sentence'], 2000)}")
        print(f"  to do       {clean(ceiling['advice'], 2000)}")
    print(f"\nrun {clean(result['run'])} · {clean(result['run_path'], 2000)}")


def _n(value: float | None) -> str:
    return "—" if value is None else f"{value:g}"
