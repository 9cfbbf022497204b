"""The terminal goes away (a closed window, a lost ssh): the console goes too, and leaves nothing behind."""

from __future__ import annotations

import os
import pty
import select
import sys
from pathlib import Path

from probes import store
from probes.events import RunStarted

PATIENCE_S = 60


def test_a_closed_terminal_ends_the_console(tmp_path: Path) -> None:
    run = store.create(tmp_path)
    run.open()
    run.append(RunStarted(1.0, run.name, "llamacpp", "p", "m", "draft depth", (0, 1), ("code",)))
    run.close()
    pid, terminal = pty.fork()
    if pid == 0:
        env = {**os.environ, "TERM": "xterm-256color", "DRAFTDIAL_RUNS": str(tmp_path)}
        os.execve(sys.executable, [sys.executable, "-m", "tui", "replay", run.name], env)  # noqa: S606  (no shell is the point)
    seen = b""
    while b"Dial" not in seen:
        assert select.select([terminal], [], [], PATIENCE_S)[0], seen
        seen += os.read(terminal, 65536)
    watch = os.pidfd_open(pid)
    os.close(terminal)
    try:
        assert select.select([watch], [], [], PATIENCE_S)[0], "it outlived its terminal"
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 129
    finally:
        os.close(watch)
