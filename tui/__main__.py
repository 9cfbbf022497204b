"""The `draftdial` command: everything that `python -m probes` can do, and the screen."""

from __future__ import annotations

import gc
import sys
from typing import Any

import click

from probes.__main__ import COMMANDS, Lazy, plain_streams

SCREENS: dict[str, tuple[str, str]] = {
    "demo": ("tui.commands.demo", "The live screen on a real server with a small real model; needs no GPU."),
    "attach": ("tui.commands.attach", "The live screen on a server that someone else started; never stops it."),
    "replay": ("tui.commands.replay", "The live screen on a run of the store."),
}
"""Commands that need a screen, with their one-line help; each is `command` in its module."""


class Screens(Lazy):
    """The same commands, and a preset's name in place of one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = {**SCREENS, **self.table}

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """A word that is no command is a preset's name."""
        if args and args[0] not in self.table and not args[0].startswith("-"):
            from probes.commands._common import refusing
            from tui.commands.live import command, recipe

            if len(args) > 1 and not args[1].startswith("-"):  # a mistyped command, if the first word is no preset
                with refusing():
                    recipe(args[0])
            return args[0], command, args
        return super().resolve_command(ctx, args)


@click.group(
    cls=Screens,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    subcommand_metavar="[PRESET | COMMAND] [ARGS]...",
)
@click.version_option(package_name="draftdial", prog_name="draftdial")
@click.pass_context
def draftdial(ctx: click.Context) -> None:
    """Tune LLM inference servers live: step the speculative draft depth and see what it does.

    Without a command: choose a preset, then the live screen. With a preset's name or path: the live screen on it.
    """
    if ctx.invoked_subcommand is None:
        from tui.commands.live import pick

        pick()


def opens_screen(words: list[str]) -> bool:
    """Whether these words of a command line lead to a screen."""
    if {"-h", "--help", "--version"} & set(words):
        return False
    return not words or words[0] in SCREENS or (words[0] not in COMMANDS and not words[0].startswith("-"))


def main() -> None:
    """Run the command line and leave with its exit code."""
    plain_streams()
    if opens_screen(sys.argv[1:]) and sys.stdin.isatty() and sys.stdout.isatty():
        # Nothing made on the way to the first paint is garbage, and most of that way is imports: looking for some among
        # what they make takes a sixth of their time. The app turns it on again once it is painted.
        gc.disable()
        sys.stdout.write("draftdial …\r")  # at once; what comes next is written over it
        sys.stdout.flush()
    draftdial(prog_name="draftdial")
    sys.exit(0)


if __name__ == "__main__":
    main()
