"""One engine, one file: each `probes/engines/NAME.py` has a constant `ENGINE` with the shape of `Engine`.

Engines are pure: they read text, build argv and interpret replies, and never open a socket, a file or a process.
Files of this folder whose name starts with `_` are helpers shared by engines.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from probes.events import Capacity, FlagsInForce, Record, Warn
from probes.recipe import Dial, Knob, Recipe, Refused

__all__ = ["Engine", "LogReader", "Refused", "engine", "names", "parse"]


class LogReader(Protocol):
    """Reads one log from its first line on. Feeding lines one by one or a thousand at once gives the same records.

    A record may be held back until the lines that complete it (a block, other ranks' copies) have come; `close`
    gives what is still held, at the end of a file. Nothing here raises on any text.
    """

    def feed(self, line: int, text: str) -> Sequence[Record]:
        r"""Take line `line` (1-based, without its `\n`; may hold `\\r`, ANSI codes, any characters)."""
        ...

    def close(self) -> Sequence[Record]:
        """The end of the log (or of what there is yet): what is still held back."""
        ...

    @property
    def dialect(self) -> str | None:
        """The format family as told from the lines so far."""
        ...

    @property
    def capacity(self) -> Capacity:
        """Of the last start in the log so far."""
        ...

    @property
    def warnings(self) -> Sequence[Warn]:
        """Identities that fail, flags that did not take, lines that were clipped, so far."""
        ...


@runtime_checkable
class Engine(Protocol):
    """What the program must know about an engine. Everything here is pure."""

    name: str
    title: str
    """As its makers write it, e.g. `llama.cpp`."""
    reserving: bool | None
    """Whether admission promises a request's whole output in the pool (None: depends on version)."""
    report_s: float
    """Seconds between two periodic log reports under load, the shortest queue worth naming is longer than this."""
    drafted_steps: bool
    """Whether the accept length that its log prints is a mean over the steps that had a draft, and not over all."""
    rejects_long: bool
    """Whether a request whose prompt and output exceed the context is refused; else its output is cut there."""
    knobs: tuple[Knob, ...]

    def reader(self) -> LogReader:
        """A fresh reader."""
        ...

    def sniff(self, lines: Sequence[str]) -> float:
        """How surely these lines (the first few thousand, cleaned of nothing) are this engine's: 0..1."""
        ...

    def command(self, recipe: Recipe, settings: Mapping[str, Any], depth: int | None, port: int) -> list[str]:
        """The argv after the launcher. Raises `Refused` with one line, citing the engine's own rule."""
        ...

    def environment(self, recipe: Recipe, settings: Mapping[str, Any], depth: int | None) -> Mapping[str, str]:
        """Environment variables to add for the server."""
        ...

    def dial_range(self, dial: Dial) -> tuple[int, int] | None:
        """The depths that the engine accepts with this kind of speculation, inclusive; None: unbounded or unknown."""
        ...

    def ready_path(self) -> str:
        """The path that answers 200 when requests can be served, e.g. `/health`."""
        ...

    def failure(self, lines: Sequence[str], exit_code: int | None) -> tuple[str | None, str | None]:
        """Reason line and cure of a failed start, from the log lines of this start and the exit code.

        The exit code is negative for a signal. (None, None) when nothing is recognised.
        """
        ...

    def metrics(self, text: str) -> Mapping[str, Any]:
        """The engine's Prometheus text as canonical fields; counters under `total_*` names."""
        ...

    def state_paths(self) -> Sequence[str]:
        """HTTP paths worth asking once after start to read flags in force, e.g. `/props`, `/slots`."""
        ...

    def announced(self, replies: Mapping[str, Any]) -> Capacity:
        """What the replies of `state_paths` tell of capacity, for a server whose log can't be read; else empty."""
        ...

    def in_force(
        self,
        recipe: Recipe,
        settings: Mapping[str, Any],
        depth: int | None,
        replies: Mapping[str, Any],
        records: Sequence[Record],
    ) -> FlagsInForce:
        """Flags asked against flags in force, from the replies of `state_paths` and the boot's records."""
        ...

    def prefix_cache(self, argv: Sequence[str]) -> str | None:
        """What turns off the cache that answers a repeated prompt, where this argv does not.

        None where it is off, or where our requests ask for no use of it.
        """
        ...

    def request(self, body: dict[str, Any], recipe: Recipe, depth: int | None) -> dict[str, Any]:
        """The chat completion body with what this engine needs to report timings and drafts (e.g. cache off)."""
        ...

    def step_drafts(self, recipe: Recipe, depth: int | None) -> int | None:
        """Drafts that each step verifies, if every chunk of a lone request's stream is one step and all verify as many.

        Then the stream tells acceptance where the replies don't. None: a chunk may be anything here.
        """
        ...

    def reply(self, final: Mapping[str, Any]) -> Mapping[str, Any]:
        """Facts of a finished request from its last JSON objects merged (usage, timings, meta_info): canonical.

        Keys among `drafted accepted steps per_position server_ttft_ms server_tpot_ms cached_tokens`.
        """
        ...


def names() -> list[str]:
    """The engines there are, by file, without importing one."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


def engine(name: str) -> Engine:
    """The engine of that name; imports its module alone."""
    if name not in names():
        raise Refused(f"no engine {name!r}; there are {', '.join(names())}")
    found = importlib.import_module(f"probes.engines.{name}").ENGINE
    if not isinstance(found, Engine):
        raise TypeError(f"probes/engines/{name}.py: ENGINE lacks part of the Engine protocol")
    return found


def parse(name: str, lines: Iterable[str]) -> list[Record]:
    """All records of a whole log, for tests and small files."""
    reader = engine(name).reader()
    found: list[Record] = []
    for number, text in enumerate(lines, 1):
        found.extend(reader.feed(number, text))
    found.extend(reader.close())
    return found
