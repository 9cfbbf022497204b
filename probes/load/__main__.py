"""`python -m probes.load`: starts `commandline`, and meanwhile looks out for the end of whoever started it."""

from __future__ import annotations

import sys

from probes.load import parting

if __name__ == "__main__":
    if "--jobs" in sys.argv[1:]:
        parting.watch()
    from probes.load.commandline import main

    sys.exit(main())
