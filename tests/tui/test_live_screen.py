from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from probes.events import Event, LogLines, Notice, PlanProgress, RunStarted, ServerChanged
from probes.recipe import Recipe
from tui import panels
from tui.messages import Apply, Cancel, Pause, Probe, StopServer, Sweep
from tui.screens.live import Live
from tui.widgets.drawn import Drawn

WIDE, SMALL, TINY = (160, 48), (80, 24), (40, 12)
Show = Callable[..., str]


def test_everything_is_in_sight_on_a_large_screen(on_screen: Show, feed: Any, facts: list[Event]) -> None:
    shown = on_screen(feed, facts, WIDE)
    for word in (
        "● ready", "boot 0.4 s", "pid 4312", "run 2026-11-30-a", "▸2•◂", "Accept rate by depth", "Decode tok/s",
        "Regret", "UNDECIDED", "minimax", "TPOT", "TTFT", "3 lanes share 4,096 tokens.", "KV POOL", "pool exhausted",
        "Last requests",
        "running   2", "waiting   1", "1.0 GiB resident", "flags read back: in force", "all is well", "⏎ apply",
    ):  # fmt: skip
        assert word in shown, word


def test_a_small_screen_keeps_dial_state_verdict_and_regret(on_screen: Show, feed: Any, facts: list[Event]) -> None:
    shown = on_screen(feed, facts, SMALL)
    for word in ("● ready", "▸2•◂", "UNDECIDED", "minimax", "Accept rate by depth", "speed  latency  log"):
        assert word in shown, word
    assert "Last requests" not in shown


def test_each_panel_can_be_opened_on_a_small_screen(on_screen: Show, feed: Any, facts: list[Event]) -> None:
    seen: set[str] = set()

    async def turn(pilot: Any, live: Live) -> None:
        for _ in panels.found():
            await pilot.press("t")
            await pilot.pause()
            seen.add(live.chosen)
            widget = live.query_one(f"#panel-{live.chosen}")
            assert widget.display
            assert widget.size.height >= 5

    on_screen(feed, facts, SMALL, then=turn)
    assert seen == {p.name for p in panels.found() if not p.always}


@pytest.mark.parametrize("size", [TINY, (20, 5), (3, 2), (1, 1), (400, 100)])
def test_no_size_breaks_it(on_screen: Show, feed: Any, facts: list[Event], size: tuple[int, int]) -> None:
    shown = on_screen(feed, facts, size, "t", "t", "t", "z", "z", "y", "escape", "question_mark", "escape")
    assert len(shown.split("\n")) == size[1]


def test_a_tiny_screen_still_says_how_it_is(on_screen: Show, feed: Any, facts: list[Event]) -> None:
    shown = on_screen(feed, facts, TINY)
    assert "● ready" in shown
    assert "▸2•◂" in shown


def test_resizing_loses_nothing(on_screen: Show, feed: Any, facts: list[Event]) -> None:
    async def resize(pilot: Any, live: Live) -> None:
        await pilot.press("right")
        for size in (SMALL, TINY, WIDE):
            await pilot.resize_terminal(*size)
            await pilot.pause()

    before = on_screen(feed, facts, WIDE, "right").split("\n")
    after = on_screen(feed, facts, WIDE, then=resize).split("\n")
    assert after[1:] == before[1:]  # the header has a clock


def test_unknown_figures_are_dashes_and_never_zero(on_screen: Show, feed: Any) -> None:
    run = RunStarted(1.0, "r", "vllm", "p", "m", "draft depth", (0, 2), ("code",))
    shown = on_screen(feed, [run, ServerChanged(2.0, "ready", 1, depth=2)], WIDE)
    assert "pid —" in shown
    assert "boot —" in shown
    assert not re.search(r"(?<![\d.:])0(\.0)?%", shown)


def test_keys_become_intents(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    on_screen(feed, ready, WIDE, "right", "enter", "p", "s", "S")
    assert feed.asked == [Apply(4, {}), Probe(), Sweep(), StopServer()]


def test_stepping_only_marks_a_change(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    shown = on_screen(feed, ready, WIDE, "right")
    assert feed.asked == []
    assert "▸4◂" in shown
    assert "1 change · enter restarts, 0.4 s" in shown


def test_a_digit_types_a_value_and_the_rule_is_told(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    shown = on_screen(feed, ready, WIDE, "down", "7", "enter")
    assert "ctx must be a whole number from 256 to 65536, not 7 (a multiple of 256)" in shown
    shown = on_screen(feed, ready, WIDE, "down", "4", "0", "9", "6", "enter", "enter")
    assert feed.asked == [Apply(2, {"ctx": 4096})]


def test_keys_typed_into_the_prompt_are_no_commands(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    on_screen(feed, ready, WIDE, "slash", "s", "p", "x", "enter", "escape")
    assert feed.asked == []


def test_while_it_works_keys_explain_and_ending_is_possible(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    feed.doing = "sweeping 3 depths, block 1"
    plan = PlanProgress(9.0, "sweep", 1, 3, "block 1, depth 4", seconds_left=30.0)
    shown = on_screen(feed, [*ready, plan], WIDE, "p")
    assert "busy: sweeping 3 depths, block 1 · x ends it" in shown
    shown = on_screen(feed, [*ready, plan], WIDE, "space", "x")
    assert "1/3 · 30 s left · block 1, depth 4" in shown
    assert "pauses after this point" in on_screen(feed, [*ready, plan], WIDE, "space")
    assert feed.asked == [Pause(on=True), Cancel(), Pause(on=True)]


def test_a_failed_start_is_told_in_the_dial_and_can_be_undone(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    failed = ServerChanged(
        8.0, "failed", 2, depth=4, reason="out of memory: 9 GiB wanted", hint="lower ctx", exit_code=1
    )
    shown = on_screen(feed, [*ready, failed], WIDE, "u")
    rows = [row[:40] for row in shown.split("\n")]
    dial = " ".join(" ".join(rows[1:11]).replace("│", " ").split())
    assert "failed (exit 1): out of memory: 9 GiB wanted" in dial
    assert "lower ctx" in dial
    assert feed.asked == [Apply(2, {})]


def test_quitting_asks_when_a_server_runs(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    shown = on_screen(feed, ready, SMALL, "q")
    assert "leave it running" in shown
    assert feed.closed is None
    on_screen(feed, ready, SMALL, "q", "l")
    assert feed.closed is True


def test_quitting_without_a_server_just_quits(on_screen: Show, feed: Any) -> None:
    on_screen(feed, [], SMALL, "q")
    assert feed.closed is False


def test_simulated_is_said_on_top_and_beside_the_verdict(on_screen: Show, feed: Any, facts: list[Event]) -> None:
    run = facts[0]
    assert isinstance(run, RunStarted)
    for size in (WIDE, SMALL):
        shown = on_screen(feed, [dataclasses.replace(run, simulated=True), *facts[1:]], size).split("\n")
        assert "SIMULATED" in shown[0]
        assert any("UNDECIDED SIMULATED" in row for row in shown)


HOSTILE = "[bold red]x[/] \x1b[2J\x1b]0;t\x07 [/nonsense \u202egnp.exe 日本語 שלום \x00\ttab ❤️ é {}"


def test_hostile_text_is_only_text(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    events = [
        RunStarted(1.0, HOSTILE, "llamacpp", HOSTILE, HOSTILE, "depth", (0, 2), ("code", HOSTILE)),
        *ready[1:],
        LogLines(5, (HOSTILE,) * 3, 1),
        Notice(5.0, "error", HOSTILE),
        ServerChanged(8.0, "failed", 2, depth=2, reason=HOSTILE, hint=HOSTILE, last_line=HOSTILE),
    ]
    for size in (WIDE, SMALL, TINY):
        shown = on_screen(feed, events, size, "l", "w", "y", "escape")
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert "\x00" not in shown
    assert "[bold red]x[/]" in on_screen(feed, events, WIDE)


def test_why_shows_numbers_and_jumps_to_the_line(on_screen: Show, feed: Any, facts: list[Event]) -> None:
    seen: list[str] = []

    async def jump(pilot: Any, live: Live) -> None:
        await pilot.press("y")
        await pilot.pause()
        seen.append("\n".join("".join(s.text for s in strip) for strip in pilot.app.screen._compositor.render_strips()))
        await pilot.press("end", "enter")
        await pilot.pause()
        assert live.log_view.marked == 2
        assert not live.log_view.follow

    on_screen(feed, facts, WIDE, then=jump)
    assert "log      3  pool exhausted" in seen[0]
    assert "25.0%" in seen[0]


def test_a_run_of_the_past_starts_nothing(on_screen: Show, feed: Any, facts: list[Event]) -> None:
    feed.past, feed.recipe = True, None
    shown = on_screen(feed, facts, WIDE, "p", "s", "enter", "left")
    assert feed.asked == []
    assert "a run of the past: nothing can be started here" in shown
    assert "past" in shown.split("\n")[0]


def test_a_server_of_someone_else_is_probed_and_never_restarted(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    run = ready[0]
    assert isinstance(run, RunStarted)
    events = [dataclasses.replace(run, attached=True), *ready[1:]]
    shown = on_screen(feed, events, WIDE, "right", "enter", "s", "u", "S", "p")
    assert feed.asked == [Probe()]
    assert "attached" in shown.split("\n")[0]
    on_screen(feed, events, WIDE, "q")
    assert feed.closed is False


def test_help_names_every_key(on_screen: Show, feed: Any, recipe: Recipe) -> None:
    from tui.screens.keys import KEYS

    shown = on_screen(feed, [], WIDE, "question_mark")
    for key in KEYS:
        assert key.help[:60] in shown, key.name


def test_every_action_is_in_the_palette(feed: Any) -> None:
    import asyncio

    from tui.app import Draftdial
    from tui.screens.keys import KEYS

    app = Draftdial(lambda _: feed, feed, timer=False)

    async def whole() -> list[str]:
        async with app.run_test(size=SMALL):
            return [command.help for command in app.get_system_commands(app.screen)]

    helps = asyncio.run(whole())
    assert {key.help for key in KEYS} <= set(helps)


def test_nothing_is_drawn_when_nothing_is_new(on_screen: Show, feed: Any, facts: list[Event]) -> None:
    async def pump(pilot: Any, live: Live) -> None:
        boxes = [live.query_one(f"#panel-{n}", Drawn) for n in ("accept", "speed", "latency", "regret", "memory")]
        before = [b.draws for b in boxes]
        for number in range(5):
            feed.events = [LogLines(10 + number, ("more",), 1)]
            pilot.app.pump()
            await pilot.pause()
        assert [b.draws for b in boxes] == before
        assert live.log_view.total == 14

    on_screen(feed, facts, WIDE, then=pump)


def test_files_are_named(on_screen: Show, feed: Any, tmp_path: Path) -> None:
    assert "this run is on disk:" in on_screen(feed, [], WIDE, "e")


def test_a_refused_start_is_told_in_the_dial_with_its_cure(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    path = "/models/日本語 🚀/[bold]a-model-with-a-very-long-name-" + "x" * 60 + "-Q4_K_M.gguf"
    told = Notice(9.0, "error", f"{path}: no such file; put the right path into mine.yaml")
    for size, width in ((WIDE, 38), (SMALL, 80), ((60, 20), 60)):
        shown = on_screen(feed, [ready[0], told], size)
        top = shown[: shown.index("╰")].split("\n")[2:]
        dial = "".join(row[1 : width - 1].strip() for row in top).replace(" ", "")
        assert "✖/models/" in dial, size
        assert "putthe" in dial, size
        last = next(row for row in shown.split("\n")[-3:] if "✖" in row)
        assert last.rstrip().endswith("mine.yaml"), size
    later = ready[1]
    assert isinstance(later, ServerChanged)
    shown = on_screen(feed, [*ready, told, dataclasses.replace(later, at=10.0)], SMALL)
    assert "no such file" not in shown[: shown.index("╰")]


def test_a_word_that_is_no_longer_true_goes(
    on_screen: Show, feed: Any, ready: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start(pilot: Any, live: Live) -> None:
        await pilot.press("p")
        assert live._told is not None
        feed.events = ready[1:]
        pilot.app.pump()
        assert live._told is not None  # it can still be read
        monkeypatch.setattr("tui.screens.live.SAID_S", 0.0)
        live.tick()

    assert "no server is ready" not in on_screen(feed, ready[:1], SMALL, then=start)


def test_a_row_that_is_too_short_says_so(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    feed.doing = "sweeping"
    plan = PlanProgress(9.0, "sweep", 1, 3, "block 1, depth 4, " + "which takes longer than the row is wide " * 3)
    assert "…" in next(row for row in on_screen(feed, [*ready, plan], SMALL).split("\n") if "1/3" in row)


def test_what_can_be_done_first_is_what_can_be_done(on_screen: Show, feed: Any, ready: list[Event]) -> None:
    run = ready[0]
    assert isinstance(run, RunStarted)
    assert "enter starts this depth, p probes it" in on_screen(feed, [run], SMALL)
    shown = on_screen(feed, ready, SMALL)
    assert "yet: p probes this depth, s sweeps all" in shown
    attached = dataclasses.replace(run, attached=True)
    shown = on_screen(feed, [attached, *ready[1:]], SMALL)
    assert "yet: p probes it" in shown
    assert "draft depth 2  as it was started" in shown
    assert "draft depth —  as it was started" in on_screen(feed, [attached], SMALL, "p")
    assert "the server does not answer yet" in on_screen(feed, [attached], SMALL, "p")
    feed.past, feed.recipe = True, None
    assert "│ no figures " in on_screen(feed, [run], SMALL)
