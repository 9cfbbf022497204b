"""The server's own log, with search and follow."""

from __future__ import annotations

from tui.panels import Panel
from tui.widgets.log import Log

PANEL = Panel("log", "log", "tell", 1, 12, lambda _: Log("log", "Log"))
