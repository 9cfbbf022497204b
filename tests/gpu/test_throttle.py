"""Bits to words, and how much of a run they cover."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from probes.events import GpuReading, MemorySample, RequestDone
from probes.gpu import throttle


def sample(*reasons: tuple[str, ...]) -> MemorySample:
    return MemorySample(at=0.0, restart=1, gpus=tuple(GpuReading(i, "x", throttle=r) for i, r in enumerate(reasons)))


def test_idle_and_application_clocks_are_not_throttling() -> None:
    assert throttle.named(0x1 | 0x2 | 0x10 | 0x100, throttle.NVML_BITS) == ()
    assert throttle.named(None, throttle.NVML_BITS) == ()


@given(st.integers(0, 2**64 - 1))
def test_every_bit_that_matters_gives_its_name_alone(mask: int) -> None:
    expected = {name for bit, name in throttle.NVML_BITS if mask & bit}
    assert set(throttle.named(mask, throttle.NVML_BITS)) == expected
    assert (throttle.CURRENT_LIMIT in throttle.named(mask, throttle.AMD_BITS)) == bool(mask >> 16 & 0xFFFF)


def test_shares_count_samples_not_gpus() -> None:
    samples = [
        sample((throttle.POWER_CAP,), (throttle.POWER_CAP,)),
        sample((), (throttle.THERMAL_HBM,)),
        sample((), ()),
    ]
    assert throttle.shares(samples) == {throttle.POWER_CAP: 1 / 3, throttle.THERMAL_HBM: 1 / 3}
    assert throttle.harmful_share(samples) == 1 / 3
    assert throttle.harmful_share([sample((throttle.POWER_CAP,))]) == 0.0


def test_no_gpu_is_no_share() -> None:
    assert throttle.harmful_share([MemorySample(at=0.0, restart=1)]) is None
    assert throttle.shares([]) == {}


def test_only_what_was_measured_counts_and_restarts_of_a_depth_are_pooled() -> None:
    slowed = throttle.Slowed()
    hot, cool = GpuReading(0, "x", throttle=(throttle.THERMAL_HARDWARE,)), GpuReading(0, "x")
    for restart, phase, gpu in ((1, "boot", hot), (1, "probe", cool), (2, "load", hot), (2, "idle", hot)):
        slowed.see(MemorySample(0.0, restart, (gpu,), phase=phase))
    slowed.see(MemorySample(0.0, 3, phase="probe"))
    served = [RequestDone(f"r{n}", "p", "h", "code", 4, n, 0, "ok", 0.0) for n in (1, 2, 2, 3)]
    assert slowed.by_restart() == {1: 0.0, 2: 1.0}
    assert slowed.by_depth(served) == {4: 0.5}
    assert slowed.by_depth(served[:1]) == {4: 0.0}
    assert slowed.by_depth([]) == {}
