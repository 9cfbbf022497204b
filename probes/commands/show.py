"""`draftdial show`: one run of the store in full: result, starts, memory, outcomes, capacity, ceiling, notices."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from probes.commands import _common as common

if TYPE_CHECKING:
    from probes.stats.points import Between


@click.command()
@click.argument("run")
@click.option("--recompute", is_flag=True, help="Judge the sweep again from load.jsonl; the stored result stays.")
@click.option("--between", "span", metavar="A:B", help="Why depth B is faster or slower than A: which half changed.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(run: str, span: str | None, *, recompute: bool, as_json: bool) -> None:
    """Show RUN, a name from `draftdial runs` or a path."""
    from probes import history, store
    from probes.commands import _run_view as view

    with common.refusing():
        found = history.account(store.find(run), recompute=recompute)
        told = _between(found.result, span) if span is not None else None
    if told is not None:
        _print(told, as_json=as_json)
        return
    if as_json:
        common.line(view.plain(found))
        return
    from probes.show import clean

    for text in view.lines(found):
        sys.stdout.write(clean(text, 1000) + "\n")
    if sys.stdout.isatty() and found.result.get("cells"):
        from probes.commands._sweep_view import charts

        charts(found.result)


def _between(result: Mapping[str, Any], span: str) -> Sequence[Between]:
    """The kinds of text at the two depths that `span` names. Raises `Refused`."""
    from probes.recipe import Refused
    from probes.stats.points import between

    measured = sorted({int(c["depth"]) for c in result.get("cells") or [] if c.get("decode_tps")})
    names = span.split(":")
    if len(names) != len(("a", "b")) or not all(n.strip().isdecimal() and int(n) in measured for n in names):
        legal = ", ".join(map(str, measured)) or "none"
        raise Refused(f"--between {span}: write two measured depths as 3:4; measured: {legal}")
    return between(result["cells"], int(names[0]), int(names[1]))


def _print(told: Sequence[Between], *, as_json: bool) -> None:
    from dataclasses import asdict

    from probes.show import clean
    from probes.stats.points import words

    for text in [] if as_json else words(told) or ["no kind of text was measured at both"]:
        sys.stdout.write(clean(text, 400) + "\n")
    if as_json:
        common.line({"kind": "between", "points": [asdict(pair) for pair in told]})
