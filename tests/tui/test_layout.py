from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tui import panels
from tui.screens.layout import TALL, WIDE, Area, arrange, is_wide, tabbed

ALL = panels.found()
NAMES = [p.name for p in tabbed(ALL)]
SIZES = st.tuples(st.integers(0, 300), st.integers(0, 120))


def cells(area: Area) -> set[tuple[int, int]]:
    return {(x, y) for x in range(area.x, area.x + area.width) for y in range(area.y, area.y + area.height)}


@given(SIZES, st.sampled_from(NAMES), st.booleans())
def test_nothing_overlaps_and_all_is_on_the_screen(size: tuple[int, int], chosen: str, zoomed: bool) -> None:
    width, height = size
    taken: set[tuple[int, int]] = set()
    for name, area in arrange(width, height, ALL, chosen, zoomed=zoomed).items():
        assert area.width > 0, name
        assert area.height > 0, name
        mine = cells(area)
        assert not mine & taken, name
        assert all(0 <= x < width and 0 <= y < height for x, y in mine), name
        taken |= mine


def test_the_designed_size_shows_every_panel_as_high_as_it_likes() -> None:
    areas = arrange(160, 44, ALL, "accept")
    assert set(areas) == {p.name for p in ALL}
    assert all(areas[p.name].height >= p.rows for p in ALL if p.place != "tell")
    assert sum(a.width * a.height for a in areas.values()) == 160 * 44


@given(st.integers(WIDE, 300), st.integers(TALL, 120))
def test_a_large_screen_hides_no_chart(width: int, height: int) -> None:
    areas = arrange(width, height, ALL, "accept")
    assert {"dial", "accept", "speed", "regret", "latency", "capacity", "log"} <= set(areas)
    assert min(a.height for a in areas.values()) >= 3


@given(st.integers(40, WIDE - 1), st.integers(20, 60), st.sampled_from(NAMES))
def test_a_small_screen_keeps_dial_regret_and_the_open_tab(width: int, height: int, chosen: str) -> None:
    areas = arrange(width, height, ALL, chosen)
    assert set(areas) == {"dial", "regret", "tabs", chosen}
    assert areas["regret"].height >= 7
    assert areas[chosen].height >= 6


def test_wide_is_about_both_sides() -> None:
    assert is_wide(WIDE, TALL)
    assert not is_wide(WIDE - 1, TALL)
    assert not is_wide(WIDE, TALL - 1)


def test_every_file_of_the_folder_is_a_panel_with_a_name_of_its_own() -> None:
    from pathlib import Path

    files = {p.stem for p in Path(panels.__file__).parent.glob("*.py") if not p.stem.startswith("_")}
    assert {p.name for p in ALL} == files
    assert all(p.title and p.rows >= 3 for p in ALL)
