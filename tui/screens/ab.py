"""The A/B screen: choose the one thing that differs, see what it takes, watch it, read the verdict.

It holds no lab: it posts what is asked for, and takes pictures of the run beside.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Static

from probes import engines
from probes.measure.ab import Arm, Design, design
from probes.measure.costs import costs
from probes.recipe import Recipe, Refused
from probes.session import Frame
from tui.feed import Feed
from tui.messages import Asked, Cancel, Compare, Pause
from tui.panels import _ab
from tui.widgets import ink, lines
from tui.widgets.choice import Chosen
from tui.widgets.keyline import Keys, of_bindings
from tui.widgets.lines import Line, title
from tui.widgets.prompt import Prompt

CHOOSING, MEASURING, OVER = "B|knob|stop rule|start", "end it|pause", "new A/B"
"""What the bottom row names while the A/B is chosen, while it runs, and when it is over."""


class Ab(Screen[object]):
    """`mine` is the dial as it stands: arm A is what runs, or what the dial asks for.

    Shows the A/B that ran last, until `n` puts it away (`away`: that one was). Gives the one that was put away.
    """

    AUTO_FOCUS: ClassVar[str | None] = ""
    """The line for typing has the focus only while it is asked."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "step(-1)", "B", key_display="←→"),
        Binding("right", "step(1)", show=False),
        Binding("up", "move(-1)", "knob", key_display="↑↓"),
        Binding("down", "move(1)", show=False),
        Binding("e", "early", "stop rule"),
        Binding("enter", "begin", "start", key_display="⏎"),
        Binding("x", "end", "end it"),
        Binding("space", "hold", "pause"),
        Binding("n", "another", "new A/B"),
        Binding("escape,q,a", "leave", "back", key_display="esc"),
    ]

    def __init__(self, mine: Chosen, frame: Frame, away: object = None) -> None:
        super().__init__()
        self._runs = frame.server is not None and frame.server.state == "ready" and mine.asked is not None
        self._chosen = Chosen(mine.recipe)
        self._chosen.wanted = self._chosen.asked = (mine.asked if self._runs else None) or mine.wanted
        self._first = frame
        self._frame = Frame()
        self._asked: Compare | None = None
        """The A/B on the screen; None: one is being chosen."""
        self._costs: _ab.Costs = known(frame)
        self._early = self._holding = self._waiting = False
        self._doing: str | None = None
        self._shown: object = None
        """The run beside that is on the screen."""
        self._ignored = away
        """One that was put away."""
        self._told = ""
        self._refused = ""
        """Why an arm can't start, until the next key."""

    def compose(self) -> ComposeResult:
        """A title, a page, a word, the keys."""
        yield Line("header")
        with VerticalScroll(id="page", can_focus=False):
            yield Static(id="told")
        yield Line("notice")
        yield Prompt(id="prompt")
        yield Keys(of_bindings(self.BINDINGS, pinned="escape"))

    def on_mount(self) -> None:
        """The price of a plan may be in older runs, and those are files."""
        self.redraw()
        if None in self._costs:
            self.run_worker(self._look_up())

    async def _look_up(self) -> None:
        old = await asyncio.to_thread(costs, self._chosen.recipe.name)
        boot, request = (now if now is not None else then for now, then in zip(self._costs, old, strict=True))
        self._costs = (boot, request)
        self.redraw()

    def on_resize(self, event: events.Resize) -> None:  # noqa: ARG002  (the size is asked for where it's used)
        """Draw for the new size."""
        self.redraw()

    # ------------------------------------------------------------------------------------------------ what is shown

    def show_beside(self, feed: Feed) -> None:
        """Take the picture of the A/B that runs, or ran last while this screen was on."""
        beside, doing = feed.beside, feed.doing
        asked = beside.asked if beside is not None else None
        if beside is None or not isinstance(asked, Compare) or beside is self._ignored:
            changed = doing != self._doing
        else:
            frame = beside.frame()
            changed = (frame.version, doing) != (self._frame.version, self._doing) or asked is not self._asked
            self._told = "" if self._waiting else self._told
            self._asked, self._frame, self._shown, self._waiting = asked, frame, beside, False
        changed = changed or self._holding != feed.paused
        self._doing, self._holding = doing, feed.paused
        if self._waiting and not doing:
            self._waiting = False
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
        if self._asked is not None:
            page = _ab.measured(self._asked, self._frame, width)
        else:
            page = _ab.proposal(
                self._chosen,
                proposed(self._costs, self._chosen.recipe),
                self._costs,
                width,
                early=self._early,
                runs=self._runs,
            )
        if self._asked is None and self._refused:
            page = ink.lines([ink.hang("✖ ", Text(self._refused, style=ink.BAD), width, ink.BAD), Text(" "), page])
        self.query_one("#told", Static).update(page)
        about = self._frame if self._asked is not None else self._first
        self.query_one("#header", Line).put(title("A/B", about, run=self._asked is not None))
        self.query_one("#notice", Line).put(self._word())
        now = CHOOSING if self._asked is None else OVER if self._ended else MEASURING
        self.query_one(Keys).put(of_bindings(self.BINDINGS, pinned="escape", only=now))

    def _word(self) -> Text:
        """What was just told, else how the work goes, else the newest notice of the A/B."""
        if self._told:
            return Text(f"› {self._told}", style="bold")
        work = lines.progress(self._frame.progress, self.size.width, pausing=self._holding) if self._asked else None
        if work is not None:
            return work
        if self._doing and (self._waiting or self._asked is None):
            return Text(f"◐ {self._doing}", style=ink.WARN)
        notices = [n for n in self._frame.notices if n.level != "info"]
        return lines.notice(notices[-1] if notices and self._asked else None, self.size.width - 2)

    def say(self, text: str) -> None:
        """One line, until the next key."""
        self._told = text
        self.redraw()

    # ------------------------------------------------------------------------------------------------ keys

    def on_key(self, event: events.Key) -> None:
        """A digit begins a value for B; any key takes the last word away."""
        self._told = self._refused = ""
        typed = event.character or ""
        prompt = self.query_one(Prompt)
        if self._asked is not None or prompt.display or not (typed.isdecimal() or typed in {"-", "=", "."}):
            return
        event.stop()
        chosen = self._chosen
        label = chosen.knob.name if chosen.knob else chosen.recipe.dial.label

        def take(text: str) -> str | None:
            refused = chosen.type(text)
            self.redraw()
            return refused

        prompt.ask(f"B's {label}:", "" if typed == "=" else typed, take, lambda: self.set_focus(None))

    def action_step(self, by: int) -> None:
        """One step of what is under the cursor, in B."""
        if self._asked is None:
            self.say(self._chosen.step(by) or "")

    def action_move(self, by: int) -> None:
        """To another knob; while it measures, scroll."""
        if self._asked is None:
            self._chosen.move(by)
            self.redraw()
        else:
            self.query_one("#page", VerticalScroll).scroll_relative(y=by, animate=False)

    def action_early(self) -> None:
        """All blocks, or until it is sure."""
        if self._asked is None:
            self._early = not self._early
            self.redraw()

    def action_begin(self) -> None:
        """Start it, unless nothing differs or the engine would refuse an arm."""
        if self._asked is not None or self.query_one(Prompt).display:
            return
        recipe, sides = self._chosen.recipe, (self._chosen.asked or self._chosen.wanted, self._chosen.wanted)
        a, b = (Arm(side.depth, {**recipe.settings, **side.knobs}) for side in sides)
        if a == b:
            self.say("nothing differs: change one thing in B first")
            return
        if self._doing or self._waiting:
            self.say(f"busy: {self._doing or 'starting'}")
            return
        try:
            for arm in (a, b):
                engines.engine(recipe.engine).command(recipe, arm.settings, arm.depth, recipe.port or 1)
        except Refused as problem:
            self._refused = ink.safe(problem)
            self.query_one("#page", VerticalScroll).scroll_home(animate=False)
            self.redraw()
            return
        self._waiting = True
        self.post_message(Asked(Compare(a, b, proposed(self._costs, self._chosen.recipe), self._early)))
        self.say("the A/B starts: a server that runs is stopped first")

    def action_end(self) -> None:
        """End it; what was measured is kept."""
        if self._asked is not None and not self._ended:
            self._holding = False
            self.post_message(Asked(Cancel()))
            self.say("ending: what was measured is kept")

    def action_hold(self) -> None:
        """Hold it before its next restart, or let it go on."""
        if self._asked is not None and not self._ended:
            self._holding = not self._holding
            self.post_message(Asked(Pause(on=self._holding)))
            self.redraw()

    def action_another(self) -> None:
        """Put away what has ended and choose another."""
        if self._asked is not None and (self._ended or not self._doing):
            self._asked, self._frame, self._ignored = None, Frame(), self._shown
            self.redraw()

    def action_leave(self) -> None:
        """Back to the live screen; an A/B that runs goes on."""
        if not self.query_one(Prompt).display:
            self.dismiss(self._ignored)


def known(frame: Frame) -> _ab.Costs:
    """Seconds of the last boot and of the last requests on this screen."""
    boot = frame.boots[max(frame.boots)] if frame.boots else None
    took = [r.done - r.sent for r in frame.recent if r.done is not None and not r.warmup and r.outcome == "ok"]
    return boot, sum(took) / len(took) if took else None


def proposed(costs: _ab.Costs, recipe: Recipe) -> Design:
    """The design for boots as long as the last one, by the clock."""
    return design(None if costs[0] is None else costs[0] / recipe.speed)
