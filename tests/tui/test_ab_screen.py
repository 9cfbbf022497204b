from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from probes.events import Event, Judged, Notice, PlanProgress, RequestDone, RunStarted
from probes.measure.ab import Arm, Design, design
from probes.recipe import Recipe
from probes.session import Frame, Session
from probes.stats.abresult import judge_ab
from probes.store import Run
from tui.messages import Cancel, Compare, Pause
from tui.panels import _ab
from tui.screens.live import Live
from tui.widgets.choice import Choice, Chosen

WIDE, SMALL, TINY = (160, 48), (80, 24), (40, 12)
Show = Callable[..., str]
ASKED = Compare(Arm(2, {}), Arm(4, {}), Design(6, 2, 3))


class Beside:
    """A run beside that only shows what it is given."""

    def __init__(self, path: Path, events: list[Event], asked: Any = ASKED, *, over: bool = False) -> None:
        self.asked, self.run, self.over = asked, Run(path), over
        self._session = Session()
        self._session.apply_all(events)

    def frame(self) -> Frame:
        return self._session.frame()


def request(arm: str, block: int, prompt: str, tps: float) -> RequestDone:
    stamps = {"sent": 0.0, "first": 1.0, "last": 1.0 + 100 / tps, "done": 9.0}
    facts: dict[str, Any] = {**stamps, "completion_tokens": 101, "first_tokens": 1, "text": "fine", "text_hash": "t"}
    return RequestDone(f"{arm}{block}-{prompt}", prompt, "h", prompt[:-2], None, 1, block, "ok", **facts)


def told(
    b: dict[str, float],
    blocks: int = 6,
    *,
    done: str | None = None,
    warnings: tuple[str, ...] = (),
    wobble: float = 0.01,
) -> list[Event]:
    """What an A/B tells after so many blocks; `b`: how much faster B is for each kind of text."""
    requests = [
        request(arm, i, f"{kind}-{n}", (100 + 10 * n) * (gain if arm == "b-" else 1) * (1 + wobble * ((i * 7) % 5 - 2)))
        for arm in ("aa-", "a-", "b-")
        for i in range(blocks)
        for kind, gain in b.items()
        for n in range(2)
    ]
    result = judge_ab(
        requests, run="r", engine="llamacpp", simulated=True, differs=("depth: 2 against 4",), warnings=warnings
    )
    run = RunStarted(1.0, "2026-11-30-b", "llamacpp", "tiny", "m", "draft depth", (2, 4), tuple(b), simulated=True)
    step = done or f"block {blocks} of 6, arm B"
    return [
        run,
        Judged(2.0, result),
        PlanProgress(3.0, "ab", 3 + 2 * blocks, 15, step, 30.0, finished=done is not None),
    ]


BOTH = {"code": 1.2, "story": 1.2}


def test_the_proposal_names_both_arms_the_plan_its_price_and_the_stop_rule(
    on_screen: Show, feed: Any, facts: list[Event]
) -> None:
    for size in (WIDE, SMALL):
        shown = on_screen(feed, facts, size, "a", "right")
        for word in (
            "A (runs now)", "draft depth", "differs  depth: 2 against 4", "15 restarts: 3 of A alone",
            "a boot took 0.4 s", "after 6 blocks, whatever",
        ):  # fmt: skip
            assert word in shown, word
    # 15 boots of 0.4 s, and 15 × (1 + 2 × 4) requests of 3.2 s in the mean of what is measured here
    took = [e.done - e.sent for e in facts if isinstance(e, RequestDone) and e.done]
    seconds = 15 * (0.4 + sum(took) / len(took) * 9)
    assert f"about {seconds / 60:.0f} min, as" in shown


def test_what_is_chosen_is_asked_for_and_only_once(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    shown = on_screen(feed, ready, WIDE, "a", "right", "enter")
    assert "✖ dial.flags: draft-simple needs a draft model" in shown  # before anything is stopped
    assert feed.asked == []
    feed.recipe = dataclasses.replace(feed.recipe, dial=dataclasses.replace(feed.recipe.dial, flags={"-md": "s"}))
    on_screen(feed, ready, WIDE, "a", "right", "e", "enter", "enter")
    assert feed.asked == [Compare(Arm(2, {}), Arm(4, {}), Design(6, 2, 3), early=True)]


def test_without_a_difference_nothing_starts(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    shown = on_screen(feed, ready, WIDE, "a", "enter")
    assert feed.asked == []
    assert "nothing differs: change one thing in B first" in shown


def test_a_value_is_typed_for_b_and_its_rule_is_told(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    shown = on_screen(feed, ready, WIDE, "a", "down", "7", "enter")
    assert "ctx must be a whole number from 256 to 65536, not 7 (a multiple of 256)" in shown
    shown = on_screen(feed, ready, WIDE, "a", "down", "4", "0", "9", "6", "enter", "right", "left")
    assert "differs  ctx: preset against 4096" in shown
    assert feed.asked == []


def test_two_knobs_are_two_bundles(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    assert _ab.BUNDLE not in on_screen(feed, ready, WIDE, "a", "right")
    assert _ab.BUNDLE in on_screen(feed, ready, WIDE, "a", "right", "down", "down", "right")


def test_a_busy_lab_is_left_alone(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    feed.doing = "sweeping 3 depths"

    async def pump(pilot: Any, live: Live) -> None:
        await pilot.press("a", "right")
        pilot.app.pump()
        await pilot.press("enter")

    assert "busy: sweeping 3 depths" in on_screen(feed, ready, WIDE, then=pump)
    assert feed.asked == []


def show(on_screen: Show, feed: Any, ready: list[Event], size: tuple[int, int], beside: Beside, *keys: str) -> str:
    async def pump(pilot: Any, live: Live) -> None:
        await pilot.press("a")
        feed.beside, feed.doing = beside, None if beside.over else "A/B"
        pilot.app.pump()
        await pilot.pause()
        for key in keys:
            await pilot.press(key)
            await pilot.pause()

    return on_screen(feed, ready, size, then=pump)


def test_while_it_measures_there_is_no_verdict(on_screen: Show, feed: Any, ready: list[Event], tmp_path: Path) -> None:
    for size in (WIDE, SMALL):
        shown = show(on_screen, feed, ready, size, Beside(tmp_path, told(BOTH, 4)))
        assert "BETTER" not in shown
        for word in (
            "measuring SIMULATED", "run 2026-11-30-b", "4 of 6 done", "any look", "e-value",
            "identical servers differ by up to", "│ A", "│ B", "4     code", "n=2", "11/15",
        ):  # fmt: skip
            assert word in shown, word


def test_the_end_has_verdict_interval_and_both_columns(
    on_screen: Show, feed: Any, ready: list[Event], tmp_path: Path
) -> None:
    shown = show(on_screen, feed, ready, WIDE, Beside(tmp_path, told(BOTH, done="done")))
    row = next(line for line in shown.split("\n") if "6     code" in line)
    a, b, ratio = (part.strip() for part in row.split("│")[1:])
    first, second = (float(v) for v in a.removesuffix(" n=2").split("/"))
    assert second == pytest.approx(1.1 * first, rel=0.01)
    assert b.endswith("n=2")
    assert float(ratio) == pytest.approx(1.2, rel=0.01)
    assert "BETTER SIMULATED · B is faster: +20.0 %" in shown
    assert "all   code" in shown


def test_undecided_says_what_it_needs_and_a_stop_is_named(
    on_screen: Show, feed: Any, ready: list[Event], tmp_path: Path
) -> None:
    noisy = told({"code": 1.12, "story": 0.97}, 3, done="stopped: what was measured is kept")
    shown = show(on_screen, feed, ready, WIDE, Beside(tmp_path, noisy))
    assert "UNDECIDED" in shown
    assert "would tell" in shown
    assert "stopped: what was measured is kept" in shown


def test_a_mean_does_not_hide_a_kind_of_text_that_loses(ready: list[Event]) -> None:
    session = Session()
    session.apply_all(told({"code": 0.9, "story": 1.5, "translation": 1.5}, done="done", wobble=0.001))
    assert "B is slower on code (-10.0%)" in _ab.measured(ASKED, session.frame(), 120).plain
    session.apply_all(told(BOTH, done="done"))
    assert "slower on" not in _ab.measured(ASKED, session.frame(), 120).plain


def test_other_pools_and_other_knobs_stand_in_red() -> None:
    session = Session()
    session.apply_all(told(BOTH, done="done", warnings=("the KV pools differ (1 against 2 tokens)",)))
    asked = dataclasses.replace(ASKED, b=Arm(4, {"ctx": 4096}))
    page = _ab.measured(asked, session.frame(), 120)
    for words in ("the KV pools differ (1 against 2 tokens)", _ab.BUNDLE[2:]):
        start = page.plain.index(words)
        styles = [str(s.style) for s in page.spans if s.start <= start < s.end]
        assert any("#d55e00" in style.lower() for style in styles), words


def test_the_table_fits_a_small_screen_with_its_intervals(ready: list[Event]) -> None:
    session = Session()
    session.apply_all(told({"translation": 0.9, "story": 1.5}, done="done"))
    row = next(t for t in _ab.measured(ASKED, session.frame(), 74).plain.split("\n") if t.startswith("all   trans"))
    assert row.endswith("%")
    assert row.count("%") == 2


def test_it_can_be_ended_and_held(on_screen: Show, feed: Any, ready: list[Event], tmp_path: Path) -> None:
    shown = show(on_screen, feed, ready, WIDE, Beside(tmp_path, told(BOTH, 2)), "space", "space", "x")
    assert feed.asked == [Pause(on=True), Pause(on=False), Cancel()]
    assert "ending: what was measured is kept" in shown


def test_one_that_is_over_is_put_away_for_another(
    on_screen: Show, feed: Any, ready: list[Event], tmp_path: Path
) -> None:
    beside = Beside(tmp_path, told(BOTH, done="done"))
    shown = show(on_screen, feed, ready, WIDE, beside, "n", "right")
    assert "differs  depth: 2 against 4" in shown
    beside.over = True
    assert "A (runs now)" in show(on_screen, feed, ready, WIDE, beside, "n", "escape", "a")


def test_one_that_ended_while_nobody_looked_is_shown(
    on_screen: Show, feed: Any, ready: list[Event], tmp_path: Path
) -> None:
    beside = Beside(tmp_path, told(BOTH, done="done"), over=True)
    shown = show(on_screen, feed, ready, WIDE, beside)
    assert "B is faster: +20.0 %" in shown
    assert shown.rsplit("\n", maxsplit=1)[-1].strip() == "n new A/B esc back"


def test_what_went_wrong_is_told(on_screen: Show, feed: Any, ready: list[Event], tmp_path: Path) -> None:
    beside = Beside(tmp_path, [*told(BOTH, done="done"), Notice(9.0, "error", "given up: \x1b[31mno server")])
    shown = show(on_screen, feed, ready, SMALL, beside)
    assert "given up: no server" in shown


def test_a_server_of_someone_else_gets_no_ab(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    run = ready[0]
    assert isinstance(run, RunStarted)
    shown = on_screen(feed, [dataclasses.replace(run, attached=True), *ready[1:]], WIDE, "a")
    assert "an A/B restarts a server for each block, so it needs one of its own" in shown
    feed.past, feed.recipe = True, None
    assert "a run of the past" in on_screen(feed, ready, WIDE, "a")


@pytest.mark.parametrize("size", [TINY, (20, 5), (1, 1)])
def test_no_size_breaks_it(
    on_screen: Show, feed: Any, ready: list[Event], tmp_path: Path, size: tuple[int, int]
) -> None:
    shown = show(on_screen, feed, ready, size, Beside(tmp_path, told(BOTH, 3)))
    assert len(shown.split("\n")) == size[1]


def test_escape_comes_back_and_the_ab_goes_on(on_screen: Show, feed: Any, ready: list[Event], tmp_path: Path) -> None:
    shown = show(on_screen, feed, ready, WIDE, Beside(tmp_path, told(BOTH, 3)), "escape")
    assert "Accept rate by depth" in shown
    assert feed.asked == []


def test_on_the_live_screen_it_is_seen_and_held(on_screen: Show, feed: Any, ready: list[Event], tmp_path: Path) -> None:
    beside = Beside(tmp_path, told(BOTH, 2))
    for size in (WIDE, SMALL):
        shown = show(on_screen, feed, ready, size, beside, "escape")
        assert "7/15 · 30 s left · block 2 of 6, arm B" in shown
        shown = show(on_screen, feed, ready, size, beside, "escape", "space")
        assert feed.asked[-1] == Pause(on=True)
        assert "space goes on" in shown
        assert "space go on" in shown.rsplit("\n", maxsplit=1)[-1]
        show(on_screen, feed, ready, size, beside, "space", "escape", "space")
        assert feed.asked[-1] == Pause(on=False)
        feed.paused = False


@pytest.mark.parametrize("width", [54, 74, 154])
def test_the_ratio_is_in_sight_at_every_width(width: int) -> None:
    session = Session()
    session.apply_all(told(BOTH, done="done"))
    rows = _ab.measured(ASKED, session.frame(), width).plain.split("\n")
    assert all(len(row) <= width for row in rows)
    assert all("1.200" in row for row in rows if row.startswith("all   "))
    assert sum(row.startswith("all   ") for row in rows) == 2


def test_a_knob_that_moves_memory_is_told_before_anything_starts(recipe: Recipe) -> None:
    chosen = Chosen(recipe)
    chosen.asked = chosen.wanted
    plan = design(None)
    assert "budget" not in _ab.proposal(chosen, plan, (None, None), 100, early=False, runs=True).plain
    chosen.wanted = Choice(chosen.wanted.depth, {**chosen.wanted.knobs, "ctx": 4096})
    told = _ab.proposal(chosen, plan, (None, None), 100, early=False, runs=True).plain
    assert "! ctx changes the memory budget: this compares two memory budgets as well" in told
