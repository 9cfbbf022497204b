"""Runs of the store, newest first: look at one again."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from probes import store
from tui.messages import OpenRun
from tui.panels._cells import conclusion
from tui.widgets import ink

MOST = 200


class Runs(ModalScreen[OpenRun | None]):
    """Gives the run to open, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,r", "dismiss(None)", "close")]

    def compose(self) -> ComposeResult:
        """A row a run: name, engine, verdict."""
        with Vertical(classes="sheet") as box:
            box.border_title = "Runs · enter opens one · escape closes"
            yield OptionList(*self._options(), markup=False)

    @staticmethod
    def _options() -> list[Option]:
        found = store.listing()[: -MOST - 1 : -1]
        if not found:
            return [Option(Text(f"no run yet in {store.home()}", style="dim"), disabled=True)]
        out = []
        for run in found:
            result = run.result() or {}
            told = conclusion(result)
            text = Text(f"{ink.pad(run.name, 16)} {ink.pad(ink.safe(result.get('engine') or ''), 9)} {told}")
            out.append(Option(text, id=run.name))
        return out

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """That one."""
        if event.option.id:
            self.dismiss(OpenRun(event.option.id))
