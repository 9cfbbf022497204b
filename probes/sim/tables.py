"""What a simulated machine costs and accepts: step times, prefill rates, survival curves. Read from YAML, checked once.

Nothing here knows an engine; the figures' origins stand in the files.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import log
from pathlib import Path
from typing import Any

import yaml

from probes.recipe import Refused

FOLDER = Path(__file__).with_name("tables")
OTHER = "other"
Curve = Mapping[float, float]


@dataclass(frozen=True, slots=True)
class Table:
    """One machine with one model. Times in ms, rates in tokens/s, contexts in tokens."""

    name: str
    title: str
    dialect: str
    model: str
    step_ms: Curve
    step_rows: Curve
    prefill_tps: Curve
    survival: Mapping[str, Mapping[int, Sequence[float]]]
    step_context: float = 0.0
    """Share by which a step grows with each 1,000 tokens of a row's context."""
    step_row_context: float = 0.0
    """Share of a one-row step that each row adds for each 1,000 tokens of its context."""
    prefill_ms: float = 0.0
    accept_context: Curve = field(default_factory=dict)
    """Factor on the accepted drafts of a step, by context."""
    natural_tokens: Mapping[str, float] = field(default_factory=dict)
    noise: Mapping[str, float] = field(default_factory=dict)
    boot: Mapping[str, float] = field(default_factory=dict)
    memory: Mapping[str, float] = field(default_factory=dict)

    def step_s(self, depth: int, rows: int, context: float) -> float:
        """Seconds of one verify step: depth x rows x mean context of a row."""
        share = along(self.step_rows, rows) * (1 + self.step_context * context / 1000)
        return along(self.step_ms, depth) / 1000 * (share + self.step_row_context * rows * context / 1000)

    def prefill_s(self, tokens: int, before: int) -> float:
        """Seconds to compute `tokens` of a prompt after `before` of it."""
        return tokens / along(self.prefill_tps, before + tokens)

    def curve(self, category: str, depth: int) -> list[float]:
        """Survival by draft position, `depth` long; a depth without a row of its own takes from its neighbours."""
        rows = self.survival.get(category) or self.survival.get(OTHER) or {}
        if depth <= 0 or not rows:
            return [0.0] * max(depth, 0)
        if depth in rows:
            return list(rows[depth])
        deeper = [d for d in rows if d > depth]
        if deeper:
            return list(rows[min(deeper)][:depth])
        last = list(rows[max(rows)])
        ratio = last[-1] / last[-2] if len(last) > 1 else last[-1]
        while len(last) < depth:
            last.append(last[-1] * ratio)
        return last


def along(curve: Curve, x: float) -> float:
    """A curve's value: straight between its points (in log x where they are far apart), along its last slope beyond."""
    xs = list(curve)
    if len(xs) == 1 or x <= xs[0]:
        return float(curve[xs[0]])
    place = min(bisect_right(xs, x), len(xs) - 1)
    low, high = xs[place - 1], xs[place]
    if x > xs[-1] and xs[-1] > 1000:
        return float(curve[xs[-1]])
    wide = low > 0 and high / low > 4
    share = (log(x) - log(low)) / (log(high) - log(low)) if wide else (x - low) / (high - low)
    return float(curve[low] + share * (curve[high] - curve[low]))


def names() -> list[str]:
    """The tables that came with the program."""
    return sorted(p.stem for p in FOLDER.glob("*.yaml"))


def load(name: str) -> Table:
    """A table by name or path. Raises `Refused` with one line."""
    path = Path(name) if "/" in name or name.endswith(".yaml") else FOLDER / f"{name}.yaml"
    if not path.is_file():
        raise Refused(f"no table {name!r}; there are {', '.join(names())}")
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
        raise Refused(f"{path}: {' '.join(str(problem).split())}") from None
    if not isinstance(tree, dict):
        raise Refused(f"{path}: a table is a mapping")
    return _table(path, tree)


def _table(path: Path, tree: dict[str, Any]) -> Table:
    known = set(Table.__dataclass_fields__) - {"name"}
    if odd := sorted(set(tree) - known):
        raise Refused(f"{path}: no key {odd[0]!r}; there are {', '.join(sorted(known))}")
    for need in ("title", "dialect", "model", "step_ms", "step_rows", "prefill_tps", "survival"):
        if need not in tree:
            raise Refused(f"{path}: key {need!r} is missing")
    try:
        for key in ("step_ms", "step_rows", "prefill_tps", "accept_context"):
            if key in tree:
                points = {float(x): float(y) for x, y in tree[key].items()}
                if list(points) != sorted(points) or not points or min(points.values()) <= 0:
                    raise Refused(f"{path}: {key}: want positive values at rising points")
                tree[key] = points
        tree["survival"] = {
            str(c): {int(d): _checked(path, c, int(d), row) for d, row in rows.items()}
            for c, rows in tree["survival"].items()
        }
        return Table(name=path.stem, **tree)
    except (TypeError, ValueError, AttributeError) as problem:
        if isinstance(problem, Refused):
            raise
        raise Refused(f"{path}: {' '.join(str(problem).split())}") from None


def _checked(path: Path, category: str, depth: int, row: Sequence[float]) -> list[float]:
    found = [float(v) for v in row]
    falls = all(a >= b for a, b in pairwise(found))
    if len(found) != depth or not falls or not all(0 <= v <= 1 for v in found):
        raise Refused(f"{path}: survival.{category}.{depth}: want {depth} falling shares from 1 to 0")
    return found
