"""`draftdial export`: a run's requests, or its cells, as CSV or JSON for other programs."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from probes.commands import _common as common

CELL = (
    "run", "engine", "simulated", "depth", "category", "n", "requests", "drafted", "accepted", "accept_rate",
    "accept_len", "decode_tps", "tpot_ms", "ttft_ms", "step_ms", "approximate", "outcomes", "state", "regret",
)  # fmt: skip
"""Columns of a cell, in order; new ones are only added at the end."""
FORMULA = ("=", "+", "-", "@", "\t", "\r")
CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
QUOTED = set('",\r\n')


@click.command()
@click.argument("run")
@click.option("--format", "form", type=click.Choice(["csv", "json"]), required=True, help="What to write.")
@click.option("--cells", is_flag=True, help="A row a cell (depth and category) in place of a row a request.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="A file; default: stdout.")
def command(run: str, form: str, output: Path | None, *, cells: bool) -> None:
    """Write RUN with one row (CSV) or object (a JSON list) a request, warm-ups included and marked.

    Unknown is empty in CSV and null in JSON. Lists are JSON in a CSV cell. Texts that a spreadsheet would run as a
    formula get a leading apostrophe, in CSV alone.
    """
    from probes import store

    with common.refusing():
        found = store.find(run)
        columns, rows = _cells(found) if cells else _requests(found)
        text = as_csv(columns, rows) if form == "csv" else as_json(rows)
    common.write(text, output)


def _requests(run: Any) -> tuple[Sequence[str], list[dict[str, Any]]]:
    """Every request: the fields of its record in their order, with the run first and what the server said last."""
    import msgspec

    from probes.events import RequestDone

    names = [f.name for f in dataclasses.fields(RequestDone)]
    rows = [{"run": run.name, **msgspec.to_builtins(r)} for r in run.requests()]
    return ("run", *names), rows


def _cells(run: Any) -> tuple[Sequence[str], list[dict[str, Any]]]:
    """Every cell of the stored result, or of one computed now."""
    from probes.history import account
    from probes.recipe import Refused

    result = account(run).result
    if "cells" not in result:
        raise Refused(f"{run.name}: its result has no cells (no sweep, or nothing measured); leave --cells out")
    losses = result.get("regret") or {}
    rows = []
    for cell in result["cells"]:
        about = {"run": run.name, "engine": result.get("engine"), "simulated": result.get("simulated")}
        loss = (losses.get(str(cell.get("depth"))) or {}).get(cell.get("category"))
        whole = {**about, **cell, "regret": loss}
        rows.append({name: whole.get(name) for name in CELL})
    return CELL, rows


def as_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """RFC 4180 with a header; numbers bare, None empty, lists and mappings as JSON."""
    lines = [list(columns), *([_cell(row.get(name)) for name in columns] for row in rows)]
    return "".join(_line(cells) for cells in lines)


def _line(cells: Sequence[Any]) -> str:
    """One row. Not by the standard writer, which leaves a lone carriage return bare: readers end a row there."""
    texts = ["" if value is None else str(value) for value in cells]
    quoted = ['"' + t.replace('"', '""') + '"' if QUOTED & set(t) else t for t in texts]
    return ('""' if quoted == [""] else ",".join(quoted)) + "\n"


def _cell(value: Any) -> Any:
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # Surrogates can't be written, NUL ends a field in many readers, an escape would act on the terminal that shows
        # it, and a formula would run where it is opened.
        text = CONTROLS.sub("\N{REPLACEMENT CHARACTER}", value.encode("utf-8", "replace").decode())
        return f"'{text}" if text.startswith(FORMULA) else text
    return value


def as_json(rows: Iterable[Mapping[str, Any]]) -> str:
    """A JSON list, one object a line."""
    body = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    return f"[\n{body}\n]\n" if body else "[]\n"
