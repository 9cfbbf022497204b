"""What the server can hold, in words, and the ceiling that holds requests back."""

from __future__ import annotations

from rich.text import Text

from probes.session import Frame
from tui.panels import Panel
from tui.widgets import ink
from tui.widgets.drawn import Drawn


def draw(frame: Frame, width: int, height: int) -> Text:
    """The verdict line on top, since it is what a person looks for; then capacity and warnings."""
    out = [verdict(frame)]
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


def verdict(frame: Frame) -> Text:
    """Which ceiling, in one line."""
    ceiling = frame.ceiling
    if ceiling is None:
        return Text("no ceiling known: nothing has waited yet", style="dim")
    name = ceiling.verdict.replace("_", " ").upper()
    if ceiling.verdict == "none":
        return Text(f"no ceiling: {ink.safe(ceiling.sentence or 'nothing waits')}", style="dim")
    simulated = " SIMULATED" if frame.run and frame.run.simulated else ""
    text = Text(f"▲ {name}{simulated}", style=f"bold {ink.WARN}")
    text.append(f" ({ceiling.confidence}): {ink.safe(ceiling.sentence)}", style="")
    if ceiling.missing:
        text.append(f" · would decide: {ink.safe(', '.join(ceiling.missing))}", style="dim")
    elif ceiling.experiment:
        text.append(f" · {ink.safe(ceiling.experiment)}", style="")
    return text


USES = ("capacity", "warnings", "ceiling", "run")
PANEL = Panel("capacity", "capacity", "bounds", 1, 6, lambda _: Drawn("capacity", "Capacity and ceiling", USES, draw))
