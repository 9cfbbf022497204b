"""`python -m probes.load`: load from the command line, or jobs from the lab on stdin. Only this module reads argv."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

import click
import uvloop

from probes.load import jobs
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
    run_loop(jobs.serve(0, printer, jobs.open_log(log) if log else None))
    printer.close()
    # The reader of stdin may still be in its call, which keeps an interpreter from ending in order.
    os._exit(0)


def _alone(options: dict[str, Any], out: str) -> int:
    try:
        fd = 1 if out == "-" else os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise Refused(f"--out {out}: {error.strerror}") from None
    good = run_loop(load_alone(options, fd, lambda text: click.echo(text, err=True)))
    return 0 if good else 4


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--url", help="The server: http://HOST:PORT, with or without /v1.")
@click.option("--jobs", "source", type=click.Choice(["-"]), help="Take jobs as JSON lines from stdin instead.")
@click.option("--log", help="With --jobs: append each record to this file before it is printed.")
@click.option("--concurrency", type=click.IntRange(1, 4096), default=1, show_default=True, help="Streams at once.")
@click.option("--n", type=click.IntRange(1), default=8, show_default=True, help="Requests in all.")
@click.option("--max-tokens", type=click.IntRange(1), default=400, show_default=True, help="Output limit a request.")
@click.option(
    "--out", default="-", show_default=True, help="File for the records, one JSON object a line; - is stdout."
)
@click.option("--model", help="Model to name; asked from the server when left out.")
@click.option("--prompts", type=click.Path(dir_okay=False), help="YAML or JSON file, category: [text, …].")
@click.option("--categories", help="Comma-separated; all when left out.")
@click.option("--engine", default="generic", show_default=True, help="Whose extra figures to ask for and to read.")
@click.option("--temperature", type=click.FloatRange(0), default=0.0, show_default=True)
@click.option("--seed", type=int, help="Sampling seed.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=300.0,
    show_default=True,
    help="Seconds a request may take.",
)
@click.option(
    "--retries",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Send again, after a pause, what the server had no room for.",
)
@click.option(
    "--header-env", multiple=True, metavar="HEADER=VARIABLE", help="A header whose value is in the environment."
)
@click.option(
    "--warmup", type=click.IntRange(0), default=0, show_default=True, help="Warm-up requests to send first, flagged."
)
@click.option("--self-test", is_flag=True, help="Print the client's own error, against a stub with known times.")
@click.option("--depth", type=click.IntRange(0), help="Label for the records.")
@click.option("--restart", type=click.IntRange(0), default=0, help="Label for the records.")
@click.option("--block", type=click.IntRange(0), default=0, help="Label for the records.")
def command(source: str | None, log: str | None, out: str, self_test: bool, **options: Any) -> None:
    """Send streaming chat completions and record what each one took, one JSON object a line.

    Stamps are time.monotonic() seconds of this machine. Ends with 0 when at least one request came out ok, 4 when
    none did, 2 for a bad option.
    """
    if self_test:
        click.echo(run_loop(own_error(options["concurrency"])), err=True)
        if not options["url"]:
            return
    if source is None and not options["url"]:
        click.echo("error: want --url http://HOST:PORT, or --jobs - to take jobs from stdin", err=True)
        sys.exit(2)
    try:
        if source is not None:
            _serve(log)
        sys.exit(_alone(options, out))
    except Refused as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    command()
