"""The machine's memory, the server's processes, and whose process a pid on a GPU is.

It only looks: nothing here signals a process. What /proc hides (another container's pids) is unknown, not foreign.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

NAME_CHARS = 64
_PAGE = os.sysconf("SC_PAGE_SIZE")
HIDDEN_BYTES = 256 << 20
"""Memory in use above this with no process named means that the driver hides processes, as it does in a container."""


@dataclass(frozen=True, slots=True)
class Group:
    """The server: its process group (which is its session's id too), and its container's id where it runs in one."""

    pgid: int | None = None
    container: str | None = None

    def __bool__(self) -> bool:
        return self.pgid is not None or bool(self.container)


@dataclass(frozen=True, slots=True)
class OnGpu:
    """A process as a GPU's driver tells of it: its memory there in bytes, and its name where the driver knows it."""

    pid: int
    used: int | None
    name: str | None = None


def total_and_available() -> tuple[int | None, int | None]:
    """The machine's memory in bytes: all of it, and what can be had without swapping."""
    try:  # the first lines hold both; psutil reads and converts fifty, which at 5 Hz is half of what watching costs
        with Path("/proc/meminfo").open("rb", buffering=0) as file:
            facts = dict(line.split(b":") for line in file.read(200).split(b"\n")[:3])
        return int(facts[b"MemTotal"].split()[0]) << 10, int(facts[b"MemAvailable"].split()[0]) << 10
    except (OSError, KeyError, ValueError):
        pass
    try:
        memory = psutil.virtual_memory()
    except (OSError, RuntimeError, ValueError):
        return None, None
    return int(memory.total), int(memory.available)


def belongs(pid: int, group: Group) -> bool:
    """Whether `pid` is of the server: its group, its session, a descendant, or in its container."""
    if group.pgid is not None:
        try:
            if group.pgid in {pid, os.getpgid(pid), os.getsid(pid)}:
                return True
        except OSError:
            return False
        if group.pgid in _ancestors(pid):
            return True
    return bool(group.container) and group.container is not None and group.container in _cgroup(pid)


def _ancestors(pid: int) -> set[int]:
    seen: set[int] = set()
    try:
        parent = psutil.Process(pid).ppid()
        while parent > 1 and parent not in seen:
            seen.add(parent)
            parent = psutil.Process(parent).ppid()
    except psutil.Error:
        pass
    return seen


def _cgroup(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def members(group: Group) -> tuple[int, ...]:
    """The pids of the server's processes, those that left its group but not its family included."""
    if not group:
        return ()
    found: set[int] = set()
    for pid in psutil.pids():
        try:
            if group.pgid is not None and group.pgid in {os.getpgid(pid), os.getsid(pid)}:
                found.add(pid)
        except OSError:
            continue
    if group.pgid is not None:
        with contextlib.suppress(psutil.Error):
            found.update(child.pid for child in psutil.Process(group.pgid).children(recursive=True))
    if group.container:
        found.update(pid for pid in psutil.pids() if group.container in _cgroup(pid))
    return tuple(sorted(found))


def rss(pids: Iterable[int]) -> int | None:
    """Resident bytes of these processes together; pages they share count once for each. None when none is there."""
    total = 0
    seen = False
    for pid in pids:
        try:
            total += int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE
        except (OSError, IndexError, ValueError):
            continue
        seen = True
    return total if seen else None


def name_of(pid: int) -> str | None:
    """What a process calls itself, made safe to print; None when it cannot be seen from here."""
    try:
        return printable(psutil.Process(pid).name())
    except psutil.Error:
        return None


def printable(name: str) -> str:
    """A process's name as one short line without control characters: anyone can name a process anything."""
    return "".join(c if c.isprintable() else "?" for c in name)[:NAME_CHARS]


class Owners:
    """Whose processes the pids on GPUs are. Answers are kept until `refresh`, as asking /proc costs more than a GPU.

    `group` is the server; setting another one forgets the answers.
    """

    def __init__(self, group: Group | None = None) -> None:
        self._group = group or Group()
        self._known: dict[int, tuple[bool, str | None]] = {}

    @property
    def group(self) -> Group:
        """The server's processes."""
        return self._group

    @group.setter
    def group(self, group: Group) -> None:
        if group != self._group:
            self._group = group
            self.refresh()

    def refresh(self) -> None:
        """Forget what is known: pids are reused, and processes rename themselves."""
        self._known = {}

    def of(self, pid: int) -> tuple[bool, str | None]:
        """Whether the process is the server's, and its name where it is not; None: it can't be seen from here."""
        found = self._known.get(pid)
        if found is None:
            ours = belongs(pid, self._group)
            found = self._known[pid] = (ours, None if ours else name_of(pid))
        return found

    def attribute(
        self, processes: Iterable[OnGpu] | None, used: int | None
    ) -> tuple[int | None, tuple[tuple[int, str, int | None], ...]]:
        """Bytes held by the server's processes, and the foreign ones as (pid, name, bytes), largest first.

        The bytes are None where the driver does not list processes, hides some, or gives one of ours no size: a sum
        with a part missing would be read as a measurement.
        """
        if processes is None:
            return None, ()
        listed = tuple(processes)
        ours: list[int | None] = []
        others: list[tuple[int, str, int | None]] = []
        hidden = not listed and used is not None and used > HIDDEN_BYTES
        for process in listed:
            mine, name = self.of(process.pid)
            if mine:
                ours.append(process.used)
                continue
            hidden = hidden or name is None
            others.append((process.pid, name or printable(process.name or "") or "?", process.used))
        others.sort(key=lambda item: (-(item[2] or 0), item[0]))
        if not self._group or (not ours and hidden):
            return None, tuple(others)
        known = [size for size in ours if size is not None]
        return (sum(known) if len(known) == len(ours) else None), tuple(others)
