"""NVIDIA's readings through the real pynvml and a library with NVML's ABI."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

Ask = Callable[..., dict[str, Any]]
GIB = 1 << 30
TOTAL = 150754820096
RESERVED = 644939776

READ = """
from probes.gpu.nvml import Nvml
from probes.gpu.host import Group, Owners
time = [0.0]
source = Nvml(clock=lambda: time[0])
owners = Owners(Group(pgid=os.getpgid(0)))
answers["why"] = source.why
answers["driver"] = source.driver
answers["gpus"] = gpus(source.read(owners))
"""


def test_a_gpu_is_read_in_the_units_of_the_program(nvidia: Ask) -> None:
    answer = nvidia(READ, STUB_USED=str(30 * GIB), STUB_REASONS="0x1")
    (gpu,) = answer["gpus"]
    assert answer["why"] is None
    assert answer["driver"] == "580.65.06"
    assert (gpu["index"], gpu["name"]) == (0, "NVIDIA H200")
    assert gpu["uuid"] == "GPU-00000000-aaaa-bbbb-cccc-dddddddddddd"
    assert (gpu["total"], gpu["used"], gpu["reserved"]) == (TOTAL, 30 * GIB, RESERVED)
    assert gpu["free"] == TOTAL - RESERVED - 30 * GIB
    assert gpu["utilisation"] == pytest.approx(0.37)
    assert (gpu["temperature_c"], gpu["power_w"]) == (39.0, pytest.approx(79.343))
    assert (gpu["sm_clock_mhz"], gpu["mem_clock_mhz"]) == (345.0, 3201.0)
    assert gpu["throttle"] == []
    assert gpu["problem"] is None


def test_an_idle_gpu_shows_no_memory_in_use_as_nvidia_smi_does(nvidia: Ask) -> None:
    (gpu,) = nvidia(READ)["gpus"]
    assert gpu["used"] == 0
    assert gpu["ours"] == 0


def test_throttle_bits_have_names_and_idle_has_none(nvidia: Ask) -> None:
    script = READ + "os.environ['STUB_REASONS'] = '0xFF'\nanswers['all'] = gpus(source.read(owners))\n"
    answer = nvidia(script, STUB_REASONS="0x3")
    assert answer["gpus"][0]["throttle"] == []
    assert answer["all"][0]["throttle"] == [
        "power cap", "hardware slowdown", "thermal (software)", "thermal (hardware)", "power brake",
    ]  # fmt: skip


DENIED = {
    "nvmlDeviceGetUtilizationRates": "utilisation",
    "nvmlDeviceGetPowerUsage": "power_w",
    "nvmlDeviceGetClockInfo": "sm_clock_mhz",
    "nvmlDeviceGetTemperatureV,nvmlDeviceGetTemperature": "temperature_c",
    "nvmlDeviceGetMemoryInfo_v2,nvmlDeviceGetMemoryInfo": "used",
    "nvmlDeviceGetComputeRunningProcesses_v3,nvmlDeviceGetGraphicsRunningProcesses_v3": "ours",
    "nvmlDeviceGetUUID": "uuid",
}


def test_what_a_gpu_does_not_say_is_none_and_the_rest_stays(nvidia: Ask) -> None:
    script = (
        READ
        + """
for functions in os.environ["DENIED"].split(";"):
    os.environ["STUB_DENY"] = functions
    answers[functions] = gpus(Nvml().read(owners))[0]
"""
    )
    answer = nvidia(script, DENIED=";".join(DENIED), STUB_USED=str(GIB), STUB_PROCS=f"{os.getpid()}:{GIB}")
    (whole,) = answer["gpus"]
    assert {name for name, value in whole.items() if value is None} == {"problem"}
    for functions, lacking in DENIED.items():
        gpu = answer[functions]
        assert gpu[lacking] is None, functions
        goes_along = {"used": {"total", "free", "reserved"}, "sm_clock_mhz": {"mem_clock_mhz"}}.get(lacking, set())
        assert {name for name in gpu if gpu[name] != whole[name]} == {lacking, *goes_along}
    assert answer["stdout"] == answer["stderr"] == ""


def test_an_old_driver_is_asked_with_the_older_functions(nvidia: Ask) -> None:
    (gpu,) = nvidia(READ, STUB_OLD="1", STUB_USED=str(GIB), STUB_REASONS="0x4")["gpus"]
    assert gpu["used"] == GIB + RESERVED  # version 1 counts the driver's own share as used
    assert gpu["reserved"] is None
    assert gpu["temperature_c"] == 41.0
    assert gpu["throttle"] == ["power cap"]


def test_processes_of_the_group_are_ours_and_others_are_named(nvidia: Ask) -> None:
    script = """
import subprocess
# A child that made a session of its own: ours by descent. The process that runs the tests: foreign.
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
os.setpgid(0, 0)
stranger = int(os.environ["STRANGER"])
os.environ["STUB_PROCS"] = f"{os.getpid()}:1000,{child.pid}:200,{stranger}:7000"
os.environ["STUB_GRAPHICS"] = f"{os.getpid()}:1000,{stranger}:9000"
try:
    exec(os.environ["READ"])
finally:
    child.communicate(b"\\n")
"""
    (gpu,) = nvidia(script, STRANGER=str(os.getpid()), READ=READ, STUB_USED=str(20000))["gpus"]
    assert gpu["ours"] == 1200
    ((pid, name, size),) = gpu["others"]
    assert (pid, size) == (os.getpid(), 9000)
    assert name.startswith(("python", "pytest"))


def test_a_size_that_the_driver_does_not_give_makes_no_sum(nvidia: Ask) -> None:
    script = "os.environ['STUB_PROCS'] = f'{os.getpid()}:-1'\n" + READ
    (gpu,) = nvidia(script)["gpus"]
    assert gpu["ours"] is None


def test_a_driver_that_hides_processes_is_not_read_as_nobody(nvidia: Ask) -> None:
    (gpu,) = nvidia(READ, STUB_USED=str(30 * GIB))["gpus"]
    assert gpu["ours"] is None
    (gpu,) = nvidia(READ, STUB_USED=str(30 * GIB), STUB_PROCS=f"4194999:{30 * GIB}")["gpus"]
    assert gpu["ours"] is None
    assert gpu["others"] == [[4194999, "?", 30 * GIB]]


def test_a_quick_reading_asks_memory_only(nvidia: Ask) -> None:
    script = READ + (
        "os.environ['STUB_USED'] = '5000'\nos.environ['STUB_REASONS'] = '0x40'\n"
        "answers['quick'] = gpus(source.read(owners, slow=False))\nanswers['slow'] = gpus(source.read(owners))\n"
    )
    answer = nvidia(script)
    assert answer["quick"][0]["used"] == 5000
    assert answer["quick"][0]["throttle"] == []
    assert answer["slow"][0]["throttle"] == ["thermal (hardware)"]


def test_a_lost_gpu_is_a_value_and_comes_back(nvidia: Ask) -> None:
    script = (
        READ
        + """
def step(name, seconds):
    time[0] += seconds
    answers[name] = gpus(source.read(owners))
os.environ["STUB_LOST"] = "1"
step("lost", 1)
step("still", 10)
del os.environ["STUB_LOST"]
step("soon", 1)
step("back", 10)
"""
    )
    answer = nvidia(script, STUB_GPUS="2")
    assert [gpu["problem"] for gpu in answer["gpus"]] == [None, None]
    for name in ("lost", "still", "soon"):
        healthy, lost = answer[name]
        assert healthy["total"] == TOTAL
        assert lost["index"] == 1
        assert lost["total"] is None
        assert lost["problem"] in {"the GPU has fallen off the bus", "the GPU is gone"}
    assert [gpu["problem"] for gpu in answer["back"]] == [None, None]
    assert answer["back"][1]["used"] == GIB
    assert answer["stdout"] == answer["stderr"] == ""


def test_a_library_shut_down_behind_our_back_is_opened_again(nvidia: Ask) -> None:
    script = (
        READ
        + """
import pynvml
pynvml.nvmlShutdown()
answers["shut"] = gpus(source.read(owners))
time[0] += 10
answers["again"] = gpus(source.read(owners))
"""
    )
    answer = nvidia(script)
    assert answer["shut"][0]["problem"] == "NVML was shut down"
    assert answer["again"][0]["problem"] is None


def test_a_driver_that_goes_away_leaves_the_gpu_in_the_list_with_a_reason(nvidia: Ask) -> None:
    script = (
        READ
        + """
import pynvml
pynvml.nvmlShutdown()
os.environ["STUB_INIT"] = "9"
source.read(owners)
time[0] += 10
answers["gone"] = gpus(source.read(owners))
"""
    )
    assert nvidia(script)["gone"][0]["problem"] == "the NVIDIA driver is not loaded"


def test_a_library_that_does_not_start_says_why(nvidia: Ask) -> None:
    answer = nvidia(READ, STUB_INIT="18")
    assert answer["why"] == "the driver was updated and not yet reloaded (reboot, or reload its module)"
    assert answer["gpus"] == []
    assert answer["stdout"] == answer["stderr"] == ""


def test_mig_instances_have_memory_of_their_own_and_the_sensors_of_their_gpu(nvidia: Ask) -> None:
    script = (
        READ
        + """
from probes.gpu.devices import visible
seen = visible(source.devices, {})
answers["names"] = [d.name for d in seen.devices]
chosen = visible(source.devices, {"CUDA_VISIBLE_DEVICES": "MIG-11111111"})
answers["chosen"] = gpus(source.read(owners, chosen.devices))
"""
    )
    answer = nvidia(script, STUB_MIG="2", STUB_GPUS="2", STUB_PROCS=f"{os.getpid()}:4096")
    assert len(answer["gpus"]) == 4
    assert answer["names"] == ["NVIDIA H200 MIG 1g.18gb", "NVIDIA H200 MIG 1g.18gb", "NVIDIA H200"]
    (gpu,) = answer["chosen"]
    assert gpu["total"] == 18790481920
    assert gpu["utilisation"] is None  # an instance does not tell
    assert gpu["power_w"] == pytest.approx(79.343)
    assert gpu["ours"] == 4096


def test_no_library_is_a_quiet_no_gpu(bare: Ask) -> None:
    answer = bare(READ)
    assert answer["why"] == "no NVIDIA driver library (libnvidia-ml.so.1)"
    assert answer["gpus"] == []
    assert answer["stdout"] == answer["stderr"] == ""
