"""The keys of a preset that stand for themselves: fixed flags, environment, address, load, limits, simulation.

Each reads one node and refuses with its place; what a value means to an engine is not judged here.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from probes.events import CATEGORIES
from probes.recipe import SIMULATOR, Limits, Workload
from probes.yamlnode import Node, brief

OPTION = re.compile(r"--?[A-Za-z][^\s]*")
"""A flag as on a command line: `-c`, `--ctx-size`, `--speculative-config.model`."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*", re.ASCII)
HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_.])?", re.ASCII)
"""A name or an IPv4 address as the server is told it: no scheme, no port."""
OURS = ("model", "messages", "stream", "stream_options")
"""Keys of a request that the measurement rests on: `workload.extra` may not replace them."""


def option(node: Node, name: str) -> str:
    """A flag's name. Raises `Refused`."""
    if not OPTION.fullmatch(name):
        raise node.refuse(f"a flag starts with '-' as on the command line, not {brief(name)}")
    return name


def flags(node: Node | None) -> dict[str, Any]:
    """Fixed flags: option -> text, number, true, or a list of texts and numbers."""
    if node is None:
        return {}
    found: dict[str, Any] = {}
    for name, child in node.mapping().items():
        value = child.plain()
        many = value if isinstance(value, list) and value else [value]
        if not all(isinstance(v, str | int) or (isinstance(v, float) and math.isfinite(v)) for v in many):
            raise child.refuse(f"must be a text, a number, true, or a list of those, not {brief(value)}")
        found[option(child, name)] = value
    return found


def env(node: Node | None) -> dict[str, str]:
    """Environment variables of the server. Only texts and numbers: what YAML makes of `yes` is not what was written."""
    if node is None:
        return {}
    found = {}
    for name, child in node.mapping().items():
        if not VARIABLE.fullmatch(name):
            raise child.refuse("is no name of an environment variable: letters, digits and _, as CUDA_VISIBLE_DEVICES")
        value = child.plain()
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise child.refuse("must be a text or a number; put quotes around it if it is meant as a text")
        found[name] = str(value)
    return found


def variable(node: Node | None) -> str | None:
    """The name of an environment variable."""
    if node is None:
        return None
    name = node.text()
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise node.refuse("must be the name of an environment variable, such as VLLM_API_KEY; never the key itself")
    return name


def host(node: Node | None) -> str:
    """The address that the server binds to."""
    if node is None:
        return "127.0.0.1"
    found = node.text()
    if not HOST.fullmatch(found) and not _is_ipv6(found):
        raise node.refuse(f"must be a name or an address alone, as 127.0.0.1 or ::1, not {brief(found)}")
    return found


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def port(node: Node | None) -> int | None:
    """A port, or None for a free one at each start."""
    if node is None or node.plain() == "auto":
        return None
    value = node.plain()
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 65535:
        raise node.refuse(f"must be auto or a whole number from 1 to 65535, not {brief(value)}")
    return value


def model(node: Node) -> str:
    """The model; one that looks like an option would be taken for one."""
    found = node.text()
    if found.startswith("-"):
        raise node.refuse(f"must be a path or a name, not the option {brief(found)}; ./{brief(found)[1:-1]} is a file")
    return found


def workload(node: Node | None) -> Workload:
    """The load that is sent."""
    if node is None:
        return Workload()
    keys = node.mapping([f.name for f in fields(Workload)])
    found: dict[str, Any] = {}
    if "categories" in keys:
        items = keys["categories"].items()
        names = tuple(c.text() if "prompts_file" in keys else c.choice(CATEGORIES) for c in items)
        if not names:
            raise keys["categories"].refuse("name at least one category")
        if twice := [c for c, name in zip(items, names, strict=True) if names.count(name) > 1]:
            raise twice[-1].refuse("is named twice")
        found["categories"] = names
    for name, low, high in (("prompts_per_category", 1, 64), ("max_tokens", 1, 1_000_000), ("concurrency", 1, 4096)):
        if name in keys:
            found[name] = keys[name].integer(low, high)
    if "temperature" in keys:
        found["temperature"] = keys["temperature"].number(0, 5)
    if "prompts_file" in keys:
        found["prompts_file"] = keys["prompts_file"].text()
    if "extra" in keys:
        found["extra"] = _extra(keys["extra"])
    return Workload(**found)


def _extra(node: Node) -> dict[str, Any]:
    """What is added to each request: anything that JSON can say."""
    for name, child in node.mapping().items():
        if name in OURS:
            raise child.refuse(f"is set by the measurement; extra may hold anything but {', '.join(OURS)}")
        if not _is_json(child.plain()):
            raise child.refuse("must be what JSON can say: texts, numbers, true, false, null, lists and mappings")
    return {str(name): value for name, value in node.plain().items()}


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(k, str) and _is_json(v) for k, v in value.items())
    if isinstance(value, list):
        return all(_is_json(v) for v in value)
    if isinstance(value, int) and not isinstance(value, bool):
        return -(2**63) <= value < 2**64
    return value is None or isinstance(value, str | bool) or (isinstance(value, float) and math.isfinite(value))


def simulated(keys: Mapping[str, Node]) -> bool:
    """What comes from the simulated engine is always marked so, and nothing else is."""
    ours = keys["binary"].text() == SIMULATOR
    told = keys["simulated"].boolean() if "simulated" in keys else ours
    if told != ours:
        why = f"binary {SIMULATOR} is the simulated engine: simulated must be true"
        raise keys["simulated"].refuse(why if ours else f"only binary '{SIMULATOR}' is simulated: must be false")
    if "simulation" in keys and not ours:
        raise keys["simulation"].refuse(f"is only for binary: '{SIMULATOR}'")
    return told


def simulation(node: Node | None) -> dict[str, Any]:
    """How the simulated engine is to behave; the names in it are judged by it, at its start."""
    if node is None:
        return {}
    keys = node.mapping(("table", "speed", "seed", "noise", "fault"))
    found: dict[str, Any] = {}
    for name in ("table", "seed", "fault"):
        if name in keys:
            value = keys[name].plain()
            if isinstance(value, bool) or not isinstance(value, str | int):
                raise keys[name].refuse(f"must be a text or a whole number, not {brief(value)}")
            found[name] = str(value)
    if "speed" in keys:
        found["speed"] = keys["speed"].number(0.01, 10_000)
    if "noise" in keys:
        found["noise"] = {name: child.number(-10, 86400) for name, child in keys["noise"].mapping().items()}
    return found


def limits(node: Node | None) -> Limits:
    """Seconds that things may take."""
    if node is None:
        return Limits()
    keys = node.mapping([f.name for f in fields(Limits)])
    return Limits(**{name: child.number(0.1, 86400) for name, child in keys.items()})


def launcher_options(node: Node | None) -> dict[str, Any]:
    """What a launcher needs; which keys it has, it says itself."""
    if node is None:
        return {}
    node.mapping()
    found: dict[str, Any] = node.plain()
    return found
