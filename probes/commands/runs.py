"""`draftdial runs`: the runs in the store, one a line, newest last."""

from __future__ import annotations

from typing import Any

import click

from probes.commands import _common as common
from probes.show import moment


@click.command()
@click.option("--last", type=click.IntRange(1), help="Only so many, the newest.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def command(last: int | None, *, as_json: bool) -> None:
    """List the runs in the store: when, engine, preset, depths, requests, verdict, and whether they were finished."""
    from probes import history, store

    with common.refusing():
        found = store.listing()
    for_show = found[-last:] if last else found
    rows = [history.glance(run) for run in for_show]
    if as_json:
        for row in rows:
            common.line(row)
        return
    if not rows:
        common.say(f"no runs in {store.home()} yet: draftdial sweep PRESET makes one (DRAFTDIAL_RUNS moves the place)")
        return
    _show(rows)


HEADS = ("run", "when", "engine", "preset", "depths", "requests", "verdict", "state")


def _show(rows: list[dict[str, Any]]) -> None:
    from probes.show import clean

    table = [HEADS, *(_row(row) for row in rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(HEADS))]
    for row in table:
        cells = (t.rjust(w) if h == "requests" else t.ljust(w) for t, w, h in zip(row, widths, HEADS, strict=True))
        print(clean("  ".join(cells).rstrip(), 400))


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    when = moment(row["at"], "%Y-%m-%d %H:%M", "—")
    verdict = row["verdict"] or "—"
    if row["pick"] is not None:
        verdict += f" depth {row['pick']}"
    told = " SIMULATED" if row["simulated"] else ""
    return (
        row["run"], when, f"{row['engine'] or '—'}{told}", row["preset"] or "—",
        spans(row["depths"]) or "—", str(row["requests"]), verdict, row["state"],
    )  # fmt: skip


def spans(depths: list[int]) -> str:
    """`0-3,6` for 0, 1, 2, 3, 6."""
    parts: list[list[int]] = []
    for depth in depths:
        if parts and depth == parts[-1][-1] + 1:
            parts[-1].append(depth)
        else:
            parts.append([depth])
    return ",".join(f"{p[0]}-{p[-1]}" if len(p) > 2 else ",".join(map(str, p)) for p in parts)
