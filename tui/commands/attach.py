"""`draftdial attach`: the live screen on a server that someone else started, here or behind a tunnel."""

from __future__ import annotations

import dataclasses

import click

from probes import preset as presets
from probes import store
from probes.commands import _common as common
from probes.recipe import Dial, Recipe


@click.command()
@click.argument("url")
@click.option("--log", help="The server's log, where it can be read; without it only metrics and replies tell.")
@click.option("--engine", help="The engine, where its replies don't give it away.")
@click.option("--api-key-env", "key", metavar="NAME", help="The environment variable that holds the server's API key.")
@click.option("--preset", "name", help="A preset whose dial, knobs and workload to use.")
def command(url: str, log: str | None, engine: str | None, key: str | None, name: str | None) -> None:
    """Watch the server at URL and send it probe load; it is never started or stopped."""
    from probes.bench import Attached
    from probes.identify import whole
    from tui.commands.live import need_terminal, show
    from tui.labthread import LabThread

    with common.refusing():
        path = common.existing(log) if log else None
        asked = dataclasses.replace(presets.load(name), port=None) if name else None
        key = key or (asked.api_key_env if asked else None)
        found = whole(url, engine, key)
        recipe = labelled(asked or plain(found.engine, found.url), found.speed)
        recipe = dataclasses.replace(recipe, api_key_env=key)
        need_terminal()
        attached = Attached(found.url, path, found.pgid, found.argv)
        show(LabThread(recipe, store.create(), attached))


def labelled(recipe: Recipe, speed: float | None) -> Recipe:
    """The recipe, said to be of a simulated server exactly where the server says so, with the speed of its time."""
    simulation = {} if speed is None else {**recipe.simulation, "speed": speed}
    return dataclasses.replace(recipe, simulated=speed is not None, simulation=simulation)


def plain(engine: str, url: str) -> Recipe:
    """A recipe for a server of which only engine and address are known: its depth is what it says it is."""
    from probes import engines

    engines.engine(engine)
    dial = Dial(kind="as started", values=(0,), label="draft depth")
    return Recipe(name="attached", title=f"{engine} at {url}", engine=engine, binary="", model="", dial=dial)
