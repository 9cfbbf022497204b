"""A measured run in memory, a feed that only remembers what was asked, and the text of what a screen shows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from probes.events import (
    Capacity,
    CapacityRead,
    Ceiling,
    CeilingChanged,
    EngineSample,
    Event,
    Evidence,
    FlagsInForce,
    Judged,
    LogLines,
    MemorySample,
    Notice,
    RequestDone,
    RunStarted,
    ServerChanged,
)
from probes.recipe import Dial, Knob, Recipe
from probes.stats.result import judge_sweep
from probes.store import Run
from tui.app import Draftdial
from tui.messages import Cancel, Intent, Pause
from tui.screens.live import Live

CATEGORIES = ("code", "story", "translation", "structured")
DEPTHS = (0, 2, 4)
BOOTED = 0.4
Steps = Callable[[Pilot[Any], Live], Awaitable[None]]


class Feed:
    """What the app needs of a lab; `asked` is what a person asked for."""

    past = False

    def __init__(self, recipe: Recipe | None, path: Path) -> None:
        self.recipe, self.run = recipe, Run(path)
        self.doing: str | None = None
        self.paused = False
        self.left: str | None = None
        self.beside: Any = None
        self.asked: list[Intent] = []
        self.events: list[Event] = []
        self.closed: bool | None = None

    def start(self) -> None:
        """Nothing runs here."""

    def drain(self) -> list[Event]:
        found, self.events = self.events, []
        return found

    def ask(self, intent: Intent) -> None:
        self.asked.append(intent)
        self.paused = intent.on if isinstance(intent, Pause) else self.paused and not isinstance(intent, Cancel)

    def close(self, *, leave: bool = False) -> None:
        self.closed = leave


def request(depth: int, category: str, number: int, seconds: float, **more: Any) -> RequestDone:
    name = f"d{depth}-{category}-{number}"
    prompt = f"{category}-{number}"
    drafts = {"drafted": 40 * depth, "accepted": 10 * depth} if depth else {}
    stamps = {"sent": 1.0, "first": 1.1, "last": 1.1 + seconds, "done": 1.2 + seconds, "ttft_ms": 100.0}
    tokens = {"completion_tokens": 101, "first_tokens": 1, "tpot_exact": True, "decode_tps": 100 / seconds}
    facts: dict[str, Any] = {**stamps, **tokens, **drafts, "text": f"text of {name}", **more}
    return RequestDone(name, prompt, prompt, category, depth, 1, 0, "ok", **facts)


def measured(categories: Iterable[str] = CATEGORIES, prompts: int = 2) -> list[Event]:
    """A sweep that is over, and all that was told on the way."""
    requests = [
        request(d, c, n, 2.0 + 0.1 * i + (0.2 * d if c in {"code", "story"} else -0.2 * d) + 0.05 * n)
        for d in DEPTHS
        for i, c in enumerate(categories)
        for n in range(prompts)
    ]
    result = judge_sweep(
        requests, engine="llamacpp", run="2026-11-30-a", depths=DEPTHS, categories=tuple(categories), simulated=False
    )
    return [
        *started(categories),
        *requests,
        EngineSample(5.0, 1, {"running": 2.0, "waiting": 1.0}),
        MemorySample(5.0, 1, (), host_total=8 << 30, host_available=6 << 30, server_rss=1 << 30),
        CapacityRead(1, Capacity(lanes=3, lines={"lanes": 2}, explain=("3 lanes share 4,096 tokens.",))),
        CeilingChanged(6.0, 1, Ceiling("kv_pool", "high", "The pool is full.", (Evidence(3, "pool exhausted"),))),
        Judged(7.0, result),
    ]


def started(categories: Iterable[str] = CATEGORIES) -> list[Event]:
    """A server that is ready at depth 2."""
    return [
        RunStarted(1.0, "2026-11-30-a", "llamacpp", "tiny", "m", "draft depth", DEPTHS, tuple(categories)),
        ServerChanged(2.0, "starting", 1, depth=2),
        ServerChanged(3.0, "ready", 1, depth=2, pid=4312, url="http://127.0.0.1:8080", boot_s=BOOTED),
        FlagsInForce(1, 2, {"depth": 2}, {"depth": 2}, proven=True),
        LogLines(1, ("first line", "lanes = 3", "pool exhausted", "last line"), 1),
        Notice(4.0, "info", "all is well"),
    ]


@pytest.fixture
def facts() -> list[Event]:
    """`measured()`."""
    return measured()


@pytest.fixture
def ready() -> list[Event]:
    """`started()`."""
    return started()


@pytest.fixture
def recipe() -> Recipe:
    """A dial of three depths, a number, a switch and a choice."""
    knobs = (
        Knob("ctx", "-c", "int", default=2048, low=256, high=65536, rule="a multiple of 256", changes=("memory",)),
        Knob("flash", "-fa", "bool", default=False, changes=("speed", "numerics")),
        Knob("cache", "-ctk", "choice", default="f16", choices=("f16", "q8_0")),
    )
    return Recipe("tiny", "llamacpp", "llama-server", "m", Dial("draft-simple", DEPTHS, start=2), knobs=knobs)


@pytest.fixture
def feed(recipe: Recipe, tmp_path: Path) -> Feed:
    """A feed that only remembers."""
    return Feed(recipe, tmp_path)


def text(app: Draftdial) -> str:
    """What is on the screen, row by row."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)


@pytest.fixture
def screen_text() -> Callable[[Draftdial], str]:
    """`text`."""
    return text


@pytest.fixture
def on_screen() -> Callable[..., str]:
    """Runs an app of a given size with these events and keys; gives what is on its screen in the end."""

    def run(feed: Feed, events: Iterable[Event], size: tuple[int, int], *keys: str, then: Steps | None = None) -> str:
        feed.events = list(events)
        app = Draftdial(lambda _: feed, feed, timer=False)

        async def whole() -> str:
            async with app.run_test(size=size) as pilot:
                await pilot.pause()
                app.pump()
                await pilot.pause()
                for key in keys:
                    await pilot.press(key)
                    await pilot.pause()
                live = next(s for s in app.screen_stack if isinstance(s, Live))
                if then is not None:
                    await then(pilot, live)
                    await pilot.pause()
                return text(app)

        return asyncio.run(whole())

    return run
