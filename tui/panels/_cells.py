"""What the panels read out of a result: cells by depth and category, and charts of one figure of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.text import Text

from probes.session import Frame
from tui.charts import Axis, Series, colours, draw, letters
from tui.widgets import ink

SETTLED = frozenset({"VERDICT"})
ALONE = "Nothing to compare"
"""How a verdict begins when only one depth was measured: then no rule of thumb has chosen anything either."""
OTHERS = {"ab": "this run is an A/B: a shows its figures", "ceiling": "this run is a diagnosis: d shows its figures"}
"""Runs that are no sweep, by their plan: their figures are on pages of their own."""
HOLLOW = "○"
"""How a point is drawn that was predicted from another depth, and not measured."""
LOW = 6
"""A chart of fewer rows says less than a table."""


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


def spoken(verdict: Mapping[str, Any]) -> tuple[str, str]:
    """A verdict as its word and its sentence, which does not say the word again."""
    word = str(verdict.get("state") or ink.NONE).replace("_", " ")
    sentence = ink.safe(verdict.get("sentence") or "")
    if sentence.startswith(ALONE):
        word = ALONE.upper()
    if sentence.casefold().startswith(word.casefold()):
        sentence = sentence[len(word) :].lstrip(" :.,")
        sentence = sentence[:1].upper() + sentence[1:]
    return word, sentence


def kind(result: Mapping[str, Any]) -> str | None:
    """What made this result, where it was no sweep: "ab" or "ceiling"."""
    return result.get("plan") or result.get("what")


def conclusion(result: Mapping[str, Any]) -> str:
    """What a run came to in one line, whether it was a sweep, an A/B or a diagnosis: their results differ in form."""
    plan, found = kind(result), result.get("verdict")
    if plan == "ab":
        found = {"state": found, "sentence": result.get("sentence")}
    elif plan == "ceiling":
        ceiling = result.get("ceiling") or {}
        found = {"state": str(ceiling.get("verdict") or "unknown").upper(), "sentence": ceiling.get("sentence")}
    if not isinstance(found, Mapping) or not found:
        return "nothing measured"
    said = " · ".join(part for part in spoken(found) if part)
    simulated = "SIMULATED · " if result.get("simulated") else ""
    return simulated + {"ab": "A/B: ", "ceiling": "diagnosis: "}.get(str(plan), "") + said


def mean(cell: Mapping[str, Any], key: str) -> float | None:
    """A cell's figure; of a list, its mean."""
    value = cell.get(key)
    if isinstance(value, (list, tuple)):
        known = [float(v) for v in value if v is not None]
        return sum(known) / len(known) if known else None
    return None if value is None else float(value)


Value = Callable[[Mapping[str, Any]], float | None]


def plot(
    frame: Frame,
    value: Value,
    width: int,
    height: int,
    top: float | None = None,
    none: str = "nothing measured yet",
    also: Sequence[Mapping[str, Any]] = (),
) -> Text:
    """One figure by depth and category, as a chart alone. Depths stand side by side as they do on the dial.

    `also`: points that were predicted; they are hollow.
    """
    names, steps = categories(frame), depths(frame)
    place = {d: float(i) for i, d in enumerate(steps)}
    marks, inks = letters(names), colours(names)
    points: dict[str, list[tuple[float, float]]] = {n: [] for n in names}
    for cell in cells(frame):
        known = value(cell)
        if known is not None and cell["category"] in points:
            points[cell["category"]].append((place[int(cell["depth"])], known))
    series = tuple(Series(n, marks[n], inks[n], tuple(points[n])) for n in names)
    if not any(points.values()):
        return Text(none, style="dim")
    guessed = {n: [(place[p["depth"]], value(p)) for p in also if p["category"] == n] for n in names}
    loose = {n: tuple((x, y) for x, y in found if y is not None) for n, found in guessed.items()}
    series = (*(Series(n, HOLLOW, inks[n], loose[n], loose=True) for n in names if loose[n]), *series)
    return draw(series, Axis(tuple((place[d], str(d)) for d in steps), top), width, height)


Words = Callable[[Mapping[str, Any]], str]


def predicted(frame: Frame) -> list[Mapping[str, Any]]:
    """What the deepest depth says of depths on the dial that were not measured."""
    on_dial = set(depths(frame))
    return [p for p in (frame.result or {}).get("predicted") or [] if p["depth"] in on_dial]


def chart(frame: Frame, value: Value, words: Words, width: int, height: int, **more: Any) -> Text:
    """One figure by depth and category: the chart, and under it the figures at one depth, spelled out by `words`."""
    grid = {(c["category"], int(c["depth"])): c for c in cells(frame)}
    at = focus(frame, {depth for (_, depth), cell in grid.items() if value(cell) is not None})
    row = {name: cell for (name, depth), cell in grid.items() if depth == at}
    legend = _legend(categories(frame), row, at, words, width)
    if (also := more.get("also")) and height - len(legend) > LOW:
        legend.append(Text(f"{HOLLOW} predicted from depth {also[0]['from']}, not measured", style="dim"))
    room = height - len(legend)
    if row and room < LOW:
        return table(frame, words, width, height, at)
    drawn = [plot(frame, value, width, room, **more)] if room > 0 else []
    return ink.lines([*drawn, *legend])


def table(frame: Frame, words: Words, width: int, height: int, at: int | None) -> Text:
    """A row a depth, a column a category, for a panel too low for a chart; the depths around `at` come first."""
    names, grid = categories(frame), {(c["category"], int(c["depth"])): c for c in cells(frame)}
    marks, inks = letters(names), colours(names)
    column = max(6, (width - 6) // max(1, len(names)) - 1)
    out = [Text("depth ", style="dim")]
    for name in names:
        out[0].append(f"{ink.cut(f'{marks[name]} {ink.safe(name)}', column):>{column}} ", style=inks[name])
    rows = sorted({depth for _, depth in grid})
    first = max(0, min(rows.index(at) if at in rows else 0, len(rows) - height + 1))
    for depth in rows[first : first + max(0, height - 1)]:
        line = Text(f"{depth:>5} ")
        for name in names:
            cell = grid.get((name, depth))
            settled = cell is not None and cell.get("state") in SETTLED
            said = words(cell) if cell is not None else ink.NONE
            if len(said) > column:
                said = said.partition(" ")[0]  # half a figure would read as another one
            line.append(f"{ink.cut(said, column):>{column}} ", style="" if settled else "dim")
        out.append(line)
    for line in out:
        line.truncate(width, overflow="ellipsis")
    return ink.lines(out)


def focus(frame: Frame, known: set[int]) -> int | None:
    """The depth whose numbers are spelled out: that of the server if it has any, else the last one measured."""
    if frame.server is not None and frame.server.depth in known:
        return frame.server.depth
    for request in reversed(frame.recent):
        if request.depth in known:
            return request.depth
    return max(known, default=None)


def _legend(
    names: Sequence[str], row: Mapping[str, Mapping[str, Any]], at: int | None, words: Words, width: int
) -> list[Text]:
    """Letter, name and figure of each category at one depth; what is not settled is dim, with its n."""
    marks, inks = letters(names), colours(names)
    counts = {int(c.get("n", 0)) for c in row.values()}
    same = f" n={counts.pop()}" if len(counts) == 1 else ""
    head = "" if at is None else f"at {at}{same}: "
    out, line = [], Text(head, style="dim")
    for name in names:
        part = Text(f"{marks[name]} {ink.safe(name, 20)}", style=inks[name])
        if cell := row.get(name):
            settled = cell.get("state") in SETTLED
            part.append(f" {words(cell)}", style="bold default" if settled else "dim default")
            if not settled and not same:
                part.append(f" n={cell.get('n', 0)}", style="dim default")
        if line.cell_len + part.cell_len > width and line.cell_len > len(head):
            out.append(line)
            line = Text(" " * len(head))
        line.append_text(part).append("  ")
    out.append(line)
    for line in out:
        line.truncate(width)
    return out
