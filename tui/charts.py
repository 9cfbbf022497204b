"""Series to text with plotext's figure objects: the only module that draws charts, and it measures nothing.

plotext has one figure for the whole process, so every chart passes through `draw`. Whatever cannot be drawn (NaN,
infinity, no point, a panel of a few cells) is handled here before plotext sees it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rich.text import Text

COLOURS = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#D55E00", "#0072B2", "#BBBBBB")
"""Okabe and Ito's palette, told apart with any of the common colour-vision deficiencies; brightest on black first."""
LEAST_WIDTH, LEAST_HEIGHT = 16, 4
HUGE = 1e15
SPARE = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a chart: points as (place on the x axis, value); `letter` marks it where there is no colour.

    `loose`: points that no line joins, since nobody measured them.
    """

    name: str
    letter: str
    colour: str
    points: tuple[tuple[float, float], ...]
    loose: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """The x axis: a tick and its label for each place; `top` fixes the y axis to 0..top."""

    ticks: tuple[tuple[float, str], ...]
    top: float | None = None


def letters(names: Sequence[str]) -> dict[str, str]:
    """A letter of its own for each name: its first one that is still free, else a digit or a sign."""
    found: dict[str, str] = {}
    for name in names:
        own = [c for c in name.upper() if c.isascii() and c.isalnum()]
        found[name] = next((c for c in [*own, *SPARE] if c not in found.values()), "?")
    return found


def colours(names: Sequence[str]) -> dict[str, str]:
    """A colour for each name, by its place in the list."""
    return {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}


def sound(points: Iterable[tuple[float | None, float | None]]) -> tuple[tuple[float, float], ...]:
    """The points that can be drawn, from left to right."""
    kept = {
        float(x): float(y)
        for x, y in points
        if x is not None and y is not None and math.isfinite(x) and math.isfinite(y) and max(abs(x), abs(y)) < HUGE
    }
    return tuple(sorted(kept.items()))


@lru_cache(maxsize=64)
def draw(series: tuple[Series, ...], axis: Axis, width: int, height: int) -> Text:
    """A chart of exactly `width` x `height` cells at most, the same object while data and size are the same."""
    usable = [Series(s.name, s.letter[:1] or "?", s.colour, k, s.loose) for s in series if (k := sound(s.points))]
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return Text("too small to draw" if width >= 17 and height else "", style="dim")
    if not usable:
        return Text("nothing measured yet", style="dim")
    return _plotted(usable, axis, width, height)


def _plotted(series: Sequence[Series], axis: Axis, width: int, height: int) -> Text:
    """Every series as a line, then every measured point as its letter on top."""
    import plotext

    figure = plotext.figure
    plotext.terminal.limit(False, False)
    figure.clear()
    figure.theme("colorless")
    figure.canvas("default")
    figure.plot_size(width, height)
    for mark in ("braille", ""):
        for one in series:
            if mark and one.loose:
                continue
            ink = plotext.pixel(foreground=_rgb(one.colour))
            xs, ys = [p[0] for p in one.points], [p[1] for p in one.points]
            signal = figure.signal(xs, ys, marker=plotext.marker(mark or one.letter, ink))
            figure.draw(signal.lines() if mark else signal)
    figure.axes(False, axis=0, side=1)
    figure.axes(False, axis=1, side=1)
    xs = [x for x, _ in axis.ticks] or [x for s in series for x, _ in s.points]
    figure.ruler(0, 0).lim(min(xs) - 0.2, max(xs) + 0.2)
    if axis.ticks:
        figure.ruler(0, 0).ticks([x for x, _ in axis.ticks], [label for _, label in axis.ticks])
    low, high = _range([y for s in series for _, y in s.points], axis.top)
    steps, decimals = _steps(low, high, max(2, min(6, (height - 2) // 2)))
    figure.ruler(1, 0).lim(low, high)
    figure.ruler(1, 0).ticks(steps, [_tick(v, decimals, high - low) for v in steps])
    built = Text.from_ansi(figure.build().string().rstrip("\n"))
    built.no_wrap = True
    return built


def _range(values: Sequence[float], top: float | None) -> tuple[float, float]:
    """Where the y axis begins and ends: at 0, so that heights can be compared, unless something lies below."""
    low, high = min(0.0, *values), max(values) if top is None else max(top, *values)
    if not high > low:
        high = low + 1.0
    return low, high if top is not None else high + (high - low) * 0.05


def _steps(low: float, high: float, most: int) -> tuple[list[float], int]:
    """At most `most` round values from `low` to `high`, as many as that allows, and the decimals that they need."""
    power = math.floor(math.log10((high - low) / most))
    for more in range(power - 1, power + 3):
        for lead, extra in ROUND:
            step = lead * 10.0**more
            first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
            if last - first < most:
                return [i * step for i in range(first, last + 1)], max(0, extra - more)
    return [low, high], 0


ROUND = ((1.0, 0), (2.0, 0), (2.5, 1), (5.0, 0))
"""Steps that a person counts in, with the decimals that each needs beyond its scale."""


def _tick(value: float, decimals: int, span: float) -> str:
    """A label with as many decimals as the steps need."""
    if span >= 1e6 or decimals > MOST_DECIMALS:
        return f"{value:.1e}"
    return f"{value:.{decimals}f}"


MOST_DECIMALS = 4


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
