"""What a run was measured with, so that two runs can be told apart or held together: program, model files, prompts,
sampling, GPUs, settings. Reads files and asks a program its version; starts no server and writes nothing.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probes import __version__, engines, machine, models, store
from probes.load import prompts
from probes.masking import masked
from probes.measure.sweep import SEED
from probes.recipe import SIMULATOR, Recipe, Refused

WHOLE = 256 << 20
"""Bytes up to which a file is hashed as a whole; of larger ones the ends, with size and time of change."""
END = 1 << 20
FILES_MOST = 4096
HARD = (
    "engine",
    "simulated",
    "model",
    "files",
    "kv_type",
    "prompts",
    "sampling",
    "concurrency",
    "gpus",
    "drivers",
    "machine",
)
"""What must be equal before two runs' figures may stand side by side, unless it is the very thing that was tested."""
_KV = re.compile(r"^(?!draft)(kv|cache_type|kv_cache).*")


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not the same in two fingerprints; `unknown`: at least one of them does not say."""

    name: str
    left: Any
    right: Any
    unknown: bool = False

    @property
    def words(self) -> str:
        """In one phrase."""
        return f"{self.name}: {brief(self.left)} against {brief(self.right)}"


def brief(value: Any) -> str:
    """A part of a fingerprint for a person, on one line."""
    if value is None or value in ({}, []):
        return "not known" if value is None else "none"
    if isinstance(value, Mapping):
        name = value.get("version") or value.get("name")
        mark = value.get("sha256") or value.get("revision")
        if name and (mark or "path" in value):
            return f"{name}" + (f" ({mark[:12]}…)" if isinstance(mark, str) else "")
        return ", ".join(f"{k} {v[:12] + '…' if k == 'sha256' and v else brief(v)}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(brief(v) for v in value)
    return str(value)


# ------------------------------------------------------------------------------------------------------- gathering


def gather(recipe: Recipe, settings: Mapping[str, Any], hardware: Mapping[str, Any]) -> dict[str, Any]:
    """The fingerprint of this recipe with these settings on this machine; takes up to some seconds.

    `hardware` is what `hardware()` gives. Values of environment variables are left out, their names are kept. What
    can't be known is None, and a launcher's files, which lie elsewhere, are known by name alone.
    """
    local = recipe.launcher is None
    work = recipe.workload
    others = {**recipe.flags, **recipe.dial.flags}
    return {
        "package": __version__,
        "engine": recipe.engine,
        "simulated": recipe.simulated,
        "binary": _binary(recipe),
        "model": artifact(recipe.model, local=local),
        "files": {k: artifact(v, local=local) for k, v in sorted(others.items()) if _names_a_file(v)},
        "kv_type": kv_type(recipe, settings),
        "prompts": prompts_used(recipe),
        "sampling": {"temperature": work.temperature, "max_tokens": work.max_tokens, "extra": masked(work.extra)},
        "concurrency": work.concurrency,
        "seed": SEED,
        **hardware,
        "machine": {k: v for k, v in store.machine().items() if k != "python"},
        "settings": masked(settings),
        "flags": masked({k: v for k, v in recipe.flags.items() if not _names_a_file(v)}),
        "dial": {
            "kind": recipe.dial.kind,
            "flags": masked({k: v for k, v in recipe.dial.flags.items() if not _names_a_file(v)}),
        },
        "launcher": {"name": recipe.launcher, **masked(recipe.launcher_options)} if recipe.launcher else None,
        "env": sorted(recipe.env),
    }


def _binary(recipe: Recipe) -> dict[str, Any]:
    """The program; of the simulated engine what it simulates, of one behind a launcher the name alone."""
    if recipe.binary == SIMULATOR:
        how = {k: v for k, v in recipe.simulation.items() if k != "speed"}
        return {"name": SIMULATOR, "version": __version__, "simulation": how}
    return program(recipe.binary) if recipe.launcher is None and recipe.binary else {"name": recipe.binary or None}


def hardware(devices: Iterable[Any], drivers: Mapping[str, str | None]) -> dict[str, Any]:
    """GPUs that the server sees, by name, and the drivers of their vendors."""
    found = list(devices)
    vendors = {d.vendor for d in found}
    return {
        "gpus": [d.name for d in found],
        "drivers": {k: v for k, v in sorted(drivers.items()) if k in vendors},
    }


def look(environ: Mapping[str, str]) -> dict[str, Any]:
    """`hardware` of this machine, by opening the vendors' libraries and closing them again."""
    from probes.gpu.devices import visible
    from probes.gpu.watch import sources

    opened = sources(environ)
    try:
        seen = visible([d for source in opened for d in source.devices], environ).devices
        return hardware(seen, {source.vendor: source.driver for source in opened})
    finally:
        for source in opened:
            source.close()


def program(name: str) -> dict[str, Any]:
    """A program: its path, hash and what it says of its version. Of a script the version alone tells much."""
    try:
        path = Path(models.binary(name))
    except Refused:
        return {"name": name}
    found = file(path)
    try:
        with path.open("rb") as start:
            found["script"] = start.read(2) == b"#!"
    except OSError:
        found["script"] = None
    found["version"] = machine.version(str(path))
    return found


def artifact(name: str, *, local: bool = True) -> dict[str, Any]:
    """A model: a file, a folder of files, or a name on a hub with the revision that this machine's cache holds."""
    if not name:
        return {"name": None, "how": "not told", "revision": None}
    path = Path(os.path.expanduser(name))  # noqa: PTH111  (keeps './' as written)
    if local and path.is_file():
        return file(path)
    if local and path.is_dir():
        return folder(path)
    revision = hub_revision(name) if local else None
    return {"name": name, "how": "by name alone" if revision is None else "by name and revision", "revision": revision}


def file(path: Path) -> dict[str, Any]:
    """A file's size and hash; of one over 256 MiB its ends, which `how` says, and when it was changed."""
    try:
        about = path.stat()
    except OSError:
        return {"name": path.name, "path": str(path)}
    found: dict[str, Any] = {"name": path.name, "path": str(path), "bytes": about.st_size}
    if about.st_size <= WHOLE:
        return {**found, "how": "the whole file", "sha256": store.sha256(path)}
    return {**found, "how": "first and last MiB", "sha256": ends(path), "modified": _stamp(about.st_mtime)}


def folder(path: Path) -> dict[str, Any]:
    """A folder of weights: names, sizes and ends of all its files as one hash."""
    digest, newest, total, number = hashlib.sha256(), 0.0, 0, 0
    for part in sorted(p for p in path.rglob("*") if p.is_file() and not p.name.startswith("."))[:FILES_MOST]:
        about = part.stat()
        newest, total, number = max(newest, about.st_mtime), total + about.st_size, number + 1
        digest.update(f"{part.relative_to(path)}\0{about.st_size}\0{ends(part)}\0".encode())
    how = f"first and last MiB of each of {number} files"
    return {
        "name": path.name, "path": str(path), "bytes": total, "how": how,
        "sha256": digest.hexdigest(), "modified": _stamp(newest),
    }  # fmt: skip


def ends(path: Path) -> str | None:
    """SHA-256 of a file's first and last MiB; of a small file, of all of it."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as data:
            digest.update(data.read(END))
            left = data.seek(0, os.SEEK_END) - END
            if left > 0:
                data.seek(-min(left, END), os.SEEK_END)
                digest.update(data.read(END))
    except OSError:
        return None
    return digest.hexdigest()


def hub_revision(name: str) -> str | None:
    """The commit of a hub's model in this machine's cache, as the hub's own client lays it out."""
    home = os.environ.get("HF_HUB_CACHE") or Path(
        os.environ.get("HF_HOME") or os.path.expanduser("~/.cache/huggingface"),  # noqa: PTH111  (never raises)
        "hub",
    )
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        return None
    try:
        text = Path(home, f"models--{name.replace('/', '--')}", "refs", "main").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return text if re.fullmatch(r"[0-9a-f]{40}", text) else None


def kv_type(recipe: Recipe, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The types of the KV pool as asked: from the settings, the fixed flags, else the engine's default."""
    found = {}
    for knob in engines.engine(recipe.engine).knobs:
        if _KV.match(knob.name) and "type" in knob.name:
            found[knob.name] = settings.get(knob.name, recipe.flags.get(knob.flag, knob.default))
    return found


def prompts_used(recipe: Recipe) -> dict[str, Any] | None:
    """The hash of the first block's prompts in their order, and how many there are; None when they can't be read."""
    work = recipe.workload
    try:
        chosen = prompts.select(prompts.load(work.prompts_file), work.categories, work.prompts_per_category)
    except Refused:
        return None
    return {"sha256": prompts.fingerprint(chosen), "number": len(chosen), "categories": list(work.categories)}


def _names_a_file(value: Any) -> bool:
    return isinstance(value, str) and (value.endswith(models.FILES) or value.startswith(("~", "/")))


def _stamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


# ------------------------------------------------------------------------------------------------------- comparing


def differences(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[Difference]:
    """What is not the same, or not known to be: hard things first, then settings and flags one by one.

    A side that says nothing of a thing makes an unknown difference, unless the thing does not apply to either.
    """
    found = []
    for name in (*HARD, "binary", "launcher", "env", "package"):
        a, b = _essence(name, left.get(name)), _essence(name, right.get(name))
        if name in left and name in right and a == b:
            continue
        found.append(Difference(name, left.get(name), right.get(name), name not in left or name not in right))
    kv = {*(left.get("kv_type") or {}), *(right.get("kv_type") or {})}
    for group, skip in (("settings", kv), ("flags", set[str]())):
        found += _each(group, left.get(group) or {}, right.get(group) or {}, skip)
    a, b = left.get("dial") or {}, right.get("dial") or {}
    if a.get("kind") != b.get("kind"):
        found.append(Difference("dial", a.get("kind"), b.get("kind")))
    return found + _each("dial.flags", a.get("flags") or {}, b.get("flags") or {}, set())


def _each(group: str, left: Mapping[str, Any], right: Mapping[str, Any], skip: set[str]) -> list[Difference]:
    names = sorted({*left, *right} - skip)
    return [Difference(f"{group}.{n}", left.get(n), right.get(n)) for n in names if left.get(n) != right.get(n)]


def _essence(name: str, value: Any) -> Any:
    """What of a part must be equal: not where a file lies, nor the hash of a script that starts something else."""
    if name == "files" and isinstance(value, Mapping):
        return sorted(repr(_essence("model", v)) for v in value.values())
    if not isinstance(value, Mapping):
        return value
    kept = {k: v for k, v in value.items() if k not in {"path", "script"}}
    if name == "binary":
        kept.pop("how", None)
        if value.get("script"):
            kept.pop("sha256", None)
            kept.pop("bytes", None)
        else:
            kept.pop("name", None)
    elif name == "model" and kept.get("sha256"):
        kept.pop("name", None)
    return kept


def guesses(fingerprint: Mapping[str, Any]) -> list[str]:
    """What in a fingerprint rests on a name or on part of a file, in words."""
    found = []
    parts: list[tuple[str, Any]] = [("model", fingerprint.get("model"))]
    files = fingerprint.get("files")
    parts += list(files.items()) if isinstance(files, Mapping) else []
    for name, part in parts:
        how = part.get("how") if isinstance(part, Mapping) else None
        if how and how != "the whole file":
            found.append(f"{name} {part.get('name')}: known {how}" if "name" in how else f"{name}: hashed {how}")
    binary = fingerprint.get("binary") or {}
    if isinstance(binary, Mapping) and not binary.get("version") and (binary.get("script") or not binary.get("sha256")):
        found.append(f"program {binary.get('name')}: its version is not known")
    return found


def unlike(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Why a run that was begun with `before` can't go on with `now`, on one line; None when it can."""
    found = differences(before, now)
    if not found:
        return None
    most: Sequence[Difference] = found[:3]
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return "; ".join(d.words for d in most) + more
