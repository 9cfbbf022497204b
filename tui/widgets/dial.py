"""The dial and the knobs: shows what is in force and what is wanted. Steps only mark a change; it starts nothing."""

from __future__ import annotations

from typing import Any, ClassVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import BindingType
from textual.widget import Widget

from probes.events import Notice, ServerChanged
from probes.recipe import Knob, Recipe
from probes.session import Frame
from tui.widgets import ink
from tui.widgets.choice import Chosen


class Dial(Widget, can_focus=True):
    """Takes frames; `chosen` is what the keys change. Without a recipe (an old run) it only shows the depths."""

    BINDINGS: ClassVar[list[BindingType]] = []

    def __init__(self, name: str, title: str, recipe: Recipe | None) -> None:
        super().__init__(id=f"panel-{name}", classes="panel")
        self.border_title = title
        self.recipe = recipe
        self.chosen = Chosen(recipe) if recipe is not None else None
        self.refused: str | None = None
        """Why the last step or value was refused."""
        self._doing: str | None = None
        self._frame = Frame()

    def busy(self, doing: str | None) -> None:
        """What the lab does now: while it does, enter would do nothing."""
        if doing != self._doing:
            self._doing = doing
            self.refresh()

    def show(self, frame: Frame) -> None:
        """Take a new frame."""
        if frame.server is not self._frame.server and self.chosen is not None:
            self.chosen.server(frame.server, frame.last_good)
        uses = ("server", "boots", "run", "flags", "notices")
        same = all(getattr(frame, n) is getattr(self._frame, n) for n in uses)
        self._frame = frame
        if not same:
            self.refresh()

    def touched(self, refused: str | None = None) -> None:
        """Draw again after a key; `refused` is the rule that a value broke."""
        self.refused = refused
        self.refresh()

    def render(self) -> Text:
        """Depths, knobs, then what enter would do."""
        width, height = self.content_size
        if self.chosen is None:
            return self._of_a_run(width)
        rows = [self._depths(self.chosen, width)]
        notes = self._notes(self.chosen, max(8, width * max(1, height - 2) - 6))
        wanted = sum(max(1, -(-note.cell_len // max(1, width - 3))) for note in notes)
        trouble = failed(self._frame) or error(self._frame) is not None
        room = max(0, height - 1 - min(wanted, height - 1 if trouble else max(1, height - 2)))
        knobs = self.chosen.recipe.knobs
        first = max(0, min(self.chosen.row - room, len(knobs) - room))
        rows += [self._knob(self.chosen, i, knobs[i], width) for i in range(first, min(len(knobs), first + room))]
        return ink.lines([*rows, *notes])

    def _depths(self, chosen: Chosen, width: int) -> Text:
        """The legal depths; the wanted one between arrows, the one in force with a dot."""
        running = self._frame.server.depth if self._frame.server and self._frame.server.state == "ready" else None
        label = ink.cut(ink.safe(chosen.recipe.dial.label), 12)
        text = Text(f"{label} ", style="reverse" if chosen.row == 0 and self.has_focus else "bold")
        run, flags = self._frame.run, self._frame.flags
        if run is not None and run.attached:
            return text.append(
                f"{ink.figure(flags.depth if flags else None, 'd')}  as it was started", style="not bold"
            )
        parts = []
        for value in chosen.recipe.dial.values:
            dot = "•" if value == running else ""
            wanted = value == chosen.wanted.depth
            part = (
                Text(f"▸{value}{dot}◂", style=ink.HOT)
                if wanted
                else Text(f"{value}{dot}", style=ink.GOOD if dot else "")
            )
            part.stylize(Style(meta={"depth": value}))
            parts.append(part)
        at = (
            chosen.recipe.dial.values.index(chosen.wanted.depth)
            if chosen.wanted.depth in chosen.recipe.dial.values
            else 0
        )
        return text.append_text(window(parts, at, width - text.cell_len))

    def _knob(self, chosen: Chosen, index: int, knob: Knob, width: int) -> Text:
        """A knob's name and value; a changed one with what it was."""
        here = chosen.row == index + 1
        style = "reverse" if here and self.has_focus else "bold" if here else ""
        longest = max(len(k.name) for k in chosen.recipe.knobs)
        text = Text(ink.pad(knob.name, max(12, min(longest, width // 2))), style=style).append(" ")
        value = chosen.wanted.knobs.get(knob.name, knob.default)
        before = chosen.asked.knobs.get(knob.name, knob.default) if chosen.asked else value
        if value != before:
            text.append(f"{said(before)} → ", style="dim").append(f"{said(value)} *", style=ink.HOT)
        else:
            text.append(said(value))
        if here:
            text.append(f"  {legal(knob)}", style="dim")
        text.truncate(width, overflow="ellipsis")
        text.stylize(Style(meta={"row": index + 1}))
        return text

    def on_click(self, event: events.Click) -> None:
        """A click on a depth marks it; on a knob, goes there; on the knob under the cursor, the next of few values."""
        if self.chosen is None:
            return
        event.stop()
        self.focus()
        meta = event.style.meta
        if "depth" in meta:
            self.chosen.row = 0
            self.touched(self.chosen.type(str(meta["depth"])))
        elif "row" in meta:
            here = self.chosen.row == meta["row"]
            self.chosen.row = int(meta["row"])
            few = self.chosen.knob is not None and self.chosen.knob.type in {"bool", "choice"}
            self.touched(self.chosen.step(1) if here and few else None)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """To the knob below."""
        self._scroll(event, 1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """To the knob above."""
        self._scroll(event, -1)

    def _scroll(self, event: events.MouseEvent, by: int) -> None:
        event.stop()
        if self.chosen is not None:
            self.chosen.move(by)
            self.touched()

    def _notes(self, chosen: Chosen, cells: int) -> list[Text]:
        """The rule just broken, else what a start would do or how it goes. `cells`: how much a reason may take."""
        if self.refused:
            return [Text(ink.safe(self.refused), style=ink.BAD)]
        server = self._frame.server
        if self._frame.run is not None and self._frame.run.attached:
            return [Text("attached: p probes it; nothing here restarts it", style="dim")]
        boot = self._frame.boots[max(self._frame.boots)] if self._frame.boots else None
        cost = f", {ink.span(boot)} at the last boot" if boot is not None else ""
        if server is not None and server.state == "failed":
            return _failure(server, chosen, cells)
        changes = chosen.changes()
        if self._doing and (server is None or server.state in {"stopped", "ready"}):
            return [Text(ink.safe(self._doing), style=ink.WARN)]
        if (told := error(self._frame)) is not None:
            return [
                Text(f"✖ {ink.middle(ink.safe(told.text), cells)}", style=ink.BAD),
                Text("enter tries again", style="bold"),
            ]
        if server is None or server.state == "stopped":
            return [Text(f"enter starts depth {chosen.wanted.depth}{cost}", style=ink.HOT)]
        if server.state in {"starting", "loading", "draining"}:
            return [Text(f"{server.state} {ink.span(server.elapsed_s)}{cost}", style=ink.WARN)]
        if not changes:
            return [Text("in force: nothing to apply", style="dim")]
        plural = "s" if len(changes) > 1 else ""
        out = [Text(f"{len(changes)} change{plural} · enter restarts{cost}", style=ink.HOT)]
        moved = chosen.moved()
        if moved and self._frame.requests:
            out.append(Text("in a new run: what was measured stays apart", style="dim"))
        if any("numerics" in k.changes for k in chosen.recipe.knobs if k.name in moved):
            out.append(Text("outputs may differ: numerics", style=ink.WARN))
        return out

    def _of_a_run(self, width: int) -> Text:
        run = self._frame.run
        if run is None:
            return Text("reading the run", style="dim")
        knobs = [Text(ink.cut(f"{ink.safe(k)} {ink.safe(v)}", width)) for k, v in run.knobs.items()]
        depths = Text(f"{ink.safe(run.dial)}  ", style="bold").append(" ".join(map(str, run.depths)), style="")
        return ink.lines([depths, *knobs, Text("a run of the past: read only", style="dim")])


def failed(frame: Frame) -> bool:
    """Whether the last start failed: then its reason takes the place of the knobs."""
    return frame.server is not None and frame.server.state == "failed"


def _failure(server: ServerChanged, chosen: Chosen, cells: int) -> list[Text]:
    """Why the server failed, the cure, and the two ways on; a long reason gives way in its middle."""
    good = chosen.good if chosen.good != chosen.asked else None
    back = "enter tries again" + ("" if good is None else f" · u goes back to {good.depth}")
    end = server.signal or ("" if server.exit_code is None else f"exit {server.exit_code}")
    end = f" ({end})" if end and end not in (server.reason or "") else ""
    cure = [Text(f"→ {ink.safe(server.hint)}")] if server.hint else []
    room = max(40, cells - sum(t.cell_len for t in cure) - len(back))
    head = f"✖ depth {ink.figure(server.depth, 'd')} failed{end}: "
    why = Text(head + ink.middle(ink.safe(server.reason or "no reason"), room - len(head)), style=ink.BAD)
    return [why, *cure, Text(back, style="bold")]


def error(frame: Frame) -> Notice | None:
    """What went wrong since the server's last change, if that was the last thing told: a start that was refused."""
    newest = frame.notices[-1] if frame.notices else None
    wrong = newest is not None and newest.level == "error" and (frame.server is None or newest.at >= frame.server.at)
    return newest if wrong else None


def window(parts: list[Text], at: int, width: int) -> Text:
    """As many of the parts as fit, the one at `at` always among them; … where there are more."""
    if sum(p.cell_len + 1 for p in parts) - 1 <= width:
        return Text(" ").join(parts)
    first = last = at
    used = parts[at].cell_len
    while True:
        grew = False
        if last + 1 < len(parts) and used + 1 + parts[last + 1].cell_len <= width - 4:
            last += 1
            used += 1 + parts[last].cell_len
            grew = True
        if first > 0 and used + 1 + parts[first - 1].cell_len <= width - 4:
            first -= 1
            used += 1 + parts[first].cell_len
            grew = True
        if not grew:
            break
    text = Text(" ").join(parts[first : last + 1])
    return Text("… " if first else "").append_text(text).append(" …" if last + 1 < len(parts) else "")


def said(value: Any) -> str:
    """A knob's value in words."""
    return "default" if value is None else "on" if value is True else "off" if value is False else ink.safe(value, 40)


def legal(knob: Knob) -> str:
    """What is legal for a knob, shortly."""
    if knob.type == "choice":
        return " ".join(map(str, knob.choices))
    if knob.low is not None or knob.high is not None:
        low, high = ("" if v is None else f"{v:g}" for v in (knob.low, knob.high))
        return f"{low}…{high}"
    return {"bool": "on off"}.get(knob.type, knob.type)
