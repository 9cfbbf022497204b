"""`draftdial PRESET` and bare `draftdial`: the live screen, or the picker before it."""

from __future__ import annotations

import dataclasses
import difflib
import sys
from typing import TYPE_CHECKING, Any

import click

from probes import preset as presets
from probes import store
from probes.commands import _common as common
from probes.recipe import Recipe, Refused
from tui.messages import Anew, Open, OpenRun

SWITCH_S = 0.001
"""A key passes four threads on its way to the screen; under a flood of log lines each hop waits this long at most."""

if TYPE_CHECKING:
    from tui.feed import Feed


@click.command()
@click.argument("preset")
@click.option("--set", "settings", multiple=True, metavar="KNOB=VALUE", help="Set the depth or a knob of the server.")
def command(preset: str, settings: tuple[str, ...]) -> None:
    """The live screen on PRESET, a name or a path."""
    with common.refusing():
        what = recipe(preset, settings)
        need_terminal()
        show(opened(what))


def pick() -> None:
    """The picker, then the live screen."""
    need_terminal()
    show(rows())


def recipe(name: str, settings: tuple[str, ...] = ()) -> Recipe:
    """The recipe of a preset with settings over it. A word that is neither preset nor command names the nearest."""
    try:
        found = presets.load(name)
    except Refused:
        if "/" in name or name.endswith((".yaml", ".yml")) or name in presets.listing():
            raise
        raise Refused(f"{name!r} is no command and no preset; {_nearest(name)}") from None
    chosen: dict[str, Any] = dict(presets.setting(found, text) for text in settings)
    depth = chosen.pop("depth", found.dial.start)
    dial = dataclasses.replace(found.dial, start=depth)
    return dataclasses.replace(found, dial=dial, settings={**found.settings, **chosen})


def _nearest(name: str) -> str:
    from tui.__main__ import draftdial

    kinds = {"command": list(draftdial.table), "preset": list(presets.listing())}
    close = {kind: difflib.get_close_matches(name, names, n=1, cutoff=0.3) for kind, names in kinds.items()}
    near = [f"the nearest {kind} is {found[0]}" for kind, found in close.items() if found]
    return ", ".join(near) or "draftdial --help lists commands, draftdial presets lists presets"


def opened(what: Recipe) -> Feed:
    """A new run on a recipe."""
    from tui.labthread import LabThread

    return LabThread(what, store.create())


def opener(intent: Open | OpenRun | Anew) -> Feed:
    """What the screen asks to open."""
    if isinstance(intent, Anew):
        return opened(intent.recipe)
    if isinstance(intent, OpenRun):
        from tui.replay import Replay

        return Replay(store.find(intent.run))
    return opened(recipe(intent.preset))


def rows() -> list[tuple[str, str, str | None]]:
    """Every preset with its title, and what is wrong with it."""
    found: list[tuple[str, str, str | None]] = []
    for name in presets.listing():
        try:
            found.append((name, presets.load(name).title, None))
        except Refused as problem:
            found.append((name, "", str(problem)))
    return found


def need_terminal() -> None:
    """One line and out where nothing can be shown, before anything is made."""
    if not sys.stdin.isatty() or not sys.stdout.isatty():
        common.fail("the screen needs a terminal; draftdial sweep works without one")


def show(first: Any) -> None:
    """Run the screen to its end."""
    from tui.app import Draftdial

    sys.setswitchinterval(SWITCH_S)
    sys.stdout.write("\r\x1b[K")
    app = Draftdial(opener, first)
    if said := app.run():
        click.echo(said)
    if app.return_code:
        sys.exit(app.return_code)
