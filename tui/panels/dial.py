"""The dial: the draft depth, the knobs, and what enter would do."""

from __future__ import annotations

from tui.panels import Panel
from tui.widgets.dial import Dial

PANEL = Panel("dial", "dial", "turn", 1, 9, lambda recipe: Dial("dial", "Dial", recipe), always=True)
