"""What an attached server's figures are said to be: the server's own word counts, not the preset's."""

from __future__ import annotations

from probes import preset
from tui.commands.attach import labelled, plain


def test_a_server_that_says_it_is_simulated_is_labelled_and_its_time_is_known() -> None:
    recipe = labelled(plain("vllm", "http://127.0.0.1:1"), 20.0)
    assert (recipe.simulated, recipe.speed) == (True, 20.0)
    real = labelled(preset.load("ninfer-mtp"), 5.0)
    assert (real.simulated, real.speed) == (True, 5.0)


def test_a_real_server_is_not_labelled_by_a_preset_of_the_simulator() -> None:
    recipe = labelled(preset.load("sim-ninfer-5090"), None)
    assert (recipe.simulated, recipe.speed) == (False, 1.0)
