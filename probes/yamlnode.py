"""YAML nodes that know where they stand, so that a complaint names file, line, key and what is legal."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from probes.recipe import Refused

SHOWN = 20
"""Legal words that fit a complaint of one line."""


@dataclass(frozen=True, slots=True)
class Node:
    """A YAML node that knows where it stands, so that each complaint can say so."""

    where: str
    node: yaml.Node
    key: str

    @property
    def line(self) -> int:
        """The line in the file, from 1."""
        return int(self.node.start_mark.line) + 1

    def refuse(self, what: str) -> Refused:
        """A complaint about this place, to raise."""
        key = f" {self.key}:" if self.key else ""
        return Refused(" ".join(f"{self.where}:{self.line}:{key} {what}".split()))

    def plain(self) -> Any:
        """The node as plain Python values."""
        loader = yaml.SafeLoader("")
        try:
            return loader.construct_document(self.node)
        except (yaml.YAMLError, ValueError, RecursionError) as problem:
            raise self.refuse(f"not a plain value ({getattr(problem, 'problem', problem)})") from problem
        finally:
            loader.dispose()

    def mapping(self, legal: Sequence[str] | None = None) -> dict[str, Node]:
        """The children by key; unknown keys (where `legal` is given) and repeated keys are refused."""
        if not isinstance(self.node, yaml.MappingNode):
            raise self.refuse("must be a mapping")
        found: dict[str, Node] = {}
        for key_node, value_node in self.node.value:
            name = str(key_node.value)
            inner = Node(self.where, value_node, f"{self.key}.{name}".lstrip("."))
            at = Node(self.where, key_node, inner.key)
            if legal is not None and name not in legal:
                raise at.refuse(f"no such key; {nearest(name, legal)}")
            if name in found:
                raise at.refuse("is given twice")
            found[name] = inner
        return found

    def items(self) -> list[Node]:
        """The children of a list."""
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.refuse("must be a list")
        return [Node(self.where, n, f"{self.key}[{i}]") for i, n in enumerate(self.node.value)]

    def text(self) -> str:
        """A text that is not empty."""
        value = self.plain()
        if not isinstance(value, str) or not value or "\x00" in value:
            raise self.refuse(f"must be a text, not {value!r}")
        return value

    def integer(self, low: int, high: int) -> int:
        """A whole number within bounds."""
        value = self.plain()
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.refuse(f"must be a whole number from {low} to {high}, not {value!r}")
        return value

    def number(self, low: float, high: float) -> float:
        """A number within bounds."""
        value = self.plain()
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise self.refuse(f"must be a number from {low:g} to {high:g}, not {value!r}")
        return float(value)

    def boolean(self) -> bool:
        """True or false."""
        value = self.plain()
        if not isinstance(value, bool):
            raise self.refuse(f"must be true or false, not {value!r}")
        return value

    def choice(self, legal: Sequence[str]) -> str:
        """One of some words."""
        value = self.plain()
        if value not in legal:
            raise self.refuse(f"{value!r} is not legal here; {nearest(str(value), legal)}")
        return str(value)


def nearest(name: str, legal: Sequence[str] | Mapping[str, Any]) -> str:
    """What may have been meant, and what is legal, in words."""
    close = difflib.get_close_matches(name, list(legal), n=1, cutoff=0.5)
    shown = ", ".join(list(legal)[:SHOWN]) + (f" and {len(legal) - SHOWN} more" if len(legal) > SHOWN else "")
    if close:
        return f"did you mean {close[0]!r}? Legal: {shown}"
    return f"legal: {shown}"
