"""`draftdial replay`: the live screen on a run of the store."""

from __future__ import annotations

import click

from probes import store
from probes.commands import _common as common


@click.command()
@click.argument("run")
def command(run: str) -> None:
    """The live screen on RUN, a name from the store or a path."""
    from tui.commands.live import need_terminal, show
    from tui.replay import Replay

    with common.refusing():
        past = Replay(store.find(run))
        need_terminal()
        show(past)
