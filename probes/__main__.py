"""The command line without a screen: `python -m probes …`. Commands are imported only when they are called."""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
from typing import Any

import click

from probes import __version__

COMMANDS: dict[str, str] = {
    "presets": "List the presets that can be named.",
    "check": "Validate a preset; show argv, ranges, port and binary without starting anything.",
    "doctor": "What this machine has and lacks.",
    "read": "Explain an existing log: capacity, what bound it, acceptance, trouble.",
    "sweep": "Step the dial, restart, measure, decide.",
    "ab": "A/B of one flag.",
    "ceiling": "Provoke the queue and say which ceiling it was.",
    "runs": "List the runs in the store.",
    "show": "Show one run.",
    "compare": "Compare two runs, or say why they can't be compared.",
    "export": "Write a run as CSV or JSON.",
    "report": "Write a run as one HTML page.",
    "sim": "The simulated engine, as a process.",
}
"""Commands that need no screen, with their one-line help; each is `command` in probes/commands/NAME.py."""


class Lazy(click.Group):
    """A group that knows its commands' names and help, and imports a command's module only to run it."""

    table: dict[str, tuple[str, str]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = {name: (f"probes.commands.{name}", text) for name, text in COMMANDS.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's signature)
        """Names in the order of the table: the main job first."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command itself, imported now."""
        if cmd_name not in self.table:
            return None
        module, _ = self.table[cmd_name]
        found = importlib.import_module(module).command
        if not isinstance(found, click.Command):
            raise TypeError(f"{module}.command is not a click command")
        return found

    def invoke(self, ctx: click.Context) -> Any:
        """The command; Ctrl-C before it has made other arrangements is 130, as is a reader that has gone."""
        try:
            found = super().invoke(ctx)
            sys.stdout.flush()
        except KeyboardInterrupt:
            raise SystemExit(130) from None
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            raise SystemExit(130) from None
        except OSError as problem:
            if problem.errno != errno.ENOSPC:
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left in the buffer has no place to go either
            sys.stderr.write(f"draftdial: {problem.filename or 'the output'}: {problem.strerror}\n")
            raise SystemExit(4) from None
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The commands' help without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.table.items()])


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="draftdial")
def cli() -> None:
    """Tune LLM inference servers live: step the speculative draft depth and see what it does."""


def plain_streams() -> None:
    """Characters that this terminal or pipe can't hold are shown as `?`: no figure is worth a crash over an arrow."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started this
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def main() -> None:
    """Run the command line and leave with its exit code."""
    plain_streams()
    cli(prog_name="draftdial")
    sys.exit(0)


if __name__ == "__main__":
    main()
