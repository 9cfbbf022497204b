"""`draftdial show`: one run of the store in full: result, starts, memory, outcomes, capacity, ceiling, notices."""

from __future__ import annotations

import sys

import click

from probes.commands import _common as common


@click.command()
@click.argument("run")
@click.option("--recompute", is_flag=True, help="Judge the sweep again from load.jsonl; the stored result stays.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(run: str, *, recompute: bool, as_json: bool) -> None:
    """Show RUN, a name from `draftdial runs` or a path."""
    from probes import history, store
    from probes.commands import _run_view as view

    with common.refusing():
        found = history.account(store.find(run), recompute=recompute)
    if as_json:
        common.line(view.plain(found))
        return
    from probes.show import clean

    for text in view.lines(found):
        sys.stdout.write(clean(text, 1000) + "\n")
    if sys.stdout.isatty() and found.result.get("cells"):
        from probes.commands._sweep_view import charts

        charts(found.result)
