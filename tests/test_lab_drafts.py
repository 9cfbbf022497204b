"""When speculation that was asked for counts as not in force, and when a silent engine proves nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from probes import preset, store
from probes.events import Event, FlagsInForce, GpuReading, MemorySample, RequestDone
from probes.gpu.throttle import THERMAL_HARDWARE
from probes.lab import Lab


def done(number: int, **more: Any) -> RequestDone:
    return RequestDone(f"r{number}", f"p{number}", "h", "code", 3, 1, 0, "ok", sent=1.0, **more)


@pytest.mark.parametrize(
    ("name", "drafted", "told"),
    [
        ("vllm-ngram", (None, None, None), False),  # before 0.30 a reply says nothing of drafts
        ("sglang-eagle3", (None, None, None), False),
        ("vllm-ngram", (0, 0, 0), True),
        ("vllm-ngram", (0, None, 4), False),
        ("vllm-ngram", (0, 0), False),  # too few to say
        ("sglang-eagle3", (30, 30, 30), False),
        ("llamacpp-smollm2-ngram", (None, None, None), True),  # leaves its draft counts out when there are none
    ],
)
def test_missing_drafts_are_told_where_silence_means_none(
    tmp_path: Path, name: str, drafted: tuple[int | None, ...], *, told: bool
) -> None:
    events: list[Event] = []
    run = store.create(tmp_path)
    run.open()
    lab = Lab(preset.load(name), run, events.append)
    lab.bench.depth = 3
    lab._check_drafts([done(i, drafted=n) for i, n in enumerate(drafted)])
    run.close()
    assert [e.proven for e in events if isinstance(e, FlagsInForce)] == ([False] if told else [])
    assert lab.bench.unverified == ({3} if told else set())


@pytest.mark.parametrize(("accepted", "told"), [((0, 0, 0), True), ((0, 4, 0), False)])
def test_counted_chunks_prove_drafts_only_by_an_accepted_one(
    tmp_path: Path, accepted: tuple[int, ...], *, told: bool
) -> None:
    """One token a chunk is what a server without speculation sends too."""
    events: list[Event] = []
    run = store.create(tmp_path)
    run.open()
    lab = Lab(preset.load("sglang-eagle3"), run, events.append)
    lab.bench.depth = 3
    counted = {"drafted": 30, "raw": {"drafts_source": "chunks"}}
    lab._check_drafts([done(i, accepted=n, **counted) for i, n in enumerate(accepted)])
    run.close()
    assert lab.bench.unverified == ({3} if told else set())


def test_a_lab_judges_with_the_time_that_a_gpu_was_slowed(tmp_path: Path) -> None:
    run = store.create(tmp_path)
    run.open()
    lab = Lab(preset.load("vllm-ngram"), run, lambda _: None)
    for number in range(3):
        lab._emit(done(number, first=1.1, last=2.0, done=2.0, completion_tokens=50, first_tokens=1))
    hot = GpuReading(0, "x", throttle=(THERMAL_HARDWARE,))
    lab._emit(MemorySample(0.0, 1, (hot,), phase="probe"))
    told = lab._sweep_judgment()(list(lab.requests.values()))
    run.close()
    assert told["flag_details"]["THROTTLED"] == ["depth 3: the GPU was slowed for 100% of the time, so it cannot win"]
