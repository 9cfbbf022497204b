"""`draftdial sim`: the simulated engine, as a process. Its options are those of `python -m probes.sim`."""

from __future__ import annotations

import click


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []}, add_help_option=False)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def command(words: tuple[str, ...]) -> None:
    """Serve like ninfer, SGLang, vLLM or llama.cpp, on invented hardware; its numbers are marked as simulated."""
    import sys

    from probes.sim import __main__ as sim

    # click takes the `--` away that parts our options from the engine's: read the command line itself.
    given = sys.argv[sys.argv.index("sim") + 1 :] if "sim" in sys.argv else list(words)
    sim.end(sim.main(given))
