from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from probes import store
from probes.bench import Attached, Bench
from probes.events import Capacity
from probes.measure.ceiling import Ask
from probes.measure.steps import Measure, Measured
from probes.provoke import FOREIGN, _kept
from probes.recipe import Dial, Recipe

CAPACITY = Capacity(kv_pool_tokens=224_000, page_tokens=64, max_context=224_000, lanes=3)


END = "a line of nobody\n"


def driven(attached: object) -> tuple[list[Measure], Sequence[Measured], int]:
    """What a lab would be asked for, what was kept, and how often it was judged; everything waits."""
    judged = []
    lab: Any = SimpleNamespace(bench=SimpleNamespace(attached=attached), judge_soon=lambda: judged.append(1))
    ask = Ask("ninfer", 3, {"max_concurrency": 3}, None, 5.0)
    asked: list[Measure] = []
    outcomes: list[Measured] = []
    plan = _kept(lab, ask, outcomes)
    step = next(plan, None)
    while step is not None:
        asked.append(step)
        try:
            step = plan.send(Measured(step, capacity=CAPACITY, queue=((2, 1),) * 4))
        except StopIteration:
            break
    return asked, outcomes, len(judged)


def test_a_server_of_someone_else_is_never_started_and_what_needs_it_is_named() -> None:
    asked, outcomes, judged = driven(object())
    assert [s.fresh for s in asked] == [False] * len(asked)
    assert all(s.settings == {"max_concurrency": 3} for s in asked)
    assert [o.step.why for o in outcomes if o.failed == FOREIGN] == [
        o.step.why for o in outcomes if o.step.why.endswith("4 lanes")
    ]
    assert judged == len(outcomes) > len(asked)


def test_a_server_of_ours_is_started_for_every_point() -> None:
    asked, outcomes, judged = driven(None)
    assert all(s.fresh for s in asked)
    assert {s.settings["max_concurrency"] for s in asked} == {3, 4}
    assert judged == len(outcomes) == len(asked)


def test_each_load_of_a_start_that_goes_on_is_judged_by_itself(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    row = "2026-11-30 10:00:{:02} INFO  throughput | 5.0s | decode 100.0 tok/s (500 tok) | running {} | waiting {}\n"
    log.write_text("".join(row.format(second, 2, 1) for second in (0, 5, 10)) + END)
    recipe = Recipe("theirs", "ninfer", "", "", Dial("as started", (0,)))
    bench = Bench(recipe, store.create(tmp_path), lambda _: None, Attached("http://127.0.0.1:1", log))
    assert bench.held_back(forget=True)[1] == ((2, 1),) * 3
    with log.open("a") as file:
        file.write(row.format(15, 3, 0) + END)
    assert bench.held_back()[1] == ((3, 0),)
    asyncio.run(bench.close())


def test_lanes_that_the_log_does_not_tell_are_those_that_were_asked_for(tmp_path: Path) -> None:
    """Without prefix reuse, as its authors measure, ninfer's log never says how many lanes it has."""
    stamp = "2026-11-30 10:00:00.000  INFO  "
    boot = "capacity | KV 224,000 tokens, int8, explicit | pages 3,500/10,500 | runtime 8.64 GiB | free 3.26 GiB"
    lines = f"{stamp}{boot}\n{stamp}context cache | root only\n{END}"
    found = []
    for settings in ({"max_concurrency": 3}, {}):
        recipe = Recipe("ours", "ninfer", "x", "", Dial("mtp", (0,)), settings=settings)
        run = store.create(tmp_path)
        run.server_log.write_text(lines)
        bench = Bench(recipe, run, lambda _: None)
        bench.poll_log()
        asyncio.run(bench.close())
        assert bench.capacity is not None
        found.append(bench.capacity.lanes)
    assert found == [3, None]
    log = tmp_path / "theirs.log"
    log.write_text(lines)
    theirs = Bench(recipe, store.create(tmp_path), lambda _: None, Attached("http://127.0.0.1:1", log))
    theirs.settings = {"max_concurrency": 3}
    theirs.poll_log()
    asyncio.run(theirs.close())
    assert theirs.capacity is not None
    assert theirs.capacity.lanes is None, "what we would ask for is not what someone else's server has"
