"""Starting a server inside a container or on another host: wraps an argv in an argv, never in a shell string here.

Each launcher keeps the server's output on our file, forwards our signals or has a command that ends the server, and
says where the port is reached.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from probes.recipe import SIMULATOR, Recipe, Refused

OPTIONS: Mapping[str, tuple[str, ...]] = {
    "docker": ("image", "args"),
    "podman": ("image", "args"),
    "ssh": ("host", "args"),
    "srun": ("args", "reach"),
}
"""Legal keys of `launcher_options` by launcher; `args` is a list of words put before the image, host or program."""

INSPECT_S = 5.0


@dataclass(frozen=True, slots=True)
class Launch:
    """A wrapped start: what to run, what ends the server where signals would not reach it, where it answers."""

    argv: tuple[str, ...]
    cleanup: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    container: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that the start needs beside those of the server."""


def check(recipe: Recipe) -> None:
    """Refuse options that a launcher does not have, or lacks. One line."""
    if recipe.launcher is None:
        if recipe.launcher_options:
            raise Refused(f"{recipe.path}: launcher_options without a launcher; legal: {', '.join(OPTIONS)}")
        return
    legal = OPTIONS[recipe.launcher]
    for name in recipe.launcher_options:
        if name not in legal:
            raise Refused(f"{recipe.path}: launcher_options.{name}: {recipe.launcher} has {', '.join(legal)}")
    need = {"docker": "image", "podman": "image", "ssh": "host"}.get(recipe.launcher)
    if need and not _word(recipe.launcher_options.get(need)):
        raise Refused(
            f"{recipe.path}: launcher {recipe.launcher} needs launcher_options.{need}, a word without a leading '-'"
        )
    args = recipe.launcher_options.get("args", [])
    if not isinstance(args, list) or not all(isinstance(a, (str, int)) for a in args):
        raise Refused(f"{recipe.path}: launcher_options.args must be a list of words")


def launch(recipe: Recipe, argv: Sequence[str], env: Mapping[str, str], port: int, name: str) -> Launch:
    """The argv that starts `argv` through the recipe's launcher; without one, `argv` itself.

    `name` is unique to this start. Values of `env` are in the launcher's own environment, so that none stands in an
    argv, except for srun, which passes its environment on, and ssh, whose server must accept the names (SendEnv).
    """
    check(recipe)
    options = recipe.launcher_options
    args = [str(a) for a in options.get("args", [])]
    if recipe.launcher in {"docker", "podman"}:
        return _container(recipe.launcher, str(options["image"]), args, argv, env, name)
    if recipe.launcher == "ssh":
        return _ssh(str(options["host"]), args, argv, env, port, name)
    if recipe.launcher == "srun":
        line = ("srun", f"--job-name={name}", "--unbuffered", *args, *argv)
        return Launch(line, ("scancel", f"--name={name}"), str(options.get("reach", "127.0.0.1")))
    if recipe.binary == SIMULATOR:
        return _simulator(recipe, argv, name.rpartition("-")[2])
    return Launch(tuple(argv), host=recipe.host)


def container_id(made: Launch) -> str | None:
    """The id of the container that this start runs in, as /proc has it for its processes; None where it has none."""
    if made.container is None:
        return None
    line = (made.argv[0], "inspect", "--format", "{{.Id}}", made.container)
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=INSPECT_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    found = done.stdout.strip()
    return found if done.returncode == 0 and len(found) >= len("0123456789ab") and found.isalnum() else None


def _simulator(recipe: Recipe, argv: Sequence[str], nth: str) -> Launch:
    """The simulated engine, a process of this program, given the command line that the real one would get."""
    words = ["--dialect", recipe.engine, "--nth", nth if nth.isdigit() else "0"]
    for key in ("table", "speed", "seed", "fault"):
        if key in recipe.simulation:
            words += [f"--{key}", str(recipe.simulation[key])]
    for key, value in dict(recipe.simulation.get("noise", {})).items():
        words += ["--noise", f"{key}={value}"]
    here = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(p for p in (here, os.environ.get("PYTHONPATH")) if p)
    line = (sys.executable, "-m", "probes.sim", *words, "--", *argv[1:])
    return Launch(line, host=recipe.host, env={"PYTHONPATH": path})


def _container(
    tool: str, image: str, args: Sequence[str], argv: Sequence[str], env: Mapping[str, str], name: str
) -> Launch:
    """`docker run` in the foreground on the host's network, so that the server still binds to 127.0.0.1 alone.

    The client forwards SIGTERM; a killed client leaves its container, which `rm --force` ends.
    """
    passed = [word for key in sorted(env) for word in ("--env", key)]
    network = [] if any(a.startswith(("--network", "--net")) for a in args) else ["--network", "host"]
    line = (tool, "run", "--rm", "--name", name, *network, *passed, *args, image, *argv)
    return Launch(line, (tool, "rm", "--force", name), container=name)


def _ssh(host: str, args: Sequence[str], argv: Sequence[str], env: Mapping[str, str], port: int, name: str) -> Launch:
    """`ssh` with the port brought here. The remote side is a shell by ssh's nature, so each word is quoted for it.

    The remote shell writes its pid and becomes the server; the clean-up command ends that pid. `-tt` has the remote
    side hang up when the connection drops.
    """
    pid_file = f"/tmp/{name}.pid"  # noqa: S108  (on the other host, with a name that no one else has)
    remote = f"echo $$ > {shlex.quote(pid_file)} && exec {shlex.join(argv)}"
    send = [word for key in sorted(env) for word in ("-o", f"SendEnv={key}")]
    base = ("ssh", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=5", *args)
    forward = ("-tt", "-o", "ExitOnForwardFailure=yes", "-L", f"127.0.0.1:{port}:127.0.0.1:{port}")
    stop = f"kill $(cat {shlex.quote(pid_file)}) 2>/dev/null; rm -f {shlex.quote(pid_file)}"
    return Launch((*base, *send, *forward, host, remote), (*base, host, stop))


def _word(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and not value.startswith("-") and not any(c.isspace() for c in value)
