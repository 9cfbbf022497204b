"""A run beside the one on the screen: an A/B or a diagnosis has a directory, a lab and a server of its own.

So the figures of the sweep are never mixed with those of another setting or another load. It draws nothing.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from probes.events import Event, Notice
from probes.recipe import Recipe, Refused
from probes.session import Frame, Session
from probes.store import Run
from tui.messages import Compare, Diagnose

if TYPE_CHECKING:
    from probes.bench import Attached
    from probes.lab import Lab

LOOKS, LOOK_S = 50, 0.1
"""How often and how long to wait until an attached server is seen to answer."""


class Beside:
    """`frame` belongs to the screen's thread; everything else to the lab's loop."""

    def __init__(self, asked: Compare | Diagnose, run: Run) -> None:
        self.asked = asked
        self.run = run
        self._over = asyncio.Event()
        self._events: deque[Event] = deque()
        self._session = Session()
        self._lab: Lab | None = None
        self._ended = False

    @property
    def name(self) -> str:
        """What it is, in words."""
        return "A/B" if isinstance(self.asked, Compare) else "diagnosis"

    @property
    def over(self) -> bool:
        """Whether it has ended and let its server go."""
        return self._over.is_set()

    def frame(self) -> Frame:
        """The picture of this moment; all that waits is taken first."""
        while self._events:
            self._session.apply(self._events.popleft())
        return self._session.frame()

    async def carry_out(self, recipe: Recipe, attached: Attached | None = None) -> None:
        """All of it, from opening the run to closing it. Whatever goes wrong is told in this run too."""
        try:
            lab = self._made(recipe, attached)
            await lab.open(about(recipe, self.asked))
            self._lab = lab
            try:
                await self._work(lab)
            finally:
                self._lab = None
                await lab.close()
        except Exception as problem:
            told = str(problem) if isinstance(problem, Refused) else f"{type(problem).__name__}: {problem}"
            self._events.append(Notice(time.time(), "error", told))
            raise
        finally:
            self._over.set()

    async def cancel(self) -> None:
        """End it; what was measured is kept."""
        self._ended = True
        if self._lab is not None:
            await self._lab.cancel()

    async def end(self) -> None:
        """End it, and wait until its server is gone."""
        await self.cancel()
        await self._over.wait()

    def pause(self, *, on: bool) -> None:
        """Hold it before its next point, or let it go on."""
        if self._lab is not None:
            self._lab.pause(on=on)

    def _made(self, recipe: Recipe, attached: Attached | None) -> Lab:
        from probes.abtest import lab_for
        from probes.lab import Lab

        if isinstance(self.asked, Compare):
            return lab_for(recipe, self.run, (self.asked.a, self.asked.b), self._events.append)
        with_knobs = dataclasses.replace(recipe, settings={**recipe.settings, **self.asked.settings})
        depths = [] if self.asked.depth is None else [self.asked.depth]
        return Lab(with_knobs, self.run, self._events.append, depths, attached)

    async def _work(self, lab: Lab) -> None:
        from probes.abtest import compare
        from probes.provoke import provoke

        for _ in range(LOOKS if lab.bench.attached else 0):
            if lab.bench.server.state == "ready" or self._ended:
                break
            await asyncio.sleep(LOOK_S)
        if self._ended:
            return
        if isinstance(self.asked, Compare):
            await compare(lab, (self.asked.a, self.asked.b), self.asked.design, early=self.asked.early)
        else:
            await provoke(lab, depth=None if lab.bench.attached else self.asked.depth)


def about(recipe: Recipe, asked: Compare | Diagnose) -> Mapping[str, Any]:
    """What the run says of itself: enough to go on with an A/B from the command line."""
    preset = recipe.path or recipe.name
    if isinstance(asked, Diagnose):
        return {"ceiling": {"preset": preset, "load": None}}
    texts = {
        name: [
            *([] if arm.depth is None else [f"depth={arm.depth}"]),
            *[f"{knob}={value}" for knob, value in arm.settings.items() if value is not None],
        ]
        for name, arm in (("a_texts", asked.a), ("b_texts", asked.b))
    }
    sizes = {"blocks": asked.design.blocks, "prompts": asked.design.prompts, "max_tokens": None, "floor": None}
    return {"ab": {"preset": preset, **texts, **sizes, "stop_early": asked.early}}
