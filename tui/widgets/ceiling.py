"""The ceiling in one line: which limit holds requests back, and what would settle it."""

from __future__ import annotations

from rich.text import Text

from probes.session import Frame
from tui.widgets import ink

NO_LIMIT = ("none", "unknown")


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
