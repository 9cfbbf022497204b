"""Who is named before a start that would not fit."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from probes import preset
from probes.events import GpuReading, MemorySample
from probes.memorywatch import MemoryWatch, demand

GIB = 1 << 30
VLLM = preset.load("vllm-ngram")


def gpu(index: int, free: int, *others: tuple[int, str, int | None]) -> GpuReading:
    return GpuReading(index, "big", total=80 * GIB, used=(80 - free) * GIB, free=free * GIB, others=others)


def told(*gpus: GpuReading, peak: int = 0, **settings: Any) -> str | None:
    watch: Any = MemoryWatch(lambda _: None)
    watch._watch, watch._peak = SimpleNamespace(read=lambda: MemorySample(1.0, 1, gpus)), peak * GIB
    said: str | None = asyncio.run(watch.before_start(VLLM, settings))
    return said


def test_a_foreign_process_is_named_before_the_first_start_that_would_not_fit() -> None:
    busy = gpu(0, 50, (77, "trainer", 30 * GIB))
    assert told(busy, gpu_memory=0.9) == (
        "this start takes more than is free: GPU 0: 72.0 GiB needed, 50.0 GiB free; trainer (pid 77) holds 30.0 GiB"
    )
    assert told(busy, gpu_memory=0.6) is None
    assert told(busy, gpu(1, 79), gpu_memory=0.9) is None, "it may be started on the other one"
    assert told() is None


def test_later_starts_are_held_against_the_last_one() -> None:
    assert str(told(gpu(0, 50), peak=60, gpu_memory=0.1)).startswith("the last start took more than is free now")
    assert told(gpu(0, 50), peak=40, gpu_memory=0.9) is None


@pytest.mark.parametrize(
    ("engine", "gpus", "least"), [("ninfer", 1, 4096), ("ninfer", 2, 0), ("llamacpp", 1, 0), ("sglang", 1, 4096)]
)
def test_a_model_of_one_file_takes_its_size(tmp_path: Path, engine: str, gpus: int, least: int) -> None:
    path = tmp_path / "m.bin"
    path.write_bytes(b"x" * 4096)
    recipe = dataclasses.replace(VLLM, engine=engine, model=str(path))
    readings = [gpu(i, 10) for i in range(gpus)]
    assert demand(recipe, {}, readings) == least
    assert demand(dataclasses.replace(recipe, simulated=True), {}, readings) == 0
    assert demand(dataclasses.replace(recipe, model="org/name"), {}, readings) == 0
