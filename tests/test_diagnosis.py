"""The live diagnosis: what the log cannot tell comes from the counters, and belongs to one start."""

from __future__ import annotations

from probes import engines
from probes.diagnosis import Diagnosis
from probes.events import Capacity, CapacityRead, Ceiling, LogRecords, Record


def queue(first: int, count: int) -> LogRecords:
    """Reports two seconds apart: 9 of 64 lanes run, 7 wait, the pool is rather full."""
    records = [
        Record(
            n, "throughput", {"running": 9, "waiting": 7, "kv_usage": 0.97}, f"2026-11-30T20:00:{2 * n:02d}",
            text=f"report {n}",
        )
        for n in range(first, first + count)
    ]  # fmt: skip
    return LogRecords(1, tuple(records))


def judged(*totals: int) -> Ceiling | None:
    """The verdict after a queue during which the preemption counter stood at these values."""
    diagnosis = Diagnosis(engines.engine("vllm"))
    diagnosis.begin(1)
    diagnosis.see(CapacityRead(1, Capacity(lanes=64, kv_pool_tokens=1024), ()))
    diagnosis.see(queue(1, 2))
    for total in totals:
        diagnosis.metrics({"total_preemptions": total, "running": 9, "waiting": 7, "kv_usage": 0.97})
    diagnosis.see(queue(3, 2))
    return diagnosis.news()


def test_preemptions_that_only_the_counter_tells_prove_an_overfilled_pool() -> None:
    found = judged(3, 8, 8, 11)
    assert found is not None
    assert (found.verdict, found.confidence) == ("kv_pool", "high")
    assert "2 times requests were put back" in found.sentence
    assert any("5 requests preempted" in e.text for e in found.evidence)


def test_a_counter_that_stands_still_proves_nothing() -> None:
    found = judged(7, 7)
    assert found is not None
    assert "put back" not in found.sentence


def test_another_start_begins_to_count_anew() -> None:
    diagnosis = Diagnosis(engines.engine("vllm"))
    diagnosis.begin(1)
    diagnosis.metrics({"total_preemptions": 9})
    diagnosis.begin(2)
    diagnosis.metrics({"total_preemptions": 0})
    assert diagnosis.news() is None


def test_a_queue_that_is_over_is_news() -> None:
    """The screen must not go on saying that the pool holds requests back when nothing waits any more."""
    diagnosis = Diagnosis(engines.engine("vllm"))
    diagnosis.begin(1)
    diagnosis.see(CapacityRead(1, Capacity(lanes=9, kv_pool_tokens=1024), ()))
    full = {"running": 9, "waiting": 7, "kv_usage": 0.2}
    before = [Record(n, "throughput", full, f"2026-11-30T20:00:{2 * n:02d}", text=f"{n}") for n in (1, 2, 3, 4)]
    diagnosis.see(LogRecords(1, tuple(before)))
    found = diagnosis.news()
    assert found is not None
    assert (found.verdict, found.until) == ("lanes", None)
    idle = {"running": 0, "waiting": 0, "kv_usage": 0.0}
    after = [Record(n, "throughput", idle, f"2026-11-30T20:00:{2 * n:02d}", text=f"{n}") for n in (5, 6, 7)]
    diagnosis.see(LogRecords(1, tuple(after)))
    found = diagnosis.news()
    assert found is not None
    assert (found.verdict, found.until) == ("lanes", "2026-11-30T20:00:08")
    assert diagnosis.so_far().until is None, "what was measured is judged as a whole"


def test_what_a_prefill_report_lets_in_runs_from_then_on() -> None:
    """SGLang's line counts what ran before it; the experiments compare how many ran."""
    diagnosis = Diagnosis(engines.engine("sglang"))
    diagnosis.begin(1)
    fields = {"running": 1, "waiting": 9, "new_seqs": 6}
    diagnosis.see(LogRecords(1, (Record(1, "prefill", fields), Record(2, "decode", {"running": 7, "waiting": 9}))))
    assert diagnosis.queue == [(7, 9), (7, 9)]


def test_prompts_that_were_computed_at_first_do_not_hold_back_what_waits_ever_after() -> None:
    """Two of twelve reports have a prompt rate, and the number that runs stands still since: the pool, in truth."""
    diagnosis = Diagnosis(engines.engine("ninfer"))
    diagnosis.begin(1)
    diagnosis.see(CapacityRead(1, Capacity(lanes=4, pages=2528, page_tokens=64)))
    records = []
    for n in range(12):
        fields: dict[str, float] = {"running": 2 if n else 1, "decode_ready": 2 if n else 0, "waiting": 3 if n else 4}
        fields |= {"gen_tps": 440.0} if n else {}
        fields |= {"prompt_tps": 17400.0 - 6700 * n} if n < 2 else {}
        records.append(Record(n, "throughput", fields, f"2026-11-30T20:00:{2 * n:02d}"))
    diagnosis.see(LogRecords(1, tuple(records)))
    found = diagnosis.so_far()
    assert found.verdict == "unknown"
    assert "kv_pool" in found.rivals


def test_gauges_that_stand_still_give_way_to_the_log() -> None:
    """SGLang refreshes them when it logs: the same queue sample after sample is no delay of admission."""
    for name, kept in (("sglang", 1), ("vllm", 6)):
        diagnosis = Diagnosis(engines.engine(name))
        diagnosis.begin(1)
        diagnosis.see(CapacityRead(1, Capacity(lanes=48)))
        for _ in range(5):
            diagnosis.metrics({"running": 1, "waiting": 47, "kv_usage": 0.0})
        fields = {"running": 1, "waiting": 45, "new_seqs": 2, "new_tokens": 16384, "kv_usage": 0.01}
        diagnosis.see(LogRecords(1, (Record(1, "prefill", fields, "2026-11-30T20:00:02"),)))
        assert len(diagnosis.queue) == kept
        assert diagnosis.queue[-1] == (3, 45)
