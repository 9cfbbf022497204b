"""Figures and foreign text as they look on the screen: dashes for what is unknown, bars, cut lines. No widget here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from probes.show import clean

NONE = "—"
GOOD, WARN, BAD, QUIET, HOT = "#009E73", "#E69F00", "#D55E00", "dim", "bold #56B4E9"
STATES = {
    "stopped": ("○", QUIET),
    "starting": ("◌", WARN),
    "loading": ("◐", WARN),
    "ready": ("●", GOOD),
    "draining": ("◍", WARN),
    "failed": ("✖", BAD),
}
"""A sign and a colour for each state of a server: the sign says it without the colour."""
_PLAIN = Console(width=80, color_system=None)
"""Only for its way of breaking lines."""
EIGHTHS = " ▏▎▍▌▋▊▉█"


def figure(value: Any, spec: str = ".1f", unit: str = "") -> str:
    """A figure, or a dash where there is none."""
    return NONE if value is None else format(value, spec) + unit


def size(value: int | None) -> str:
    """Bytes in the unit that a person reads."""
    if value is None:
        return NONE
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(value) >= scale:
            return f"{value / scale:.{1 if unit == 'GiB' else 0}f} {unit}"
    return f"{value} B"


def span(seconds: float | None) -> str:
    """Seconds as 4.2 s, 01:15 or 2:03:20."""
    if seconds is None:
        return NONE
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"


def about(seconds: float) -> str:
    """An estimate, in the unit that a person plans with: never a form that reads as a time of day."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min"


def safe(text: object, most: int = 500) -> str:
    """Foreign text as data, on one line."""
    return clean(str(text), most)


def cut(text: str, width: int) -> str:
    """`text` in at most `width` cells, with … where something was cut off."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - 1)) + "…" if width > 0 else ""


def middle(text: str, width: int) -> str:
    """`text` in at most `width` cells, its middle cut out: of a refusal both the beginning and the cure matter."""
    if cell_len(text) <= width:
        return text
    if width < 3:
        return cut(text, width)
    head, tail = set_cell_size(text, width // 3), text
    while cell_len(tail) > width - cell_len(head) - 1:
        tail = tail[max(1, len(tail) // 50) :] if cell_len(tail) > 2 * width else tail[1:]
    return f"{head}…{tail}"


def pad(text: str, width: int) -> str:
    """`text` in exactly `width` cells."""
    return set_cell_size(cut(text, width), max(0, width))


def bar(share: float | None, width: int) -> str:
    """A share 0..1 as a bar of exactly `width` cells."""
    if share is None or width <= 0:
        return " " * max(0, width)
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    full, part = divmod(eighths, 8)
    return ("█" * full + (EIGHTHS[part] if part else "")).ljust(width, "░")[:width]


def strip(values: Iterable[float | None], width: int, top: float | None = None) -> str:
    """Values as a strip of block characters, the newest at the right; a gap where nothing is known."""
    known = list(values)
    if not known or width <= 0:
        return ""
    if len(known) > width:
        step = len(known) / width
        known = [
            max(
                (v for v in known[int(i * step) : max(int(i * step) + 1, int((i + 1) * step))] if v is not None),
                default=None,
            )
            for i in range(width)
        ]
    high = max([v for v in known if v is not None] + [top or 0.0])
    blocks = "▁▂▃▄▅▆▇█"
    return "".join(
        " " if v is None else blocks[min(7, int(v / high * 7.999))] if high > 0 else blocks[0] for v in known
    )


def lines(parts: Iterable[Text | str]) -> Text:
    """Lines one under another."""
    return Text("\n").join(p if isinstance(p, Text) else Text(p) for p in parts)


def hang(label: str, words: Text, width: int, style: str = "bold") -> Text:
    """A label, and words beside it that stay right of it where they need several rows."""
    room = max(8, width - cell_len(label))
    rows = words.wrap(_PLAIN, room) or [Text()]
    out = []
    for i, row in enumerate(rows):
        row.rstrip()
        out.append(Text.assemble((label if i == 0 else " " * cell_len(label), style), row))
    return lines(out)


def beside(left: Text, right: Text, width: int) -> Text:
    """Two texts side by side, the left one in `width` cells."""
    lefts, rights = left.split("\n"), right.split("\n")
    out = []
    for i in range(max(len(lefts), len(rights))):
        line = lefts[i].copy() if i < len(lefts) else Text()
        line.truncate(width, pad=True)
        out.append(line.append(" ").append_text(rights[i] if i < len(rights) else Text()))
    return lines(out)
