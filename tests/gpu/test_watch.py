"""The watching thread: ticks, costs, what samples are about, and both vendors at once through their real bindings."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.events import GpuReading, MemorySample
from probes.gpu.devices import Device
from probes.gpu.host import Owners
from probes.gpu.watch import BUDGET, Watch, next_tick

Ask = Callable[..., dict[str, Any]]


class Gpus:
    """Two GPUs that only count how they are read."""

    vendor = "nvidia"
    why: str | None = None
    driver: str | None = None

    def __init__(self) -> None:
        self.devices: tuple[Device, ...] = (Device("nvidia", 0, "x", "GPU-a"), Device("nvidia", 1, "x", "GPU-b"))
        self.slow: list[bool] = []
        self.groups: list[int | None] = []
        self.closed = 0

    def read(self, owners: Owners, chosen: Iterable[Device] | None = None, *, slow: bool = True) -> list[GpuReading]:
        self.slow.append(slow)
        self.groups.append(owners.group.pgid)
        return [GpuReading(d.index, d.name, d.uuid, free=10 - d.index) for d in chosen or ()]

    def close(self) -> None:
        self.closed += 1


def watch(gpus: Gpus, **settings: Any) -> tuple[Watch, queue.Queue[MemorySample], list[float]]:
    samples: queue.Queue[MemorySample] = queue.Queue()
    now = [0.0]
    made = Watch(samples.put, gpus=[gpus], environ={}, clock=lambda: now[0], **settings)
    return made, samples, now


def test_samples_say_what_they_are_about() -> None:
    gpus = Gpus()
    made, _, _ = watch(gpus)
    made.set(restart=3, phase="boot", pgid=os.getpgid(0))
    sample = made.read()
    assert (sample.restart, sample.phase) == (3, "boot")
    assert sample.server_rss is not None
    assert gpus.groups == [os.getpgid(0)]
    made.set(phase="load")
    assert (made.read().restart, made.read().phase) == (3, "load")
    made.set(gone=True)
    assert made.read().server_rss is None
    assert gpus.groups[-1] is None


def test_the_tightest_gpu_comes_first_and_only_visible_ones_are_read() -> None:
    gpus = Gpus()
    made, _, _ = watch(gpus)
    assert [reading.index for reading in made.read().gpus] == [1, 0]
    chosen = Watch(print, gpus=[gpus], environ={"CUDA_VISIBLE_DEVICES": "0"})
    assert [reading.index for reading in chosen.read().gpus] == [0]


def test_slow_things_are_asked_once_a_second() -> None:
    gpus = Gpus()
    made, _, now = watch(gpus, hz=5)
    for tick in range(11):
        now[0] = tick * 0.2
        made.read()
    assert gpus.slow == [tick in {0, 5, 10} for tick in range(11)]


@given(st.floats(0, 1e6), st.floats(0, 1e5), st.floats(0.2, 1.0))
def test_ticks_are_skipped_and_never_made_up(start: float, passed: float, period: float) -> None:
    now = start + passed
    tick = next_tick(start, now, period)
    assert now - 1e-6 < tick <= now + period + 1e-6
    assert abs((tick - start) / period - round((tick - start) / period)) < 1e-3


def test_a_reading_that_takes_three_ticks_makes_no_backlog() -> None:
    assert next_tick(0.0, 0.05, 0.2) == pytest.approx(0.2)
    assert next_tick(0.0, 0.65, 0.2) == pytest.approx(0.8)
    assert next_tick(0.0, 0.2, 0.2) == pytest.approx(0.4)


def test_a_dear_reading_makes_readings_rarer() -> None:
    made, _, _ = watch(Gpus(), hz=5)
    assert made.stretched(500) == pytest.approx(0.2)
    assert made.stretched(4000) == pytest.approx(0.4)
    assert 4000 / 1e6 / made.stretched(4000) == pytest.approx(BUDGET)
    assert made.stretched(50_000) == 1.0


def test_the_cost_of_a_reading_is_in_the_sample() -> None:
    cpu = iter([1.0, 1.25])
    made, _, _ = watch(Gpus(), cpu=lambda: next(cpu))
    assert made.read().poll_us == pytest.approx(250_000)


def test_the_thread_hands_samples_on_and_ends() -> None:
    gpus = Gpus()
    samples: queue.Queue[MemorySample] = queue.Queue()
    made = Watch(samples.put, gpus=[gpus], environ={}, hz=5)
    made.start()
    first, second = samples.get(timeout=30), samples.get(timeout=30)
    assert second.at >= first.at
    assert made.stop(timeout_s=30)
    assert gpus.closed == 1
    assert "gpu-watch" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(RuntimeError, match="already"):
        made.start()


def test_a_driver_that_hangs_does_not_hang_the_program() -> None:
    release, entered = threading.Event(), threading.Event()

    class Hanging(Gpus):
        def read(
            self, owners: Owners, chosen: Iterable[Device] | None = None, *, slow: bool = True
        ) -> list[GpuReading]:
            entered.set()
            release.wait(60)
            return super().read(owners, chosen, slow=slow)

    gpus = Hanging()
    made = Watch(lambda _: None, gpus=[gpus], environ={})
    made.start()
    assert entered.wait(30)
    assert made.stop(timeout_s=0.01) is False
    assert gpus.closed == 0  # the library is in use
    release.set()
    assert made.stop(timeout_s=30)


@pytest.mark.parametrize("hz", [0.5, 6.0])
def test_a_rate_outside_its_range_is_refused(hz: float) -> None:
    with pytest.raises(ValueError, match="1 to 5 times"):
        watch(Gpus(), hz=hz)


SURVEY = """
from probes.gpu.watch import Watch
made = Watch(print, environ=dict(os.environ))
answers["why"] = list(made.why)
sample = made.read()
answers["gpus"] = gpus(sample.gpus)
answers["host"] = sample.host_total
"""


def test_both_vendors_in_one_machine(nvidia: Ask, rocm_folder: Path) -> None:
    answer = nvidia(
        SURVEY, STUB_GPUS="2", CUDA_VISIBLE_DEVICES="1", HIP_VISIBLE_DEVICES="0,1", ROCM_PATH=str(rocm_folder)
    )
    names = [(gpu["name"], gpu["index"]) for gpu in answer["gpus"]]
    assert sorted(names) == [("AMD Instinct MI300X", 0), ("AMD Instinct MI300X", 1), ("NVIDIA H200", 1)]
    assert answer["why"] == []
    assert answer["stdout"] == answer["stderr"] == ""


def test_no_gpu_at_all_is_two_reasons_and_the_host(bare: Ask) -> None:
    answer = bare(SURVEY)
    assert answer["why"] == ["no NVIDIA driver library (libnvidia-ml.so.1)", "no AMD driver library (libamd_smi.so)"]
    assert answer["gpus"] == []
    assert answer["host"] > 0
    assert answer["stdout"] == answer["stderr"] == ""
