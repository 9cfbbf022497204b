"""Accept rate by depth and category: accepted over drafted, pooled by sums inside a category."""

from __future__ import annotations

from rich.text import Text

from probes.session import Frame
from tui.panels import Panel
from tui.panels._cells import chart
from tui.widgets.drawn import Drawn


def draw(frame: Frame, width: int, height: int) -> Text:
    """The chart; depth 0 drafts nothing and has no point."""
    return chart(frame, lambda c: c.get("accept_rate"), width, height, spec=".1%", top=1.0)


USES = ("result", "run", "server")
TITLE = "Accept rate by depth"
PANEL = Panel("accept", "accept", "did", 1, 13, lambda _: Drawn("accept", TITLE, USES, draw))
