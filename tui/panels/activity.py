"""Running and waiting requests over the run, as the engine says."""

from __future__ import annotations

from rich.text import Text

from probes.session import Frame
from tui.panels import Panel
from tui.widgets import ink
from tui.widgets.drawn import Drawn


def draw(frame: Frame, width: int, height: int) -> Text:
    """The newest figures and a strip of each."""
    now = frame.activity[-1] if frame.activity else None
    if now is None:
        return Text("the engine has not said yet", style="dim")
    out: list[Text] = []
    room = max(0, width - 14)
    for name, value, values in (
        ("running", now.running, [a.running for a in frame.activity]),
        ("waiting", now.waiting, [a.waiting for a in frame.activity]),
    ):
        style = ink.WARN if name == "waiting" and value else ink.HOT
        shown = f"{name} {ink.figure(value, '.0f'):>3} "
        out.append(
            Text(shown).append(ink.strip(values, room) if any(v is not None for v in values) else "", style=style)
        )
    return ink.lines(out[:height])


USES = ("activity",)
PANEL = Panel("activity", "activity", "turn", 4, 4, lambda _: Drawn("activity", "Running · waiting", USES, draw))
