"""Every key of the live screen in one table: the footer, the command palette and the help are made from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from textual.binding import Binding

from probes.events import PlanProgress
from tui.messages import Anew, Apply, Cancel, Diagnose, Pause, Probe, Quit, StopServer, Sweep
from tui.panels._cells import kind
from tui.screens.leave import UP, Leave
from tui.widgets.choice import Choice, Chosen
from tui.widgets.keyline import Hint

if TYPE_CHECKING:
    from tui.screens.live import Live

ATTACHED = "attached: this server is someone else's and is never restarted or stopped; p probes it"
CLOSING = "closing"
"""What is being done once a person has left."""
PAST = "a run of the past: nothing can be started here"


@dataclass(frozen=True, slots=True)
class Key:
    """A key, what it is called, what it does. `sign`: how the bottom row writes the key.

    `rank`: None is not on the bottom row; the higher, the sooner it gives way there, and 0 never does.
    """

    keys: str
    name: str
    label: str
    help: str
    do: Callable[[Live], None]
    rank: int | None = None
    sign: str = ""

    def binding(self) -> Binding:
        """As Textual wants it."""
        return Binding(
            self.keys,
            f"do('{self.name}')",
            self.label,
            show=False,
            key_display=self.sign or None,
            tooltip=self.help,
        )


def void(_: object) -> None:
    """Throws a value away, for a lambda that only acts."""


def step(by: int) -> Callable[[Live], None]:
    """Step what is under the cursor."""

    def do(screen: Live) -> None:
        if screen.dial.chosen is None:
            screen.say(PAST)
        else:
            screen.dial.touched(screen.dial.chosen.step(by))

    return do


def knob(by: int) -> Callable[[Live], None]:
    """Move the cursor to another knob."""

    def do(screen: Live) -> None:
        if screen.dial.chosen is not None:
            screen.dial.focus()
            screen.dial.chosen.move(by)
            screen.dial.touched()

    return do


def apply(screen: Live) -> None:
    """Start, or restart, with what is marked."""
    chosen = screen.dial.chosen
    if chosen is None:
        screen.say(PAST)
    elif screen.state == "ready" and not chosen.changes():
        screen.say("in force already: nothing to apply")
    elif begin(screen, chosen, Apply(chosen.wanted.depth, dict(chosen.wanted.knobs))):
        chosen.asked = chosen.wanted
        screen.dial.touched()


def sweep(screen: Live) -> None:
    """Measure every depth with the knobs that the dial shows."""
    chosen = screen.dial.chosen
    if chosen is None:
        screen.ask(Sweep())
    elif begin(screen, chosen, Sweep(dict(chosen.wanted.knobs))):
        chosen.asked = Choice(chosen.asked.depth if chosen.asked else chosen.wanted.depth, chosen.wanted.knobs)
        screen.dial.touched()


def begin(screen: Live, chosen: Chosen, intent: Apply | Sweep) -> bool:
    """In this run; in a new one where something was measured with other knobs. Whether it was asked for."""
    moved = chosen.moved()
    if not moved or not screen.frame.requests:
        return screen.ask(intent)
    recipe, wanted = chosen.recipe, chosen.wanted
    start = replace(recipe.dial, start=wanted.depth if wanted.depth is not None else recipe.dial.start)
    knobs = {name: value for name, value in wanted.knobs.items() if value is not None}
    why = ", ".join(change for change in chosen.changes() if change.split(" ")[0] in moved)
    return screen.ask(Anew(replace(recipe, dial=start, settings=knobs), intent, why))


def undo(screen: Live) -> None:
    """Back to the last setting that started."""
    chosen = screen.dial.chosen
    if chosen is None or chosen.good is None:
        screen.say(PAST if screen.past else "nothing has started yet, so there is no last good setting")
    elif screen.ask(Apply(chosen.good.depth, chosen.back())):
        chosen.wanted = chosen.asked = chosen.good
        screen.dial.touched()


def probe(screen: Live) -> None:
    """Send the workload once."""
    if not screen.past and screen.state != "ready":
        attached = screen.frame.run is not None and screen.frame.run.attached
        screen.say("the server does not answer yet" if attached else "no server is ready: enter starts one")
    else:
        screen.ask(Probe())


def pause(screen: Live) -> None:
    """Pause the plan, or let it go on."""
    if plan_now(screen) is None:
        screen.say("no plan runs: s sweeps all depths")
    else:
        screen.ask(Pause(on=not screen.paused))
        screen.paused = not screen.paused
        screen.tick()


def cancel(screen: Live) -> None:
    """End what runs."""
    if screen.doing:
        screen.paused = False
        screen.ask(Cancel())
        screen.tick()
    else:
        screen.say("nothing runs that could be ended")


def stop(screen: Live) -> None:
    """End the server."""
    if screen.state in UP or screen.past:
        screen.ask(StopServer())
    else:
        screen.say("no server runs")


def leave(screen: Live) -> None:
    """Quit; asks first when that would end a server or a measurement."""
    attached = screen.frame.run is not None and screen.frame.run.attached
    if screen.doing == CLOSING:
        return
    if screen.past or not (screen.doing or (screen.state in UP and not attached)):
        screen.ask(Quit())
    else:
        screen.app.push_screen(Leave(screen.frame, screen.doing), lambda choice: void(choice and screen.ask(choice)))


def log(screen: Live) -> None:
    """To the log."""
    screen.open_panel("log")
    screen.log_view.focus()


def search(screen: Live) -> None:
    """Search the log."""
    view = screen.log_view
    screen.open_panel("log")

    def look(text: str) -> str | None:
        return None if not text or view.search(text) else f"not in the last {len(view.lines)} lines"

    screen.prompt("search the log:", view.query_text, look, view)


def follow(screen: Live) -> None:
    """Follow the log, or hold it."""
    screen.open_panel("log")
    screen.log_view.set_follow(on=not screen.log_view.follow)
    screen.log_view.show(screen.frame)


def wrap(screen: Live) -> None:
    """Long lines on several rows, or cut."""
    screen.open_panel("log")
    screen.log_view.toggle_wrap()


def why(screen: Live) -> None:
    """What the verdict and the ceiling rest on."""
    from tui.screens.why import Why

    screen.app.push_screen(Why(screen.frame), lambda line: jump(screen, line) if line is not None else None)


def jump(screen: Live, line: int) -> None:
    """To a line of the log."""
    screen.open_panel("log")
    screen.log_view.focus()
    if not screen.log_view.jump(line):
        screen.say(f"line {line} is no longer on the screen; it is in {screen.path or 'the run'}/server.log")


def plan_now(screen: Live) -> PlanProgress | None:
    """How far the plan is that runs now, in this run or in the one beside it; None where none does."""
    return next((p for p in (screen.frame.progress, screen.aside) if p is not None and not p.finished), None)


def put_away(screen: Live) -> Callable[[object], None]:
    """Takes what a person has put away on a screen beside."""

    def keep(which: object) -> None:
        screen.away = which

    return keep


def go_on(screen: Live, before: Live, why: str) -> str:
    """Take over from the run before: what last started, what is asked for now. Gives why this is a new run."""
    mine, old = screen.dial.chosen, before.dial.chosen
    if mine is not None and old is not None:
        mine.good, mine.row, mine.asked = old.good, old.row, mine.wanted
    name = before.frame.run.run if before.frame.run is not None else "the one before"
    return f"a new run: {why}; r shows run {name}"


def plan_of(screen: Live) -> str | None:
    """What kind of run this is, where it is no sweep."""
    return kind(screen.frame.result or {})


def compare(screen: Live) -> None:
    """The A/B screen."""
    from tui.panels import _ab
    from tui.screens.ab import Ab
    from tui.screens.page import Page

    chosen = screen.dial.chosen
    if screen.past and plan_of(screen) == "ab":
        screen.app.push_screen(Page("A/B", screen.frame, lambda width: _ab.measured(None, screen.frame, width)))
    elif chosen is None or screen.past:
        screen.say(PAST)
    elif screen.frame.run is not None and screen.frame.run.attached:
        screen.say("an A/B restarts a server for each block, so it needs one of its own: draftdial PRESET")
    else:
        screen.app.push_screen(Ab(chosen, screen.frame, screen.away), put_away(screen))


def diagnose(screen: Live) -> None:
    """The diagnosis."""
    from tui.panels import _diagnosis
    from tui.screens.diagnose import Diagnosis
    from tui.screens.page import Page

    chosen = screen.dial.chosen
    if screen.past and plan_of(screen) == "ceiling":
        page = Page("diagnosis", screen.frame, lambda width: _diagnosis.measured(screen.frame, width, ended=True))
        screen.app.push_screen(page)
        return
    if chosen is None or screen.past:
        screen.say(PAST)
        return
    attached = screen.frame.run is not None and screen.frame.run.attached
    setting = (chosen.asked if screen.state == "ready" else None) or chosen.wanted
    asked = Diagnose(None if attached else setting.depth, {} if attached else dict(setting.knobs))
    screen.app.push_screen(Diagnosis(asked, screen.frame, screen.away, attached=attached), put_away(screen))


def files(screen: Live) -> None:
    """Where this run's files are."""
    screen.say(f"this run is on disk: {screen.path}" if screen.path else "this run has no folder")


def usage(screen: Live) -> None:
    """All keys."""
    from tui.screens.usage import Usage

    screen.app.push_screen(Usage())


def runs(screen: Live) -> None:
    """Runs of the store."""
    from tui.screens.runs import Runs

    attached = screen.frame.run is not None and screen.frame.run.attached
    if screen.state in UP and not screen.past and not attached:
        screen.say("a server runs: S stops it first")
    else:
        screen.app.push_screen(Runs(), lambda intent: void(intent and screen.ask(intent)))


BUSY = 1
"""The rank of keys that are on the bottom row only while something runs."""
KEYS: tuple[Key, ...] = (
    Key("left", "less", "dial", "One step down on the dial or the knob: marks a change, starts nothing", step(-1), 2,
        "←→"),
    Key("right", "more", "dial up", "One step up", step(1)),
    Key("up", "above", "knob above", "To the knob above", knob(-1)),
    Key("down", "below", "knob below", "To the knob below; a digit or = types a value for it", knob(1)),
    Key("enter", "apply", "apply", "Start, or restart, with what is marked", apply, 1, "⏎"),
    Key("p", "probe", "probe", "Send the workload once at this depth", probe, 4),
    Key("s", "sweep", "sweep", "Measure every depth; again: what is missing, or another block with new prompts",
        sweep, 3),
    Key("a", "ab", "A/B", "Compare two settings that differ in one thing, and say which is faster", compare, 6),
    Key("d", "diagnose", "diagnose", "Provoke the queue, and separate what holds requests back from its rivals",
        diagnose, 8),
    Key("x", "cancel", "end it", "End the plan or the probe that runs; what was measured is kept", cancel,
        BUSY),
    Key("space", "pause", "pause", "Hold the plan before its next point, or let it go on", pause, BUSY),
    Key("S", "stop", "stop", "Stop the server", stop, 9),
    Key("u", "undo", "last good setting", "Restart with the last setting that started", undo),
    Key("y", "why", "why", "What the verdict and the ceiling rest on, and all numbers", why, 5),
    Key("l", "log", "log", "To the log: arrows and pages scroll, escape comes back", log, 10),
    Key("slash", "search", "search", "Search the log; n and N go to other hits", search, None, "/"),
    Key("f", "follow", "follow", "Follow the log's end, or hold it", follow),
    Key("w", "wrap", "wrap", "Long lines of the log on several rows, or cut",
        wrap),
    Key("t", "next", "panel", "The next panel; tab does the same", lambda screen: screen.turn(1), 7),
    Key("T", "back", "panel before", "The panel before", lambda screen: screen.turn(-1)),
    Key("z", "zoom", "zoom", "The open panel on the whole screen, and back", lambda screen: screen.zoom()),
    Key("e", "files", "files", "Where this run's files are", files),
    Key("r", "runs", "runs", "Runs of the store: look at one again", runs, 11),
    Key("question_mark", "usage", "help", "All keys", usage, 0, "?"),
    Key("q", "quit", "quit", "Leave; asks when a server runs", leave, 0),
    Key("escape", "home", "back to the dial", "Back to the dial", lambda screen: screen.home()),
)  # fmt: skip
BY_NAME = {key.name: key for key in KEYS}


def hints(screen: Live) -> tuple[Hint, ...]:
    """The keys for the bottom row: those that do something now."""
    attached = screen.frame.run is not None and screen.frame.run.attached
    absent = set() if screen.doing else {"cancel"}
    absent |= set() if plan_now(screen) and screen.doing else {"pause"}
    absent |= {"apply", "probe", "sweep", "runs"} if screen.doing else set()
    if screen.past:
        absent |= ACTS - {PAGES.get(plan_of(screen) or "", "")}
    elif attached:
        absent |= {"less", "apply", "sweep", "ab", "stop"}
    labels = {"pause": "go on"} if screen.paused else {}
    return tuple(
        Hint(key.keys, key.sign or key.keys, labels.get(key.name, key.label), key.rank)
        for key in KEYS
        if key.rank is not None and key.name not in absent
    )


PAGES = {"ab": "ab", "ceiling": "diagnose"}
"""Which key shows the figures of a run that is no sweep."""
ACTS = frozenset({"less", "apply", "probe", "sweep", "ab", "diagnose", "cancel", "pause", "stop"})
"""What is refused on a run of the past."""
