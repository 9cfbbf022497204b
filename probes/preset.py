"""Reads a preset: YAML to a `Recipe`, with every complaint on one line naming file, line, key and what is legal.

Only structure is judged here. Whether an engine accepts a value is decided by that engine before a start.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from probes import engines, launch, presetkeys
from probes.masking import secret_name
from probes.recipe import Dial, Knob, Recipe, Refused
from probes.yamlnode import Node, brief, nearest, sound

DEPTHS_MAX = 64
DEEPEST = 1024
BYTES_MOST = 1 << 18
"""A preset is a page of text; whatever is larger was named by mistake."""
LARGEST = 2**63
"""No engine counts further."""
KNOB_NAME = re.compile(r"[A-Za-z_][\w-]*")
DEPTH = ("depth", "draft-depth")
"""How `--set` calls the dial, so that no knob may be called so."""
KNOB_TYPES = ("int", "float", "bool", "choice", "text")
CHANGES = ("speed", "memory", "numerics", "policy", "placement", "logging")
LAUNCHERS = ("docker", "podman", "ssh", "srun")


def folders() -> list[Path]:
    """Where presets are looked for by name: the person's own first, then those that came with the program."""
    here = Path(__file__).resolve().parent
    shipped = here / "_presets"
    config = Path(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"))  # noqa: PTH111  (never raises)
    return [config / "draftdial" / "presets", shipped if shipped.is_dir() else here.parent / "presets"]


def find(name: str) -> Path:
    """The file of a preset given by name or path; raises `Refused` naming the nearest one."""
    if "/" in name or name.endswith((".yaml", ".yml")):
        path = Path(os.path.expanduser(name))  # noqa: PTH111  (leaves a user that there is not as it stands)
        if not os.path.isfile(path):  # noqa: PTH113  (says no to a name that no file can have)
            raise Refused(f"{name}: {'a folder, not a' if os.path.isdir(path) else 'no such'} preset file")  # noqa: PTH112
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
        with path.open("rb") as file:
            data = file.read(BYTES_MOST + 1)
    except OSError as problem:
        raise Refused(f"{path}: cannot be read: {problem.strerror or problem}") from problem
    if len(data) > BYTES_MOST:
        raise Refused(f"{path}: too large for a preset, which has at most {BYTES_MOST >> 10} KiB")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise Refused(f"{path}:{line}: not UTF-8 text (byte 0x{data[problem.start]:02x})") from problem
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
    top = Node(where, node, "")
    sound(top)
    return _recipe(top)


TOP = (
    "name", "title", "engine", "binary", "model", "model_id", "api_key_env", "flags", "env", "dial", "knobs", "host",
    "port", "workload", "limits", "launcher", "launcher_options", "simulated", "simulation", "notes",
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
        model=presetkeys.model(keys["model"]),
        dial=_dial(keys["dial"], engine),
        flags=presetkeys.flags(keys.get("flags")),
        env=presetkeys.env(keys.get("env")),
        knobs=knobs,
        settings=settings,
        host=presetkeys.host(keys.get("host")),
        port=presetkeys.port(keys.get("port")),
        workload=presetkeys.workload(keys.get("workload")),
        limits=presetkeys.limits(keys.get("limits")),
        api_key_env=presetkeys.variable(keys.get("api_key_env")),
        launcher=launcher,
        launcher_options=presetkeys.launcher_options(keys.get("launcher_options")),
        simulated=presetkeys.simulated(keys),
        simulation=presetkeys.simulation(keys.get("simulation")),
        **text,
    )
    try:
        launch.check(recipe)
    except Refused as problem:
        at = keys.get("launcher_options") or keys["launcher"]
        raise at.refuse(str(problem).removeprefix(f"{recipe.path}: ")) from problem
    return recipe


def _values(node: Node) -> tuple[int, ...]:
    """Depths as `0-8`, `[0, 2, 4]` or `0,2,4`: ascending, no repeats."""
    raw = node.plain()
    listed = isinstance(raw, list) and all(isinstance(v, int) and not isinstance(v, bool) for v in raw)
    try:
        found = depths(raw) if isinstance(raw, str) else tuple(raw) if listed else ()
    except ValueError:
        found = ()
    if not found or list(found) != sorted(set(found)) or not 0 <= found[0] <= found[-1] <= DEEPEST:
        raise node.refuse(f"must be depths in rising order from 0 to {DEEPEST}, as 0-8 or [0, 2, 4], not {brief(raw)}")
    if len(found) > DEPTHS_MAX:
        raise node.refuse(f"must be at most {DEPTHS_MAX} depths, not {len(found)}; name those to be compared, as 0,2,4")
    return found


def depths(text: str) -> tuple[int, ...]:
    """`0-3,6` as (0, 1, 2, 3, 6). Raises ValueError on anything else."""
    found: list[int] = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        first, last = int(low), int(high) if dash else int(low)
        if not 0 <= first <= last <= DEEPEST:
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
        start=keys["start"].integer(0, DEEPEST) if "start" in keys else values[0],
        label=keys["label"].text() if "label" in keys else "draft depth",
        flags=presetkeys.flags(keys.get("flags")),
    )
    if dial.start not in values:
        raise keys["start"].refuse(f"{dial.start} is not on the dial: {', '.join(map(str, values))}")
    try:
        legal = engine.dial_range(dial)
    except Refused as problem:
        raise keys["kind"].refuse(str(problem).removeprefix("dial: ")) from problem
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
        else:
            shown.append(_own_knob(child, by_name))
            keys = child.mapping()
            if "start" in keys:
                value = keys["start"].plain()
                if problem := illegal(shown[-1], value):
                    raise keys["start"].refuse(problem)
                settings[shown[-1].name] = value
        if sum(k.name == shown[-1].name for k in shown) > 1:
            raise child.refuse(f"knob {shown[-1].name} is given twice")
    return tuple(shown), settings


def _own_knob(child: Node, by_name: Mapping[str, Knob]) -> Knob:
    """A knob that a preset changes or adds."""
    keys = child.mapping(("name", "flag", "type", "choices", "low", "high", "changes", "rule", "also", "help", "start"))
    if "name" not in keys:
        raise child.refuse("a knob needs a name")
    name = keys["name"].text()
    if name not in by_name and not {"flag", "type"} <= keys.keys():
        raise keys["name"].refuse(f"no knob of this engine, so it needs flag and type; {nearest(name, by_name)}")
    if not KNOB_NAME.fullmatch(name) or name in DEPTH:
        raise keys["name"].refuse(f"must be one word of letters, digits and _, and not {DEPTH[0]}, not {brief(name)}")
    knob = replace(by_name.get(name) or Knob(name, "", "text"), **_knob_parts(keys))
    if "flag" in keys:
        presetkeys.option(keys["flag"], knob.flag)
        if knob.flag in {"--host", "--port"}:
            raise keys["flag"].refuse(f"{knob.flag} is set by `{knob.flag[2:]}:` of the preset")
        if secret_name(knob.flag):
            raise keys["flag"].refuse("holds a secret, which is no knob: set it in the environment that you start from")
    if knob.type == "choice" and not (knob.choices and all(isinstance(c, str | int | float) for c in knob.choices)):
        raise (keys.get("choices") or child).refuse("a choice needs choices, a list of texts or numbers")
    if knob.low is not None and knob.high is not None and knob.low > knob.high:
        raise (keys.get("low") or keys["high"]).refuse(f"low {knob.low:g} is above high {knob.high:g}")
    return knob


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
        return None if isinstance(value, bool) else f"{knob.name} must be true or false, not {brief(value)}{rule}"
    if knob.type == "choice":
        if value in knob.choices:
            return None
        return f"{knob.name} {brief(value)} is none of {', '.join(map(str, knob.choices))}{rule}"
    if knob.type == "text":
        fits = isinstance(value, (str, int, float)) and not isinstance(value, bool) and "\x00" not in str(value)
        return None if fits else f"{knob.name} must be a text, not {brief(value)}"
    kind = (int,) if knob.type == "int" else (int, float)
    low = "" if knob.low is None else f" from {knob.low:g}"
    high = "" if knob.high is None else f" to {knob.high:g}"
    span = f"{'a whole number' if knob.type == 'int' else 'a number'}{low}{high}"
    if knob.choices and value in knob.choices:
        return None
    fits = isinstance(value, kind) and not isinstance(value, bool) and -LARGEST < value < LARGEST
    if not fits or (knob.low is not None and value < knob.low) or (knob.high is not None and value > knob.high):
        return f"{knob.name} must be {span}, not {brief(value)}{rule}"
    return None


def accept(recipe: Recipe, depths: Iterable[int], chosen: Mapping[str, Any] | None = None) -> None:
    """Ask the engine whether it takes every one of these depths, with `chosen` over the preset's own settings.

    So that nothing is refused after an hour of measuring. Raises `Refused` with the place in the preset, or, where
    only what was chosen is at fault, without one.
    """
    command = engines.engine(recipe.engine).command
    taken = False
    for depth in depths:
        try:
            command(recipe, {**recipe.settings, **(chosen or {})}, depth, recipe.port or 1)
        except Refused as problem:
            text = str(problem) + (f" (at depth {depth})" if taken and f"depth {depth}" not in str(problem) else "")
            if chosen and _takes(recipe, depth):
                raise Refused(text) from problem
            raise Refused(f"{recipe.path}:{_line(recipe.path, text)}: {text}") from problem
        taken = True


def _takes(recipe: Recipe, depth: int) -> bool:
    """Whether the engine takes the preset as it stands."""
    try:
        engines.engine(recipe.engine).command(recipe, recipe.settings, depth, recipe.port or 1)
    except Refused:
        return False
    return True


def _line(path: str, text: str) -> int:
    """The line of a preset that a complaint of its engine is about: of the first option, knob or key named in it."""
    try:
        tree = yaml.compose(Path(path).read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        top = Node(path, tree or yaml.MappingNode("", []), "").mapping()
        dial = top["dial"].mapping()
        places = {**_keys(dial.get("flags")), **_keys(top.get("flags")), **_keys(top.get("env"))}
        for item in top["knobs"].items() if "knobs" in top else ():
            named = item if isinstance(item.node, yaml.ScalarNode) else item.mapping()["name"]
            places[str(named.plain())] = named.line
        places = {**{name: node.line for name, node in top.items()}, **places}
    except (OSError, UnicodeDecodeError, yaml.YAMLError, Refused, KeyError):
        return 1
    words = re.findall(r"--?[A-Za-z][\w.-]*|\w+", text)
    return next((places[w] for w in words if w in places), 1)


def _keys(node: Node | None) -> dict[str, int]:
    return {name: child.line for name, child in node.mapping().items()} if node else {}


def setting(recipe: Recipe, text: str) -> tuple[str, Any]:
    """`knob=value` from a command line as (name, typed value). Raises `Refused` with what is legal."""
    name, equals, raw = text.partition("=")
    known = {k.name: k for k in (*engines.engine(recipe.engine).knobs, *recipe.knobs)}
    if not equals:
        raise Refused(f"{brief(text)}: write knob=value")
    if name in DEPTH:
        if not re.fullmatch(r"[0-9]{1,9}", raw) or int(raw) not in recipe.dial.values:
            raise Refused(f"{name}={raw}: the dial has {', '.join(map(str, recipe.dial.values))}")
        return DEPTH[0], int(raw)
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
