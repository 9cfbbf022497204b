"""The doctor on a machine with GPUs."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

Ask = Callable[..., dict[str, Any]]

SCRIPT = """
from probes.commands import doctor
answers["rows"] = [dataclasses.asdict(row) for row in doctor.gpus()]
"""


def test_gpus_are_told_with_who_is_on_them_and_what_slows_them(nvidia: Ask) -> None:
    answer = nvidia(
        SCRIPT,
        STUB_GPUS="3",
        STUB_USED=str(30 << 30),
        STUB_PROCS=f"{os.getpid()}:{30 << 30}",
        STUB_REASONS="0x40",
        CUDA_VISIBLE_DEVICES="0,2,7",
    )
    first, second, amd, note = answer["rows"]
    assert first["name"] == "GPU 0"
    assert first["text"].startswith("NVIDIA H200, 109.8 GiB free of 140.4 GiB, py")
    assert f"(pid {os.getpid()}) holds 30.0 GiB, slowed now: thermal (hardware), driver 580.65.06" in first["text"]
    assert (second["name"], second["state"]) == ("GPU 2", "ok")
    assert amd == {"name": "AMD", "state": "none", "text": "no AMD driver library (libamd_smi.so)", "cure": ""}
    assert note["text"].startswith("CUDA_VISIBLE_DEVICES=0,2,7: '7' names no device here")
    assert answer["stdout"] == answer["stderr"] == ""


def test_a_lost_gpu_is_missing(nvidia: Ask) -> None:
    script = (
        """
from probes.gpu import nvml
old = nvml.Nvml.open
def open(self):
    old(self)
    os.environ["STUB_LOST"] = "0"  # it falls off between being listed and being read
nvml.Nvml.open = open
"""
        + SCRIPT
    )
    (row, _) = nvidia(script)["rows"]
    assert (row["state"], row["text"]) == ("missing", "NVIDIA H200: the GPU has fallen off the bus")


def test_check_tells_the_gpus_that_the_preset_leaves_the_server(nvidia: Ask) -> None:
    script = """
from probes import preset
from probes.commands.check import _gpus
plain = preset.load("vllm-ngram")
one = dataclasses.replace(plain, env={"CUDA_VISIBLE_DEVICES": "1"})
there = dataclasses.replace(plain, launcher="ssh")
answers["found"] = [_gpus(r) for r in (plain, one, there, preset.load("sim-vllm"))]
"""
    every, one, there, simulated = nvidia(script, STUB_GPUS="2")["found"]
    assert [text.partition(",")[0] for text in every] == ["GPU 0: NVIDIA H200", "GPU 1: NVIDIA H200"]
    assert [text.partition(",")[0] for text in one] == ["GPU 1: NVIDIA H200"]
    assert there == ["those where ssh starts it"]
    assert simulated == ["simulated: none is used"]
