"""TPOT, TTFT and step time by depth: a row a depth, a column a category, since three scales share no axis."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from probes.session import Frame
from tui.charts import colours, letters
from tui.panels import Panel
from tui.panels._cells import SETTLED, categories, cells, depths
from tui.widgets import ink
from tui.widgets.drawn import Drawn

FIGURES = (("TPOT", "tpot_ms"), ("TTFT", "ttft_ms"), ("step", "step_ms"))


def draw(frame: Frame, width: int, height: int) -> Text:
    """Milliseconds; the columns are the categories' letters, as in the charts."""
    names = categories(frame)
    grid = {(int(c["depth"]), c["category"]): c for c in cells(frame)}
    rows = [d for d in depths(frame) if any((d, n) in grid for n in names)]
    if not rows:
        return Text("nothing measured yet", style="dim")
    marks, inks = letters(names), colours(names)
    column = max(5, min(8, (width - 6) // max(1, len(FIGURES) * len(names)) - 1))
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


def _figure(cell: Any, key: str, column: int) -> Text:
    value = None if cell is None else cell.get(key)
    about = "≈" if value is not None and key != "ttft_ms" and cell.get("approximate") else ""
    shown = about + ink.figure(value, ".0f" if value is not None and value >= 1000 else ".1f")
    settled = cell is not None and cell.get("state") in SETTLED
    return Text(f"{shown[:column]:>{column}} ", style="" if settled else "dim")


USES = ("result", "run")
TITLE = "TPOT · TTFT · step, ms by depth"
PANEL = Panel("latency", "latency", "did", 4, 13, lambda _: Drawn("latency", TITLE, USES, draw))
