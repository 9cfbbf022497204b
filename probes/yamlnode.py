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
VALUE_SHOWN = 80
"""Letters of a wrong value that fit a complaint."""
NODES_MOST = 20_000
"""Values that a file may come to once its aliases are followed: a few lines of them can stand for billions."""
DEEPEST = 40


def brief(value: Any) -> str:
    """A wrong value for a complaint, never longer than a glance."""
    text = repr(value)
    return text if len(text) <= VALUE_SHOWN else f"{text[:VALUE_SHOWN]}…"


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
        except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError) as problem:
            # The reader's own tags (`!!int`, `!!timestamp`, …) trip over a text that is none.
            what = getattr(problem, "problem", None) or f"{brief(str(self.node.value))} is none"
            raise self.refuse(f"not a plain value ({what})") from problem
        finally:
            loader.dispose()

    def mapping(self, legal: Sequence[str] | None = None) -> dict[str, Node]:
        """The children by key; unknown keys (where `legal` is given) and repeated keys are refused."""
        if not isinstance(self.node, yaml.MappingNode):
            raise self.refuse("must be a mapping")
        found: dict[str, Node] = {}
        for key_node, value_node in self.node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise Node(self.where, key_node, self.key).refuse("a key must be a word, not a list or a mapping")
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
            raise self.refuse(f"must be a text, not {brief(value)}")
        return value

    def integer(self, low: int, high: int) -> int:
        """A whole number within bounds."""
        value = self.plain()
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.refuse(f"must be a whole number from {low} to {high}, not {brief(value)}")
        return value

    def number(self, low: float, high: float) -> float:
        """A number within bounds."""
        value = self.plain()
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise self.refuse(f"must be a number from {low:g} to {high:g}, not {brief(value)}")
        return float(value)

    def boolean(self) -> bool:
        """True or false."""
        value = self.plain()
        if not isinstance(value, bool):
            raise self.refuse(f"must be true or false, not {brief(value)}")
        return value

    def choice(self, legal: Sequence[str]) -> str:
        """One of some words."""
        value = self.plain()
        if value not in legal:
            raise self.refuse(f"{brief(value)} is not legal here; {nearest(str(value), legal)}")
        return str(value)


def sound(top: Node) -> None:
    """Refuse what no preset needs and what would harm later: aliases that multiply or hold themselves, values nested
    beyond use, and characters that neither a command line nor a file can hold.
    """
    sizes: dict[int, int] = {}
    open_now: set[int] = set()

    def size(node: yaml.Node, deep: int) -> int:
        if id(node) in sizes:
            return sizes[id(node)]
        here = Node(top.where, node, "")
        if id(node) in open_now:
            raise here.refuse("an alias stands for itself")
        if deep > DEEPEST:
            raise here.refuse(f"nested deeper than {DEEPEST}")
        if isinstance(node, yaml.ScalarNode):
            if bad := next((c for c in node.value if c == "\0" or "\ud800" <= c <= "\udfff"), None):
                raise here.refuse(f"the character U+{ord(bad):04X} can't be used")
            return 1
        open_now.add(id(node))
        inner = [part for pair in node.value for part in (pair if isinstance(pair, tuple) else (pair,))]
        whole = 1 + sum(size(part, deep + 1) for part in inner)
        open_now.discard(id(node))
        if whole > NODES_MOST:
            raise here.refuse(f"comes to {whole:,} values, with aliases followed; at most {NODES_MOST:,}")
        sizes[id(node)] = whole
        return whole

    size(top.node, 0)


def nearest(name: str, legal: Sequence[str] | Mapping[str, Any]) -> str:
    """What may have been meant, and what is legal, in words."""
    close = difflib.get_close_matches(name[:VALUE_SHOWN], list(legal), n=1, cutoff=0.5)
    shown = ", ".join(list(legal)[:SHOWN]) + (f" and {len(legal) - SHOWN} more" if len(legal) > SHOWN else "")
    if close:
        return f"did you mean {close[0]!r}? Legal: {shown}"
    return f"legal: {shown}"
