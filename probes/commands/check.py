"""`draftdial check PRESET`: everything that a start would do, without starting."""

from __future__ import annotations

import contextlib
import os
import shlex
from typing import Any

import click

from probes.commands import _common as common


@click.command()
@click.argument("preset")
@click.option("--set", "settings", multiple=True, metavar="KNOB=VALUE", help="A knob's value, or depth=N.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(preset: str, settings: tuple[str, ...], *, as_json: bool) -> None:
    """Validate PRESET; show the command line, legal ranges, port, binary, and what would change on a running server."""
    from probes import engines, masking, running, server
    from probes import preset as presets

    with common.refusing():
        recipe = presets.load(preset)
        chosen = dict(presets.setting(recipe, text) for text in settings)
        depth = chosen.pop("depth", recipe.dial.start)
        engine = engines.engine(recipe.engine)
        presets.accept(recipe, dict.fromkeys((depth, *recipe.dial.values)), chosen)
        values = {**recipe.settings, **chosen}
        port = recipe.port or server.free_port(recipe.host)
        argv = list(masking.mask(_argv(recipe, values, depth, port)))
        own = {k: v for k, v in engine.environment(recipe, values, depth).items() if k not in recipe.env}
        found: dict[str, Any] = {
            "preset": recipe.name, "path": recipe.path, "engine": recipe.engine, "host": recipe.host,
            "depth": depth, "depths": list(recipe.dial.values), "kind": recipe.dial.kind,
            "port": recipe.port or "auto", "argv": argv, "env": {**own, **dict.fromkeys(recipe.env, "(set)")},
            **_binary(recipe),
        }  # fmt: skip
        found["warnings"] = [text for text in (server.exposed(recipe),) if text]
        found["problems"] = _problems(recipe)
        found["gpus"] = _gpus(recipe)
        found["running"] = [
            {"pid": s.pid, "log": s.log, "changes": running.changes(masking.mask(s.argv), argv)}
            for s in running.servers()
            if s.argv and argv and s.argv[0].rpartition("/")[2] == argv[0].rpartition("/")[2]
        ]
        found["knobs"] = [_knob(k, values.get(k.name, k.default)) for k in recipe.knobs]
        legal = engine.dial_range(recipe.dial)
        found["legal_depths"] = list(legal) if legal else None
    if as_json:
        common.line(found)
    else:
        _show(found, recipe)
    raise SystemExit(common.USAGE if found["problems"] else common.DONE)


def _argv(recipe: Any, values: Any, depth: int, port: int) -> tuple[str, ...]:
    """The command line of a start as it is run: paths found where they are there, the launcher's words included."""
    from probes import engines, models
    from probes.launch import launch
    from probes.recipe import Refused

    engine = engines.engine(recipe.engine)
    with contextlib.suppress(Refused):  # what is missing is told as a problem
        recipe = recipe if models.pending(recipe) else models.resolve(recipe)
    argv = engine.command(recipe, values, depth, port)
    env = {**engine.environment(recipe, values, depth), **recipe.env}
    return launch(recipe, argv, env, port, "draftdial-RUN-1").argv


def _gpus(recipe: Any) -> list[str]:
    """The GPUs that the server would see, one sentence each; those of another host can't be told from here."""
    from probes.commands import doctor

    if recipe.simulated:
        return ["simulated: none is used"]
    if recipe.launcher in {"ssh", "srun"}:
        return [f"those where {recipe.launcher} starts it"]
    rows = list(doctor.gpus({**os.environ, **recipe.env}))
    seen = [f"{row.name}: {row.text}" for row in rows if row.state != "none"]
    return seen or [f"none: {'; '.join(row.text for row in rows)}"]


def _binary(recipe: Any) -> dict[str, Any]:
    """Where the program is and its version, as far as that can be told from here."""
    from probes import machine, models
    from probes.recipe import Refused

    if recipe.launcher:
        return {"binary": f"{recipe.binary}, where {recipe.launcher} starts it", "version": None}
    try:
        path = models.binary(recipe.binary)
    except Refused:
        return {}
    return {"binary": path, "version": machine.version(path)}


def _problems(recipe: Any) -> list[str]:
    """What would keep it from starting or from being measured, one sentence each."""
    from probes import models, server
    from probes.load import prompts
    from probes.recipe import Refused

    found = [] if recipe.launcher else models.missing(recipe)
    work = recipe.workload
    try:
        models.binary(recipe.launcher or recipe.binary)
    except Refused as problem:
        found.append(str(problem))
    try:
        prompts.select(prompts.load(work.prompts_file), work.categories, work.prompts_per_category)
    except Refused as problem:
        found.append(str(problem))
    if recipe.port and (owner := server.port_owner(recipe.host, recipe.port)):
        found.append(f"port {recipe.port} is taken by {owner}")
    return found


def _knob(knob: Any, value: Any) -> dict[str, Any]:
    span = list(knob.choices) if knob.choices else [knob.low, knob.high] if knob.type in {"int", "float"} else None
    return {
        "name": knob.name, "flag": knob.flag, "type": knob.type, "value": value, "legal": span,
        "changes": list(knob.changes), "rule": knob.rule, "also": knob.also,
    }  # fmt: skip


def _show(found: dict[str, Any], recipe: Any) -> None:
    from probes.show import clean

    legal = found["legal_depths"]
    span = f" (the engine takes {max(legal[0], 1)} to {legal[1]}, 0 is none)" if legal else " (0 is none)"
    rows = [
        ("preset", f"{found['preset']} · {found['path']}"),
        ("engine", f"{found['engine']} · {recipe.title}"),
        ("binary", f"{found.get('binary', '—')} · {found.get('version') or 'it does not say its version'}"),
        *(("GPU", text) for text in found["gpus"]),
        ("address", f"{found['host']}:{found['port']}"),
        (recipe.dial.label, f"{found['depth']} of {', '.join(map(str, found['depths']))} with {found['kind']}{span}"),
        ("command", shlex.join(found["argv"])),
    ]
    rows += [("environment", f"{k}={v}") for k, v in found["env"].items()]
    for knob in found["knobs"]:
        legal = knob["legal"]
        span = "" if not legal else f" · {', '.join('…' if v is None else f'{v}' for v in legal)}"
        rule = f" · {knob['rule']}" if knob["rule"] else ""
        value = "—" if knob["value"] is None else knob["value"]
        rows.append((f"  {knob['name']}", f"{value}{span} · changes {', '.join(knob['changes'])}{rule}"))
    for other in found["running"]:
        rows.append(("running", f"pid {other['pid']} · {other['log']}"))
        rows += [("  changes", text) for text in other["changes"] or ["nothing"]]
    rows += [("warning", text) for text in found["warnings"]]
    rows += [("problem", text) for text in found["problems"]]
    for name, text in rows:
        print(f"{name:<14} {clean(text, 4000)}")
