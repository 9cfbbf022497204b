"""Carries out an A/B on a lab: the command and the screen's key do the same through this. It draws nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from probes.events import CapacityRead, Event, PlanProgress, RequestDone
from probes.gpu.throttle import Slowed
from probes.lab import Judgment, Lab
from probes.measure.ab import Arm, Design, ab, budgets, differences
from probes.recipe import Recipe
from probes.store import Run

DECIDES = 20.0
"""An e-value from which on "no difference" is rejected at 5 %, whenever one looks (Ville's inequality: 1 / 0.05)."""


class Pools:
    """The KV pools that the starts of each arm announced: arms with other pools compare two memory budgets as well."""

    def __init__(self) -> None:
        self._sizes: dict[str, set[int]] = {"a": set(), "b": set()}
        self._arm = ""

    def see(self, event: Event) -> None:
        """Take a fact of the lab: the plan's step names the arm that starts next."""
        if isinstance(event, PlanProgress):
            self._arm = event.step[-1].lower() if event.step.endswith(("arm A", "arm B")) else ""
        elif isinstance(event, CapacityRead) and event.capacity.kv_pool_tokens and self._arm:
            self._sizes[self._arm].add(event.capacity.kv_pool_tokens)

    def warnings(self) -> list[str]:
        """One sentence where the pools differ."""
        if not all(self._sizes.values()) or self._sizes["a"] == self._sizes["b"]:
            return []
        sizes = " against ".join("/".join(f"{n:,}" for n in sorted(self._sizes[x])) for x in "ab")
        return [f"the KV pools differ ({sizes} tokens): this compares two memory budgets as well"]


def judgment(
    recipe: Recipe,
    run: Run,
    arms: tuple[Arm, Arm],
    pools: Pools,
    floor: float | None = None,
    slowed: Slowed | None = None,
) -> Judgment:
    """What the finished requests of this A/B mean; `floor`: a known noise floor (log sd)."""

    def judged(requests: Sequence[RequestDone]) -> dict[str, Any]:
        from probes.stats.abresult import judge_ab

        return judge_ab(
            requests, run=run.name, engine=recipe.engine, simulated=recipe.simulated, differs=differences(*arms),
            warnings=[*budgets(recipe, *arms), *pools.warnings()], floor=floor,
            slowed=slowed.by_restart() if slowed else None,
        )  # fmt: skip

    return judged


def lab_for(
    recipe: Recipe,
    run: Run,
    arms: tuple[Arm, Arm],
    sink: Callable[[Event], None],
    floor: float | None = None,
) -> Lab:
    """A lab that judges its requests as this A/B."""
    pools = Pools()

    def see(event: Event) -> None:
        pools.see(event)
        sink(event)

    lab = Lab(recipe, run, see, sorted({arm.depth for arm in arms if arm.depth is not None}))
    lab.judgment = judgment(recipe, run, arms, pools, floor, lab.slowed)
    return lab


async def compare(lab: Lab, arms: tuple[Arm, Arm], design: Design, *, early: bool = False) -> dict[str, Any]:
    """Carry the A/B out, on a lab of `lab_for`, and give the result; it is stored too. The server is stopped after.

    With `early` it ends as soon as the line that may be watched has decided.
    """
    judged = lab.judgment
    assert judged is not None  # noqa: S101  (lab_for has set it)

    def enough(_: Sequence[Any]) -> bool:
        live = judged(list(lab.requests.values()))["anytime"] or {}
        return early and live.get("e") is not None and live["e"] >= DECIDES

    outcomes = await lab.carry_out("ab", ab(*arms, design, enough), design.restarts)
    result = dict(lab.run.result() or {})
    result["failed_points"] = [
        {"arm": o.step.arm, "block": o.step.block, "why": o.failed} for o in outcomes if o.failed
    ]
    result["points"] = len(outcomes)
    result["run_path"] = str(lab.run.path)
    lab.run.write_result(result)
    return result
