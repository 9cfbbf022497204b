"""Decode speed by depth and category, in tokens per second of one request."""

from __future__ import annotations

from rich.text import Text

from probes.session import Frame
from tui.panels import Panel
from tui.panels._cells import chart, mean
from tui.widgets.drawn import Drawn


def draw(frame: Frame, width: int, height: int) -> Text:
    """The chart, from 0 up, so that heights can be compared."""
    return chart(frame, lambda c: mean(c, "decode_tps"), width, height, spec=".1f")


USES = ("result", "run", "server")
TITLE = "Decode tok/s by depth"
PANEL = Panel("speed", "speed", "did", 2, 13, lambda _: Drawn("speed", TITLE, USES, draw))
