"""The diagnosis: provokes the queue when asked to, and shows load by load what held it back. It holds no lab."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Static

from probes.session import Frame
from tui.feed import Feed
from tui.messages import Asked, Cancel, Diagnose, Pause
from tui.panels import _diagnosis
from tui.widgets import ink, lines
from tui.widgets.keyline import Keys, of_bindings
from tui.widgets.lines import Line, title

CHOOSING, MEASURING, OVER = "start", "end it|pause|scroll", "again|scroll"
"""What the bottom row names before it starts, while it runs, and when it is over."""


class Diagnosis(Screen[object]):
    """`asked`: what enter would ask for. `attached`: someone else's server, which is never restarted.

    Shows the diagnosis that ran last, until `n` puts it away (`away`: that one was). Gives the one that was put away.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "begin", "start", key_display="⏎"),
        Binding("x", "end", "end it"),
        Binding("space", "hold", "pause"),
        Binding("n", "another", "again"),
        Binding("up", "scroll(-1)", "scroll", key_display="↑↓"),
        Binding("down", "scroll(1)", show=False),
        Binding("escape,q,d", "leave", "back", key_display="esc"),
    ]

    def __init__(self, asked: Diagnose, frame: Frame, away: object = None, *, attached: bool) -> None:
        super().__init__()
        self._asked = asked
        self._attached = attached
        self._boot = frame.boots[max(frame.boots)] if frame.boots else None
        self._first = frame
        self._frame = Frame()
        self._shown: object = None
        """The run beside that is on the screen; None: nothing has been asked yet."""
        self._ignored = away
        """A diagnosis that was put away."""
        self._doing: str | None = None
        self._waiting = self._holding = False
        self._told = ""

    def compose(self) -> ComposeResult:
        """A title, a page, a word, the keys."""
        yield Line("header")
        with VerticalScroll(id="page", can_focus=False):
            yield Static(id="told")
        yield Line("notice")
        yield Keys(of_bindings(self.BINDINGS, pinned="escape"))

    def on_mount(self) -> None:
        """What it would do."""
        self.redraw()

    def on_resize(self, event: events.Resize) -> None:  # noqa: ARG002  (the size is asked for where it's used)
        """Draw for the new size."""
        self.redraw()

    def show_beside(self, feed: Feed) -> None:
        """Take the picture of the diagnosis that runs, or ran last while this screen was on."""
        beside, doing = feed.beside, feed.doing
        changed = doing != self._doing
        if beside is not None and isinstance(beside.asked, Diagnose) and beside is not self._ignored:
            frame = beside.frame()
            changed = changed or beside is not self._shown or frame.version != self._frame.version
            self._told = "" if self._waiting else self._told
            self._shown, self._frame, self._waiting = beside, frame, False
        changed = changed or self._holding != feed.paused
        self._doing, self._holding = doing, feed.paused
        if changed:
            self.redraw()

    @property
    def _ended(self) -> bool:
        return self._frame.progress is not None and self._frame.progress.finished

    def redraw(self) -> None:
        """Draw what there is."""
        if not self.is_mounted:
            return
        width = max(10, self.size.width - 6)
        if self._shown is None:
            page = _diagnosis.proposal(self._asked.depth, width, attached=self._attached, boot_s=self._boot)
        else:
            page = _diagnosis.measured(self._frame, width)
        self.query_one("#told", Static).update(page)
        about = self._frame if self._shown is not None else self._first
        self.query_one("#header", Line).put(title("diagnosis", about, run=self._shown is not None))
        self.query_one("#notice", Line).put(self._word())
        now = CHOOSING if self._shown is None else OVER if self._ended else MEASURING
        self.query_one(Keys).put(of_bindings(self.BINDINGS, pinned="escape", only=now))

    def _word(self) -> Text:
        if self._told:
            return Text(f"› {self._told}", style="bold")
        progress = self._frame.progress if self._shown is not None else None
        work = lines.progress(progress, self.size.width, pausing=self._holding)
        if work is not None:
            return work
        if self._doing and (self._waiting or self._shown is None):
            return Text(f"◐ {self._doing}", style=ink.WARN)
        notices = [n for n in self._frame.notices if n.level != "info"]
        return lines.notice(notices[-1] if notices and self._shown is not None else None, self.size.width - 2)

    def say(self, text: str) -> None:
        """One line, until the next key."""
        self._told = text
        self.redraw()

    def on_key(self) -> None:
        """Any key takes the last word away."""
        self._told = ""

    def action_begin(self) -> None:
        """Start it."""
        if self._shown is not None:
            return
        if self._doing or self._waiting:
            self.say(f"busy: {self._doing or 'starting'}")
            return
        self._waiting = True
        self.post_message(Asked(self._asked))
        self.say("the diagnosis starts")

    def action_end(self) -> None:
        """End it; what was measured is kept."""
        if self._shown is not None and not self._ended:
            self._holding = False
            self.post_message(Asked(Cancel()))
            self.say("ending: what was measured is kept")

    def action_hold(self) -> None:
        """Hold it before its next load, or let it go on."""
        if self._shown is not None and not self._ended:
            self._holding = not self._holding
            self.post_message(Asked(Pause(on=self._holding)))
            self.redraw()

    def action_another(self) -> None:
        """Put away what has ended, so that it can be asked for again."""
        if self._shown is not None and (self._ended or not self._doing):
            self._ignored, self._shown, self._frame = self._shown, None, Frame()
            self.redraw()

    def action_leave(self) -> None:
        """Back to the live screen; a diagnosis that runs goes on."""
        self.dismiss(self._ignored)

    def action_scroll(self, by: int) -> None:
        """A row up or down."""
        self.query_one("#page", VerticalScroll).scroll_relative(y=by, animate=False)
