"""Asked before quitting while a server runs: stop it, or leave it running."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from probes.session import Frame
from tui.messages import Quit
from tui.widgets import ink

UP = frozenset({"starting", "loading", "ready", "draining"})


class Leave(ModalScreen[Quit | None]):
    """Gives `Quit`, or None to stay. Only a ready server can be left behind."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s,enter", "choose(False)", "stop it"),
        Binding("l", "choose(True)", "leave it running"),
        Binding("escape,q", "dismiss(None)", "stay"),
    ]

    def __init__(self, frame: Frame, doing: str | None = None) -> None:
        super().__init__()
        self._server = frame.server
        self._mine = frame.run is None or not frame.run.attached
        self._doing = doing

    def compose(self) -> ComposeResult:
        """The question and its three answers."""
        server = self._server
        runs = self._mine and server is not None and server.state in UP
        pid = f" (pid {server.pid})" if server and server.pid else ""
        text = Text(f"A server runs{pid}.\n" if runs else "")
        if self._doing:
            text.append(f"It would be ended: {ink.safe(self._doing.partition(' · ')[0])}. What was measured is kept.\n")
        stops = "stop it and quit\n" if runs else "end it and quit\n"
        text.append("\n  s or enter  ", style="bold").append(stops)
        if self._can_stay:
            text.append("  l           ", style="bold").append("leave it running, and print how to attach again\n")
        text.append("  escape      ", style="bold").append("stay here")
        with Vertical(classes="question") as box:
            box.border_title = "Quit"
            yield Static(text)

    @property
    def _can_stay(self) -> bool:
        return self._mine and self._server is not None and self._server.state == "ready"

    def action_choose(self, leave: bool) -> None:
        """Quit in that way."""
        if not leave or self._can_stay:
            self.dismiss(Quit(leave=leave))
