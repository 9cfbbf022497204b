"""Finds a ceiling on a lab: the command and the screen's key do the same through this. It draws and prints nothing."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

from probes.lab import Lab
from probes.measure.ceiling import Ask, Load, ceiling
from probes.measure.ceiling_report import report
from probes.measure.steps import Measure, Measured

POINTS = 7
"""Points that a plan has at the most as a rule: a look, two loads, two experiments each."""
FOREIGN = "it needs a restart, and this server is someone else's"


async def provoke(
    lab: Lab, loads: Sequence[Load] = (), *, depth: int | None = None, experiments: bool = True
) -> dict[str, Any]:
    """Provoke the queue, run the experiments that separate the limits, and give the result; it is stored too.

    `depth` None: that of the server that runs, else the preset's own. Restarts the server, and leaves it stopped. A
    server of someone else's is sent the load as it runs; experiments that need a restart are left out and named.
    """
    bench, recipe = lab.bench, lab.recipe
    ask = Ask(
        engine=recipe.engine,
        depth=depth if depth is not None else bench.depth if bench.depth is not None else recipe.dial.start,
        settings=dict(bench.settings),
        reserving=bench.engine.reserving,
        report_s=bench.engine.report_s,
        loads=tuple(loads),
        experiments=experiments,
    )
    outcomes: list[Measured] = []

    def judgment(_: Any) -> dict[str, Any]:
        simulated = recipe.simulated or any("simulated_speed" in r.raw for r in lab.requests.values())
        return report(outcomes, run=lab.run.name, engine=recipe.engine, simulated=simulated, drafter=recipe.dial.kind)

    before, lab.judgment = lab.judgment, judgment
    try:
        await lab.carry_out("ceiling", _kept(lab, ask, outcomes), POINTS if not loads else 1 + 3 * len(loads))
        return dict(lab.run.result() or judgment(None))
    finally:
        lab.judgment = before


def _kept(lab: Lab, ask: Ask, outcomes: list[Measured]) -> Generator[Measure, Measured, None]:
    """The plan with every outcome kept and judged; without restarts where the server is someone else's."""
    foreign, plan = lab.bench.attached is not None, ceiling(ask)
    step = next(plan, None)
    while step is not None:
        if foreign and dict(step.settings) != ask.settings:
            outcome = Measured(step, failed=FOREIGN)
        else:
            outcome = yield replace(step, fresh=not foreign)
        outcomes.append(outcome)
        lab.judge_soon()
        try:
            step = plan.send(outcome)
        except StopIteration:
            return
