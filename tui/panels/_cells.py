"""What the panels read out of a result: cells by depth and category, and charts of one figure of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.text import Text

from probes.session import Frame
from tui.charts import Axis, Series, colours, draw, letters
from tui.widgets import ink

SETTLED = frozenset({"VERDICT"})


def cells(frame: Frame) -> list[Mapping[str, Any]]:
    """The cells in which something was measured."""
    return [c for c in (frame.result or {}).get("cells") or [] if c.get("requests")]


def categories(frame: Frame) -> list[str]:
    """All categories of the run, in their order, so that letters and colours never move."""
    return [*(frame.result or {}).get("categories", [])] or list(frame.run.categories if frame.run else ())


def depths(frame: Frame) -> list[int]:
    """The depths of the dial and those measured besides, ascending."""
    seen = {int(c["depth"]) for c in cells(frame)}
    return sorted(seen | set(frame.run.depths if frame.run else ()))


def mean(cell: Mapping[str, Any], key: str) -> float | None:
    """A cell's figure; of a list, its mean."""
    value = cell.get(key)
    if isinstance(value, (list, tuple)):
        known = [float(v) for v in value if v is not None]
        return sum(known) / len(known) if known else None
    return None if value is None else float(value)


Value = Callable[[Mapping[str, Any]], float | None]


def chart(frame: Frame, value: Value, width: int, height: int, *, spec: str, top: float | None = None) -> Text:
    """One figure by depth and category: the chart, and under it the numbers at one depth in words."""
    names = categories(frame)
    steps = depths(frame)
    place = {d: float(i) for i, d in enumerate(steps)}
    marks, inks = letters(names), colours(names)
    grid = {(c["category"], int(c["depth"])): c for c in cells(frame)}
    series = tuple(
        Series(
            n,
            marks[n],
            inks[n],
            tuple((place[d], v) for d in steps if (c := grid.get((n, d))) and (v := value(c)) is not None),
        )
        for n in names
    )
    at = focus(frame, {d for s in series for x, _ in s.points for d in steps if place[d] == x})
    legend = _legend(names, marks, inks, grid, at, value, spec, width)
    rows = height - len(legend)
    axis = Axis(tuple((place[d], str(d)) for d in steps), top)
    return ink.lines([draw(series, axis, width, rows), *legend] if rows > 0 else legend)


def focus(frame: Frame, known: set[int]) -> int | None:
    """The depth whose numbers are spelled out: that of the server if it has any, else the last one measured."""
    if frame.server is not None and frame.server.depth in known:
        return frame.server.depth
    for request in reversed(frame.recent):
        if request.depth in known:
            return request.depth
    return max(known, default=None)


def _legend(
    names: Sequence[str], marks: Mapping[str, str], inks: Mapping[str, str],
    grid: Mapping[tuple[str, int], Mapping[str, Any]], at: int | None, value: Value, spec: str, width: int,
) -> list[Text]:  # fmt: skip
    """Letter, name and figure of each category at one depth; a figure that is not settled is dim and shows its n."""
    head = "" if at is None else f"at {at}: "
    parts: list[Text] = []
    for name in names:
        cell = grid.get((name, at)) if at is not None else None
        part = Text(f"{marks[name]} {ink.safe(name, 20)}", style=inks[name])
        if cell is not None:
            settled = cell.get("state") in SETTLED
            part.append(f" {ink.figure(value(cell), spec)}", style="bold" if settled else "dim")
            if not settled:
                part.append(f" n={cell.get('n', 0)}", style="dim")
        parts.append(part)
    out, line = [], Text(head, style="dim")
    for part in parts:
        if line.cell_len + part.cell_len > width and line.cell_len > len(head):
            out.append(line)
            line = Text(" " * len(head))
        line.append_text(part).append("  ")
    out.append(line)
    for line in out:
        line.truncate(width)
    return out
