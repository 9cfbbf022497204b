"""What the commands share: exit codes, one-line complaints, a sink that prints, and a clean end on Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from probes import codec
from probes.events import Event, Judged, LogLines, LogRecords, MemorySample, Notice, PlanProgress, ServerChanged
from probes.measure.steps import NO_START
from probes.recipe import Refused
from probes.show import clean

DONE, NO, USAGE, NOT_STARTED, INCOMPLETE, INTERRUPTED = 0, 1, 2, 3, 4, 130
QUIET = (LogLines, LogRecords, MemorySample, Judged)
"""Events too many for a script's stdout: they are in the run directory, and the last judgment is the result."""


def fail(text: str, code: int = USAGE) -> NoReturn:
    """One clear line on stderr, and out."""
    sys.stderr.write(f"draftdial: {clean(text)}\n")
    raise SystemExit(code)


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """Turns `Refused` into one line and exit code 2."""
    try:
        yield
    except Refused as problem:
        fail(str(problem))


def say(text: str) -> None:
    """Progress, on stderr."""
    sys.stderr.write(clean(text) + "\n")
    sys.stderr.flush()


def line(value: Mapping[str, Any]) -> None:
    """One JSON object on one line of stdout. A reader that has gone ends the program quietly."""
    try:
        sys.stdout.write(json.dumps(value, ensure_ascii=False, default=str) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        raise SystemExit(INTERRUPTED) from None


def printer(*, as_json: bool, bar: Callable[[Event], None] | None = None) -> Callable[[Event], None]:
    """A sink: JSON events on stdout, or words on stderr (through `bar` where there is one)."""

    def sink(event: Event) -> None:
        if as_json and not isinstance(event, QUIET):
            line(codec.plain(event))
        if bar is not None:
            bar(event)
        elif text := words(event):
            say(text)

    return sink


def words(event: Event) -> str | None:
    """An event for a person who reads a pipe; None for what is not worth a line."""
    if isinstance(event, Notice):
        return f"{event.level}: {event.text}"
    if isinstance(event, PlanProgress):
        left = f", about {event.seconds_left:.0f} s left" if event.seconds_left else ""
        return f"[{event.done}/{event.total}] {event.step}{left}"
    if isinstance(event, ServerChanged) and event.state == "failed":
        cure = f" · {event.hint}" if event.hint else ""
        return f"server failed: {event.reason}{cure}"
    if isinstance(event, ServerChanged) and event.state == "ready":
        return f"server ready in {event.boot_s:.2f} s (pid {event.pid}, {event.url})"
    return None


def run(main: Coroutine[Any, Any, int], interrupted: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """Run a command's coroutine; the first Ctrl-C or SIGTERM calls `interrupted` and lets it end, with code 130."""

    async def whole() -> int:
        loop = asyncio.get_running_loop()
        work = asyncio.ensure_future(main)
        hit = False
        pending: set[asyncio.Task[None]] = set()

        def stop() -> None:
            nonlocal hit
            if hit:
                work.cancel()
                return
            hit = True
            say("stopping: what was measured is kept")
            pending.add(loop.create_task(interrupted()))

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, stop)
        try:
            code = await work
        except asyncio.CancelledError:
            code = INTERRUPTED
        await asyncio.gather(*pending, return_exceptions=True)
        return INTERRUPTED if hit else code

    try:
        return asyncio.run(whole())
    except Refused as problem:
        fail(str(problem))
    except BrokenPipeError:
        raise
    except OSError as problem:
        where = f"{problem.filename}: " if problem.filename else ""
        fail(f"{where}{problem.strerror or problem}: what was measured before is kept", INCOMPLETE)


def outcome(failed: Sequence[str], points: int) -> int:
    """The exit code of a plan of so many points, by why those failed that did: 3 only where no server ever started."""
    if failed and len(failed) == points and all(why.startswith(NO_START) for why in failed):
        return NOT_STARTED
    return INCOMPLETE if failed else DONE


def write(text: str, output: Path | None) -> None:
    """A whole document to stdout, or to a file that is there whole or not at all. Leaves with 2 when it can't be."""
    data = text.encode("utf-8", "replace")
    if output is None:
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return
    special = os.path.exists(output) and not os.path.isfile(output)  # noqa: PTH110, PTH113  (never raise)
    where = output if special else Path(os.path.realpath(output))  # pipes and devices are written to; a link stays one
    scratch = where if special else where.with_name(f".{where.name}.{os.getpid()}")
    try:
        scratch.write_bytes(data)
        if not special:
            scratch.replace(where)
    except OSError as problem:
        if not special:
            with contextlib.suppress(OSError):
                scratch.unlink(missing_ok=True)
        fail(f"{output}: {problem.strerror or problem}")
    say(f"{output}: {len(data):,} bytes")


def resumed(run: Any, what: str, needs: Mapping[str, Any], preset: str | None) -> dict[str, Any]:
    """What run.yaml says was asked for a plan `what`. Raises `Refused` when it can't be gone on with.

    `needs`: what must be there, with its types. A PRESET beside --resume must be the run's own.
    """
    from probes import preset as presets

    about = run.description().get(what)
    if not isinstance(about, Mapping) or not about.get("preset"):
        kind = {"sweep": "a sweep", "ab": "an A/B"}[what]
        raise Refused(f"{run.path}: not {kind}'s run, or its run.yaml is damaged: there is nothing to resume")
    if bad := [name for name, kinds in needs.items() if name not in about or not isinstance(about[name], kinds)]:
        raise Refused(f"{run.path}/run.yaml: {what}.{bad[0]} is missing or damaged, so it can't be resumed")
    theirs = str(about["preset"])
    if preset and presets.find(preset).resolve() != presets.find(theirs).resolve():
        raise Refused(f"{run.name} is of preset {theirs}, not of {preset}; leave the preset out to resume it")
    return dict(about)


def ready(recipe: Any, depths: Iterable[int], settings: Mapping[str, Any] | None = None) -> None:
    """Refuse now what would fail after an hour: depths the engine refuses, prompts that there are not."""
    from probes import preset as presets
    from probes.load import prompts

    presets.accept(recipe, depths, settings)
    work = recipe.workload
    try:
        prompts.select(prompts.load(work.prompts_file), work.categories, work.prompts_per_category)
    except Refused as problem:
        raise Refused(f"{recipe.path}: workload: {problem}") from problem


def existing(path: str) -> Path:
    """A path that exists. Raises `Refused`."""
    found = Path(path).expanduser()
    if not found.exists():
        raise Refused(f"{path}: no such file or folder")
    return found
