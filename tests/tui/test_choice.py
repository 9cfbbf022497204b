from __future__ import annotations

import dataclasses

import pytest

from probes import engines, preset
from probes.events import ServerChanged
from probes.recipe import Recipe
from tui.widgets.choice import Choice, Chosen


def up(depth: int, restart: int = 1) -> ServerChanged:
    return ServerChanged(1.0, "ready", restart, depth=depth)


def test_steps_stay_on_the_dial(recipe: Recipe) -> None:
    chosen = Chosen(recipe)
    seen = []
    for by in (1, 1, 1, -1, -1, -1, -1):
        assert chosen.step(by) is None
        seen.append(chosen.wanted.depth)
    assert seen == [4, 4, 4, 2, 0, 0, 0]


def test_knobs_step_by_their_kind(recipe: Recipe) -> None:
    chosen = Chosen(recipe)
    for _ in recipe.knobs:
        chosen.move(1)
        assert chosen.step(1) is None
    assert chosen.wanted.knobs == {"ctx": 2049, "flash": True, "cache": "q8_0"}
    chosen.step(1)
    assert chosen.wanted.knobs["cache"] == "f16"


def test_a_value_outside_its_range_is_refused_with_the_rule_and_changes_nothing(recipe: Recipe) -> None:
    chosen = Chosen(recipe)
    assert "must be one of 0, 2, 4, not '3'" in str(chosen.type("3"))
    chosen.move(1)
    assert chosen.type("12") == "ctx must be a whole number from 256 to 65536, not 12 (a multiple of 256)"
    assert chosen.type("four") is not None
    assert chosen.wanted == Choice(2, {})


def test_changes_are_against_what_was_asked_last(recipe: Recipe) -> None:
    chosen = Chosen(recipe)
    assert chosen.changes() == []
    chosen.asked = chosen.wanted
    chosen.step(1)
    chosen.move(1)
    chosen.type("4096")
    assert chosen.changes() == ["draft depth 2 → 4", "ctx its default → 4096"]


def test_a_failed_start_does_not_count_as_good(recipe: Recipe) -> None:
    chosen = Chosen(recipe)
    chosen.asked = chosen.wanted
    chosen.server(up(2), up(2))
    chosen.step(1)
    chosen.asked = chosen.wanted
    chosen.server(ServerChanged(2.0, "failed", 2, depth=4), up(2))
    assert chosen.good == Choice(2, {})
    assert chosen.asked == Choice(4, {})


def test_a_sweep_that_turns_the_dial_leaves_what_was_wanted(recipe: Recipe) -> None:
    chosen = Chosen(recipe)
    chosen.server(up(4), up(4))
    assert chosen.wanted.depth == 2
    assert chosen.changes() == ["draft depth 4 → 2"]


def test_default_takes_a_value_back(recipe: Recipe) -> None:
    chosen = Chosen(recipe)
    chosen.move(1)
    chosen.type("4096")
    chosen.asked = chosen.wanted
    assert chosen.type("default") is None
    assert chosen.changes() == ["ctx 4096 → its default"]


def test_going_back_takes_back_what_was_set_since(recipe: Recipe) -> None:
    chosen = Chosen(recipe)
    chosen.asked = chosen.wanted
    chosen.server(up(2), up(2))
    chosen.move(1)
    chosen.type("65536")
    chosen.asked = chosen.wanted
    chosen.server(ServerChanged(2.0, "failed", 2, depth=2), up(2))
    assert chosen.good == Choice(2, {})
    assert chosen.back() == {"ctx": None}


@pytest.mark.parametrize("name", preset.listing())
def test_every_engine_takes_none_for_a_knob_that_is_not_given(name: str) -> None:
    recipe = preset.load(name)
    engine = engines.engine(recipe.engine)
    nothing = {knob.name: None for knob in recipe.knobs}
    depth = recipe.dial.values[-1]
    bare = dataclasses.replace(recipe, settings={})
    assert engine.command(recipe, nothing, depth, 1) == engine.command(bare, {}, depth, 1)
