"""`draftdial read`: explain a log that is there already. It opens files, and never a server."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import click
import msgspec

from probes import engines
from probes.events import Ceiling, Record
from probes.explain import brief, ceiling_line, event_line, screen
from probes.follow import Follower
from probes.reading import Log, Reading, Unreadable, as_dict, logs_in, read, record_dict

POLL_S = 0.25
SAMPLE_S = 5.0
SAMPLES = frozenset({"prefill", "decode", "throughput", "spec", "request"})
_ENCODER = msgspec.json.Encoder()


@click.command(help=__doc__)
@click.argument("log", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--engine", type=click.Choice(engines.names()), help="Whose log it is, if it can't be told.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object (one a line for a folder).")
@click.option("--follow", is_flag=True, help="Keep reading as the log grows; Ctrl-C ends it with the whole reading.")
def command(log: Path, engine: str | None, as_json: bool, follow: bool) -> None:
    """Explain LOG: a file (plain or .gz), a run (its name or directory), or a folder of logs; - is standard input."""
    # Records hold no cycles, and looking for some among a million of them takes a fifth of the time.
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    try:
        paths: list[Path | None] = [None] if str(log) == "-" else list(logs_in(_named(log)))
        if follow:
            _follow(paths, engine, as_json=as_json)
        for path in paths:
            if as_json:
                _print_json(path, engine)
            else:
                reading = read(path, engine=engine)
                click.echo(screen(reading, _width()) if len(paths) == 1 else brief(reading, _width()))
    except Unreadable as problem:
        click.echo(f"draftdial read: {problem}", err=True)
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has gone: nothing more to say, and no traceback at exit
        sys.exit(0)
    except OSError as problem:
        click.echo(f"draftdial read: {problem.filename}: {problem.strerror}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def _named(log: Path) -> Path:
    """A run of the store where that is what was named and no file is; else the path as given."""
    if log.is_absolute() or len(log.parts) != 1 or os.path.lexists(log):
        return log
    from probes import store

    run = store.home() / log
    return run if os.path.isdir(run) else log  # noqa: PTH112  (never raises)


def _width() -> int:
    return max(60, min(shutil.get_terminal_size((110, 40)).columns, 140))


def encoded(value: Any) -> bytes:
    """As JSON, whatever a log put into a text (lone surrogates) or a value."""
    try:
        return _ENCODER.encode(value)
    except (UnicodeEncodeError, TypeError):
        return json.dumps(value, default=str).encode("ascii")


class _Writer:
    """Writes one reading as one JSON object, its records as they come, so that memory stays flat."""

    def __init__(self, path: Path | None) -> None:
        self.out = sys.stdout.buffer
        self.file = "-" if path is None else str(path)
        self.open = False
        self.first = True

    def head(self, engine: str | None) -> None:
        """The object's start, up to its records."""
        if not self.open:
            self.open = True
            self.out.write(b'{"file":' + encoded(self.file) + b',"engine":' + encoded(engine) + b',"records":[')

    def record(self, record: Record) -> None:
        """The next record."""
        self.out.write((b"" if self.first else b",\n") + encoded(record_dict(record)))
        self.first = False

    def tail(self, reading: Reading) -> None:
        """All the rest."""
        self.head(reading.engine)
        rest = as_dict(reading)
        del rest["file"], rest["engine"]
        self.out.write(b"]," + encoded(rest)[1:] + b"\n")
        self.out.flush()


def _print_json(path: Path | None, engine: str | None) -> None:
    writer = _Writer(path)
    # The whole of a file that can't be read fails before anything was printed.
    writer.tail(read(path, engine=engine, on_record=writer.record, on_engine=writer.head))


def _follow(paths: list[Path | None], engine: str | None, *, as_json: bool) -> None:
    """Read on as the log grows, until a signal. Leaves with 130."""
    path = paths[0]
    if len(paths) != 1 or path is None:
        raise click.UsageError("--follow takes one log file or run directory")
    shown = _Follow(as_json=as_json)
    log = Log(str(path), shown.record, None)
    if engine:
        log.choose(engine)
    follower = Follower(path)
    stop = threading.Event()

    def interrupted(_number: int, _frame: object) -> None:
        # Not an exception: it would tear a line that is being read. A second one ends at once.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        stop.set()

    signal.signal(signal.SIGINT, interrupted)
    while not stop.is_set():
        lines = follower.read()
        if lines:
            log.feed(lines)
        if not follower.behind:
            log.pause()
            shown.verdict(log)
            stop.wait(POLL_S)
    log.feed(follower.close())
    log.close()
    reading = log.reading()
    if as_json:
        # The records were printed one by one; the last object has the rest and, as the form wants it, an empty list.
        sys.stdout.buffer.write(encoded({"kind": "result", "records": [], **as_dict(reading)}) + b"\n")
        sys.stdout.buffer.flush()
    else:
        click.echo(screen(reading, _width()))
    sys.exit(130)


class _Follow:
    """What is printed while a log is followed: trouble and start-up lines at once, reports now and then."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.last = float("-inf")
        self.said: tuple[str, str] | None = None

    def record(self, record: Record) -> None:
        """One record more."""
        if self.as_json:
            sys.stdout.buffer.write(encoded({"kind": "record", "record": record_dict(record)}) + b"\n")
            return
        if record.kind in SAMPLES:
            now = time.monotonic()
            if now - self.last < SAMPLE_S:
                return
            self.last = now
        click.echo(event_line(record))

    def verdict(self, log: Log) -> None:
        """The ceiling, when it changed."""
        if log.judge is None:
            sys.stdout.flush()
            return
        found: Ceiling = log.judge.verdict()
        if (found.verdict, found.confidence) != self.said:
            self.said = (found.verdict, found.confidence)
            if self.as_json:
                line = {"kind": "ceiling", "verdict": found.verdict, "confidence": found.confidence}
                sys.stdout.buffer.write(encoded({**line, "sentence": found.sentence}) + b"\n")
            else:
                click.echo(ceiling_line(found))
        sys.stdout.flush()
