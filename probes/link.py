"""The console's end of the two pipes to a guard: words go down, facts come up. It knows nothing of servers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

GUARD = Path(__file__).with_name("guard.py")
_LET_GO: list[subprocess.Popen[bytes]] = []
"""Guards of servers that were left running: kept, so that nothing waits for them or warns about them."""


class Link:
    """A running guard. `told` is called with each fact, on the event loop; `over` is set when the guard has gone."""

    def __init__(
        self,
        log: Path,
        header: str,
        argv: Sequence[str],
        env: Mapping[str, str],
        told: Callable[[dict[str, Any]], None],
        cleanup: Sequence[str] = (),
    ) -> None:
        self.over = asyncio.Event()
        self._told = told
        self._pending = b""
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", str(GUARD), "--log", str(log), "--header", header),
                *("--cleanup", json.dumps(list(cleanup)), "--", *argv),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            env=dict(env),
        )
        assert self._process.stdin is not None  # noqa: S101  (asked for pipes)
        assert self._process.stdout is not None  # noqa: S101
        self._down, self._up = self._process.stdin, self._process.stdout
        os.set_blocking(self._up.fileno(), False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._up.fileno(), self._read)

    def say(self, word: str) -> None:
        """A command; a guard that has gone is past obeying."""
        with contextlib.suppress(OSError, ValueError):
            self._down.write(word.encode() + b"\n")

    def let_go(self) -> None:
        """The server stays when the console goes; nothing is heard of it any more."""
        self.say("release")
        self._loop.remove_reader(self._up.fileno())
        self._down.close()
        self._up.close()
        _LET_GO.append(self._process)
        self.over.set()

    def _read(self) -> None:
        try:
            data = os.read(self._up.fileno(), 1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._up.fileno())
            self._down.close()
            self._up.close()
            self._process.wait()  # it closed its stdout by exiting
            self.over.set()
            return
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):
                self._told(json.loads(line))
