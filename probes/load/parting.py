"""Ends the load process when whoever started it goes before it has begun to take jobs.

Its imports take a third of a second, on a busy machine many times that, and until they are through nothing reads stdin:
a console that was killed meanwhile would leave a process behind that has nothing to do. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading

_BEGUN = threading.Event()


def watch() -> None:
    """Leave at once, with 0, when the other end of stdin is closed before `begun`: nothing was sent by then."""
    threading.Thread(target=_wait, name="parting", daemon=True).start()


def begun() -> None:
    """From now on, who reads stdin sees its end."""
    _BEGUN.set()


def _wait() -> None:
    ends = select.poll()
    with contextlib.suppress(OSError):
        ends.register(0, 0)  # no event asked for: a hang-up is always told
        ends.poll()
        if not _BEGUN.is_set():
            os._exit(0)
