"""Charts of a report as inline SVG: one small line chart a figure, depth across, one series a category.

Colours are CSS variables, so that a page can be dark or printed; marks differ in shape too, for readers without colour.
What a page's style would set is also set as attributes, for programs that apply no style inside SVG.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from probes.show import clean

WIDTH, HEIGHT = 360, 230
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 12, 34
SHAPES = 4
COLOURS = 8
TICK = 'class="tick" font-size="11"'
BARE = 'fill="none" stroke="currentColor"'
"""Shapes and colours before they repeat; together they tell 8 series apart."""


@dataclass(frozen=True, slots=True)
class Point:
    """One cell on a chart; `hollow`: a guard speaks against it; `parts`: the single values it is a mean of."""

    depth: int
    value: float
    hollow: bool = False
    parts: tuple[float, ...] = ()


Series = Mapping[str, Sequence[Point]]


def series(cells: Sequence[Mapping[str, Any]], key: str, bad_depths: Sequence[int] = ()) -> dict[str, list[Point]]:
    """Category -> points that can be drawn, by depth."""
    found: dict[str, list[Point]] = {}
    for cell in cells:
        value = cell.get(key)
        parts = tuple(float(v) for v in value if _drawable(v)) if isinstance(value, list) else ()
        if isinstance(value, list):
            value = sum(parts) / len(parts) if parts else None
        if value is None or not _drawable(value) or not isinstance(cell.get("depth"), int):
            continue
        hollow = cell.get("state") in {"FLAGGED", "PREDICTED"} or cell["depth"] in bad_depths
        found.setdefault(str(cell.get("category")), []).append(Point(cell["depth"], float(value), hollow, parts))
    return {name: sorted(points, key=lambda p: p.depth) for name, points in found.items()}


def _drawable(value: Any) -> bool:
    """Whether a value is a figure of a measurement: no quantity here is negative, or beyond 1e15."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e15


def chart(
    title: str,
    data: Series,
    names: Sequence[str],
    *,
    top: float | None = None,
    unit: str = "",
    dial: str = "draft depth",
) -> str:
    """A chart as SVG text; '' when there is nothing to draw. `names` fixes each category's colour and shape.

    The value axis starts at 0 and ends at `top`, or at a round number above the largest value.
    """
    points = [p for line in data.values() for p in line]
    if not points:
        return ""
    high = top or _round_up(max(max([p.value, *p.parts]) for p in points))
    depths = sorted({p.depth for p in points})
    x = _across(depths)

    def y(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - min(value, high) / high)

    body = [*_axes(depths, x, y, high, unit, dial)]
    for name, line in data.items():
        number = names.index(name) if name in names else len(names)
        body += _line(line, x, y, number, depths)
    label = f"{title} by {dial}"
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{safe(label)}">'
        f"<title>{safe(label)}</title>{''.join(body)}</svg>"
    )


def legend(names: Sequence[str]) -> str:
    """The categories with their marks."""
    items = [
        f'<span class="key"><svg viewBox="0 0 24 12" width="24" height="12" aria-hidden="true">'
        f'<path class="line k{i % COLOURS}" {BARE} d="M0 6H24"/>{mark(12, 6, i)}</svg>{safe(name)}</span>'
        for i, name in enumerate(names)
    ]
    return f'<p class="legend">{" ".join(items)}</p>'


def safe(text: Any, most: int = 400) -> str:
    """Foreign text for a page: control characters out, markup escaped, length bounded."""
    return escape(clean(str(text), most), quote=True)


def _across(depths: Sequence[int]) -> Callable[[int], float]:
    """Depths across the width, to scale; a single one stands in the middle."""
    low, high = depths[0], depths[-1]
    width = WIDTH - LEFT - RIGHT - 24
    return lambda depth: LEFT + 12 + (width * (depth - low) / (high - low) if high > low else width / 2)


def _round_up(value: float) -> float:
    """The least of 1, 2, 2.5, 5 or 10 times a power of ten that is not below; 1 for nothing, or next to nothing."""
    if value < 1e-300:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(m * power for m in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 20) if m * power >= value)


def _axes(
    depths: Sequence[int], x: Callable[[int], float], y: Callable[[float], float], high: float, unit: str, dial: str
) -> list[str]:
    out = []
    for part in range(5):
        value = high * part / 4
        shown = f"{value * 100:.0f}%" if unit == "%" else f"{value:g}" if high >= 4 else f"{value:.2f}"
        out.append(
            f'<path class="grid" fill="none" stroke="#ccc" d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}"/>'
            f'<text {TICK} x="{LEFT - 6}" y="{y(value) + 3.5:.1f}" text-anchor="end">{shown}</text>'
        )
    every = max(1, math.ceil(len(depths) / 12))
    out += [
        f'<text {TICK} x="{x(d):.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{d}</text>'
        for d in depths[::every]
    ]
    middle = (LEFT + WIDTH - RIGHT) / 2
    out.append(f'<text {TICK} x="{middle:.0f}" y="{HEIGHT - 4}" text-anchor="middle">{safe(dial, 60)}</text>')
    return out


def _line(
    line: Sequence[Point], x: Callable[[int], float], y: Callable[[float], float], number: int, depths: Sequence[int]
) -> list[str]:
    """One series: a line that breaks where a depth was not measured, single values as dots, marks on top."""
    out: list[str] = []
    by_depth = {p.depth: p for p in line}
    path, pen = "", "M"
    for depth in depths:
        if depth in by_depth:
            path += f"{pen}{x(depth):.1f} {y(by_depth[depth].value):.1f}"
            pen = "L"
        else:
            pen = "M"
    out.append(f'<path class="line k{number % COLOURS}" {BARE} d="{path}"/>')
    for p in line:
        if len(p.parts) > 1:
            out += [f'<circle class="dot k{number % COLOURS}" cx="{x(p.depth):.1f}" cy="{y(v):.1f}" r="1.6"/>'
                    for v in p.parts]  # fmt: skip
        out.append(mark(x(p.depth), y(p.value), number, hollow=p.hollow))
    return out


def mark(x: float, y: float, number: int, *, hollow: bool = False) -> str:
    """A series' mark: circle, square, triangle or diamond; hollow where a guard speaks against the figure."""
    kind = f'class="mark {"hollow" if hollow else "full"} k{number % COLOURS}"'
    shape = (number + number // COLOURS) % SHAPES
    if shape == 0:
        return f'<circle {kind} cx="{x:.1f}" cy="{y:.1f}" r="3.6"/>'
    paths = {1: "m-3.3 -3.3h6.6v6.6h-6.6z", 2: "m0 -4.3l4 7.4h-8z", 3: "m0 -4.6l4.2 4.6l-4.2 4.6l-4.2 -4.6z"}
    return f'<path {kind} d="M{x:.1f} {y:.1f}{paths[shape]}"/>'
