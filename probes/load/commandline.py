"""What `python -m probes.load` does: load from the command line, or jobs from the lab on stdin.

It starts fast: argparse and no YAML, as the lab starts it again whenever it was killed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import uvloop

from probes.load import jobs, parting
from probes.load.alone import load_alone, own_error
from probes.recipe import Refused

T = TypeVar("T")


def run_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run on uvloop."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def _serve(log: str | None) -> None:
    """Jobs from stdin until it ends."""
    printer = jobs.Printer(1)
    parting.begun()
    run_loop(jobs.serve(0, printer, jobs.open_log(log) if log else None))
    printer.close()
    # The reader of stdin may still be in its call, which keeps an interpreter from ending in order.
    os._exit(0)


def _alone(options: dict[str, Any]) -> int:
    out = options["out"]
    try:
        fd = 1 if out == "-" else os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise Refused(f"--out {out}: {error.strerror}") from None
    return 0 if run_loop(load_alone(options, fd, _say)) else 4


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _number(kind: type[int | float], low: float, high: float) -> Callable[[str], float]:
    """A number of that kind from `low` to `high`."""

    def read(text: str) -> float:
        value = kind(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text}: want {low:g} to {high:g}")
        return value

    read.__name__ = kind.__name__
    return read


class _Parser(argparse.ArgumentParser):
    """Bad options are one line."""

    def error(self, message: str) -> Any:
        """Say it and end with 2."""
        raise Refused(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m probes.load",
        description="Send streaming chat completions and record what each one took, one JSON object a line. Stamps are "
        "time.monotonic() seconds of this machine.",
        epilog="Ends with 0 when at least one request came out ok, 4 when none did, 2 for a bad option.",
    )
    count = _number(int, 1, 1e9)
    label = _number(int, 0, 1e9)
    add = parser.add_argument
    add("--url", help="the server: http://HOST:PORT, with or without /v1")
    add("--jobs", choices=["-"], help="take jobs as JSON lines from stdin instead")
    add("--log", help="with --jobs: append each record to this file before it is printed")
    add("--concurrency", type=_number(int, 1, 4096), default=1, metavar="C", help="streams at once (1)")
    add("--n", type=count, default=8, metavar="N", help="requests in all (8)")
    add("--max-tokens", type=count, default=400, metavar="M", help="output limit of a request (400)")
    add("--out", default="-", metavar="FILE", help="where the records go; - is stdout (-)")
    add("--model", help="model to name; asked from the server when left out")
    add("--prompts", metavar="FILE", help="JSON or YAML file, category: [text, ...]")
    add("--categories", metavar="A,B", help="comma-separated; all when left out")
    add("--engine", default="generic", metavar="NAME", help="whose extra figures to ask for and to read (generic)")
    add("--temperature", type=_number(float, 0, 100), default=0.0, metavar="T", help="sampling temperature (0)")
    add("--seed", type=int, help="sampling seed")
    add(
        "--timeout",
        type=_number(float, 0.001, 1e6),
        default=300.0,
        metavar="S",
        help="seconds a request may take (300)",
    )
    add("--retries", type=_number(int, 0, 10), default=0, metavar="N",
        help="send again, after a pause, what the server had no room for (0)")  # fmt: skip
    add("--header-env", action="append", default=[], metavar="HEADER=VARIABLE",
        help="a header whose value is in the environment; may be repeated")  # fmt: skip
    add("--warmup", type=label, default=0, metavar="N", help="warm-up requests to send first, flagged (0)")
    add("--self-test", action="store_true", help="print the client's own error, against a stub with known times")
    add("--depth", type=label, metavar="K", help="label for the records")
    add("--restart", type=label, default=0, metavar="N", help="label for the records (0)")
    add("--block", type=label, default=0, metavar="N", help="label for the records (0)")
    return parser


def _do(options: dict[str, Any]) -> int:
    if options["self_test"]:
        _say(run_loop(own_error(options["concurrency"])))
    if options["jobs"] is not None:
        _serve(options["log"])
    if options["url"]:
        return _alone(options)
    if options["self_test"]:
        return 0
    raise Refused("want --url http://HOST:PORT, or --jobs - to take jobs from stdin")


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks; its exit code."""
    try:
        return _do(vars(_parser().parse_args(arguments)))
    except Refused as error:
        _say(f"error: {error}")
        return 2
    except KeyboardInterrupt:
        return 130
