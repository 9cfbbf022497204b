"""`python -m probes.sim`: a simulated engine. Its own options come first, the engine's own command line after `--`."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from math import isfinite
from typing import Any

import uvloop

from probes.recipe import SIMULATED, Refused
from probes.sim import draft, tables
from probes.sim.draft import Noise
from probes.sim.front import BadStartError, Front, World
from probes.sim.process import FAULTS, Clock, Fault, Process

DIALECTS = {"ninfer": "Ninfer", "sglang": "SGLang", "vllm": "Vllm", "llamacpp": "LlamaCpp"}
DEFAULT_TABLES = {"ninfer": "ninfer-5090", "sglang": "sglang-k3", "vllm": "vllm-8b", "llamacpp": "llamacpp-8b"}
NOISES = ("request", "restart", "content", "drift", "thermal_every_s", "thermal_s", "thermal_slow")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        """One line."""
        raise Refused(message)


def parser() -> argparse.ArgumentParser:
    """The simulator's own options."""
    made = _Parser(
        prog="draftdial sim",
        description="A simulated inference server: real HTTP, real flags, real log text, invented hardware. Everything "
        "after -- is the engine's own command line.",
        epilog="Example: draftdial sim --dialect ninfer --speed 20 -- model.ninfer --port 8080 --max-concurrency 3",
    )
    add = made.add_argument
    add("--dialect", required=True, choices=sorted(DIALECTS), help="which engine to be")
    add("--speed", type=speed_of, default=1.0, metavar="X", help="simulated seconds a real second (1)")
    add("--table", metavar="NAME", help=f"the machine: {', '.join(tables.names())}, or a YAML file")
    add("--seed", default="1", metavar="TEXT", help="of everything that is drawn (1)")
    add("--nth", type=int, default=0, metavar="N", help="which restart this is, for noise and drift (0)")
    add("--noise", action="append", default=[], metavar="NAME=VALUE", help=f"over the table's: {', '.join(NOISES)}")
    add("--fault", default=os.environ.get("DRAFTDIAL_SIM_FAULT", ""), metavar="KIND[@N]",
        help=f"go wrong with the nth request: {', '.join(FAULTS)} (also DRAFTDIAL_SIM_FAULT)")  # fmt: skip
    add("argv", nargs="*", metavar="-- ARGUMENT", help="the engine's own command line")
    return made


def noise_of(table: tables.Table, given: Sequence[str]) -> Noise:
    """The table's noise with what was given instead. Raises `Refused`."""
    values = dict(table.noise)
    for text in given:
        name, _, value = text.partition("=")
        try:
            values[name] = float(value)
        except ValueError:
            name = ""
        if name not in NOISES:
            raise Refused(f"--noise {text}: write NAME=VALUE with one of {', '.join(NOISES)}")
        if not isfinite(values[name]) or (values[name] < 0 and name != "drift"):
            raise Refused(f"--noise {text}: want a number from 0 on")
    return Noise(**values)


def speed_of(text: str) -> float:
    """How much faster than real. Raises `argparse.ArgumentTypeError`."""
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0.01 <= speed <= 10_000:
        raise argparse.ArgumentTypeError(f"{text}: want 0.01 to 10000")
    return speed


def table_of(dialect: str, name: str | None) -> tables.Table:
    """The machine of that name, made for that dialect. Raises `Refused`."""
    table = tables.load(name or DEFAULT_TABLES[dialect])
    if table.dialect != dialect:
        raise Refused(f"--table {table.name}: made for {table.dialect}, not for {dialect}")
    return table


def build(dialect: str, argv: list[str], world: World) -> Front:
    """The dialect's front. Raises `BadStartError`."""
    front: Front = getattr(importlib.import_module(f"probes.sim.{dialect}"), DIALECTS[dialect])(argv, world)
    return front


def log_line(_at: float, text: str) -> None:
    """One line of the server's log."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until the server ends; its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    place = words.index("--") if "--" in words else len(words)
    try:
        options = parser().parse_args(words[:place])
        table = table_of(options.dialect, options.table)
        noise = noise_of(table, options.noise)
        fault = Fault.of(options.fault)
    except (Refused, ValueError) as problem:
        sys.stderr.write(f"error: {problem}\n")
        return 2
    clock = Clock(options.speed)
    wall = time.time() - clock.now() / options.speed
    world = World(table, noise, options.seed, options.nth, log_line, wall, fault.kind, draft.known_prompts())
    try:
        front = build(options.dialect, [*options.argv, *words[place + 1 :]], world)
    except BadStartError as problem:
        for line in problem.lines:
            log_line(0.0, line)
        return problem.code

    pace = "" if options.speed == 1 else f", time runs {options.speed:g} times as fast"
    log_line(0.0, f"{SIMULATED}{options.dialect} on {table.name}{pace}; no figure below is of a real machine")

    async def run() -> int:
        return await Process(front, clock, fault).serve()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


def end(code: int) -> None:
    """Leave with this code, or of this signal."""
    sys.stderr.flush()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    end(main())
