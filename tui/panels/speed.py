"""Decode speed by depth and category, in tokens per second of one request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from probes.session import Frame
from tui.panels import Panel
from tui.panels._cells import chart, mean
from tui.widgets.drawn import Drawn
from tui.widgets.ink import figure


def draw(frame: Frame, width: int, height: int) -> Text:
    """The chart, from 0 up, so that heights can be compared."""
    return chart(frame, lambda c: mean(c, "decode_tps"), words, width, height)


def words(cell: Mapping[str, Any]) -> str:
    """The mean; of two requests both, since two have no mean worth naming."""
    speeds = cell.get("decode_tps") or []
    return "/".join(f"{v:.1f}" for v in speeds) if len(speeds) == 2 else figure(mean(cell, "decode_tps"))


USES = ("result", "run", "server")
TITLE = "Decode tok/s by depth"
PANEL = Panel("speed", "speed", "did", 2, 13, lambda _: Drawn("speed", TITLE, USES, draw))
