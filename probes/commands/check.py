"""`draftdial check PRESET`: everything that a start would do, without starting."""

from __future__ import annotations

import shlex
import subprocess
from typing import Any

import click

from probes.commands import _common as common


@click.command()
@click.argument("preset")
@click.option("--set", "settings", multiple=True, metavar="KNOB=VALUE", help="A knob's value, or depth=N.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(preset: str, settings: tuple[str, ...], *, as_json: bool) -> None:
    """Validate PRESET; show the command line, legal ranges, port, binary, and what would change on a running server."""
    from probes import engines, models, running, server
    from probes import preset as presets
    from probes.recipe import Refused

    with common.refusing():
        recipe = presets.load(preset)
        chosen = dict(presets.setting(recipe, text) for text in settings)
        depth = chosen.pop("depth", recipe.dial.start)
        engine = engines.engine(recipe.engine)
        values = {**recipe.settings, **chosen}
        port = recipe.port or server.free_port(recipe.host)
        argv = engine.command(recipe, values, depth, port)
        found: dict[str, Any] = {
            "preset": recipe.name, "path": recipe.path, "engine": recipe.engine, "host": recipe.host,
            "depth": depth, "depths": list(recipe.dial.values), "kind": recipe.dial.kind,
            "port": recipe.port or "auto", "argv": list(server.mask(argv)),
            "env": {**dict.fromkeys(recipe.env, "(set)"), **engine.environment(recipe, values, depth)},
        }  # fmt: skip
        found["problems"] = [] if recipe.launcher else models.missing(recipe)
        try:
            found["binary"] = models.binary(recipe.binary)
            found["version"] = _version(found["binary"])
        except Refused as problem:
            found["problems"].append(str(problem))
        if recipe.port and (owner := server.port_owner(recipe.host, recipe.port)):
            found["problems"].append(f"port {recipe.port} is taken by {owner}")
        found["running"] = [
            {"pid": s.pid, "log": s.log, "changes": running.changes(server.mask(s.argv), found["argv"])}
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


def _version(binary: str) -> str | None:
    """What the program says of its version, if it says so quickly."""
    try:
        done = subprocess.run(
            [binary, "--version"], capture_output=True, timeout=10, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = (done.stdout + done.stderr).decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if any(c.isdigit() for c in line)]
    said = next((line for line in lines if "version" in line.lower()), lines[0] if lines else None)
    return said if done.returncode == 0 else None


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
    rows += [("problem", text) for text in found["problems"]]
    for name, text in rows:
        print(f"{name:<14} {clean(text, 4000)}")
