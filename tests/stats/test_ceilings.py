"""The judge: golden cases of the rule table, and the mechanisms that must not be mistaken for one another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from probes.events import Capacity, Ceiling, Record, RequestDone, RequestSent
from probes.stats.ceilings import Judge, judge_all
from probes.stats.timeline import TIMELINE
from probes.stats.windows import Traits

NINFER = Traits("ninfer", reserving=True, report_s=5.0, omits_zero=True)
SGLANG = Traits("sglang", reserving=None, report_s=1.0, estimate_tokens=4096, delays=True)
VLLM = Traits("vllm", reserving=False, report_s=10.0)
LLAMA = Traits("llamacpp", reserving=False, report_s=3.0)
TRAITS = {t.name: t for t in (NINFER, SGLANG, VLLM, LLAMA)}


def report(line: int, kind: str = "throughput", rank: int | None = None, **fields: Any) -> Record:
    at = f"2026-05-04T10:{line // 60 % 60:02d}:{line % 60:02d}"
    return Record(line, kind, fields, at, None if rank is None else {"DP": rank}, text=f"line {line}")  # type: ignore[arg-type]


def started(line: int, name: str, max_tokens: int) -> Record:
    return Record(line, "request", {"phase": "started", "request_id": name, "max_tokens": max_tokens})


def sent(name: str, prompt: int, output: int) -> RequestSent:
    return RequestSent(name, float(len(name)), name, "code", output, 0, prompt)


def test_golden_cases(golden: Path) -> None:
    cases = yaml.safe_load((golden / "ceiling_rules.yaml").read_text())["golden"]
    assert len(cases) == 5
    for case in cases:
        traits = TRAITS[case["engine"]]
        reports = [{k: case[k] for k in ("running", "waiting", "kv_usage") if k in case}] * 3
        usage = case.get("state_usage", case.get("mamba_usage"))
        slots, each = case.get("mamba_slots"), case.get("slots_per_request")
        lanes = case.get("lanes", slots // each if slots else None)
        capacity = Capacity(
            kv_pool_tokens=case.get("pool"), lanes=lanes, state_slots=slots, state_slots_per_request=each
        )
        judge = Judge(traits)
        judge.capacity(capacity)
        for number, tokens in enumerate(case.get("in_flight") or []):
            judge.sent(sent(str(number), tokens - 1000, 1000))
        for at, fields in enumerate(reports):
            state = {} if usage is None else {"state_usage": usage}
            judge.see(report(5 * at, **fields, **state))
        found = judge.verdict()
        assert found.verdict == case["expect"].lower().replace("lane", "lanes"), case["why"]
        if "confidence" in case:
            assert found.confidence == case["confidence"]
        if case.get("also") == "LANE":
            assert "lanes" in found.rivals


def test_same_waiting_line_two_ceilings_by_the_logs_own_ledger() -> None:
    capacity = Capacity(
        kv_pool_tokens=128000, pages=2000, page_tokens=64, worst_case_pages=6000, lanes=3, reserving=True,
        lines={"pages": 2, "lanes": 3},
    )  # fmt: skip
    queue = [report(10 + 5 * i, running=2, decode_ready=2, waiting=1) for i in range(3)]
    pool = judge_all(NINFER, [*(started(5 + i, str(i), 50000) for i in range(3)), *queue], capacity)
    assert (pool.verdict, pool.confidence) == ("kv_pool", "high")
    assert {2, 3, 10} <= {e.line for e in pool.evidence}
    full = [report(10 + 5 * i, running=3, decode_ready=3, waiting=1) for i in range(3)]
    lanes = judge_all(NINFER, [*(started(5 + i, str(i), 900) for i in range(4)), *full], capacity)
    assert (lanes.verdict, lanes.confidence) == ("lanes", "high")
    bare = judge_all(NINFER, queue, Capacity())
    assert bare.verdict == "unknown"
    assert "the number of lanes" in bare.missing
    assert any("pool" in m for m in bare.missing)


def test_both_limits_at_once_are_undecided() -> None:
    capacity = Capacity(pages=100, page_tokens=64, worst_case_pages=300, lanes=2, reserving=True)
    records = [
        *(started(i, str(i), 3000) for i in range(3)),
        *(report(10 + 5 * i, running=2, decode_ready=2, waiting=1) for i in range(3)),
    ]
    found = judge_all(NINFER, records, capacity)
    assert found.verdict == "unknown"
    assert set(found.rivals) == {"lanes", "kv_pool"}


def test_running_requests_over_the_pool_disprove_reservation() -> None:
    capacity = Capacity(pages=100, page_tokens=64, worst_case_pages=1000, lanes=4, reserving=True)
    records = [
        *(started(i, str(i), 6000) for i in range(3)),
        *(report(10 + 5 * i, running=2, decode_ready=2, waiting=1) for i in range(3)),
    ]
    assert judge_all(NINFER, records, capacity).verdict == "unknown"


@pytest.mark.parametrize("count", [1, 2])
def test_a_short_queue_is_no_ceiling(count: int) -> None:
    quiet = [report(i, "decode", running=3, waiting=0, kv_usage=0.2) for i in range(10)]
    burst = [report(20 + i, "decode", running=4, waiting=2, kv_usage=0.2) for i in range(count)]
    after = [report(40 + i, "decode", running=4, waiting=0, kv_usage=0.2) for i in range(5)]
    capacity = Capacity(lanes=4)
    assert judge_all(SGLANG, [*quiet, *burst, *after], capacity).verdict == "none"
    assert judge_all(SGLANG, burst, capacity).verdict == "unknown"


@pytest.mark.parametrize(("brief", "says"), [(0, ("none", "high")), (1, ("none", "medium")), (3, ("none", "low")),
                                             (5, ("unknown", "low"))])  # fmt: skip
def test_queues_that_come_and_go_are_not_nothing(brief: int, says: tuple[str, str]) -> None:
    """Twelve reports without a queue, and so many queues of one report among them: 0, 8, 20 and 29 %."""
    records = []
    for i in range(12):
        records.append(report(10 * i, "decode", running=4, waiting=0, kv_usage=0.2))
        if i < brief:
            records.append(report(10 * i + 5, "decode", running=4, waiting=2, kv_usage=0.2))
    found = judge_all(SGLANG, records, Capacity(lanes=8))
    assert (found.verdict, found.confidence) == says
    if found.verdict == "unknown":
        assert "5 of 17 reports" in found.sentence
        assert found.missing


def test_full_pool_at_all_lanes_is_undecided() -> None:
    records = [report(i, "decode", running=8, waiting=3, kv_usage=0.97) for i in range(6)]
    found = judge_all(SGLANG, records, Capacity(lanes=8))
    assert found.verdict == "unknown"
    assert set(found.rivals) == {"lanes", "kv_pool"}


def test_the_sliding_window_pool_counts_too() -> None:
    records = [report(i, "decode", running=5, waiting=3, kv_usage=0.2, swa_usage=0.98) for i in range(6)]
    assert judge_all(SGLANG, records, Capacity(lanes=32)).verdict == "kv_pool"


def test_a_full_pool_needs_a_moving_number_when_lanes_are_unknown() -> None:
    still = [report(i, running=6, waiting=5, kv_usage=0.93) for i in range(5)]
    assert judge_all(VLLM, still, Capacity()).verdict == "unknown"
    moving = [report(10 * i, running=20 - i, waiting=5, kv_usage=0.96) for i in range(5)]
    assert judge_all(VLLM, moving, Capacity()).verdict == "kv_pool"


def test_put_back_requests_prove_the_pool_though_it_is_half_empty_between() -> None:
    records = [report(i, "decode", running=3, waiting=9, kv_usage=0.3 + 0.02 * (i % 30)) for i in range(60)]
    records.insert(40, report(40, "retract", retracted=1))
    records.append(report(60, "decode", running=3, waiting=9, kv_usage=0.98))
    found = judge_all(SGLANG, records, Capacity(lanes=16, kv_pool_tokens=1200))
    assert found.verdict == "kv_pool"
    assert 40 in {e.line for e in found.evidence}
    # The same saw-tooth without the retraction leaves room for other explanations.
    calm = [r for r in records if r.kind == "decode" and r.fields["kv_usage"] < 0.9]
    assert judge_all(SGLANG, calm, Capacity(lanes=16, kv_pool_tokens=1200)).verdict == "unknown"


def test_just_as_many_state_slots_as_lanes_can_not_be_told_apart() -> None:
    records = [report(i, "decode", running=48, waiting=9, kv_usage=0.3, state_usage=1.0) for i in range(4)]
    found = judge_all(SGLANG, records, Capacity(lanes=48, state_slots=48, state_slots_per_request=1))
    assert found.verdict == "unknown"
    assert set(found.rivals) == {"lanes", "state_pool"}


def test_free_state_slots_below_one_request() -> None:
    records = [
        report(i, "decode", running=6, waiting=4, kv_usage=0.3, state_usage=0.96, state_slots_used=48) for i in range(4)
    ]
    found = judge_all(SGLANG, records, Capacity(lanes=32, state_slots=50, state_slots_per_request=5))
    assert (found.verdict, found.confidence) == ("state_pool", "high")


def delayed(**fields: Any) -> list[Record]:
    return [report(3 * i, "decode", running=40 - i, waiting=20 + i, **fields) for i in range(5)]


def test_delay_needs_the_pool_excluded_or_the_switch_seen() -> None:
    big = Capacity(lanes=96, kv_pool_tokens=2_000_000)
    tight = Capacity(lanes=96, kv_pool_tokens=150_000)
    boot = Record(1, "boot", {"delayer": True})
    assert judge_all(SGLANG, [boot, *delayed(kv_usage=0.2)], big).confidence == "high"
    assert judge_all(SGLANG, delayed(kv_usage=0.2), big).verdict == "admission_delay"
    assert judge_all(SGLANG, delayed(kv_usage=0.7), tight).verdict == "unknown"
    # An engine without such rules can't be delaying.
    assert judge_all(VLLM, delayed(kv_usage=0.2), big).verdict == "unknown"


def wave(step: int, new_tokens: int = 8192, usage: float = 0.2) -> list[Record]:
    return [
        report(
            i, "prefill", running=10 + step * i, new_seqs=2, waiting=30 - 3 * i, new_tokens=new_tokens,
            pending_tokens=90000, kv_usage=usage,
        )
        for i in range(6)
    ]  # fmt: skip


def test_prefill_needs_steps_filled_to_their_limit() -> None:
    assert judge_all(SGLANG, wave(2), Capacity(lanes=128)).verdict == "prefill"
    assert judge_all(SGLANG, wave(2), Capacity()).verdict == "prefill"
    assert judge_all(SGLANG, wave(2), Capacity(lanes=128, batch_tokens=16384)).verdict == "unknown"
    assert judge_all(SGLANG, wave(2, 700), Capacity(lanes=128)).verdict == "unknown"


def test_prefill_far_below_every_other_limit_need_not_grow() -> None:
    roomy = Capacity(lanes=128, kv_pool_tokens=2_000_000)
    assert judge_all(SGLANG, wave(0), roomy).verdict == "prefill"
    assert judge_all(SGLANG, wave(0), Capacity()).verdict == "unknown"
    assert judge_all(SGLANG, wave(0), Capacity(lanes=13, kv_pool_tokens=2_000_000)).verdict != "prefill"
    # The pool may be set aside for what runs: then filled steps prove nothing.
    assert judge_all(SGLANG, wave(0), Capacity(lanes=128, kv_pool_tokens=40_000)).verdict == "unknown"
    assert judge_all(SGLANG, wave(0, usage=0.95), roomy).verdict == "kv_pool"


def test_few_large_requests_fill_a_pool_before_it_reads_full() -> None:
    records = [report(10 * i, running=3, waiting=5, kv_usage=0.82, prompt_tps=0.0, gen_tps=60.0) for i in range(5)]
    assert judge_all(VLLM, records, Capacity(lanes=16)).verdict == "kv_pool"
    many = [report(10 * i, running=12, waiting=5, kv_usage=0.82, prompt_tps=0.0, gen_tps=60.0) for i in range(5)]
    assert judge_all(VLLM, many, Capacity(lanes=64)).verdict == "unknown"


def test_busy_prompts_far_below_lanes_and_pool() -> None:
    def load(running: int, prompt: float) -> list[Record]:
        return [
            report(10 * i, running=running, waiting=40, kv_usage=0.3, prompt_tps=prompt, gen_tps=400.0)
            for i in range(5)
        ]

    assert judge_all(VLLM, load(14, 9000.0), Capacity(lanes=64)).verdict == "prefill"
    assert judge_all(VLLM, load(14, 500.0), Capacity(lanes=64)).verdict == "unknown"
    assert judge_all(VLLM, load(60, 9000.0), Capacity(lanes=64)).verdict == "unknown"
    assert judge_all(VLLM, load(64, 9000.0), Capacity(lanes=64)).verdict == "lanes"


def test_lanes_of_a_hybrid_model_may_be_what_its_state_slots_allow() -> None:
    records = [report(i, "decode", running=8, waiting=3, kv_usage=0.35, state_usage=0.8) for i in range(4)]
    found = judge_all(SGLANG, records, Capacity(lanes=8))
    assert found.verdict == "unknown"
    assert set(found.rivals) == {"lanes", "state_pool"}
    known = Capacity(lanes=8, state_slots=80, state_slots_per_request=5)
    assert judge_all(SGLANG, records, known).verdict == "lanes"


def test_waiting_behind_nothing_is_not_a_pool() -> None:
    records = [report(10 * i, running=0, waiting=6, kv_usage=0.0) for i in range(5)]
    found = judge_all(VLLM, records, Capacity(lanes=64))
    assert found.verdict == "unknown"
    assert "nothing runs" in found.sentence


def test_ranks_are_judged_against_lanes_of_one_rank() -> None:
    records = [report(i, "decode", rank=i % 4, running=12, waiting=4, kv_usage=0.3) for i in range(16)]
    found = judge_all(SGLANG, records, Capacity(lanes=12, ranks=4))
    assert (found.verdict, found.confidence) == ("lanes", "high")
    summed = judge_all(SGLANG, records, Capacity(lanes=48))
    assert summed.verdict != "lanes"


def test_what_the_engine_says_itself() -> None:
    no_room = [Record(i, "error", {"pool_exhausted": True}, text="no room") for i in range(3)]
    assert judge_all(LLAMA, no_room, Capacity()).verdict == "kv_pool"
    no_lane = [Record(i, "request", {"deferred_task": i}, text="defer") for i in range(3)]
    assert judge_all(LLAMA, no_lane, Capacity()).verdict == "lanes"
    assert judge_all(LLAMA, [*no_room, *no_lane], Capacity()).verdict == "unknown"


def test_client_only_with_a_known_number_asked_for() -> None:
    records = [report(10 * i, running=3, waiting=0, kv_usage=0.1) for i in range(12)]
    assert judge_all(VLLM, records, Capacity(lanes=64)).verdict == "none"
    judge = Judge(VLLM, requested=16)
    judge.capacity(Capacity(lanes=64))
    for record in records:
        judge.see(record)
    assert judge.verdict().verdict == "client"


def test_only_the_last_start_is_judged_and_the_timeline_tells_all() -> None:
    judge = Judge(SGLANG)
    judge.see(Record(1, "boot"))
    judge.capacity(Capacity(lanes=4))
    for i in range(5):
        judge.see(report(10 + i, "decode", running=4, waiting=2, kv_usage=0.1))
    judge.see(Record(20, "boot"))
    judge.capacity(Capacity(lanes=64))
    for i in range(5):
        judge.see(report(30 + i, "decode", running=20, waiting=0, kv_usage=0.1))
    assert judge.verdict().verdict == "none"
    assert [(s.start, s.verdict) for s in judge.timeline()] == [(0, "lanes"), (1, "none")]


def test_changing_limits_are_named_as_rivals() -> None:
    lanes = [report(i, "decode", running=8, waiting=2, kv_usage=0.2) for i in range(5)]
    free = [report(20, "decode", running=3, waiting=0, kv_usage=0.2)]
    pool = [report(30 + i, "decode", running=4, waiting=2, kv_usage=0.97) for i in range(5)]
    found = judge_all(SGLANG, [*lanes, *free, *pool], Capacity(lanes=8))
    assert found.verdict == "unknown"
    assert set(found.rivals) == {"lanes", "kv_pool"}


def test_live_ledger_drops_what_is_done() -> None:
    judge = Judge(NINFER)
    judge.capacity(Capacity(pages=1000, page_tokens=64, lanes=4, reserving=True))
    for name in ("a", "b", "c", "d"):
        judge.sent(sent(name, 64, 30000))
    judge.done(RequestDone("a", "a", "", "code", 0, 0, 0, "ok", 0.0))
    for i in range(3):
        judge.see(report(5 * i, running=2, decode_ready=2, waiting=1))
    found = judge.verdict()
    assert (found.verdict, found.confidence) == ("kv_pool", "high")


def estimated(usage: float, output: int, lanes: int = 64, running: int = 14, step: int = 90, **boot: Any) -> Ceiling:
    """Forty requests of 90 + `output` tokens on a pool of 6,000: so many run in 30 reports, and the rest wait.

    `step`: tokens of each step of prompts, of 512 at most.
    """
    judge = Judge(SGLANG)
    judge.capacity(
        Capacity(kv_pool_tokens=6000, lanes=lanes, batch_tokens=512, lines={"kv_pool_tokens": 2, "lanes": 2})
    )
    judge.see(report(1, "boot", **boot))
    for n in range(40):
        judge.sent(sent(str(n), 90, output))
    for i in range(30):
        kind, new = ("prefill", {"new_tokens": step}) if i % 3 == 0 or step == 512 else ("decode", {})
        judge.see(report(10 + i, kind, running=running, waiting=40 - running, kv_usage=usage, **new))
    return judge.verdict()


def test_what_an_estimate_sets_aside_fills_a_pool_that_reads_half_empty() -> None:
    """In use 2,160 of 6,000; a tenth of the 20,100 that may still come is set aside; the next needs 1,590."""
    found = estimated(0.36, 1500)
    assert (found.verdict, found.confidence, found.rivals) == ("kv_pool", "medium", ())
    assert "2,160 of 6,000 tokens are in use, at least 1,970 more are set aside for what 14 running" in found.sentence
    assert "the next needs 1,590 at once: 95% of the pool, with 14 of 64 lanes taken" in found.sentence
    assert "all of its own at once" in (found.experiment or "")
    assert "max_tokens" in (found.advice or "")


def test_what_may_be_set_aside_counts_where_nothing_else_can_be_short() -> None:
    """Whole outputs would be 11 x 590 of 6,000 tokens; at the floor of the estimate 2,250 are enough."""
    found = estimated(0.2, 500, running=10)
    assert (found.verdict, found.confidence, found.rivals) == ("kv_pool", "medium", ("admission_delay",))
    assert "1,200 of 6,000 tokens are in use, up to 4,700 more are set aside for what 10 running" in found.sentence
    assert estimated(0.2, 500, running=10, step=512).verdict != "kv_pool"
    assert estimated(0.2, 500, running=10, delayer=True).verdict != "kv_pool"
    assert estimated(0.2, 500, running=9).verdict != "kv_pool"
    assert estimated(0.2, 500, running=10, lanes=11).verdict != "kv_pool"


@pytest.mark.parametrize(("factor", "sure"), [(0.3, False), (1.0, True), (10.0, True)])
def test_the_floor_of_an_estimate_moves_with_its_factor(factor: float, sure: bool) -> None:
    found = estimated(0.36, 1500, schedule_conservativeness=factor)
    assert ("at least" in found.sentence) == sure


def test_lanes_and_an_estimate_that_bind_together_are_undecided() -> None:
    found = estimated(0.36, 1500, lanes=14)
    assert found.verdict == "unknown"
    assert set(found.rivals) == {"lanes", "kv_pool"}


def test_views_span_a_whole_stretch_and_stay_few() -> None:
    """The first reports of a load tell little: its outputs have hardly begun."""
    judge = Judge(SGLANG)
    judge.capacity(Capacity(kv_pool_tokens=6000, lanes=64, max_context=2048))
    for n in range(40):
        judge.sent(sent(str(n), 90, 1500))
    for i in range(12):
        judge.see(report(10 + i, "decode", running=2, waiting=38, kv_usage=0.06))
    assert judge.verdict().verdict != "kv_pool"
    for i in range(500):
        judge.see(report(30 + i, "decode", running=14, waiting=26, kv_usage=0.36))
    assert judge.verdict().verdict == "kv_pool"
    (window,) = judge._streams.open.values()
    assert 6 <= len(window.views) <= 12


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["decode", "prefill", "throughput", "retract", "boot", "exit", "request", "error", "spec"]),
            st.integers(0, 40),
            st.integers(0, 40) | st.none(),
            st.floats(0, 1) | st.none(),
            st.integers(0, 3),
        ),
        max_size=40,
    ),
    st.integers(1, 20) | st.none(),
    st.sampled_from(list(TRAITS.values())),
)
def test_never_raises_and_names_only_what_it_can_show(rows: list[Any], lanes: int | None, traits: Traits) -> None:
    judge = Judge(traits)
    capacity = Capacity(lanes=lanes, pages=50, page_tokens=64)
    for line, (kind, running, waiting, usage, rank) in enumerate(rows, 1):
        fields = {"running": running, "waiting": waiting, "kv_usage": usage}
        judge.see(report(line, kind, rank, **{k: v for k, v in fields.items() if v is not None}))
        judge.capacity(capacity)
        found = judge.verdict()
        if found.verdict not in {"none", "unknown"}:
            assert found.evidence
            assert found.experiment
            assert found.advice
        if found.verdict == "lanes":
            assert lanes is not None
        assert all(1 <= e.line <= line for e in found.evidence if e.line)
    assert len(judge.timeline()) <= TIMELINE


def test_state_is_bounded_over_many_stretches() -> None:
    judge = Judge(SGLANG)
    judge.capacity(Capacity(lanes=4))
    for i in range(20000):
        waits = 1 if i // 4 % 2 else 0
        judge.see(report(i, "decode", running=4 if waits else 3, waiting=waits, kv_usage=0.1))
    assert len(judge.timeline()) <= TIMELINE
    assert judge.verdict().verdict == "lanes"


def test_fewer_run_than_before_at_a_full_pool_so_lanes_are_not_the_limit() -> None:
    judge = Judge(VLLM)
    judge.see(report(0, running=9, waiting=0, kv_usage=0.9))
    for at in (10, 20, 30):
        judge.see(report(at, running=8, waiting=1, kv_usage=0.999))
    assert (judge.verdict().verdict, judge.verdict().confidence) == ("kv_pool", "medium")
    assert judge.verdict().rivals == ()
    judge.restart(31)  # what ran before the restart says nothing about the lanes after it
    for at in (40, 50, 60):
        judge.see(report(at, running=8, waiting=1, kv_usage=0.999))
    assert judge.verdict().rivals == ("lanes",)


def test_swapped_requests_wait_for_the_pool() -> None:
    reports = [report(at, running=20, waiting=0, swapped=4, kv_usage=0.97) for at in (0, 5, 10)]
    found = judge_all(VLLM, reports, Capacity(lanes=256))
    assert (found.verdict, found.confidence) == ("kv_pool", "high")
    none = [report(at, running=20, waiting=0, swapped=0, kv_usage=0.97) for at in (0, 5, 10)]
    assert judge_all(VLLM, none, Capacity(lanes=256)).verdict == "none"


@pytest.mark.parametrize(
    ("boot", "usage", "verdict"),
    [({}, 0.2, "lanes"), ({}, 0.8, "unknown"), ({"speculative_algorithm": "DSPARK"}, 0.2, "unknown")],
)
def test_one_lane_short_of_all(boot: dict[str, Any], usage: float, verdict: str) -> None:
    judge = Judge(SGLANG)
    judge.see(Record(1, "boot", boot))
    judge.capacity(Capacity(lanes=16, kv_pool_tokens=900_000))
    for at in range(2, 8):
        judge.see(report(at, "decode", running=15, waiting=1, kv_usage=usage))
    assert judge.verdict().verdict == verdict


@pytest.mark.parametrize(("ranks", "verdict"), [(1, "state_pool"), (4, "unknown")])
def test_lanes_below_the_default_were_cut_by_the_state_pool(ranks: int, verdict: str) -> None:
    judge = Judge(SGLANG)
    judge.see(Record(1, "boot", {"dp_size": ranks}))
    judge.see(Record(2, "capacity", {"default_lanes": 48}))
    judge.capacity(Capacity(lanes=12, state_slots=60, kv_pool_tokens=900_000))
    for at in range(3, 8):
        judge.see(report(at, "decode", running=12, waiting=3, kv_usage=0.2, state_usage=0.8, state_slots_used=48))
    assert judge.verdict().verdict == verdict


def test_words_agree_with_their_numbers() -> None:
    judge = Judge(VLLM)
    for at in (0, 10, 20):
        judge.see(report(at, running=1, waiting=1, kv_usage=0.2))
    assert "Up to 1 waits while 1 runs" in judge.verdict().sentence
    assert "1 to 1" not in judge.verdict().sentence


def test_paused_requests_wait_for_the_pool() -> None:
    newer = Capacity(lanes=4, pages=1024, page_tokens=64)  # a build that may not promise whole outputs
    reports = [report(at, running=2, decode_ready=2, paused=1) for at in (0, 5, 10)]
    found = judge_all(NINFER, reports, newer)
    assert (found.verdict, [e.line for e in found.evidence]) == ("kv_pool", [0, 5, 10])


@pytest.mark.parametrize(
    ("running", "usage", "lanes", "verdict", "sure"),
    [(0, 0.1, 64, "prefill", "medium"), (0, 0.1, None, "prefill", "low"), (0, 0.8, None, "unknown", "low"),
     (9, 0.1, None, "unknown", "low"), (0, 0.1, 1, "lanes", "high")],
)  # fmt: skip
def test_one_long_prompt_in_pieces_holds_the_next_back(
    running: int, usage: float, lanes: int | None, verdict: str, sure: str
) -> None:
    steps = [
        report(at, "prefill", running=running, waiting=1, new_seqs=1, new_tokens=8192, kv_usage=usage)
        for at in range(5)
    ]
    found = judge_all(SGLANG, steps, Capacity(lanes=lanes, batch_tokens=8192))
    assert (found.verdict, found.confidence) == (verdict, sure)


def test_a_single_lane_is_not_spoken_of_as_many() -> None:
    judge = Judge(VLLM)
    judge.capacity(Capacity(lanes=1, kv_pool_tokens=4096))
    for n in range(4):
        judge.see(report(10 * n, running=1, waiting=2, kv_usage=0.1))
    assert "The only lane is taken in 4 of 4 reports" in judge.verdict().sentence
