"""A run of the store for the screen: its files read once, in a thread, so that a long log does not hold the screen."""

from __future__ import annotations

import threading
import time
from collections import deque

from probes.events import Event, Notice
from probes.recipe import Recipe
from probes.replay import replay
from probes.store import Run
from tui.feed import Second
from tui.messages import Intent


class Replay:
    """Like the lab's thread, but nothing can be asked of the past."""

    past = True

    def __init__(self, run: Run) -> None:
        self.recipe: Recipe | None = None
        self.run = run
        self.doing: str | None = "reading the run"
        self.paused = False
        self.left: str | None = None
        self.beside: Second | None = None
        self._events: deque[Event] = deque()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._main, name="replay", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def drain(self) -> list[Event]:
        """What was read since the last call, in order."""
        found: list[Event] = []
        while self._events:
            found.append(self._events.popleft())
        return found

    def ask(self, intent: Intent) -> None:
        """Nothing: the screen says so before it asks."""

    def close(self, *, leave: bool = False) -> None:  # noqa: ARG002  (one shape for both feeds)
        """Stop reading."""
        self._over.set()
        self._thread.join()

    def _main(self) -> None:
        try:
            for event in replay(self.run):
                if self._over.is_set():
                    return
                self._events.append(event)
        except Exception as problem:  # noqa: BLE001  (whatever a file holds, the screen must say it)
            self._events.append(Notice(time.time(), "error", f"{self.run.path}: {type(problem).__name__}: {problem}"))
        finally:
            self.doing = None
