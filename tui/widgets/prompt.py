"""The line on which a person types: a knob's value, or what to look for in the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Input, Label

Answer = Callable[[str], str | None]
"""Takes what was typed; says why it is refused, or None."""


class Prompt(Horizontal):
    """Hidden until `ask`; then it holds the focus until a good answer or escape."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", show=False),
        Binding("up,down", "nothing", show=False),
    ]

    def compose(self) -> ComposeResult:
        """Label, input, complaint."""
        yield Label("", id="prompt-label", markup=False)
        yield Input(id="prompt-input", compact=True, select_on_focus=False)
        yield Label("", id="prompt-complaint", markup=False)

    def on_mount(self) -> None:
        """Nothing is asked yet."""
        self._answer: Answer = lambda _: None
        self._done: Callable[[], None] = lambda: None
        self.display = False

    def ask(self, label: str, start: str, answer: Answer, done: Callable[[], None]) -> None:
        """Ask; `answer` judges each entry, `done` is called when the line closes."""
        self._answer, self._done = answer, done
        self.query_one("#prompt-label", Label).update(f"{label} ")
        self.query_one("#prompt-complaint", Label).update("")
        entry = self.query_one(Input)
        entry.value = start
        self.display = True
        entry.focus()
        entry.cursor_position = len(start)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the answer, or show the rule that it breaks."""
        event.stop()
        refused = self._answer(event.value)
        if refused:
            self.query_one("#prompt-complaint", Label).update(f" {refused}")
        else:
            self.action_close()

    def action_close(self) -> None:
        """Hide again."""
        self.display = False
        self._done()

    def action_nothing(self) -> None:
        """Up and down must not move the dial while a value is typed."""
