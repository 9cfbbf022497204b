"""A run is a directory of append-only files. Facts are on disk before anyone sees them; nothing is ever rewritten.

`run.yaml` (what was resolved), `server.log`, `load.jsonl`, `events.jsonl`, `result.json` (derived: can be recomputed).
"""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import hashlib
import json
import os
import platform
import string
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from probes import __version__, codec
from probes.events import (
    CapacityRead,
    Event,
    Judged,
    LogLines,
    LogRecords,
    Notice,
    RequestDone,
    RequestSent,
)
from probes.recipe import Recipe, Refused
from probes.resultshape import fits

FOLLOWED = (LogLines, LogRecords, CapacityRead, RequestSent)
"""Not kept in events.jsonl: they are read again from server.log and load.jsonl."""

PARTS = frozenset({"recipe", "fingerprint", "starts", "sweep", "ab", "ceiling"})
"""Mappings in run.yaml."""


def home() -> Path:
    """Where runs are kept: DRAFTDIAL_RUNS, else the XDG data directory. Raises `Refused` where there is neither."""
    if chosen := os.environ.get("DRAFTDIAL_RUNS"):
        return Path(chosen)
    share = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")  # noqa: PTH111  (never raises)
    if share.startswith("~"):
        raise Refused("this user has no home folder: say with DRAFTDIAL_RUNS where runs are to be kept")
    return Path(share) / "draftdial" / "runs"


class Run:
    """One run directory, open for appending or for reading again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.server_log = path / "server.log"
        self.load_log = path / "load.jsonl"
        self.events_log = path / "events.jsonl"
        self.result_file = path / "result.json"
        self._out: int | None = None
        self._lock: int | None = None

    @property
    def name(self) -> str:
        """The run's name: its directory's."""
        return self.path.name

    def open(self) -> None:
        """Take the run for writing. Raises `Refused` when another console holds it."""
        self._lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            self._lock = None
            raise Refused(f"{self.path}: another console is writing this run") from None
        for path in (self.events_log, self.load_log):
            mend(path)
        self._out = os.open(self.events_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def append(self, event: Event) -> None:
        """Put a fact on disk, with one write. What is followed from other files is not written twice."""
        if self._out is None or isinstance(event, FOLLOWED):
            return
        if isinstance(event, RequestDone):
            event = dataclasses.replace(event, text="", raw={})
        if not isinstance(event, Judged) or event.result.get("final"):
            _put(self._out, codec.encode(event))

    def append_request(self, request: RequestDone) -> None:
        """A request's record again, with what its server's log added: the last record of an id counts."""
        out = os.open(self.load_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            _put(out, codec.encode(request))
        finally:
            os.close(out)

    def close(self) -> None:
        """Let the run go."""
        for handle in (self._out, self._lock):
            if handle is not None:
                os.close(handle)
        self._out = self._lock = None

    def describe(self, recipe: Recipe, more: Mapping[str, Any]) -> None:
        """Write run.yaml: the recipe as resolved and the fingerprints. Values of environment variables stay out."""
        facts = dataclasses.asdict(recipe)
        facts["env"] = dict.fromkeys(recipe.env, "(set)")
        facts["knobs"] = [k["name"] for k in facts["knobs"]]
        whole = {
            "draftdial": __version__,
            "made": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            **more,
            "recipe": _yamlable(facts),
        }
        text = yaml.safe_dump(_yamlable(whole), sort_keys=False, allow_unicode=True, width=110)
        _whole(self.path / "run.yaml", text)

    def description(self) -> dict[str, Any]:
        """run.yaml as plain values; empty when there is none.

        Parts that should be mappings, and aren't, are left out.
        """
        try:
            found = yaml.safe_load((self.path / "run.yaml").read_text(encoding="utf-8"))
            json.dumps(found, default=str)  # refuses what holds itself
        except (OSError, yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError):
            return {}
        if not isinstance(found, dict):
            return {}
        kept = {str(k): v for k, v in found.items() if k not in PARTS or isinstance(v, dict)}
        groups = kept.get("fingerprint", {})
        if not all(isinstance(groups.get(name) or {}, dict) for name in ("settings", "flags", "kv_type", "dial")):
            del kept["fingerprint"]
        return kept

    def write_result(self, result: Mapping[str, Any]) -> None:
        """result.json, whole or not at all."""
        _whole(self.result_file, json.dumps(result, ensure_ascii=False, indent=1, default=str))

    def result(self) -> dict[str, Any] | None:
        """result.json, or None: also where it is damaged, as it can always be computed again."""
        try:
            found = json.loads(self.result_file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) and fits(found) else None

    def requests(self) -> Iterator[RequestDone]:
        """Every finished request, from load.jsonl (the master, with texts), each id once: the last record counts."""
        found: dict[str, RequestDone] = {}
        for event in codec.read(self.load_log):
            if isinstance(event, RequestDone):
                found.pop(event.id, None)
                found[event.id] = event
        yield from found.values()

    def events(self) -> Iterator[Event]:
        """events.jsonl in order, then finished requests that only load.jsonl has (the console died between the two)."""
        seen: set[str] = set()
        for event in codec.read(self.events_log):
            if isinstance(event, RequestDone):
                seen.add(event.id)
            yield event
        for request in self.requests():
            if request.id not in seen:
                yield request


def _whole(path: Path, text: str) -> None:
    """A file whole or not at all. Raises OSError."""
    scratch = path.with_name(f".{path.name}.new")
    try:
        scratch.write_bytes(text.encode("utf-8", "replace"))
        scratch.replace(path)
    except OSError:
        scratch.unlink(missing_ok=True)
        raise


def _put(out: int, line: bytes) -> None:
    """One line, with one write. Raises OSError when it is not there whole: a disk may fill up within a line."""
    if os.write(out, line) < len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def mend(path: Path) -> bool:
    """End a torn last line, so that what is appended starts a line of its own. Whether there was one."""
    try:
        with path.open("rb+") as file:
            if file.seek(0, os.SEEK_END) == 0:
                return False
            file.seek(-1, os.SEEK_END)
            if file.read(1) == b"\n":
                return False
            file.seek(0, os.SEEK_END)
            file.write(b"\n")
            return True
    except OSError:
        return False


def create(root: Path | None = None) -> Run:
    """A new run directory, named by day and a letter; two consoles never get the same."""
    base = root or home()
    try:
        return _create(base)
    except OSError as problem:
        why = problem.strerror or problem
        raise Refused(f"{base}: no run can be kept here: {why}; DRAFTDIAL_RUNS names another place") from problem


def _create(base: Path) -> Run:
    base.mkdir(parents=True, exist_ok=True)
    day = time.strftime("%Y-%m-%d")
    for number in range(26 * 27):
        high, low = divmod(number, 26)
        letters = (string.ascii_lowercase[high - 1] if high else "") + string.ascii_lowercase[low]
        path = base / f"{day}-{letters}"
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return Run(path)
    raise Refused(f"{base}: too many runs today; remove some or set DRAFTDIAL_RUNS")


def find(name: str, root: Path | None = None) -> Run:
    """A run by name or path. Raises `Refused`."""
    for path in (Path(name), (root or home()) / name):
        if name and _is_run(path):
            return Run(path)
    there = [r.name for r in listing(root)][-5:]
    raise Refused(f"no run {name!r}; the latest are {', '.join(there) or 'none yet'} (draftdial runs lists all)")


def _is_run(path: Path) -> bool:
    """Whether this is a run's folder; what can't be looked at is none, such as a name that no file can have."""
    return any(os.path.isfile(path / name) for name in ("events.jsonl", "run.yaml"))  # noqa: PTH113  (never raises)


def listing(root: Path | None = None) -> list[Run]:
    """All runs, oldest first."""
    base = root or home()
    try:
        found = [(p.stat().st_mtime, p.name, p) for p in base.iterdir() if (p / "events.jsonl").exists()]
    except OSError:  # none yet, or a place that can't be looked at
        return []
    return [Run(path) for _, _, path in sorted(found)]


def sha256(path: Path, most: int = 1 << 34) -> str | None:
    """The hash of a file's bytes; None when it can't be read."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while (data := file.read(1 << 20)) and file.tell() <= most:
                digest.update(data)
    except OSError:
        return None
    return digest.hexdigest()


def machine() -> dict[str, Any]:
    """What of the machine belongs to a fingerprint; no host name, no user."""
    return {"system": platform.platform(), "cpus": os.cpu_count(), "python": platform.python_version()}


def notices(run: Run) -> list[Notice]:
    """What was unreadable among a run's requests; what was among its events comes with them."""
    return [e for e in codec.read(run.load_log) if isinstance(e, Notice) and not e.at]


def _yamlable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _yamlable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_yamlable(v) for v in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
