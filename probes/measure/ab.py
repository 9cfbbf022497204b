"""A/B of one flag: A/A restarts for the noise floor, then ABBA blocks of restarts, the same prompts in each.

The plan is pure; what it costs is told before it starts, and it spends fewer restarts where a boot is dear.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from probes.measure.steps import Measure, Measured, Plan
from probes.recipe import Recipe

FLOOR_RESTARTS = 3
"""Restarts of arm A alone: the fewest that tell a spread and its bound."""
BLOCKS, BLOCKS_DEAR = 6, 3
PROMPTS, PROMPTS_DEAR = 2, 6
"""Prompts of each category: more of them where restarts are few, since the interval needs both."""
DEAR_S = 60.0
"""A boot longer than this is dear."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One side: its depth and settings."""

    depth: int | None
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Design:
    """How many restarts of what, and what that takes."""

    blocks: int
    prompts: int
    floor: int

    @property
    def restarts(self) -> int:
        """Starts of the server in all."""
        return self.floor + 2 * self.blocks

    def seconds(self, boot_s: float, request_s: float, categories: int) -> float:
        """What it takes, from the seconds of one boot and one request."""
        return self.restarts * (boot_s + request_s * (1 + self.prompts * categories))


def design(
    boot_s: float | None, blocks: int | None = None, prompts: int | None = None, floor: int | None = None
) -> Design:
    """The design for boots of that length; what is asked for wins."""
    dear = boot_s is not None and boot_s > DEAR_S
    return Design(
        blocks or (BLOCKS_DEAR if dear else BLOCKS),
        prompts or (PROMPTS_DEAR if dear else PROMPTS),
        FLOOR_RESTARTS if floor is None else floor,
    )


def ab(a: Arm, b: Arm, plan: Design, enough: Callable[[Sequence[Measured]], bool] | None = None) -> Plan:
    """The restarts in order: `aa` for the floor, then A B, B A, A B, …

    `enough` is asked after each whole block with what was measured; it must be valid however often it is asked.
    """
    for number in range(plan.floor):
        yield _step(a, "aa-", number, plan.prompts, f"A/A restart {number + 1} of {plan.floor}")
    done: list[Measured] = []
    for block in range(plan.blocks):
        for name in ("ab", "ba")[block % 2]:
            arm = a if name == "a" else b
            why = f"block {block + 1} of {plan.blocks}, arm {name.upper()}"
            done.append((yield _step(arm, f"{name}-", block, plan.prompts, why)))
        if enough is not None and enough(done):
            return


def _step(arm: Arm, name: str, block: int, prompts: int, why: str) -> Measure:
    return Measure(depth=arm.depth, block=block, settings=arm.settings, arm=name, prompts=prompts, why=why)


def budgets(recipe: Recipe, a: Arm, b: Arm) -> list[str]:
    """One sentence for each knob between the arms that moves memory: then another thing than its speed changes too."""
    values = [{**recipe.settings, **arm.settings} for arm in (a, b)]
    names = [k.name for k in recipe.knobs if "memory" in k.changes and len({str(v.get(k.name)) for v in values}) > 1]
    return [f"{name} changes the memory budget: this compares two memory budgets as well" for name in names]


def differences(a: Arm, b: Arm) -> list[str]:
    """What differs between the arms, one sentence a knob. One is an A/B of a flag; more is another experiment."""
    names = sorted({*a.settings, *b.settings})
    found = [f"depth: {a.depth} against {b.depth}"] if a.depth != b.depth else []
    shown = [(n, a.settings.get(n, "preset"), b.settings.get(n, "preset")) for n in names]
    return found + [f"{name}: {left} against {right}" for name, left, right in shown if left != right]
