"""Parent of one server: `guard.py --log FILE --header TEXT [--cleanup JSON] -- ARGV…`. Standard library only.

The console talks to it over two pipes. Whatever happens to the console, even SIGKILL, closes the pipe, and the guard
then ends the server and everything the server started (it is their subreaper). If the guard itself is killed, the
kernel kills the server (parent-death signal). It must not do anything else.

Commands on stdin, one a line: `int`, `term`, `kill`, `release` (the server stays when the console goes). Answers on
stdout, one JSON object a line: `{"pid"}`, then `{"exit": code}` (negative for a signal), then `{"gone": true, "killed":
[pids that had outlived the server]}`; or `{"error": text}` when the program could not be started.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
GRACE_S = 0.8
"""Between SIGTERM and SIGKILL once the console is gone: a server that no one watches must be gone within 2 s."""


def prctl(option: int, value: int) -> None:
    """Best effort: kernels and sandboxes without it still get the process group treatment."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def tell(**fact: Any) -> None:
    """One answer to the console, if it still listens."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(fact).encode() + b"\n")


def descendants(root: int) -> list[int]:
    """Every living process below `root`, by the parents that /proc names; zombies are left out."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            text = (entry / "stat").read_text(encoding="utf-8", errors="replace")
            state, parent = text.rpartition(")")[2].split()[:2]
            if state not in "ZX":
                parents.setdefault(int(parent), []).append(int(entry.name))
    found: list[int] = []
    queue = [root]
    while queue:
        children = parents.get(queue.pop(), [])
        found.extend(children)
        queue.extend(children)
    return found


def hit(pid: int, number: int) -> None:
    """A signal to the server's whole process group."""
    with contextlib.suppress(OSError):
        os.killpg(pid, number)


def sweep_up(pid: int) -> list[int]:
    """End what the server left behind: its group, and whatever was adopted from it. Returns who had to be killed."""
    killed: set[int] = set()
    end = time.monotonic() + 5
    while time.monotonic() < end:
        hit(pid, signal.SIGKILL)
        left = descendants(os.getpid())
        for other in left:
            killed.add(other)
            with contextlib.suppress(OSError):
                os.kill(other, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not left:
            break
        select.select([], [], [], 0.01)
    return sorted(killed)


def open_log(log: str, header: str) -> int:
    """The log for append, after one line that says what starts. Raises OSError."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    with open(log, "rb") as old:  # noqa: PTH123  (a torn last line of the run before must not swallow the header)
        size = old.seek(0, os.SEEK_END)
        torn = size > 0 and (old.seek(-1, os.SEEK_END), old.read(1))[1] != b"\n"
    line = " ".join(header.splitlines())  # a flag may hold a line end, and a second header would start another start
    os.write(out, ("\n" if torn else "").encode() + line.encode("utf-8", "replace") + b"\n")
    return out


def deserted() -> bool:
    """Whether the console has gone: killed while this interpreter was starting, it needs no server any more."""
    ends = select.poll()
    ends.register(0, 0)  # no event asked for: a hang-up is always told
    return bool(ends.poll(0))


def start(log: str, header: str, argv: list[str]) -> subprocess.Popen[bytes] | None:
    """The server, in a session of its own, its output appended to the log after one header line."""
    try:
        out = open_log(log, header)
    except OSError as problem:
        tell(error=f"{log}: {problem.strerror or problem}")
        return None
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL),  # noqa: PLW1509  (one thread, nothing held)
        )
    except (OSError, ValueError) as problem:
        tell(error=f"{argv[0]}: {getattr(problem, 'strerror', None) or problem}")
        return None
    finally:
        os.close(out)


def clean_up(argv: list[str]) -> None:
    """The command that ends a server where signals to our own child don't reach it: in a container, on another host."""
    if not argv:
        return
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=15,
            check=False,
        )


def watch(server: subprocess.Popen[bytes], wake: int) -> None:
    """Obey the console until the server has ended."""
    held = True
    deadline: float | None = None
    pending = b""
    watched = [0, wake]
    while server.poll() is None:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready, _, _ = select.select(watched, [], [], left)
        if wake in ready:
            os.read(wake, 4096)
        if deadline is not None and time.monotonic() >= deadline:
            hit(server.pid, signal.SIGKILL)
            deadline = time.monotonic() + 1
        if 0 not in ready:
            continue
        data = os.read(0, 4096)
        if not data:
            watched.remove(0)
            if held:
                hit(server.pid, signal.SIGTERM)
                deadline = time.monotonic() + GRACE_S
            continue
        *commands, pending = (pending + data).split(b"\n")
        for word in commands:
            if word == b"release":
                held = False
            elif word in {b"int", b"term", b"kill"}:
                hit(server.pid, {b"int": signal.SIGINT, b"term": signal.SIGTERM, b"kill": signal.SIGKILL}[word])


def main(args: list[str]) -> int:
    """Start the server, watch it, leave nothing behind."""
    split = args.index("--")
    options, argv = dict(zip(args[:split:2], args[1:split:2], strict=True)), args[split + 1 :]
    # Handlers, not SIG_IGN: what is ignored stays ignored in the server, what is handled is reset by its exec.
    for survived in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(survived, lambda *_: None)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    if deserted():
        return 1
    server = start(options["--log"], options["--header"], argv)
    if server is None:
        return 1
    tell(pid=server.pid)
    watch(server, reader)
    tell(exit=server.returncode)
    killed = sweep_up(server.pid)
    clean_up(json.loads(options.get("--cleanup", "[]")))
    tell(gone=True, killed=killed)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
