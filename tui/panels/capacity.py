"""What the server can hold, in words, and the ceiling that holds requests back."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from probes.session import Frame
from tui.panels import Panel
from tui.widgets import ink
from tui.widgets.ceiling import verdict
from tui.widgets.drawn import Drawn


def draw(frame: Frame, width: int, height: int) -> Text:
    """The verdict line on top, since it is what a person looks for; then capacity and warnings."""
    first = verdict(frame)
    if frame.ceiling is not None and frame.ceiling.verdict != "none" and frame.ceiling.until is None:
        out = wrapped(first, width, max(1, height - 2))
    else:
        out = [first]
    if frame.capacity is not None:
        out += [Text(ink.safe(t)) for t in frame.capacity.explain]
    told = dict.fromkeys(f"! {ink.safe(w.text)}" + (f" (line {w.line})" if w.line else "") for w in frame.warnings)
    out += [Text(line, style=ink.WARN) for line in told]
    if len(out) == 1 and frame.capacity is None:
        out.append(Text("the server has not said what it can hold", style="dim"))
    for line in out:
        line.truncate(width, overflow="ellipsis")
    if len(out) > height > 1:
        out = [*out[: height - 1], Text(f"{len(out) - height + 1} more: y tells all", style="dim")]
    return ink.lines(out[:height])


def wrapped(text: Text, width: int, most: int) -> list[Text]:
    """A verdict over as many lines as it may have: it is what a person looks for."""
    lines = list(text.wrap(Console(width=width, color_system=None), width))
    if len(lines) <= most:
        return lines
    lines[most - 1].append(" …")
    return lines[:most]


USES = ("capacity", "warnings", "ceiling", "run")
PANEL = Panel("capacity", "capacity", "bounds", 1, 6, lambda _: Drawn("capacity", "Capacity and ceiling", USES, draw))
