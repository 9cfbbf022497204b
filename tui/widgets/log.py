"""The server's log: draws only the lines in sight, however many there are. It keeps no copy of them."""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.strip import Strip
from textual.widget import Widget

from probes.session import Frame
from probes.show import clean
from tui.widgets import ink

PLAIN, DIM, HIT = Style(), Style(dim=True), Style(reverse=True)
HEADER = Style(bold=True, color=ink.WARN)


class Log(Widget, can_focus=True):
    """Follows the end until a person scrolls, searches or pauses; then it holds still on the lines that it had."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "scroll(-1)", show=False),
        Binding("down", "scroll(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "edge(-1)", show=False),
        Binding("end", "edge(1)", show=False),
        Binding("left", "pan(-16)", show=False),
        Binding("right", "pan(16)", show=False),
        Binding("n", "hit(1)", show=False),
        Binding("N", "hit(-1)", show=False),
    ]

    def __init__(self, name: str, title: str) -> None:
        super().__init__(id=f"panel-{name}", classes="panel")
        self._title = title
        self.lines: tuple[str, ...] = ()
        self.first = 1
        """Number of the first line held."""
        self.total = 0
        self.follow = True
        self.wrap = False
        self.query_text = ""
        self.bottom = 0
        """Number of the last line in sight while it does not follow."""
        self.column = 0
        self.marked: int | None = None
        """A line that was jumped to."""
        self._rows: list[tuple[int, str]] = []
        self._seen: tuple[object, ...] | None = None
        self._drawn: tuple[str, ...] | None = None
        self._base = Style()
        self._width = 0
        self._labelled = ""

    def show(self, frame: Frame) -> None:
        """Take new lines, unless it is held."""
        self.total = frame.log_lines
        if self.follow and frame.log is not self.lines:
            self.lines, self.first = frame.log, frame.log_first
            self.refresh()
        self._label()

    # ------------------------------------------------------------------------------------------------ what keys do

    def set_follow(self, *, on: bool) -> None:
        """Follow the end, or hold."""
        if not on and self.follow:
            self.bottom = self.first + len(self.lines) - 1
        self.follow, self.marked = on, None if on else self.marked
        self._changed()

    def action_scroll(self, by: int) -> None:
        """Lines up or down; at the end it follows again only when asked to."""
        self.set_follow(on=False)
        last = self.first + len(self.lines) - 1
        least = min(last, self.first + max(1, self.content_size.height) - 1)
        self.bottom = max(least, min(last, self.bottom + by))
        self._changed()

    def action_page(self, by: int) -> None:
        """A page up or down."""
        self.action_scroll(by * max(1, self.content_size.height - 1))

    def action_edge(self, side: int) -> None:
        """To the first line held, or to the end."""
        if side > 0:
            self.set_follow(on=True)
        else:
            self.action_scroll(-len(self.lines))

    def action_pan(self, by: int) -> None:
        """Sideways, for lines that are longer than the screen."""
        self.column = max(0, self.column + by)
        self.refresh()

    def toggle_wrap(self) -> None:
        """Long lines on several rows, or cut."""
        self.wrap, self.column = not self.wrap, 0
        self.refresh()

    def search(self, text: str) -> bool:
        """Find `text` upwards from the end in sight. Whether there was a hit."""
        self.query_text = text.casefold()
        return bool(text) and self.action_hit(-1, here=True)

    def action_hit(self, by: int, *, here: bool = False) -> bool:
        """To the next hit down or up, going round at the ends."""
        if not self.query_text or not self.lines:
            return False
        count = len(self.lines)
        at = (self.marked if self.marked is not None else self._last()) - self.first
        order = [(at + by * (i if here else i + 1)) % count for i in range(count)]
        for index in order:
            if self.query_text in clean(self.lines[index]).casefold():
                return self.jump(self.first + index)
        self._label("not found")
        return False

    def jump(self, number: int) -> bool:
        """Hold with that line in the middle, marked. False when it is no longer held."""
        if not self.first <= number < self.first + len(self.lines):
            return False
        self.set_follow(on=False)
        last = self.first + len(self.lines) - 1
        self.bottom = min(last, number + max(0, self.content_size.height // 2))
        self.marked = number
        self._changed()
        return True

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Up by three."""
        event.stop()
        self.action_scroll(-3)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Down by three."""
        event.stop()
        self.action_scroll(3)

    # ------------------------------------------------------------------------------------------------ drawing

    def _last(self) -> int:
        return self.first + len(self.lines) - 1 if self.follow else self.bottom

    def _changed(self) -> None:
        self._label()
        self.refresh()

    def _label(self, note: str = "") -> None:
        held = "" if self.follow else f" · held, {max(0, self.total - self._last())} newer below · f follows"
        found = f" · search {ink.safe(self.query_text, 30)!r} n N" if self.query_text else ""
        label = f"{self._title} · line {self._last()} of {self.total}{found}{held}{f' · {note}' if note else ''}"
        if self._labelled != label:
            self._labelled = label
            self.border_title = Content(label)

    def _arrange(self) -> None:
        """The rows in sight, from the last one upwards; nothing else is looked at."""
        width, height = self.content_size
        seen = (self.first, self._last(), self.wrap, self.column, width, height, self.rich_style)
        if self.lines is self._drawn and seen == self._seen:
            return
        self._drawn = self.lines
        self._seen, self._width, self._base = seen, width, seen[-1]
        rows: list[tuple[int, str]] = []
        number = self._last()
        while number >= self.first and len(rows) < height and self.lines:
            text = clean(self.lines[number - self.first])
            parts = folded(text, width) if self.wrap else [text[self.column :] if self.column else text]
            rows.extend((number, part) for part in reversed(parts))
            number -= 1
        self._rows = list(reversed(rows[:height]))

    def render_line(self, y: int) -> Strip:
        """One row."""
        if y == 0:
            self._arrange()
        width, base = self._width, self._base
        if y >= len(self._rows):
            return Strip.blank(width, base)
        number, text = self._rows[y]
        style = HEADER if text.startswith("# draftdial restart ") else PLAIN
        if number == self.marked:
            style += Style(underline=True, bold=True)
        segments = [Segment(part, base + style + (HIT if hit else PLAIN)) for part, hit in split(text, self.query_text)]
        return Strip(segments).adjust_cell_length(width, base).crop(0, width)


def folded(text: str, width: int) -> list[str]:
    """A line in pieces of at most `width` cells, at least one."""
    if width <= 0 or cell_len(text) <= width:
        return [text]
    pieces, piece, used = [], "", 0
    for char in text:
        wide = cell_len(char)
        if used + wide > width and piece:
            pieces.append(piece)
            piece, used = "", 0
        piece += char
        used += wide
    return [*pieces, piece]


def split(text: str, query: str) -> list[tuple[str, bool]]:
    """A line's parts, with whether each is a hit; case does not matter."""
    low = text.casefold()
    if not query or len(low) != len(text):  # folding changed the length: no place can be named
        return [(text, False)]
    parts, at = [], 0
    while (found := low.find(query, at)) >= 0:
        parts += [(text[at:found], False), (text[found : found + len(query)], True)]
        at = found + len(query)
    return [(part, hit) for part, hit in [*parts, (text[at:], False)] if part]
