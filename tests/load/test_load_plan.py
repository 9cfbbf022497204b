"""The same prompts in the same order for every arm."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from probes import engines
from probes.events import CATEGORIES
from probes.load.jobs import Order, build
from probes.load.plan import plan_job, plan_requests
from probes.recipe import Dial, Recipe, Refused, Workload

RECIPE = Recipe(
    name="t", engine="any", binary="", model="", dial=Dial("k", (0, 2)), workload=Workload(max_tokens=64, concurrency=2)
)


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def request(body: dict[str, Any], recipe: Recipe, depth: int | None) -> dict[str, Any]:
        return {**body, "asked": [recipe.name, depth]}

    made = SimpleNamespace(request=request, reply=lambda final: final, step_drafts=lambda _, depth: depth)
    monkeypatch.setattr(engines, "engine", lambda _: made)


def plan(**changes: Any) -> list[dict[str, Any]]:
    recipe = replace(RECIPE, workload=replace(RECIPE.workload, **changes))
    return plan_requests(recipe, 2, 7, 3, "m", 11)


def test_a_warmup_then_categories_in_turn() -> None:
    found = plan()
    assert [one["prompt_id"] for one in found] == [
        "warmup", *(f"{category}-{place}" for place in (1, 2) for category in CATEGORIES),
    ]  # fmt: skip
    assert [one["warmup"] for one in found] == [True] + [False] * 8
    assert {(one["depth"], one["restart"], one["block"]) for one in found} == {(2, 7, 3)}
    assert len({one["id"] for one in found}) == len(found)


def test_arms_differ_by_nothing_but_what_the_engine_adds() -> None:
    one, other = plan_requests(RECIPE, 0, 1, 1, "m", 5), plan_requests(RECIPE, 2, 2, 1, "m", 5)
    keys = ("prompt_id", "prompt_hash", "category", "max_tokens")
    assert [[a[key] for key in keys] for a in one] == [[b[key] for key in keys] for b in other]
    assert [{**a["body"], "asked": 0} for a in one] == [{**b["body"], "asked": 0} for b in other]
    assert other[1]["body"]["asked"] == ["t", 2]


def test_the_body_streams_with_usage_and_takes_the_workload() -> None:
    body = plan(temperature=0.5, extra={"top_p": 0.9})[1]["body"]
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}
    assert (body["max_tokens"], body["temperature"], body["seed"]) == (64, 0.5, 11)
    assert (body["model"], body["top_p"]) == ("m", 0.9)


def test_more_prompts_than_there_are_is_refused() -> None:
    with pytest.raises(Refused, match="prompts_per_category 99"):
        plan(prompts_per_category=99)


def test_a_job_is_what_the_load_process_reads() -> None:
    job = plan_job(RECIPE, "http://127.0.0.1:9", plan())
    built = build(msgspec.json.decode(msgspec.json.encode(job), type=Order))
    assert (built.concurrency, built.timeout_s, len(built.requests)) == (2, RECIPE.limits.request_s, 9)
    assert [one.max_tokens for one in built.requests] == [32] + [64] * 8
    assert built.requests[1].depth == 2


@pytest.mark.parametrize(
    "change",
    [{"concurrency": 0}, {"timeout_s": 0}, {"url": "x"}, {"header_env": {"A": "NO_SUCH_VARIABLE"}}],
)
def test_a_bad_job_is_refused(change: dict[str, Any]) -> None:
    job = msgspec.convert({**plan_job(RECIPE, "http://127.0.0.1:9", plan()), **change}, Order)
    with pytest.raises(Refused):
        build(job)
