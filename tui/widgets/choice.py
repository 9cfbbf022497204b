"""What a person has chosen on the dial and its knobs, against what is in force. No widget, no clock: a plain state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from probes.events import ServerChanged
from probes.preset import illegal, typed
from probes.recipe import Knob, Recipe


@dataclass(frozen=True, slots=True)
class Choice:
    """A depth and the knobs' values."""

    depth: int | None
    knobs: Mapping[str, Any] = field(default_factory=dict)


class Chosen:
    """The wanted choice, the one asked for last, and the last one that worked."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.wanted = Choice(recipe.dial.start, dict(recipe.settings))
        self.asked: Choice | None = None
        self.good: Choice | None = None
        self._restart: int | None = None
        self.row = 0
        """0 is the dial; then the knobs."""

    @property
    def knob(self) -> Knob | None:
        """The knob under the cursor; None on the dial."""
        return self.recipe.knobs[self.row - 1] if self.row else None

    def move(self, by: int) -> None:
        """The cursor up or down."""
        self.row = max(0, min(len(self.recipe.knobs), self.row + by))

    def step(self, by: int) -> str | None:
        """One step of what is under the cursor. Why it can't be stepped, or None."""
        knob = self.knob
        if knob is None:
            values = self.recipe.dial.values
            here = values.index(self.wanted.depth) if self.wanted.depth in values else 0
            self.wanted = Choice(values[max(0, min(len(values) - 1, here + by))], self.wanted.knobs)
            return None
        value = self.wanted.knobs.get(knob.name, knob.default)
        if knob.type == "bool":
            return self.put(knob, not value)
        if knob.type == "choice" and knob.choices:
            here = knob.choices.index(value) if value in knob.choices else -1
            return self.put(knob, knob.choices[(here + by) % len(knob.choices)])
        if knob.type == "int" and isinstance(value, int):
            return self.put(knob, value + by)
        return f"{knob.name}: type a value"

    def put(self, knob: Knob, value: Any) -> str | None:
        """A value for a knob. Why it is refused, or None."""
        if problem := illegal(knob, value):
            return problem
        self.wanted = Choice(self.wanted.depth, {**self.wanted.knobs, knob.name: value})
        return None

    def type(self, raw: str) -> str | None:
        """What a person typed for what is under the cursor. Why it is refused, or None."""
        raw = raw.strip()
        if (knob := self.knob) is not None:
            if raw in {"", "default"}:
                self.wanted = Choice(self.wanted.depth, {**self.wanted.knobs, knob.name: None})
                return None
            return self.put(knob, typed(knob, raw))
        values = self.recipe.dial.values
        if not raw.isdecimal() or int(raw) not in values:
            return f"{self.recipe.dial.label} must be one of {', '.join(map(str, values))}, not {raw!r}"
        self.wanted = Choice(int(raw), self.wanted.knobs)
        return None

    def back(self) -> dict[str, Any]:
        """The knobs of the last good setting; those that it left alone and a later one did not are None: not given."""
        later = dict.fromkeys([*self.wanted.knobs, *(self.asked.knobs if self.asked else ())])
        return {**later, **(self.good.knobs if self.good else {})}

    def moved(self) -> list[str]:
        """The knobs that differ from what was asked for last; the depth is none of them."""
        if self.asked is None:
            return []
        asked, wanted = self.asked.knobs, self.wanted.knobs
        return [name for name in sorted({*wanted, *asked}) if wanted.get(name) != asked.get(name)]

    def changes(self) -> list[str]:
        """What would change against what was asked for last, in words."""
        if self.asked is None:
            return []
        out = []
        if self.wanted.depth != self.asked.depth:
            out.append(f"{self.recipe.dial.label} {self.asked.depth} → {self.wanted.depth}")
        for name in self.moved():
            before, after = self.asked.knobs.get(name), self.wanted.knobs.get(name)
            words = ("its default" if value is None else value for value in (before, after))
            out.append(f"{name} {' → '.join(map(str, words))}")
        return out

    def server(self, server: ServerChanged | None, good: ServerChanged | None) -> None:
        """Learn from the server: what it runs with is what was asked; a sweep moves the depth by itself.

        `good` is the last state in which it was ready.
        """
        if server is None or server.state not in {"starting", "loading", "ready", "failed"}:
            return
        knobs = self.asked.knobs if self.asked is not None else self.wanted.knobs
        if good is not None and good.restart != self._restart:
            self._restart, self.good = good.restart, Choice(good.depth, knobs)
        if self.asked is None or server.depth != self.asked.depth:
            self.asked = Choice(server.depth, knobs)
