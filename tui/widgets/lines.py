"""One-line widgets: the header, the line that tells how long work goes, the tabs of a small screen."""

from __future__ import annotations

from collections.abc import Mapping

from rich.style import Style
from rich.text import Text
from textual.widget import Widget

from probes.events import Notice, PlanProgress
from probes.session import Frame
from tui.widgets import ink
from tui.widgets.ceiling import holds_now, verdict

LEVELS = {"info": ("·", ""), "warning": ("!", ink.WARN), "error": ("✖", ink.BAD)}


class Line(Widget):
    """A row of text; drawn again only when the text is another."""

    def __init__(self, name: str) -> None:
        super().__init__(id=name)
        self.text = Text()

    def put(self, text: Text) -> None:
        """Show this."""
        if text != self.text:
            self.text = text
            self.refresh()

    def render(self) -> Text:
        """The row, cut to its width."""
        shown = self.text.copy()
        shown.truncate(self.content_size.width, overflow="ellipsis")
        return shown


def header(frame: Frame, now: float, width: int, *, past: bool = False) -> Text:
    """What runs on what, and how it is; on a narrow screen the details go first. `now` is `time.time()`."""
    run, server = frame.run, frame.server
    left = Text("draftdial", style="bold")
    if run is None:
        return left
    state = server.state if server else "stopped"
    sign, style = ink.STATES[state]
    right = Text("SIMULATED", style=f"bold reverse {ink.WARN}").append("  ") if run.simulated else Text()
    right.append(f"{sign} {state}", style=f"bold not reverse {style}" if style != ink.QUIET else "not reverse")
    extras = _extras(frame, now, past=past)
    how = "past · " if past else "attached · " if run.attached else ""
    name = f" · {how}{ink.safe(run.engine)} · {ink.safe(run.preset)}"
    end = Text(f"run {ink.safe(run.run)}", style="dim")
    whole = sum(map(len, extras)) + left.cell_len + len(name) + right.cell_len + end.cell_len
    if width - whole >= 4:
        left.append(name, style="not bold")
        right.append("".join(extras), style="not bold")
        gap = width - left.cell_len - right.cell_len - end.cell_len
        return Text.assemble(left, " " * (gap // 2), right, " " * (gap - gap // 2), end)
    name = f" · {how}{ink.safe(run.preset)}"
    for extra in extras:
        if left.cell_len + min(len(name), 24) + right.cell_len + len(extra) + 2 <= width:
            right.append(extra, style="not bold")
    left.append(ink.cut(name, width - right.cell_len - left.cell_len - 2))
    return Text.assemble(left, " " * max(2, width - left.cell_len - right.cell_len), right)


def title(name: str, frame: Frame, *, run: bool) -> Text:
    """The header of a screen beside the live one; with `run`, the run that its figures go to."""
    text = Text("draftdial", style="bold").append(f" · {name}", style="bold")
    if frame.run is None:
        return text
    told = f" · run {ink.safe(frame.run.run)}" if run else ""
    text.append(f" · {ink.safe(frame.run.preset)}{told}", style="not bold")
    return text.append("  ").append("SIMULATED", style=f"bold reverse {ink.WARN}") if frame.run.simulated else text


def _extras(frame: Frame, now: float, *, past: bool) -> list[str]:
    """What else there is to say of the server, the most wanted first."""
    run, server = frame.run, frame.server
    if server is None or run is None:
        return []
    found = [] if server.depth is None else [f"  {ink.safe(run.dial)} {server.depth}"]
    if server.state in {"starting", "loading"}:
        found.append(f"  {ink.span(server.elapsed_s)}")
    if server.state == "ready":
        found += [] if past else [f"  up {ink.span(max(0.0, now - server.at))}"]
        found.append(f"  boot {ink.span(frame.boots.get(server.restart))}")
        found.append(f"  pid {server.pid or ink.NONE}")
    return found


def progress(plan: PlanProgress | None, width: int, *, pausing: bool = False) -> Text | None:
    """How far the plan is, with what can be done about it; None when none runs."""
    if plan is None or plan.finished:
        return None
    room = 24 if width >= 120 else 10
    filled = room * plan.done // max(1, plan.total)
    text = Text(f"{ink.safe(plan.plan)} ", style="bold")
    text.append("━" * filled, style=ink.HOT).append("┄" * (room - filled), style="dim")
    text.append(f" {plan.done}/{plan.total}", style="not bold")
    if pausing:
        held = "paused" if plan.paused else "pauses after this point" if width >= WIDE else "pausing"
        text.append(f" · {held}: space goes on", style=ink.WARN)
    if plan.seconds_left is not None:
        text.append(f" · {ink.about(plan.seconds_left)} left", style="not bold")
    return text.append(f" · {ink.safe(plan.step)}", style="not bold")


def notice(told: Notice | None, width: int) -> Text:
    """The newest word to the person, in so many cells."""
    if told is None:
        return Text()
    sign, style = LEVELS[told.level]
    return Text(f"{sign} {ink.middle(ink.safe(told.text), width - 2)}", style=style)


WIDE = 118


def told(
    frame: Frame,
    doing: str | None,
    said: str | None,
    width: int,
    *,
    pausing: bool = False,
    aside: Text | None = None,
) -> tuple[Text | None, Text | None]:
    """Two rows: how the work goes (None when nothing runs), and the newest word.

    `said` is about the key just pressed and comes first; a notice newer than the plan's last word comes before it.
    `aside`: how far the A/B or the diagnosis is that runs beside.
    """
    work = progress(frame.progress, width, pausing=pausing) or (aside if doing else None)
    if work is None and doing:
        work = Text(f"◐ {doing}", style=ink.WARN)
    plan = frame.progress
    if work is None and plan is not None and plan.finished:
        work = Text(f"{ink.safe(plan.plan)} {ink.safe(plan.step)} · {plan.done} of {plan.total} points", style=ink.GOOD)
    newest = frame.notices[-1] if frame.notices else None
    word = Text(f"› {said}", style="bold") if said else notice(newest, width)
    if not said and width < WIDE and holds_now(frame.ceiling):
        word = verdict(frame)  # its panel is behind a tab at this width
    if said:
        return word, work
    if width < WIDE and work is not None and newest is not None and frame.progress and newest.at > frame.progress.at:
        return word, work
    return work, word


def tabs(titles: Mapping[str, str], chosen: str, width: int) -> Text:
    """The titles of the panels that share one place, by their names; a click on one tells its name as `panel`."""
    text = Text()
    for name, title in titles.items():
        part = Text(f" {title} ", style="reverse bold" if name == chosen else "dim")
        part.stylize(Style(meta={"panel": name}))
        text.append_text(part)
    if text.cell_len > width:
        text = Text(f" {titles.get(chosen, chosen)} ", style="reverse bold")
        text.append(f" t: {len(titles)} panels", style="dim")
    return text
