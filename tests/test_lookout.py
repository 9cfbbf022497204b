"""What stops a point before it sends, and a load that was none."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from probes import engines, store
from probes.bench import Attached, Bench
from probes.events import Capacity, RequestDone
from probes.lab import Lab
from probes.lookout import all_refused, look_out
from probes.measure.steps import Measured
from probes.measure.sweep import sweep
from probes.recipe import SIMULATOR, Dial, Limits, Recipe, Workload


def bench(engine: str, context: int | None = 1024, argv: tuple[str, ...] = (), **more: Any) -> tuple[Bench, list[str]]:
    told: list[str] = []
    made = SimpleNamespace(
        engine=engines.engine(engine), restart=1, attached=None, server=SimpleNamespace(now=SimpleNamespace(argv=argv)),
        capacity=None if context is None else Capacity(max_context=context), notice=lambda _, text: told.append(text),
    )  # fmt: skip
    made.__dict__.update(more)
    return cast("Bench", made), told


def entry(tokens: int) -> dict[str, Any]:
    return {"prompt_id": "p", "prompt_hash": "h", "body": {"messages": [], "max_tokens": tokens}}


def done(outcome: Any, error: str | None = None, **more: Any) -> RequestDone:
    return RequestDone("r", "p", "h", "code", 0, 1, 0, outcome, sent=1.0, error=error, **more)


def test_what_a_server_would_refuse_is_not_sent() -> None:
    made, told = bench("vllm")
    assert "the server would refuse it" in str(look_out(made, [entry(2000)], []))
    assert told == []
    assert look_out(made, [entry(1000)], []) is None


def test_what_a_server_would_cut_is_told_and_sent() -> None:
    made, told = bench("llamacpp")
    assert look_out(made, [entry(2000)], []) is None
    assert "its output is cut" in told[0]
    made, told = bench("vllm", context=None)
    assert look_out(made, [entry(2000)], []) is None
    assert told == [], "a context that is not known proves nothing"


def test_a_repeated_prompt_is_told_where_the_command_line_is_known() -> None:
    seen = [done("ok", prompt_tokens=9)]
    made, told = bench("sglang", argv=("sglang", "serve"))
    look_out(made, [entry(9)], seen)
    assert "prefix cache" in told[0]
    made, told = bench("sglang", argv=("sglang", "--disable-radix-cache"))
    look_out(made, [entry(9)], seen)
    made, other = bench("sglang", argv=("ignored",), attached=Attached("http://127.0.0.1:1"))
    look_out(made, [entry(9)], seen)
    assert told == other == [], "of a server elsewhere nothing is known"


def test_a_load_that_was_refused_as_a_whole_is_no_load() -> None:
    error = "HTTP 400: too long"
    assert (
        all_refused([done("rejected", error), done("aborted", "cut")]) == f"the server refused every request: {error}"
    )
    assert all_refused([done("rejected", error), done("ok")]) is None
    assert all_refused([done("aborted", "cut")]) is None
    assert all_refused([]) is None


def test_a_point_that_would_be_refused_is_given_up_at_once(tmp_path: Path) -> None:
    """One start, no request, no second try: the server would say the same again."""
    recipe = Recipe(
        "long", "vllm", SIMULATOR, "m", Dial("ngram", (0,)), simulation={"table": "vllm-8b", "speed": 50},
        settings={"ctx": 256}, workload=Workload(prompts_per_category=1, max_tokens=400, categories=("code",)),
        limits=Limits(boot_s=60), simulated=True,
    )  # fmt: skip

    async def whole() -> tuple[list[Measured], Lab]:
        lab = Lab(recipe, store.create(tmp_path), lambda _: None, (0,))
        await lab.open()
        try:
            return await lab.carry_out("sweep", sweep((0,), 1, 1), 1), lab
        finally:
            await lab.close()

    (outcome,), lab = asyncio.run(whole())
    assert "asks for 400, the context is 256" in str(outcome.failed)
    assert outcome.hopeless
    assert lab.requests == {}
    assert lab.bench.restart == 1
