"""Reads a preset: YAML to a `Recipe`, with every complaint on one line naming file, line, key and what is legal.

Only structure is judged here. Whether an engine accepts a value is decided by that engine before a start.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import yaml

from probes import engines, launch
from probes.events import CATEGORIES
from probes.recipe import SIMULATOR, Dial, Knob, Limits, Recipe, Refused, Workload
from probes.yamlnode import Node, nearest

DEPTHS_MAX = 64
KNOB_TYPES = ("int", "float", "bool", "choice", "text")
CHANGES = ("speed", "memory", "numerics", "policy", "placement", "logging")
LAUNCHERS = ("docker", "podman", "ssh", "srun")


def folders() -> list[Path]:
    """Where presets are looked for by name: the person's own first, then those that came with the program."""
    here = Path(__file__).resolve().parent
    shipped = here / "_presets"
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return [config / "draftdial" / "presets", shipped if shipped.is_dir() else here.parent / "presets"]


def find(name: str) -> Path:
    """The file of a preset given by name or path; raises `Refused` naming the nearest one."""
    if "/" in name or name.endswith((".yaml", ".yml")):
        path = Path(name).expanduser()
        if not path.is_file():
            raise Refused(f"{name}: no such preset file")
        return path
    there = listing()
    if name in there:
        return there[name]
    raise Refused(f"no preset {name!r}; {nearest(name, there)}")


def listing() -> dict[str, Path]:
    """Every preset by name; a person's own hides a shipped one of the same name."""
    found: dict[str, Path] = {}
    for folder in reversed(folders()):
        if folder.is_dir():
            found.update({p.stem: p for p in sorted(folder.glob("*.yaml"))})
    return dict(sorted(found.items()))


def load(name: str) -> Recipe:
    """The recipe of a preset given by name or path. Raises `Refused` with one line."""
    path = find(name)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise Refused(f"{path}: cannot be read: {problem}") from problem
    return parse(text, str(path))


def parse(text: str, where: str) -> Recipe:
    """A preset's text as a recipe; `where` names it in complaints."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ":1"
        what = " ".join(str(getattr(problem, "problem", None) or problem).split())
        raise Refused(f"{where}{line}: not YAML: {what}") from problem
    except RecursionError as problem:
        raise Refused(f"{where}: nested too deep") from problem
    if not isinstance(node, yaml.MappingNode):
        raise Refused(f"{where}:1: a preset is a mapping of keys such as engine, model and dial")
    return _recipe(Node(where, node, ""))


TOP = (
    "name", "title", "engine", "binary", "model", "model_id", "flags", "env", "dial", "knobs", "host", "port",
    "workload", "limits", "launcher", "launcher_options", "simulated", "simulation", "notes",
)  # fmt: skip


def _recipe(top: Node) -> Recipe:
    """The whole preset."""
    keys = top.mapping(TOP)
    for need in ("engine", "binary", "model", "dial"):
        if need not in keys:
            raise top.refuse(f"key {need!r} is missing; needed: engine, binary, model, dial")
    engine = engines.engine(keys["engine"].choice(engines.names()))
    knobs, settings = _knobs(keys.get("knobs"), engine.knobs)
    text = {k: keys[k].text() for k in ("title", "model_id", "notes") if k in keys}
    launcher = keys["launcher"].choice(LAUNCHERS) if "launcher" in keys else None
    recipe = Recipe(
        name=keys["name"].text() if "name" in keys else Path(top.where).stem,
        path=top.where,
        engine=engine.name,
        binary=keys["binary"].text(),
        model=keys["model"].text(),
        dial=_dial(keys["dial"], engine),
        flags=_flags(keys.get("flags")),
        env=_env(keys.get("env")),
        knobs=knobs,
        settings=settings,
        host=keys["host"].text() if "host" in keys else "127.0.0.1",
        port=_port(keys.get("port")),
        workload=_workload(keys.get("workload")),
        limits=_limits(keys.get("limits")),
        launcher=launcher,
        launcher_options=keys["launcher_options"].plain() if "launcher_options" in keys else {},
        simulated=_simulated(keys),
        simulation=_simulation(keys.get("simulation")),
        **text,
    )
    if recipe.launcher_options and not isinstance(recipe.launcher_options, dict):
        raise keys["launcher_options"].refuse("must be a mapping")
    launch.check(recipe)
    return recipe


def _flags(node: Node | None) -> dict[str, Any]:
    """Fixed flags: option -> text, number, true, or a list of texts and numbers."""
    if node is None:
        return {}
    found: dict[str, Any] = {}
    for name, child in node.mapping().items():
        if not name.startswith("-") or any(c.isspace() for c in name):
            raise child.refuse(f"a flag starts with '-' as on the command line, not {name!r}")
        value = child.plain()
        many = value if isinstance(value, list) else [value]
        if not all(isinstance(v, (str, int, float)) for v in many):
            raise child.refuse(f"must be a text, a number, true, or a list of those, not {value!r}")
        found[name] = value
    return found


def _env(node: Node | None) -> dict[str, str]:
    if node is None:
        return {}
    return {name: str(child.plain()) for name, child in node.mapping().items()}


def _port(node: Node | None) -> int | None:
    if node is None or node.plain() == "auto":
        return None
    return node.integer(1, 65535)


def _values(node: Node) -> tuple[int, ...]:
    """Depths as `0-8`, `[0, 2, 4]` or `0,2,4`: ascending, no repeats."""
    raw = node.plain()
    try:
        found = depths(raw) if isinstance(raw, str) else tuple(raw)
    except (TypeError, ValueError):
        found = ()
    whole = all(isinstance(v, int) and not isinstance(v, bool) and 0 <= v <= 1024 for v in found)
    if not found or not whole or list(found) != sorted(set(found)) or len(found) > DEPTHS_MAX:
        raise node.refuse(f"must be depths in rising order, as 0-8 or [0, 2, 4], not {raw!r}")
    return found


def depths(text: str) -> tuple[int, ...]:
    """`0-3,6` as (0, 1, 2, 3, 6). Raises ValueError on anything else."""
    found: list[int] = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        first, last = int(low), int(high) if dash else int(low)
        if not 0 <= first <= last <= 1024:
            raise ValueError(text)
        found.extend(range(first, last + 1))
    return tuple(sorted(set(found)))


def _dial(node: Node, engine: engines.Engine) -> Dial:
    keys = node.mapping(("kind", "values", "start", "label", "flags"))
    for need in ("kind", "values"):
        if need not in keys:
            raise node.refuse(f"key {need!r} is missing; needed: kind, values")
    values = _values(keys["values"])
    dial = Dial(
        kind=keys["kind"].text(),
        values=values,
        start=keys["start"].integer(0, 1024) if "start" in keys else values[0],
        label=keys["label"].text() if "label" in keys else "draft depth",
        flags=_flags(keys.get("flags")),
    )
    if dial.start not in values:
        raise keys["start"].refuse(f"{dial.start} is not on the dial: {', '.join(map(str, values))}")
    try:
        legal = engine.dial_range(dial)
    except Refused as problem:
        raise keys["kind"].refuse(str(problem)) from problem
    if legal and (bad := [v for v in values if v and not legal[0] <= v <= legal[1]]):
        low, high = legal
        raise keys["values"].refuse(
            f"{bad[0]} is no depth of {engine.title} with {dial.kind}: {max(low, 1)} to {high}, or 0 for none"
        )
    return dial


def _knobs(node: Node | None, known: Sequence[Knob]) -> tuple[tuple[Knob, ...], dict[str, Any]]:
    """The knobs to show, and their starting values: names of the engine's knobs, or whole knobs of the preset's own."""
    by_name = {k.name: k for k in known}
    shown: list[Knob] = []
    settings: dict[str, Any] = {}
    for child in node.items() if node else []:
        if isinstance(child.node, yaml.ScalarNode):
            shown.append(by_name[child.choice(list(by_name))])
            continue
        keys = child.mapping(
            ("name", "flag", "type", "choices", "low", "high", "changes", "rule", "also", "help", "start")
        )
        if "name" not in keys:
            raise child.refuse("a knob needs a name")
        name = keys["name"].text()
        if name not in by_name and not {"flag", "type"} <= keys.keys():
            raise keys["name"].refuse(f"no knob of this engine, so it needs flag and type; {nearest(name, by_name)}")
        knob = by_name.get(name) or Knob(name, "", "text")
        shown.append(replace(knob, **_knob_parts(keys)))
        if "start" in keys:
            value = keys["start"].plain()
            if problem := illegal(shown[-1], value):
                raise keys["start"].refuse(problem)
            settings[name] = value
    return tuple(shown), settings


def _knob_parts(keys: Mapping[str, Node]) -> dict[str, Any]:
    """What a preset says of a knob, over what the engine says."""
    reads: dict[str, Callable[[Node], Any]] = {
        "flag": Node.text,
        "type": lambda n: n.choice(KNOB_TYPES),
        "choices": lambda n: tuple(c.plain() for c in n.items()),
        "low": lambda n: n.number(-1e18, 1e18),
        "high": lambda n: n.number(-1e18, 1e18),
        "changes": lambda n: tuple(c.choice(CHANGES) for c in n.items()),
        "rule": Node.text,
        "also": Node.text,
        "help": Node.text,
    }
    return {name: read(keys[name]) for name, read in reads.items() if name in keys}


def illegal(knob: Knob, value: Any) -> str | None:
    """Why a value cannot be given to a knob, in one line with what is legal; None when it can."""
    rule = f" ({knob.rule})" if knob.rule else ""
    if knob.type == "bool":
        return None if isinstance(value, bool) else f"{knob.name} must be true or false, not {value!r}{rule}"
    if knob.type == "choice":
        if value in knob.choices:
            return None
        return f"{knob.name} {value!r} is none of {', '.join(map(str, knob.choices))}{rule}"
    if knob.type == "text":
        fits = isinstance(value, (str, int, float)) and not isinstance(value, bool) and "\x00" not in str(value)
        return None if fits else f"{knob.name} must be a text, not {value!r}"
    kind = (int,) if knob.type == "int" else (int, float)
    low = "" if knob.low is None else f" from {knob.low:g}"
    high = "" if knob.high is None else f" to {knob.high:g}"
    span = f"{'a whole number' if knob.type == 'int' else 'a number'}{low}{high}"
    if knob.choices and value in knob.choices:
        return None
    fits = isinstance(value, kind) and not isinstance(value, bool) and math.isfinite(value)
    if not fits or (knob.low is not None and value < knob.low) or (knob.high is not None and value > knob.high):
        return f"{knob.name} must be {span}, not {value!r}{rule}"
    return None


def setting(recipe: Recipe, text: str) -> tuple[str, Any]:
    """`knob=value` from a command line as (name, typed value). Raises `Refused` with what is legal."""
    name, equals, raw = text.partition("=")
    known = {k.name: k for k in (*engines.engine(recipe.engine).knobs, *recipe.knobs)}
    if not equals:
        raise Refused(f"--set {text}: write knob=value")
    if name in {"depth", "draft-depth"}:
        if not raw.isdigit() or int(raw) not in recipe.dial.values:
            raise Refused(f"{name}={raw}: the dial has {', '.join(map(str, recipe.dial.values))}")
        return "depth", int(raw)
    if name not in known:
        raise Refused(f"no knob {name!r}; {nearest(name, known)}")
    value = typed(known[name], raw)
    if problem := illegal(known[name], value):
        raise Refused(problem)
    return name, value


def typed(knob: Knob, raw: str) -> Any:
    """A knob's value from what a person typed; the text itself where it does not read as the knob's type."""
    if knob.type == "bool":
        return {
            "true": True,
            "on": True,
            "yes": True,
            "1": True,
            "false": False,
            "off": False,
            "no": False,
            "0": False,
        }.get(raw.lower(), raw)
    for read in {"int": (int,), "float": (int, float), "choice": (str, int, float)}.get(knob.type, ()):
        try:
            value = read(raw)
        except ValueError:
            continue
        if knob.type != "choice" or value in knob.choices:
            return value
    return raw


def _workload(node: Node | None) -> Workload:
    if node is None:
        return Workload()
    keys = node.mapping([f.name for f in fields(Workload)])
    found: dict[str, Any] = {}
    if "categories" in keys:
        names = tuple(c.text() if "prompts_file" in keys else c.choice(CATEGORIES) for c in keys["categories"].items())
        if not names:
            raise keys["categories"].refuse("name at least one category")
        found["categories"] = names
    for name, low, high in (("prompts_per_category", 1, 64), ("max_tokens", 1, 1_000_000), ("concurrency", 1, 4096)):
        if name in keys:
            found[name] = keys[name].integer(low, high)
    if "temperature" in keys:
        found["temperature"] = keys["temperature"].number(0, 5)
    if "prompts_file" in keys:
        found["prompts_file"] = keys["prompts_file"].text()
    if "extra" in keys:
        keys["extra"].mapping()
        found["extra"] = keys["extra"].plain()
    return Workload(**found)


def _simulated(keys: Mapping[str, Node]) -> bool:
    """What comes from the simulated engine is always marked so."""
    told = keys["simulated"].boolean() if "simulated" in keys else keys["binary"].text() == SIMULATOR
    if keys["binary"].text() == SIMULATOR and not told:
        raise keys["simulated"].refuse(f"binary {SIMULATOR} is the simulated engine: simulated must be true")
    if "simulation" in keys and keys["binary"].text() != SIMULATOR:
        raise keys["simulation"].refuse(f"is only for binary: '{SIMULATOR}'")
    return told


def _simulation(node: Node | None) -> dict[str, Any]:
    if node is None:
        return {}
    keys = node.mapping(("table", "speed", "seed", "noise", "fault"))
    found: dict[str, Any] = {k: str(keys[k].plain()) for k in ("table", "seed", "fault") if k in keys}
    if "speed" in keys:
        found["speed"] = keys["speed"].number(0.01, 10_000)
    if "noise" in keys:
        found["noise"] = {name: child.number(-10, 86400) for name, child in keys["noise"].mapping().items()}
    return found


def _limits(node: Node | None) -> Limits:
    if node is None:
        return Limits()
    keys = node.mapping([f.name for f in fields(Limits)])
    return Limits(**{name: child.number(0.1, 86400) for name, child in keys.items()})
