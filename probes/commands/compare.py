"""`draftdial compare`: two runs side by side, or the reasons why their figures may not be divided by each other."""

from __future__ import annotations

import sys
from typing import Any

import click

from probes.commands import _common as common


@click.command()
@click.argument("first")
@click.argument("second")
@click.option("--tested", multiple=True, metavar="NAME", help="What was meant to differ, as settings.ctx or binary.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(first: str, second: str, tested: tuple[str, ...], *, as_json: bool) -> None:
    """Compare run SECOND with run FIRST: ratios by depth and category over the prompts that both measured.

    Refused (exit code 2) when more than the tested thing differs.
    """
    from probes import store
    from probes.comparison import weigh
    from probes.recipe import Refused

    with common.refusing():
        runs = [store.find(first), store.find(second)]
        if runs[0].path.resolve() == runs[1].path.resolve():
            raise Refused("that is one run twice")
        prints = [found if isinstance(found := r.description().get("fingerprint"), dict) else {} for r in runs]
        weighed = weigh(prints[0], prints[1], tested)
    found = {
        "kind": "comparison", "a": runs[0].name, "b": runs[1].name, "comparable": weighed.allowed,
        "tested": list(weighed.tested), "why": list(weighed.why), "notes": list(weighed.notes),
        **(_figures(runs) if weighed.allowed else {}),
    }  # fmt: skip
    if as_json:
        common.line(found)
    elif weighed.allowed:
        _show(found)
    if not weighed.allowed:
        common.fail(f"{runs[0].name} and {runs[1].name} can't be compared: {'; '.join(weighed.why)}")


def _figures(runs: list[Any]) -> dict[str, Any]:
    """Cells of both runs, and what to say of them."""
    from dataclasses import asdict

    from probes.stats.pairs import alone, pairs

    requests = [list(r.requests()) for r in runs]
    cells = [asdict(pair) for pair in pairs(*requests)]
    notes = []
    if cells and (most := max(max(c["restarts"]) for c in cells)):
        starts = "one start" if most == 1 else f"at most {most} starts"
        notes.append(
            f"no interval can be given: two runs are one block each ({starts} of the server a cell and side), and what "
            "changes from start to start is not told from what you changed; draftdial ab decides that"
        )
    for name, missing in zip("ab", alone(*requests), strict=True):
        if missing:
            told = ", ".join(f"depth {d} {c}" for d, c in missing[:4]) + (", …" if len(missing) > 4 else "")
            notes.append(f"only in {name}: {told}")
    for name, run in zip("ab", runs, strict=True):
        result = run.result() or {}
        bad = [str(d) for d in result.get("unverified") or []]
        if bad:
            notes.append(f"{name}: flags were not proven in force at depth {', '.join(bad)}")
        if result.get("simulated"):
            notes.append(f"{name} is SIMULATED: no figure of it was measured on a server")
    short = [f"depth {c['depth']} {c['category']}" for c in cells if c["same_text"] not in {None, c["n"]}]
    if short:
        notes.append(f"texts differ between the runs in {', '.join(short[:4])}{', …' if len(short) > 4 else ''}")
    return {"cells": cells, "cell_notes": notes}


def _show(found: dict[str, Any]) -> None:
    from probes.commands._sweep_view import number
    from probes.show import clean

    out = [f"a {found['a']} · b {found['b']}"]
    out += [f"tested: {text}" for text in found["tested"] or ["nothing differs (A/A)"]]
    heads = f"{'a tok/s':>9} {'b tok/s':>9} {'b/a':>7} {'TTFT b/a':>9} {'a accept':>9} {'b accept':>9}"
    out += ["", f"{'depth':>5} {'category':<12} {'n':>3} {heads}"]
    for c in found["cells"]:
        figures = (
            *((v, 9, ".1f") for v in c["speed"]),
            (c["speed_ratio"], 7, ".3f"),
            (c["ttft_ratio"], 9, ".3f"),
            *((v, 9, ".1%") for v in c["accept_rate"]),
        )
        row = " ".join(f"{number(v, spec):>{width}}" for v, width, spec in figures)
        depth = "—" if c["depth"] is None else c["depth"]
        out.append(f"{depth:>5} {c['category']:<12} {c['n']:>3} {row}")
    if not found["cells"]:
        out.append("no cell was measured in both runs")
    out += ["", *(f"! {text}" for text in (*found["cell_notes"], *found["notes"]))]
    for text in out:
        sys.stdout.write(clean(text, 400) + "\n")
