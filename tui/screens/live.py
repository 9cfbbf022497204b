"""The live screen: panels on a frame, keys to intents. It holds no lab and knows no server."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.screen import Screen
from textual.widget import Widget

from probes.events import PlanProgress
from probes.recipe import Recipe
from probes.session import Frame
from tui import panels
from tui.messages import Anew, Apply, Asked, Cancel, Intent, OpenRun, Pause, Quit, StopServer, Sweep
from tui.screens import layout
from tui.screens.keys import ATTACHED, BY_NAME, KEYS, PAST, hints
from tui.widgets import lines
from tui.widgets.dial import Dial
from tui.widgets.keyline import Keys
from tui.widgets.lines import Line
from tui.widgets.log import Log
from tui.widgets.prompt import Answer, Prompt

SAID_S = 5.0
"""So long a word about a key hides how far the work is."""


class Body(Container):
    """Where the panels stand; they are placed again whenever its size changes."""

    def on_resize(self, event: events.Resize) -> None:  # noqa: ARG002  (the size is asked for where it's used)
        """Place the panels for the new size."""
        if isinstance(self.screen, Live):
            self.screen.place()


class Live(Screen[None]):
    """Draws frames; posts what a person asks for. `past`: a run of the store, where nothing can be asked."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *[key.binding() for key in KEYS],
        Binding("tab", "do('next')", show=False),
        Binding("shift+tab", "do('back')", show=False),
    ]

    def __init__(self, recipe: Recipe | None, path: str = "", *, past: bool = False) -> None:
        super().__init__()
        self.path = path
        self.past = past
        self.frame = Frame()
        self.doing: str | None = None
        """What the lab is busy with, in words."""
        self.up = False
        """Whether it is composed, so that it can be drawn on."""
        self.paused = False
        """Whether the plan was asked to hold before its next point."""
        self.chosen = "accept"
        self.zoomed = False
        self._panels = panels.found()
        self._widgets: dict[str, Any] = {p.name: p.make(recipe) for p in self._panels}
        self.away: object = None
        """The A/B or the diagnosis that a person has put away."""
        self._told: str | None = None
        self._told_at = 0.0
        self._told_in = ""
        """The server's state when that was said."""
        self.aside: PlanProgress | None = None
        """How far the A/B or the diagnosis is that runs beside."""

    def compose(self) -> ComposeResult:
        """A header, the panels, two lines that tell, the keys."""
        yield Line("header")
        with Body(id="body"):
            yield from self._widgets.values()
            yield Line("tabs")
        yield Line("plan")
        yield Line("notice")
        yield Prompt(id="prompt")
        yield Keys(hints(self))

    def on_mount(self) -> None:
        """The dial has the focus."""
        self.up = True
        self.dial.focus()
        self.show(self.frame)

    @property
    def dial(self) -> Dial:
        """The dial's widget."""
        found = self._widgets["dial"]
        assert isinstance(found, Dial)  # noqa: S101  (the folder's own panel)
        return found

    @property
    def log_view(self) -> Log:
        """The log's widget."""
        found = self._widgets["log"]
        assert isinstance(found, Log)  # noqa: S101  (the folder's own panel)
        return found

    @property
    def state(self) -> str:
        """The server's state."""
        return self.frame.server.state if self.frame.server else "stopped"

    # ------------------------------------------------------------------------------------------------ frames

    def show(self, frame: Frame, doing: str | None = None, aside: PlanProgress | None = None) -> None:
        """Draw this moment."""
        self.frame, self.doing, self.aside = frame, doing, aside
        self.dial.busy(doing)
        for widget in self._widgets.values():
            widget.show(frame)
        self.tick()

    def tick(self) -> None:
        """What changes with the clock alone."""
        if not self.up:
            return
        width = max(1, self.size.width - 2)
        self.query_one("#header", Line).put(lines.header(self.frame, time.time(), width, past=self.past))
        stale = self.doing or self.state != self._told_in
        if stale and time.monotonic() - self._told_at > SAID_S:
            self._told = None  # how it goes matters more by now
        work = lines.progress(self.aside, width, pausing=self.paused)
        rows = lines.told(self.frame, self.doing, self._told, width, pausing=self.paused, aside=work)
        wide = layout.is_wide(*self.size)
        for name, text in zip(("plan", "notice"), rows if wide else (None, rows[0] or rows[1]), strict=True):
            line = self.query_one(f"#{name}", Line)
            line.display = wide or name == "notice"
            line.put(text or Text())
        self.query_one(Keys).put(hints(self))

    def say(self, text: str) -> None:
        """One line to the person, about a key just pressed; it stays until the next key, or for a while amid work."""
        self._told, self._told_at, self._told_in = text, time.monotonic(), self.state
        self.tick()

    def on_key(self, event: events.Key) -> None:
        """A digit begins a value; any key takes the last word away."""
        self._told = None
        typed = event.character or ""
        chosen = self.dial.chosen
        if chosen is None or self.query_one(Prompt).display or not (typed.isdecimal() or typed in {"-", "=", "."}):
            return
        event.stop()
        label = chosen.knob.name if chosen.knob else chosen.recipe.dial.label

        def take(text: str) -> str | None:
            refused = chosen.type(text)
            self.dial.touched()
            return refused

        self.prompt(f"{label}:", "" if typed == "=" else typed, take, self.dial)

    def prompt(self, label: str, start: str, answer: Answer, back: Widget) -> None:
        """Ask for a line of text; the focus goes to `back` afterwards."""

        def done() -> None:
            back.focus()

        self.query_one(Prompt).ask(label, start, answer, done)

    # ------------------------------------------------------------------------------------------------ panels

    def place(self) -> None:
        """Give each panel its area, or hide it."""
        size = self.query_one("#body").size
        areas = layout.arrange(size.width, size.height, self._panels, self.chosen, zoomed=self.zoomed)
        bar = self.query_one("#tabs", Line)
        for name, widget in [*self._widgets.items(), ("tabs", bar)]:
            area = areas.get(name)
            widget.display = area is not None
            if area is not None:
                widget.styles.offset = (area.x, area.y)
                widget.styles.width, widget.styles.height = area.width, area.height
                widget.set_class(area.height < 3 or area.width < 8, "bare")
        bar.put(lines.tabs({p.name: p.title for p in layout.tabbed(self._panels)}, self.chosen, size.width))
        self.tick()

    def open_panel(self, name: str) -> None:
        """Bring a panel into sight where panels are tabs."""
        if name in {p.name for p in layout.tabbed(self._panels)}:
            self.chosen = name
        self.place()

    def on_click(self, event: events.Click) -> None:
        """A click on a tab opens it."""
        if name := event.style.meta.get("panel"):
            self.open_panel(str(name))

    def turn(self, by: int) -> None:
        """The next tab on a small screen; on a large one the focus goes from the dial to the log and back."""
        if self.zoomed or not layout.is_wide(*self.size):
            names = [p.name for p in layout.tabbed(self._panels)]
            self.open_panel(names[(names.index(self.chosen) + by) % len(names)])
        (self.log_view if self.focused is self.dial and self.log_view.display else self.dial).focus()

    def zoom(self) -> None:
        """The open panel on the whole screen, and back."""
        self.zoomed = not self.zoomed
        self.place()

    def home(self) -> None:
        """Back to the dial and to all panels."""
        self.zoomed = False
        self.place()
        self.dial.focus()

    # ------------------------------------------------------------------------------------------------ keys

    def action_do(self, name: str) -> None:
        """What a key or the palette asks for."""
        if not self.query_one(Prompt).display:
            BY_NAME[name].do(self)

    def ask(self, intent: Intent) -> bool:
        """Post an intent, unless this is a run of the past or the lab is busy. Whether it was posted."""
        run = self.frame.run
        if self.past and not isinstance(intent, (Quit, OpenRun)):
            self.say(PAST)
        elif run is not None and run.attached and isinstance(intent, (Anew, Apply, Sweep, StopServer)):
            self.say(ATTACHED)
        elif self.doing and not isinstance(intent, (Cancel, StopServer, Pause, Quit)):
            self.say(f"busy: {self.doing} · x ends it")
        else:
            self.post_message(Asked(intent))
            return True
        return False
