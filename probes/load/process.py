"""The load process as the lab holds it: start it once, hand it jobs, take its facts. It sends nothing itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from probes import codec
from probes.events import RequestDone, RequestSent

LINE_MAX = 1 << 26
"""Bytes of one fact at most: a record with a long text is a few hundred kB."""


class LoadProcess:
    """`python -m probes.load --jobs -`, kept between jobs; started again when it was killed."""

    def __init__(self, log: Path, emit: Callable[[RequestSent | RequestDone], None]) -> None:
        self._log = log
        self._emit = emit
        self._process: asyncio.subprocess.Process | None = None
        self._jobs = 0
        self.pid: int | None = None

    async def run(self, job: dict[str, Any]) -> str | None:
        """Carry out one job. None when it ran to its end, else why it did not, in one line."""
        process = await self._alive()
        assert process.stdin is not None  # noqa: S101  (both are pipes: asked for below)
        assert process.stdout is not None  # noqa: S101
        self._jobs += 1
        name = f"job-{self._jobs}"
        trouble: str | None = None
        try:
            process.stdin.write(json.dumps({**job, "job": name}).encode() + b"\n")
            await process.stdin.drain()
        except (OSError, ValueError):
            return await self._ended()
        while True:
            try:
                line = await process.stdout.readline()
            except (OSError, ValueError):  # a line beyond the limit is none of ours
                line = b""
            if not line:
                return await self._ended()
            fact = _fact(line)
            kind = fact.get("kind")
            if kind in {"sent", "done"}:
                with contextlib.suppress(ValueError):
                    event = codec.decode(line)
                    if isinstance(event, (RequestSent, RequestDone)):
                        self._emit(event)
            elif kind == "error":
                trouble = str(fact.get("error"))
            elif kind == "idle" and fact.get("job") == name:
                return trouble or ("cancelled" if fact.get("cancelled") else None)

    async def cancel(self) -> None:
        """Close every open stream at once."""
        if self._process and self._process.stdin and self._process.returncode is None:
            with contextlib.suppress(OSError, ConnectionError):
                self._process.stdin.write(b'{"cmd":"cancel"}\n')
                await self._process.stdin.drain()

    async def close(self) -> None:
        """End the process; its stdin's end tells it to."""
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        if process.stdin:
            process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 2.0)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):  # it has ended, and a busy loop has not seen it yet
                process.kill()
            await process.wait()

    async def warm(self) -> None:
        """Have the process up before it is needed: its imports take a third of a second."""
        await self._alive()

    async def _alive(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "probes.load", "--jobs", "-", "--log", str(self._log),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True, limit=LINE_MAX,
                env={**os.environ, "PYTHONPATH": _path()},
            )  # fmt: skip
            self.pid = self._process.pid
        return self._process

    async def _ended(self) -> str:
        process, self._process = self._process, None
        if process and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()  # it may wait for ever for someone who reads what it writes
        code = await process.wait() if process else None
        return f"the load process ended (exit {code}); what it had measured is kept"


def _fact(line: bytes) -> dict[str, Any]:
    """One line of the process; {} for what is none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _path() -> str:
    """Where the child imports from: this package's own place first, for when it is not installed."""
    own = str(Path(__file__).resolve().parent.parent.parent)
    return os.pathsep.join(p for p in (own, os.environ.get("PYTHONPATH")) if p)
