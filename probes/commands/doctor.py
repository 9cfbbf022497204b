"""`draftdial doctor`: what this machine has and lacks, one line each, with the cure. It starts no server."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Literal

import click

from probes.commands import _common as common

LAUNCHERS = ("docker", "podman", "ssh", "srun")


@dataclass(frozen=True, slots=True)
class Row:
    """One thing. `missing` can be cured and matters, `none` is merely so."""

    name: str
    state: Literal["ok", "none", "missing"]
    text: str
    cure: str = ""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(*, as_json: bool) -> None:
    """Say what this machine has and lacks for tuning inference servers, and how to get what is missing."""
    from probes import __version__
    from probes.show import clean

    rows = list(survey())
    if as_json:
        common.line({"version": __version__, "rows": [asdict(row) for row in rows]})
    else:
        width = max(len(row.name) for row in rows)
        marks = {"ok": "ok", "none": "–", "missing": "!!"}
        for row in rows:
            cure = f" → {row.cure}" if row.cure else ""
            print(f"{marks[row.state]:<2}  {row.name:<{width}}  {clean(row.text + cure, 300)}")
    # Something must be there to tune: an engine, or the demo's.
    startable = any(row.state == "ok" for row in rows if row.name in {"demo", *_engine_names()})
    raise SystemExit(common.DONE if startable else common.NO)


def _engine_names() -> tuple[str, ...]:
    from probes.machine import ENGINES

    return tuple(ENGINES)


def survey() -> Iterator[Row]:
    """Every row, in the order in which a person needs them."""
    yield python()
    yield from machine()
    yield from gpus()
    yield from engines()
    yield demo()
    yield terminal(dict(os.environ), sys.stdout.encoding, isatty=sys.stdout.isatty())
    yield cache()
    found = [name for name in LAUNCHERS if shutil.which(name)]
    yield Row("launchers", "ok" if found else "none", ", ".join(found) or "none of " + ", ".join(LAUNCHERS))


def python() -> Row:
    """The interpreter."""
    right = (3, 11) <= sys.version_info[:2] <= (3, 13)
    text = f"{platform.python_implementation()} {platform.python_version()} at {sys.executable}"
    return Row("Python", "ok" if right else "missing", text, "" if right else "use Python 3.11, 3.12 or 3.13")


def machine() -> Iterator[Row]:
    """Cores and memory."""
    from probes import machine as facts
    from probes.gpu import host
    from probes.gpu.room import gib

    libc = facts.glibc()
    cores = facts.cores()
    text = f"{cores} {'core' if cores == 1 else 'cores'}, {platform.machine()}"
    text += f", glibc {libc[0]}.{libc[1]}" if libc else ""
    one = "with one core the load client and the server share it: client times will be late" if cores == 1 else ""
    yield Row("processor", "ok", text, one)
    total, available = host.total_and_available()
    if total is None or available is None:
        yield Row("memory", "none", "not told")
    else:
        yield Row("memory", "ok", f"{gib(total)}, {gib(available)} available")


def gpus(environ: Mapping[str, str] | None = None) -> Iterator[Row]:
    """Each GPU that a server with this environment would see (ours: None), and for each vendor without one why."""
    from probes.gpu.room import gib
    from probes.gpu.watch import Watch, sources

    found = sources(environ)
    watch = Watch(lambda _: None, gpus=found, environ=environ)
    drivers = {source.vendor: source.driver for source in found}
    vendors = {device.uuid: device.vendor for device in watch.visible.devices}
    for gpu in sorted(watch.read().gpus, key=lambda gpu: gpu.index):
        name = f"GPU {gpu.index}"
        if gpu.problem is not None:
            yield Row(name, "missing", f"{gpu.name}: {gpu.problem}", "see the kernel's log (dmesg)")
            continue
        parts = [gpu.name]
        if gpu.total is not None and gpu.free is not None:
            parts.append(f"{gib(gpu.free)} free of {gib(gpu.total)}")
        parts += [
            f"{other} (pid {pid}) holds {gib(size) if size is not None else '—'}" for pid, other, size in gpu.others
        ]
        parts += [f"slowed now: {', '.join(gpu.throttle)}"] if gpu.throttle else []
        driver = drivers.get(vendors.get(gpu.uuid, "nvidia"))
        parts += [f"driver {driver}"] if driver else []
        yield Row(name, "ok", ", ".join(parts))
    for source in found:
        if source.why is not None:
            yield Row("NVIDIA" if source.vendor == "nvidia" else "AMD", "none", source.why)
    for note in watch.visible.notes:
        yield Row("visible", "missing", note, "correct the variable")
    watch.stop()


def engines() -> Iterator[Row]:
    """The program of each engine."""
    from probes import machine as facts

    for engine, (name, cure) in facts.ENGINES.items():
        path = facts.program(name)
        if path is not None:
            yield Row(engine, "ok", f"{path} · {facts.version(path) or 'version not told'}")
        elif name == "sglang" and facts.sglang_module():
            yield Row(engine, "ok", f"{sys.executable} -m sglang.launch_server")
        else:
            yield Row(engine, "none", f"no {name} on PATH", cure)


def demo() -> Row:
    """Whether the demo extra is there and can run."""
    from probes import machine as facts
    from probes import models
    from probes.recipe import Refused

    obstacles = facts.demo_obstacles_here()
    if obstacles:
        return Row("demo", "missing", "; ".join(obstacles), "put any llama-server on PATH, or use demo --sim")
    try:
        model = models.shipped()
    except Refused as problem:
        return Row("demo", "missing", str(problem))
    path = facts.program("llama-server-vulkan")
    if path is None:
        return Row("demo", "missing", "no llama-server-vulkan here", "install draftdial[demo]")
    version = facts.version(path)
    if version is None:
        return Row(
            "demo", "missing", f"{path} does not start", "install libgomp1 and libstdc++6, then run it with --version"
        )
    draft = (
        "draft derived" if models.derived_path(model).is_file() else "the draft is derived at its first start, ~10 s"
    )
    return Row("demo", "ok", f"{version} · {model.name} · {draft}")


def terminal(environ: dict[str, str], encoding: str | None, *, isatty: bool) -> Row:
    """Size, colours and characters of the terminal."""
    if not isatty:
        return Row("terminal", "none", "standard output is not a terminal")
    columns, lines = shutil.get_terminal_size()
    if environ.get("NO_COLOR"):
        colours = "no colours (NO_COLOR)"
    elif environ.get("COLORTERM", "").lower() in {"truecolor", "24bit"}:
        colours = "16.7 million colours"
    elif "256color" in environ.get("TERM", ""):
        colours = "256 colours"
    else:
        colours = "16 colours"
    text = f"{columns}×{lines}, {colours}, {environ.get('TERM', 'TERM is not set')}, {encoding or 'no encoding'}"
    cures = []
    if environ.get("TERM", "dumb") in {"dumb", ""}:
        cures.append("set TERM, e.g. to xterm-256color")
    if columns < 80 or lines < 24:
        cures.append("make it 80×24 or larger (160×48 shows everything)")
    if (encoding or "").lower().replace("-", "") != "utf8":
        cures.append("use a UTF-8 locale, e.g. LANG=C.UTF-8")
    return Row("terminal", "missing" if cures else "ok", text, "; ".join(cures))


def cache() -> Row:
    """Where derived files go."""
    from probes import models

    folder = models.cache()
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not os.access(there, os.W_OK):
        return Row("cache", "missing", f"{folder} cannot be written", "set XDG_CACHE_HOME to a folder that can")
    free = shutil.disk_usage(there).free / (1 << 30)
    return Row("cache", "ok", f"{folder}, {free:.1f} GiB free")
