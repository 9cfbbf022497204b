"""`draftdial report`: a run as one HTML page that can be mailed, printed and read without a network."""

from __future__ import annotations

from pathlib import Path

import click

from probes.commands import _common as common


@click.command()
@click.argument("run")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The file.")
def command(run: str, output: Path) -> None:
    """Write RUN as one self-contained page: verdict, charts, tables, starts, memory, fingerprint."""
    from probes import history, store
    from probes.commands._report_page import page

    with common.refusing():
        found = history.account(store.find(run))
    common.write(page(found), output)
