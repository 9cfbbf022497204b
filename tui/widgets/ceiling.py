"""The ceiling in one line: which limit holds requests back, and what would settle it."""

from __future__ import annotations

import re

from rich.text import Text

from probes.events import Ceiling
from probes.session import Frame
from tui.widgets import ink

NO_LIMIT = ("none", "unknown")
TIME = re.compile(r"(?<!\d)\d\d:\d\d:\d\d(?!\d)", re.ASCII)


def holds_now(ceiling: Ceiling | None) -> bool:
    """Whether a limit is known and holds requests back at present."""
    return ceiling is not None and ceiling.verdict not in NO_LIMIT and ceiling.until is None


def verdict(frame: Frame) -> Text:
    """Which ceiling, in one line."""
    ceiling = frame.ceiling
    if ceiling is None:
        return Text("no ceiling known: nothing has waited yet", style="dim")
    name = ceiling.verdict.replace("_", " ").upper()
    if ceiling.verdict == "none":
        return Text(f"no ceiling: {ink.safe(ceiling.sentence or 'nothing waits')}", style="dim")
    if ceiling.verdict == "unknown" and not ceiling.evidence and not ceiling.rivals:  # no queue was seen, or no report
        decide = f" · would decide: {ink.safe(', '.join(ceiling.missing))}" if ceiling.missing else ""
        return Text(f"no ceiling known yet{decide}", style="dim")
    simulated = " SIMULATED" if frame.run and frame.run.simulated else ""
    if ceiling.until is not None:
        text = Text(f"no queue since {clock(ceiling.until)} · before: {name}{simulated}", style="dim")
        return text.append(f" ({ceiling.confidence}): {ink.safe(ceiling.sentence)}")
    text = Text(f"▲ {name}{simulated}", style=f"bold {ink.WARN}")
    text.append(f" ({ceiling.confidence}): {ink.safe(ceiling.sentence)}", style="")
    if ceiling.missing:
        text.append(f" · would decide: {ink.safe(', '.join(ceiling.missing))}", style="dim")
    elif ceiling.experiment:
        text.append(f" · {ink.safe(ceiling.experiment)}", style="")
    return text


def clock(stamp: str) -> str:
    """The time of day of a log's stamp; the whole stamp where it has none."""
    found = TIME.search(stamp)
    return found[0] if found else ink.safe(stamp)
