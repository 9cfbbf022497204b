"""Waiting for memory, who is in the way, high-water marks and the split: on given readings and a given clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from probes.events import Capacity, GpuReading, MemorySample
from probes.gpu.room import SLACK, Blocker, HighWater, blockers, leftovers, room, split, wait_until_free

GIB = 1 << 30


def gpu(
    index: int = 0, used: int | None = 0, *others: tuple[int, str, int | None], total: int = 141 * GIB
) -> GpuReading:
    free = None if used is None else total - used
    return GpuReading(index, "NVIDIA H200", f"GPU-{index}", total=total, used=used, free=free, others=others)


class Clock:
    """Time that passes only while somebody waits."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


Waited = tuple[bool | None, float, dict[str, int], int]


def wait(series: list[list[GpuReading]], baseline: list[GpuReading], limit_s: float = 2.0) -> Waited:
    """Outcome, seconds, what is left, and how often it waited; the last readings stay."""
    clock = Clock()
    looks = iter(series)
    last = [series[-1]]

    def read() -> list[GpuReading]:
        last[0] = next(looks, last[0])
        return last[0]

    freed = wait_until_free(read, baseline, limit_s, clock, clock.wait)
    return freed.ok, freed.waited_s, dict(freed.left), len(clock.waits)


def test_memory_that_is_free_at_once_is_not_waited_for() -> None:
    assert wait([[gpu(0, SLACK)]], [gpu(0, 0)]) == (True, 0.0, {}, 0)


def test_memory_that_falls_is_waited_for_as_long_as_it_takes() -> None:
    series = [[gpu(0, 30 * GIB)], [gpu(0, 12 * GIB)], [gpu(0, 1 * GIB)]]
    assert wait(series, [gpu(0, 1 * GIB)]) == (True, 0.5, {}, 2)


def test_memory_that_stays_is_told_with_its_gpu() -> None:
    stuck = [gpu(0, 2 * GIB), gpu(1, 30 * GIB)]
    assert wait([stuck], [gpu(0, 2 * GIB), gpu(1, 0)], limit_s=1.0) == (False, 1.0, {"GPU-1": 30 * GIB}, 4)


def test_what_strangers_took_meanwhile_is_not_ours_to_wait_for() -> None:
    now = [gpu(0, 20 * GIB, (7, "train", 20 * GIB))]
    assert wait([now], [gpu(0, 0)])[0] is True
    assert wait([now], [gpu(0, 0, (7, "train", 20 * GIB))])[0] is False


def test_silence_is_no_answer() -> None:
    assert wait([[gpu(0, None)]], [gpu(0, 0)])[0] is None
    assert wait([[]], [gpu(0, 0)])[0] is None  # the GPU is gone
    assert wait([[gpu(0, None)], [gpu(0, 0)]], [gpu(0, 0)])[0] is True


def test_a_machine_without_gpus_has_nothing_to_wait_for() -> None:
    assert wait([[]], [])[:2] == (True, 0.0)


def test_the_wait_never_outlasts_its_limit() -> None:
    ok, waited, _, _ = wait([[gpu(0, GIB)]], [gpu(0, 0)], limit_s=0.6)
    assert (ok, round(waited, 6)) == (False, 0.6)


def test_strangers_are_in_the_way_only_where_room_is_short() -> None:
    readings = [
        gpu(0, 100 * GIB, (11, "train", 60 * GIB), (12, "game", None), (13, "vllm", 40 * GIB)),
        gpu(1, 10 * GIB, (14, "small", 10 * GIB)),
    ]
    assert blockers(readings, 80 * GIB) == (
        Blocker(0, 11, "train", 60 * GIB),
        Blocker(0, 13, "vllm", 40 * GIB),
        Blocker(0, 12, "game", None),
    )
    assert blockers(readings, 20 * GIB) == ()
    assert len(blockers(readings, None)) == 4


def test_room_says_who_holds_what() -> None:
    found = room([gpu(0, 100 * GIB, (11, "train", 60 * GIB)), gpu(1, 0)], 80 * GIB)
    assert found.fits is False
    assert found.sentence == "GPU 0: 80.0 GiB needed, 41.0 GiB free; train (pid 11) holds 60.0 GiB"
    assert room([gpu(0, 0), gpu(1, 41 * GIB)], 80 * GIB).sentence == "80.0 GiB needed, 100.0 GiB free"
    assert room([gpu(0, 100 * GIB)], 80 * GIB).sentence.endswith("no process is named by the driver")
    assert room([gpu(0, 0, total=24 * GIB)], 80 * GIB).sentence.endswith("the GPU is too small")
    assert room([gpu(0, None)], 1).fits is None
    assert room([], 1).fits is None


def test_a_leftover_is_ours_only_with_its_own_birthday() -> None:
    readings = [gpu(0, 9 * GIB, (11, "python", 4 * GIB), (12, "python", 5 * GIB), (13, "python", None))]
    alive = {11: 500.01, 12: 900.0}
    found = leftovers(readings, {11: 500.0, 12: 500.0, 13: 500.0}, alive.get)
    assert found == (Blocker(0, 11, "python", 4 * GIB),)


def sample(phase: str, *gpus: GpuReading, restart: int = 1, rss: int | None = None) -> MemorySample:
    return MemorySample(at=0.0, restart=restart, gpus=gpus, phase=phase, server_rss=rss)


def test_free_after_boot_and_free_under_load_are_two_numbers() -> None:
    marks = HighWater()
    boot = [("boot", 3), ("boot", 130), ("boot", 120)]
    for phase, used in (*boot, ("idle", 121), ("idle", 120), ("load", 126), ("load", 122)):
        marks.add(sample(phase, gpu(0, used * GIB), gpu(1, (used - 3) * GIB)))
    assert marks.phases(1) == ("boot", "idle", "load")
    assert marks.free_after_boot(1) == 20 * GIB
    assert marks.free_under_load(1) == 15 * GIB
    mark = marks.mark(1, "boot", "GPU-0")
    assert mark is not None
    assert (mark.peak_used, mark.least_free, mark.last_free, mark.n) == (130 * GIB, 11 * GIB, 21 * GIB, 3)


def test_without_an_idle_moment_the_end_of_the_boot_counts() -> None:
    marks = HighWater()
    marks.add(sample("boot", gpu(0, 130 * GIB)))
    marks.add(sample("boot", gpu(0, 120 * GIB)))
    assert marks.free_after_boot(1) == 21 * GIB
    assert marks.free_under_load(1) is None


def test_restarts_are_kept_apart_and_silence_changes_nothing() -> None:
    marks = HighWater()
    marks.add(sample("load", gpu(0, 100 * GIB), restart=1, rss=5))
    marks.add(sample("load", gpu(0, 50 * GIB), restart=2, rss=9))
    marks.add(sample("load", gpu(0, None), restart=2, rss=7))
    assert marks.free_under_load(1) == 41 * GIB
    assert marks.free_under_load(2) == 91 * GIB
    assert (marks.peak_rss(1, "load"), marks.peak_rss(2, "load"), marks.peak_rss(2, "boot")) == (5, 9, None)


@given(st.lists(st.tuples(st.sampled_from(["boot", "idle", "probe", "load"]), st.integers(0, 141 * GIB)), min_size=1))
def test_a_mark_is_the_extreme_of_its_phase(seen: list[tuple[str, int]]) -> None:
    marks = HighWater()
    for phase, used in seen:
        marks.add(sample(phase, gpu(0, used)))
    for phase in {phase for phase, _ in seen}:
        mark = marks.mark(1, phase, "GPU-0")
        values = [used for name, used in seen if name == phase]
        assert mark is not None
        assert (mark.peak_used, mark.least_free, mark.n) == (max(values), 141 * GIB - max(values), len(values))


def test_the_split_names_what_no_line_accounts_for() -> None:
    found = split(30 * GIB, Capacity(weights_bytes=15 * GIB, kv_bytes=12 * GIB, state_bytes=1 * GIB))
    assert (found.weights, found.pools, found.claimed, found.rest) == (15 * GIB, 13 * GIB, 28 * GIB, 2 * GIB)
    assert found.sentence == (
        "30.0 GiB in use = weights 15.0 GiB + pools 13.0 GiB + 2.0 GiB that no line names "
        "(contexts, graphs and workspaces)"
    )


def test_the_split_does_not_invent_what_the_engine_does_not_say() -> None:
    assert split(30 * GIB, Capacity()).sentence == "30.0 GiB in use; the engine's lines name no part of it"
    only_kv = split(30 * GIB, Capacity(kv_bytes=12 * GIB))
    assert only_kv.weights is None
    assert "that no line names (weights, CUDA contexts and graphs)" in only_kv.sentence


def test_lines_that_claim_more_than_is_in_use_are_caught() -> None:
    found = split(10 * GIB, Capacity(weights_bytes=8 * GIB, kv_bytes=3 * GIB, per="server", ranks=2))
    assert found.rest == -1 * GIB
    assert found.sentence == (
        "the engine's lines claim weights 8.0 GiB + pools 3.0 GiB, 1.0 GiB more than the 10.0 GiB in use; "
        "the lines are per server, not per GPU"
    )
