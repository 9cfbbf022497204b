"""Accept rate by depth and category: accepted over drafted, pooled by sums inside a category."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from rich.text import Text

from probes.session import Frame
from tui.panels import Panel
from tui.panels._cells import chart, predicted
from tui.widgets.drawn import Drawn
from tui.widgets.ink import figure


def draw(frame: Frame, width: int, height: int) -> Text:
    """The chart; depth 0 drafts nothing and has no point."""
    return chart(frame, itemgetter("accept_rate"), words, width, height, top=1.0, none=NONE, also=predicted(frame))


def words(cell: Mapping[str, Any]) -> str:
    """The rate, and the accept length that it makes (the bonus token included); with ≈ where chunks were counted."""
    length = cell.get("accept_len")
    about = "≈" if cell.get("drafts_source") == "chunks" and cell.get("accept_rate") is not None else ""
    return about + figure(cell.get("accept_rate"), ".1%") + ("" if length is None else f" ×{length:.2f}")


NONE = "nothing was drafted yet; depth 0 drafts nothing"
USES = ("result", "run", "server")
TITLE = "Accept rate by depth"
PANEL = Panel("accept", "accept", "did", 1, 13, lambda _: Drawn("accept", TITLE, USES, draw))
