"""Wires it up: a feed's events to the session, its frames to the screen, intents to the feed. Nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import threading
import time
from collections.abc import Iterable
from typing import ClassVar

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from probes.events import Notice
from probes.recipe import Refused
from probes.session import Session
from tui.feed import Aside, Feed, Opener
from tui.messages import Anew, Asked, Open, OpenRun, Quit
from tui.screens.keys import BY_NAME, CLOSING, KEYS, go_on
from tui.screens.leave import Leave
from tui.screens.live import Live
from tui.screens.picker import Picker, Row

TICK_S = 0.2


class Draftdial(App[str | None]):
    """`first` is what to open, or the rows of the picker. Gives what to print after the screen has gone."""

    CSS_PATH = "app.tcss"
    TITLE = "draftdial"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+p,colon", "command_palette", "commands", show=False, priority=False),
        Binding("ctrl+q,ctrl+c", "leave", "quit", show=False, priority=True),
    ]

    def __init__(self, opener: Opener, first: Feed | list[Row], *, timer: bool = True) -> None:
        super().__init__()
        self._opener = opener
        self._first = first
        self._timer = timer
        self.feed: Feed | None = None
        self.session = Session()
        self._shown: tuple[object, ...] = ()
        self._beat = 0
        self._leaving = False

    def on_mount(self) -> None:
        """The first screen; then, after it is painted, the feed."""
        if isinstance(self._first, list):
            self.push_screen(Picker(self._first))
        else:
            self._open(self._first)
        if self._timer:
            self.set_interval(TICK_S, self.pump)
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._quit, Quit())
            signal.signal(signal.SIGHUP, lambda *_: threading.Thread(target=self._hung_up).start())

    def _open(self, feed: Feed) -> Live:
        self.feed, self.session, self._shown = feed, Session(), ()
        live = Live(feed.recipe, str(feed.run.path), past=feed.past)
        self.push_screen(live)
        self.call_after_refresh(self._begin, feed)
        return live

    @staticmethod
    def _begin(feed: Feed) -> None:
        """After the first paint: what was loaded until now stays, so the collector need not look at it again."""
        gc.freeze()
        gc.enable()
        feed.start()

    def pump(self) -> None:
        """Events to the session, the frame to the screen; nothing when nothing is new."""
        feed = self.feed
        if feed is None:
            return
        self.session.apply_all(feed.drain())
        frame = self.session.frame()
        if isinstance(self.screen, Aside):
            self.screen.show_beside(feed)
        aside = None if feed.beside is None else feed.beside.frame().progress
        live = next((s for s in reversed(self.screen_stack) if isinstance(s, Live)), None)
        if live is None or not live.up:
            return
        self._beat += 1
        live.paused = feed.paused
        now = (frame.version, feed.doing, aside, feed.paused)
        if now != self._shown:
            self._shown = now
            live.show(frame, feed.doing, aside)
        elif self._beat % 5 == 0:
            live.tick()

    def on_asked(self, message: Asked) -> None:
        """Hand an intent on."""
        intent = message.intent
        if isinstance(intent, Quit):
            self._quit(intent)
        elif isinstance(intent, (Open, OpenRun, Anew)):
            self.run_worker(self._reopen(intent), exclusive=True)
        elif self.feed is not None:
            self.feed.ask(intent)

    async def _reopen(self, intent: Open | OpenRun | Anew) -> None:
        """Close what is open, then open another; a new run goes on with what was asked for."""
        try:
            feed = await asyncio.to_thread(self._opener, intent)
        except Refused as problem:
            if isinstance(self.screen, (Live, Picker)):
                self.screen.say(str(problem))
            return
        before = self.screen
        if self.feed is not None:
            self.feed.doing = "stopping the server"
            await asyncio.to_thread(self.feed.close)
            self.pop_screen()
        live = self._open(feed)
        if isinstance(intent, Anew) and isinstance(before, Live):
            told = go_on(live, before, intent.why)
            self.session.apply(Notice(time.time(), "info", told))
            feed.ask(intent.then)

    def action_leave(self) -> None:
        """Ctrl-C: like q on the live screen, wherever a person is; where the question stands already, it's answered."""
        live = next((s for s in reversed(self.screen_stack) if isinstance(s, Live)), None)
        if live is None or isinstance(self.screen, Leave):
            self._quit(Quit())
        else:
            BY_NAME["quit"].do(live)

    def _hung_up(self) -> None:
        """The terminal is gone: the loop may hang in a write to it, so end the feed from here, and ask it nothing."""
        try:
            if self.feed is not None:
                self.feed.close()
        finally:
            os._exit(128 + signal.SIGHUP)

    def _quit(self, intent: Quit) -> None:
        if not self._leaving:
            self._leaving = True
            self.run_worker(self._end(intent.leave))

    async def _end(self, leave: bool) -> None:
        """End the feed off the loop, while the screen shows how it goes; then leave."""
        if self.feed is not None:
            self.feed.doing = CLOSING
            await asyncio.to_thread(self.feed.close, leave=leave)
        self.exit(self.feed.left if self.feed else None)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Every action of the live screen by name."""
        if isinstance(screen, Live):
            for key in KEYS:
                yield SystemCommand(f"{key.label} ({key.sign or key.keys})", key.help, lambda k=key: k.do(screen))
        yield SystemCommand("theme", "Change the colours", self.action_change_theme)
