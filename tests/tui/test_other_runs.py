"""Runs that are no sweep: listed beside the others, and looked at again on pages of their own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from probes.events import Judged, RunStarted
from probes.measure.ceiling_report import report
from probes.measure.steps import Measure, Measured
from probes.stats.abresult import judge_ab
from tui.panels._cells import conclusion

WIDE, SMALL = (160, 48), (80, 24)
Show = Callable[..., str]
RUN = RunStarted(1.0, "2026-11-30-b", "llamacpp", "tiny", "m", "draft depth", (2, 4), ("code",))
AB = judge_ab([], run="r", engine="llamacpp", simulated=False, differs=("depth: 2 against 4",))
SCENE = report([Measured(Measure(2, 1, {}, arm="load1-", why="the pool"))], run="r", engine="ninfer", simulated=False)
SWEEP = {"verdict": {"state": "PICK", "depth": 3, "sentence": "Use depth 3: it is fastest."}}


def test_every_kind_of_result_says_in_one_line_what_it_came_to() -> None:
    assert conclusion(SWEEP) == "PICK · Use depth 3: it is fastest."
    assert conclusion({**AB, "verdict": "NO_CLAIM", "sentence": "Not yet."}) == "A/B: NO CLAIM · Not yet."
    assert conclusion(SCENE).startswith("diagnosis: UNKNOWN")
    assert conclusion({}) == "nothing measured"
    assert conclusion({**SWEEP, "simulated": True}).startswith("SIMULATED · PICK")
    assert conclusion({"what": "ceiling", "ceiling": None}) == "diagnosis: UNKNOWN"


def test_the_list_of_runs_takes_all_kinds(
    on_screen: Show, feed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAFTDIAL_RUNS", str(tmp_path))
    for name, result in (("a", SWEEP), ("b", AB), ("c", SCENE), ("d", None)):
        (tmp_path / f"2026-11-30-{name}").mkdir()
        (tmp_path / f"2026-11-30-{name}" / "events.jsonl").touch()
        if result is not None:
            (tmp_path / f"2026-11-30-{name}" / "result.json").write_text(json.dumps(result, default=str))
    shown = on_screen(feed, [], WIDE, "r")
    for words in ("Use depth 3", "A/B: NO CLAIM", "diagnosis: UNKNOWN", "nothing measured"):
        assert words in shown, words


@pytest.mark.parametrize(
    ("result", "key", "words"),
    [(AB, "a", "differs  depth: 2 against 4"), (SCENE, "d", "─ the pool")],
    ids=["an A/B", "a diagnosis"],
)
def test_a_past_run_shows_its_figures_under_the_key_that_made_them(
    on_screen: Show, feed: Any, result: dict[str, Any], key: str, words: str
) -> None:
    feed.past, feed.recipe = True, None
    events = [RUN, Judged(2.0, result)]
    for size in (WIDE, SMALL):
        shown = on_screen(feed, events, size)
        assert f"{key} shows its figures" in shown
        assert f" {key} " in shown.split("\n")[-1]
        page = on_screen(feed, events, size, key)
        assert words in page
        assert "run 2026-11-30-b" in page
        assert "esc back" in page
        assert "Accept rate by depth" in on_screen(feed, events, size, key, "escape")
        assert conclusion(result)[:20] in on_screen(feed, events, size, "y")
