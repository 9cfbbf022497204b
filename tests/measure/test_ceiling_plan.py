"""The ceiling plan: what it asks for, in which order, what it changes, and what comes of the answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.events import Capacity, Ceiling, RequestDone
from probes.load.plan import bare_recipe, plan_burst
from probes.measure.ceiling import Ask, Load, ceiling, loads_for, more_lanes, waited
from probes.measure.ceiling_report import report
from probes.measure.steps import Burst, Measure, Measured
from probes.stats.ceiling_advice import Server, admits
from probes.stats.ceiling_trials import Seen, conclude, effect, quartile, seen

NINFER = Capacity(kv_pool_tokens=224_000, pages=3500, page_tokens=64, max_context=224_000, lanes=3)
ASK = Ask("ninfer", 3, {"max_concurrency": 3}, None, 5.0)


def answer(
    step: Measure, queue: list[tuple[int, int]], verdict: Any = "unknown", capacity: Capacity = NINFER
) -> Measured:
    return Measured(step, queue=tuple(queue), ceiling=Ceiling(verdict, "high"), capacity=capacity)


def carried_out(ask: Ask, answers: Any) -> list[Measured]:
    plan, done = ceiling(ask), []
    step = next(plan, None)
    while step is not None:
        done.append(answers(step))
        try:
            step = plan.send(done[-1])
        except StopIteration:
            break
    return done


def test_the_loads_of_the_seed_are_chosen_from_the_capacity_line() -> None:
    pool, lanes = loads_for(ASK, NINFER)
    assert pool.burst.streams == 3
    assert pool.burst.max_tokens == pytest.approx(100_000, rel=0.01)
    assert (lanes.burst.streams, lanes.burst.max_tokens) == (4, 224_000 // 4 // 4)
    tight = replace(NINFER, kv_pool_tokens=4_096, pages=64, max_context=4_096)
    assert loads_for(ASK, tight)[-1].burst.max_tokens == 1200


@pytest.mark.parametrize("context", [64, 300, 1024, 1300, 1400])
def test_no_load_asks_for_more_than_the_context(context: int) -> None:
    """vLLM refused all of them: 1,200 tokens were asked for whatever the context was."""
    small = Capacity(kv_pool_tokens=11_648, max_context=context, lanes=2)
    for load in loads_for(replace(ASK, engine="vllm"), small):
        assert load.burst.max_tokens < context
        assert context < 300 or load.burst.max_tokens + load.burst.prompt_tokens + 40 <= context
    assert loads_for(replace(ASK, engine="vllm"), small)[-1].burst.max_tokens >= min(1200, context // 2)


def test_a_pool_that_no_legal_request_can_fill_gets_no_load() -> None:
    capacity = Capacity(kv_pool_tokens=400_000, max_context=16_384, lanes=16)
    assert [x.name for x in loads_for(replace(ASK, engine="vllm"), capacity)] == ["the lanes"]


def test_where_something_waits_each_experiment_changes_one_thing() -> None:
    def answers(step: Measure) -> Measured:
        return answer(step, [(2, 1)] * 4 if step.arm in {"load1-", "load1x2-"} else [(3, 0)] * 4, "kv_pool")

    done = carried_out(ASK, answers)
    arms = [o.step.arm for o in done]
    assert arms == ["look-", "load1-", "load1x1-", "load1x2-", "load2-"]
    load, half, more = (o.step for o in done[1:4])
    assert load.burst
    assert half.burst == replace(load.burst, max_tokens=load.burst.max_tokens // 2)
    assert half.settings == load.settings
    assert more.burst == load.burst
    assert more.settings == {"max_concurrency": 4}
    assert len({o.step.block for o in done}) == len(done)
    found = report(done, run="r", engine="ninfer", simulated=True)
    assert found["ceiling"]["verdict"] == "kv_pool"
    assert [e["for"] for e in found["experiments"]] == [
        ["kv_pool"],
        ["kv_pool", "state_pool"],
    ]
    assert found["loads"][0]["conclusion"] == "confirmed"
    assert found["loads"][0]["admits"]["max_tokens"] == 224_000 // 3 // 64 * 64 - (60 * 5 // 4 + 64) + 1
    assert found["simulated"]


def test_a_server_that_does_not_start_ends_the_plan() -> None:
    done = carried_out(ASK, lambda step: Measured(step, failed="no"))
    assert [o.step.arm for o in done] == ["look-"]
    assert report(done, run="r", engine="ninfer", simulated=False)["loads"] == []


def test_a_named_load_is_the_only_one_and_lanes_stay_legal() -> None:
    ask = replace(ASK, loads=(Load("mine", Burst(9, 400)),))
    full = replace(NINFER, lanes=8)
    done = carried_out(ask, lambda step: answer(step, [(8, 1)] * 5, "lanes", full))
    assert [o.step.arm for o in done] == ["load1-", "load1x1-"]


def test_a_server_that_dies_under_the_load_was_at_no_ceiling() -> None:
    ask = replace(ASK, loads=(Load("mine", Burst(4, 1200)),))
    done = carried_out(ask, lambda step: replace(answer(step, [(3, 1)] * 3, "lanes"), failed="the server ended"))
    found = report(done, run="r", engine="ninfer", simulated=False)
    assert (found["ceiling"]["verdict"], found["admits"]) == ("unknown", None)
    assert found["ceiling"]["sentence"].startswith("The load was not carried out: the server ended.")
    assert found["failed_points"] == [{"point": found["loads"][0]["load"], "why": "the server ended"}]


def test_an_output_that_cannot_be_halved_is_left_and_no_lanes_are_seen_in_it() -> None:
    ask = replace(ASK, loads=(Load("mine", Burst(4, 20)),))
    done = carried_out(ask, lambda step: answer(step, [(3, 1)] * 5, "lanes"))
    assert [o.step.settings for o in done] == [{"max_concurrency": 3}, {"max_concurrency": 4}]
    found = report(done, run="r", engine="ninfer", simulated=False)
    assert [e["change"] for e in found["experiments"]] == ["lanes"]
    done[1] = replace(done[1], step=replace(done[0].step, arm="load1x1-"))
    same = report(done, run="r", engine="ninfer", simulated=False)
    assert [e["change"] for e in same["experiments"]] == ["output"]


def test_long_prompts_are_shortened_too_and_state_slots_stay() -> None:
    capacity = Capacity(kv_pool_tokens=1_400_000, max_context=131_072, lanes=48, state_slots=48)
    ask = replace(ASK, engine="sglang", settings={}, loads=(Load("mine", Burst(54, 400, 4_000)),))
    done = carried_out(ask, lambda step: answer(step, [(48, 6)] * 5, "unknown", capacity))
    assert [o.step.burst.prompt_tokens for o in done if o.step.burst] == [4_000, 4_000, 500, 4_000]
    assert done[-1].step.settings == {"max_running_requests": 54, "max_mamba_cache_size": 48}


def went(running: float, waiting: float, share: float) -> Seen:
    return Seen(4, 100, 60, 3, running, waiting, share)


@pytest.mark.parametrize(("change", "after", "speaks", "against"), [
    ("output", went(3, 0, 0.0), "kv_pool", "lanes"),
    ("output", went(3, 1, 1.0), "lanes", None),
    ("prompt", went(3, 1, 1.0), "lanes", "prefill"),
    ("lanes", went(4, 0, 0.0), "lanes", "kv_pool"),
    ("lanes", went(3, 1, 1.0), "kv_pool", "lanes"),
])  # fmt: skip
def test_what_an_experiment_says(change: Any, after: Seen, speaks: Any, against: Any) -> None:
    found = effect(change, went(3, 1, 1.0), after)
    assert speaks in found[0]
    assert against is None or against in found[1]


def test_rivals_are_separated_and_a_wrong_verdict_is_contradicted() -> None:
    more = effect("lanes", went(3, 1, 1.0), went(3, 1, 1.0))
    assert conclude(Ceiling("lanes", "high"), [more])[::2] == ("contradicted", "unknown")
    rivals = Ceiling("unknown", rivals=("lanes", "kv_pool"))
    assert conclude(rivals, [more]) == ("confirmed", "the experiments leave kv_pool", "kv_pool")
    assert conclude(rivals, [])[0] == "undecided"
    prompts = Ceiling("unknown", rivals=("prefill", "kv_pool"))
    short = effect("prompt", went(3, 1, 1.0), went(4, 0, 0.0))
    assert conclude(prompts, [more, short])[0] == "undecided", "more lanes help neither, shorter prompts help both"
    assert conclude(Ceiling("unknown"), [more])[0] == "undecided", "nobody is named, so nobody is left"
    delay = Ceiling("unknown", rivals=("admission_delay",))
    assert conclude(delay, [more])[0] == "undecided", "one that was thought of is not one that is left"
    less = effect("output", went(3, 1, 1.0), went(4, 0, 0.0))
    assert conclude(delay, [more, less])[::2] == ("confirmed", "kv_pool"), "less output helps a pool alone"
    assert conclude(Ceiling("admission_delay"), [more])[0] == "undecided", "no help from lanes is no proof of a delay"
    better = effect("lanes", went(3, 1, 1.0), went(4, 0, 0.0))
    assert conclude(delay, [better, less])[0] == "undecided", "they speak against each other"


def test_one_more_that_runs_is_one_less_that_waits_or_it_is_noise() -> None:
    changes: list[Any] = ["output", "prompt", "lanes"]
    for change in changes:
        assert any(effect(change, went(3, 1, 0.5), went(4, 0, 0.0))[:2])
        assert not any(effect(change, went(3, 1, 0.4), went(4, 0, 0.0))[:2])
    for change in changes:
        assert not any(effect(change, went(7, 1, 1.0), went(8, 1, 1.0))[:2])
    assert not any(effect("prompt", went(15, 43, 1.0), went(1, 40, 1.0))[:2])
    assert not any(effect("output", replace(went(2, 5, 1.0), prompt_tokens=900), went(2, 5, 1.0))[:2])


def test_nothing_is_said_without_reports() -> None:
    blank = Seen(4, 100, 60, 3, None, None, None)
    assert effect("lanes", blank, blank)[0] == frozenset()
    assert admits("prefill", blank, NINFER, Server("ninfer")) is None
    assert admits("lanes", went(3, 1, 1.0), NINFER, Server("vllm")) == {
        "knob": "--max-num-seqs", "value": 4, "legal": True, "settings": {"lanes": 4},
        "sentence": "--max-num-seqs 4 would let all 4 run.",
    }  # fmt: skip


def test_a_queue_of_the_first_moment_is_not_how_the_load_went() -> None:
    """The first reports catch requests that are let in one by one; with a lane more all of them run soon."""
    queue = [(1, 3), (2, 2), (3, 1), *[(4, 0)] * 4, (3, 1), *[(4, 0)] * 16]
    after = seen(queue, streams=4, max_tokens=9, prompt_tokens=9, ceiling=None, capacity=None, outcomes={})
    assert (after.running, after.waiting) == (4, 0)
    assert "lanes" in effect("lanes", went(3, 1, 1.0), after)[0]


def test_requests_of_others_are_counted_with_those_that_are_to_run() -> None:
    queue = [(3, 3)] * 6
    load = seen(queue, streams=4, max_tokens=100, prompt_tokens=60, ceiling=None, capacity=NINFER, outcomes={})
    assert load.others == 2
    found = admits("lanes", load, NINFER, Server("ninfer"))
    assert found is not None
    assert found["settings"] == {"max_concurrency": 6}
    assert found["sentence"].endswith("would let all 6 run, 2 of them not ours.")
    assert admits("kv_pool", replace(load, max_tokens=100_000), NINFER, Server("ninfer")) is None


def test_lanes_that_the_pool_could_not_fill_are_not_said_to_be_enough() -> None:
    load = replace(went(3, 1, 1.0), max_tokens=74_000)
    found = admits("lanes", load, NINFER, Server("ninfer", prompt=74))
    assert found is not None
    assert found["settings"] == {"max_concurrency": 4, "kv_capacity": 4 * 74_112}
    assert "296,448; this one holds 224,000" in found["sentence"]
    assert "or 3 of them as they are" in found["sentence"]


@pytest.mark.parametrize(("prompt", "least"), [(74, 1), (None, 60), (500, 1)])
def test_the_output_that_a_pool_admits_fits_it_with_the_prompts(prompt: int | None, least: int) -> None:
    """By the reserving engine's own sum: ceil((prompt + output - 1) / 64) pages for each."""
    load = replace(went(2, 1, 1.0), streams=3, max_tokens=100_000)
    found = admits("kv_pool", load, NINFER, Server("ninfer", prompt=prompt))
    assert found is not None
    for real in {prompt or least, load.prompt_tokens + 14}:
        assert 3 * -(-(real + found["max_tokens"] - 1) // 64) <= 3500 or (prompt is not None and real > prompt)
    assert found["settings"] == {"kv_capacity": found["pool_tokens"]}
    assert admits("kv_pool", replace(load, max_tokens=1000), NINFER, Server("ninfer")) is None


def test_lanes_come_with_all_that_must_go_with_them() -> None:
    slots = Capacity(kv_pool_tokens=16_384, max_context=8_192, lanes=2)
    more = admits("lanes", replace(went(2, 2, 1.0), lanes=2), slots, Server("llamacpp", settings={"parallel": 2}))
    assert more is not None
    assert more["settings"] == {"parallel": 4, "ctx": 32_768}
    states = Capacity(kv_pool_tokens=1_400_000, lanes=48, state_slots=48)
    load = Seen(60, 400, 60, 48, 48.0, 12.0, 1.0)
    plain = admits("lanes", load, states, Server("sglang", 3, "EAGLE3"))
    assert plain is not None
    assert plain["settings"] == {"max_running_requests": 60, "max_mamba_cache_size": 60}
    roomy = replace(states, state_slots=476, lanes=4)
    easy = admits("lanes", Seen(7, 400, 60, 4, 4.0, 3.0, 1.0), roomy, Server("sglang"))
    assert easy is not None
    assert easy["settings"] == {"max_running_requests": 7}
    kept = admits("lanes", load, states, Server("sglang", 3, "DSPARK"))
    assert kept is not None
    assert kept["settings"] == {"max_running_requests": 63, "max_mamba_cache_size": 63}
    off = admits("lanes", load, states, Server("sglang", 3, "DSPARK", settings={"min_free_slots_delay": 1}))
    assert off is not None
    assert off["value"] == 60
    step = admits("lanes", load, Capacity(lanes=48, batch_tokens=50), Server("vllm"))
    assert step is not None
    assert step["settings"] == {"lanes": 60, "batch_tokens": 60}
    many = admits("lanes", replace(load, streams=9, lanes=8), NINFER, Server("ninfer"))
    assert many is not None
    assert not many["legal"]


def test_what_the_experiments_say_is_the_result() -> None:
    """A verdict that they contradict is withdrawn, and one rival that they leave becomes the verdict."""

    def answers(verdict: Any, rivals: tuple[Any, ...] = ()) -> Any:
        def one(step: Measure) -> Measured:
            made = answer(step, [(3, 1)] * 4, verdict)
            return replace(made, ceiling=Ceiling(verdict, "high", rivals=rivals))

        return one

    ask = replace(ASK, loads=(Load("mine", Burst(4, 74_000)),))
    gone = report(carried_out(ask, answers("lanes")), run="r", engine="ninfer", simulated=False)
    assert gone["loads"][0]["ceiling"]["verdict"] == "lanes"
    assert (gone["ceiling"]["verdict"], gone["ceiling"]["rivals"], gone["admits"]) == ("unknown", ["lanes"], None)
    left = report(carried_out(ask, answers("unknown", ("lanes", "kv_pool"))), run="r", engine="ninfer", simulated=False)
    assert (left["ceiling"]["verdict"], left["ceiling"]["confidence"]) == ("kv_pool", "medium")
    assert left["admits"]["settings"] == {"max_concurrency": 4, "kv_capacity": left["admits"]["pool_tokens"]}


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=30))
def test_waiting_needs_two_reports_and_a_quartile_is_a_seen_value(queue: list[tuple[int, int]]) -> None:
    measured = Measured(Measure(0, 0), queue=tuple(queue))
    if waited(measured):
        assert sum(1 for _, w in queue if w) >= 2
    if queue:
        assert quartile([r for r, _ in queue]) in {float(r) for r, _ in queue}


@given(st.integers(1, 600))
def test_more_lanes_are_more(lanes: int) -> None:
    assert lanes < lanes + more_lanes(lanes) <= max(lanes + 1, lanes * 1.125)


def test_a_burst_has_prompts_of_the_length_asked_that_share_no_beginning() -> None:
    entries = plan_burst(bare_recipe("ninfer", "m"), Burst(3, 900, 2_000), 3, 1, 2, "m")
    texts = [e["body"]["messages"][0]["content"] for e in entries]
    assert len({t[:8] for t in texts}) == len(texts) >= 3
    assert all(abs(len(t) / 4.2 - 2_000) < 200 for t in texts)
    assert {e["body"]["max_tokens"] for e in entries} == {900}
    assert len({e["id"] for e in entries}) == len(entries)
    assert len(plan_burst(bare_recipe("vllm", "m"), Burst(48, 8, 40_000), 0, 1, 1, "m")) == 48


def test_requests_that_ended_are_counted_by_outcome() -> None:
    done = RequestDone("r", "p", "", "burst", 3, 1, 1, "queue_timeout", 0.0)
    found = report([Measured(Measure(3, 1, arm="load1-", burst=Burst(2, 8)), (done,), queue=((1, 1),) * 3,
                             ceiling=Ceiling("lanes"))], run="r", engine="ninfer", simulated=False)  # fmt: skip
    assert found["loads"][0]["measured"]["outcomes"] == {"queue_timeout": 1}
