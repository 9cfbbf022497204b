"""TPOT, TTFT and step time by depth: two charts side by side and the figures of one depth; a table where it is low."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from rich.text import Text

from probes.session import Frame
from tui.charts import colours, letters
from tui.panels import Panel
from tui.panels._cells import SETTLED, categories, cells, depths, focus, plot
from tui.widgets import ink
from tui.widgets.drawn import Drawn

FIGURES = (("TPOT", "tpot_ms"), ("TTFT", "ttft_ms"), ("step", "step_ms"))
CHARTED = FIGURES[:2]
LOW = 9
"""Below this many rows two charts would say less than the table."""
Grid = Mapping[tuple[int, str], Mapping[str, Any]]


def draw(frame: Frame, width: int, height: int) -> Text:
    """Milliseconds; letters and colours are those of the other charts."""
    names = categories(frame)
    grid = {(int(c["depth"]), c["category"]): c for c in cells(frame)}
    rows = [d for d in depths(frame) if any((d, n) in grid for n in names)]
    if not rows:
        return Text("nothing measured yet", style="dim")
    if height < LOW:
        return _table(grid, names, rows, width, height)
    half = (width - 1) // 2
    left, right = (
        ink.lines([Text(f"{title} ms", style="bold"), plot(frame, itemgetter(key), half, height - 4)])
        for title, key in CHARTED
    )
    at = focus(frame, set(rows))
    figures = [_row(grid, names, at, title, key, width) for title, key in FIGURES]
    return ink.lines([ink.beside(left, right, half), *figures])


def _row(grid: Grid, names: list[str], at: int | None, title: str, key: str, width: int) -> Text:
    """One figure of every category at one depth."""
    marks, inks = letters(names), colours(names)
    line = Text(f"{title} at {ink.figure(at, 'd')}: ", style="dim")
    for name in names:
        line.append(f"{marks[name]}", style=inks[name])
        line.append_text(_figure(grid.get((at or 0, name)), key, 7))
    line.truncate(width, overflow="ellipsis")
    return line


def _table(grid: Grid, names: list[str], rows: list[int], width: int, height: int) -> Text:
    """A row a depth, a column a category, three figures side by side."""
    marks, inks = letters(names), colours(names)
    column = max(4, min(8, (width - 6) // max(1, len(FIGURES) * len(names)) - 1))
    head, marked = Text("depth ", style="dim"), Text("      ")
    for title, _ in FIGURES:
        head.append(ink.pad(f" {title} ms", (column + 1) * len(names)), style="bold")
        for name in names:
            marked.append(f"{marks[name]:>{column}} ", style=inks[name])
    out = [head, marked]
    for depth in rows[: max(1, height - 2)]:
        line = Text(f"{depth:>5} ")
        for _, key in FIGURES:
            for name in names:
                line.append_text(_figure(grid.get((depth, name)), key, column))
        out.append(line)
    for line in out:
        line.truncate(width, overflow="ellipsis")
    return ink.lines(out)


def _figure(cell: Mapping[str, Any] | None, key: str, column: int) -> Text:
    """A figure in its column; dim while it is not settled, with ≈ where it is not exact."""
    value = None if cell is None else cell.get(key)
    about = "≈" if cell is not None and value is not None and key != "ttft_ms" and cell.get("approximate") else ""
    shown = about + ink.figure(value, ".0f" if value is not None and value >= 100 else ".1f")
    settled = cell is not None and cell.get("state") in SETTLED
    return Text(f"{shown[:column]:>{column}} ", style="" if settled else "dim")


USES = ("result", "run", "server")
TITLE = "TPOT · TTFT · step, ms by depth"
PANEL = Panel("latency", "latency", "did", 4, 13, lambda _: Drawn("latency", TITLE, USES, draw))
