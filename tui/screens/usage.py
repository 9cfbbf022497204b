"""All keys of the live screen, on one page."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from tui.screens.keys import KEYS

SIGNS = {"question_mark": "?", "slash": "/", "left": "←", "right": "→", "up": "↑", "down": "↓"}


class Usage(ModalScreen[None]):
    """Any of its keys closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter", "dismiss(None)", "close")]

    def compose(self) -> ComposeResult:
        """A line a key."""
        text = Text("Keys\n\n", style="bold")
        for key in KEYS:
            signs = " or ".join(SIGNS.get(k, k) for k in key.keys.split(","))
            text.append(f"{signs:>14}  ", style="bold not bold" if key.rank is None else "bold")
            text.append(f"{key.help}\n", style="not bold")
        text.append("\n       ^p or :  every action by name\n", style="not bold")
        text.append(
            "\nDim figures are not settled: too few prompts, or no verdict yet. — means that the source does not say.",
            style="dim not bold",
        )
        with VerticalScroll(classes="sheet") as scroll:
            scroll.border_title = "Help · escape closes"
            yield Static(text)
