"""A run beside the one on the screen: a directory of its own, and the first one goes on."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import yaml

from probes import store
from probes.events import Notice, PlanProgress
from probes.measure.ab import Arm, Design
from probes.recipe import Dial, Recipe
from tui.beside import about
from tui.labthread import LabThread
from tui.messages import Compare, Diagnose

MISSING = Recipe("gone", "llamacpp", "/nonexistent/llama-server", "/nonexistent/m.gguf", Dial("ngram-simple", (0, 3)))
AB = Compare(Arm(0, {"flash": True, "ctx": None}), Arm(3, {"flash": True}), Design(2, 2, 0))


@pytest.mark.parametrize("asked", [AB, Diagnose(0, {})], ids=["ab", "diagnosis"])
def test_it_has_a_run_of_its_own_and_the_first_goes_on(tmp_path: Path, asked: Compare | Diagnose) -> None:
    run = store.create(tmp_path)
    thread = LabThread(MISSING, run)
    thread.start()
    thread.ask(asked)
    told: list[object] = []
    waiting = threading.Event()
    while not any(isinstance(e, Notice) and "is over" in e.text for e in told):
        told += thread.drain()
        waiting.wait(0.02)
    beside = thread.beside
    assert beside is not None
    assert beside.over
    assert beside.run.path.parent == run.path.parent
    assert beside.run.path != run.path
    frame = beside.frame()
    assert frame.progress is not None
    assert frame.progress.finished
    assert any("given up" in n.text for n in frame.notices)
    assert beside.run.result() is not None
    assert not any(isinstance(e, PlanProgress) for e in told)
    assert run.result() is None
    thread.close()
    assert yaml.safe_load((beside.run.path / "run.yaml").read_text())["recipe"]["name"] == "gone"


def test_closing_ends_it_too(tmp_path: Path) -> None:
    thread = LabThread(MISSING, store.create(tmp_path))
    thread.start()
    thread.ask(AB)
    thread.close()
    assert "lab" not in {t.name for t in threading.enumerate()}
    if thread.beside is not None:
        assert thread.beside.over
        store.Run(thread.beside.run.path).open()  # nobody holds it any more


def test_an_ab_of_the_screen_can_be_gone_on_with_from_the_command_line() -> None:
    assert about(MISSING, AB)["ab"] == {
        "preset": "gone", "a_texts": ["depth=0", "flash=True"], "b_texts": ["depth=3", "flash=True"], "blocks": 2,
        "prompts": 2, "max_tokens": None, "floor": None, "stop_early": False,
    }  # fmt: skip
