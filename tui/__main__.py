"""The `draftdial` command: everything that `python -m probes` can do, and the screen."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    from probes.__main__ import cli

    cli(prog_name="draftdial")
    sys.exit(0)


if __name__ == "__main__":
    main()
