"""The noise floor of another run: taken only where its arm A was this one, on the same things."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from probes import fingerprint, preset, store

Call = Callable[..., Result]


def measured(root: Path, a_texts: list[str], **other: Any) -> str:
    """A run that measured a floor of 2 %; `other` goes over its fingerprint."""
    recipe = preset.load("sim-vllm")
    found = fingerprint.gather(recipe, recipe.settings, fingerprint.look(dict(os.environ)))
    run = store.create(root)
    run.open()
    run.describe(recipe, {"ab": {"a_texts": a_texts}, "fingerprint": found | other})
    run.write_result({"floor": {"upper": 0.02}})
    run.close()
    return run.name


@pytest.mark.parametrize(
    ("a_texts", "other", "why"),
    [
        (["lanes=8"], {}, ""),
        (["lanes=4"], {}, "its arm A was lanes=4, not lanes=8"),
        ([], {}, "its arm A was the preset's own settings, not lanes=8"),
        (["lanes=8"], {"concurrency": 7}, "it was measured on something else: concurrency: 7 against"),
    ],
)
def test_a_floor_is_reused_only_on_the_same_things(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call, a_texts: list[str], other: dict[str, Any], why: str
) -> None:
    monkeypatch.setenv("DRAFTDIAL_RUNS", str(tmp_path))
    name = measured(tmp_path, a_texts, **other)
    told = call("ab", "sim-vllm", "--a", "lanes=8", "--b", "lanes=16", "--floor", name, "--plan")
    assert told.exit_code == (2 if why else 0), told.output
    assert why in told.stderr
    assert ("(0 of A alone" in told.stderr) == (not why)
