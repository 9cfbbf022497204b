"""Choose a preset: the first screen when none was named."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import Screen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from tui.messages import Asked, Open, Quit
from tui.widgets import ink
from tui.widgets.keyline import Keys, of_bindings
from tui.widgets.lines import Line

Row = tuple[str, str, str | None]
"""Name, what it is, and why it can't be used (None: it can)."""


class Picker(Screen[None]):
    """Posts `Open`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "nothing", "open", key_display="⏎"),
        Binding("q,escape", "leave", "quit", key_display="q"),
    ]

    def __init__(self, rows: list[Row]) -> None:
        super().__init__()
        self._rows = rows

    def compose(self) -> ComposeResult:
        """A row a preset."""
        head = Line("header")
        head.put(Text("draftdial", style="bold").append(" · choose a preset", style="not bold"))
        yield head
        with Vertical(classes="sheet whole") as box:
            box.border_title = "Presets"
            yield OptionList(*[self._option(row) for row in self._rows], markup=False)
        yield Line("notice")
        yield Keys(of_bindings(self.BINDINGS, pinned="q"))

    @staticmethod
    def _option(row: Row) -> Option:
        name, title, problem = row
        text = Text(ink.pad(ink.safe(name), 28), style="bold" if problem is None else "dim")
        text.append(f" {ink.safe(title)}", style="not bold")
        if problem:
            text.append(f"\n    ! {ink.safe(problem)}", style=ink.WARN)
        return Option(text, id=name)

    def say(self, text: str) -> None:
        """Why a preset can't be opened."""
        self.query_one("#notice", Line).put(Text(f"✖ {ink.safe(text)}", style=ink.BAD))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Open it."""
        if event.option.id:
            self.post_message(Asked(Open(event.option.id)))

    def action_leave(self) -> None:
        """Quit."""
        self.post_message(Asked(Quit()))
