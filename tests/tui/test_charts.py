from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from tui.charts import COLOURS, Axis, Series, _steps, colours, draw, letters, sound

ANY = st.floats(allow_nan=True, allow_infinity=True)
POINTS = st.lists(st.tuples(st.integers(0, 8).map(float), ANY), max_size=9).map(tuple)
TICKS = Axis(((0.0, "0"), (1.0, "3"), (2.0, "8")))


def line(*values: float, letter: str = "C", colour: str = COLOURS[0]) -> Series:
    return Series("code", letter, colour, tuple((float(i), v) for i, v in enumerate(values)))


@settings(max_examples=60, deadline=None)
@given(st.lists(POINTS, max_size=5), st.integers(-2, 70), st.integers(-2, 24))
def test_whatever_the_numbers_and_the_size_it_fits(many: list[tuple[tuple[float, float], ...]], w: int, h: int) -> None:
    series = tuple(Series(str(i), "ABCDE"[i], COLOURS[i], points) for i, points in enumerate(many))
    rows = draw(series, TICKS, w, h).split("\n")
    if any(sound(s.points) for s in series) and w >= 16 and h >= 4:
        assert len(rows) == h
        assert all(row.cell_len <= w for row in rows)
    else:
        assert len(rows) == 1


@given(st.lists(st.tuples(st.none() | ANY, st.none() | ANY)))
def test_only_finite_points_are_drawn_in_order(points: list[tuple[float | None, float | None]]) -> None:
    kept = sound(points)
    assert all(math.isfinite(x) and math.isfinite(y) for x, y in kept)
    assert list(kept) == sorted(kept)


def test_each_measured_point_carries_its_letter() -> None:
    shown = draw((line(0.9, 0.5, 0.1), line(0.2, 0.7, 0.3, letter="S", colour=COLOURS[1])), TICKS, 50, 12).plain
    assert shown.count("C") == shown.count("S") == 3
    assert shown.split("\n")[-1].split() == ["0", "3", "8"]


def test_one_point_is_a_point() -> None:
    assert draw((line(0.5),), TICKS, 40, 8).plain.count("C") == 1


def test_the_axis_begins_at_zero_and_ends_where_it_is_told() -> None:
    rows = draw((line(0.4, 0.5),), Axis(TICKS.ticks, 1.0), 40, 8).plain.split("\n")
    assert rows[0].startswith("1.0")
    assert rows[-3].strip().startswith("0.0")


@given(st.floats(-1e3, 0), st.floats(1e-6, 1e9), st.integers(2, 6))
def test_steps_of_an_axis_are_round_and_lie_on_it(low: float, span: float, most: int) -> None:
    steps, decimals = _steps(low, low + span, most)
    assert 1 <= len(steps) <= most
    assert all(low - span * 1e-6 <= v <= low + span * (1 + 1e-6) for v in steps)
    if decimals <= 4 and span < 1e6:
        labels = [f"{v:.{decimals}f}" for v in steps]
        assert len(set(labels)) == len(labels)


def test_a_person_can_count_in_the_steps() -> None:
    assert _steps(0.0, 1.0, 3) == ([0.0, 0.5, 1.0], 1)
    assert _steps(0.0, 66.3, 3) == ([0.0, 25.0, 50.0], 0)
    assert _steps(0.0, 15.3, 4) == ([0.0, 5.0, 10.0, 15.0], 0)
    assert _steps(0.0, 57.0, 2) == ([0.0, 50.0], 0)
    assert _steps(0.0, 0.7, 3) == ([0.0, 0.25, 0.5], 2)


def test_lines_have_their_colours() -> None:
    styles = {str(span.style) for span in draw((line(0.1, 0.9), line(0.5, 0.2, colour=COLOURS[1])), TICKS, 40, 9).spans}
    assert {COLOURS[0].lower(), COLOURS[1].lower()} <= styles


def test_the_same_data_and_size_are_drawn_once() -> None:
    one = draw((line(1.0, 2.0),), TICKS, 41, 9)
    assert draw((line(1.0, 2.0),), TICKS, 41, 9) is one
    assert draw((line(1.0, 2.1),), TICKS, 41, 9) is not one
    assert draw((line(1.0, 2.0),), TICKS, 42, 9) is not one


@given(st.lists(st.text(), unique=True, max_size=40))
def test_letters_are_distinct(names: list[str]) -> None:
    found = letters(names)
    assert list(found) == names
    assert len(set(found.values())) == len(names)
    assert all(len(c) == 1 and c.isascii() and c.isprintable() for c in found.values())


def test_letters_and_colours_of_the_four_categories() -> None:
    names = ("code", "story", "translation", "structured")
    assert letters(names) == {"code": "C", "story": "S", "translation": "T", "structured": "R"}
    assert len(set(colours(names).values())) == 4


def test_loose_points_are_drawn_and_no_line_joins_them() -> None:
    def drawn(*, loose: bool) -> str:
        line = Series("code", "○", "#56B4E9", ((0.0, 0.2), (5.0, 0.9)), loose)
        return draw((line,), Axis(((0.0, "0"), (5.0, "5")), 1.0), 60, 14).plain

    braille = [any("\u2800" < c <= "\u28ff" for c in drawn(loose=loose)) for loose in (False, True)]
    assert braille == [True, False]
    assert drawn(loose=True).count("○") == 2
