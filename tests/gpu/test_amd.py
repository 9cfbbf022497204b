"""AMD's readings through the real amdsmi and a library with its ABI; nothing here has seen AMD hardware."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Ask = Callable[..., dict[str, Any]]
GIB = 1 << 30
MI300 = 206141652992
RADEON = 25753026560

READ = """
from probes.gpu.amd import Amd
from probes.gpu.host import Group, Owners
time = [0.0]
source = Amd(clock=lambda: time[0])
owners = Owners(Group(pgid=os.getpgid(0)))
answers["why"] = source.why
answers["driver"] = source.driver
answers["gpus"] = gpus(source.read(owners))
"""


def test_an_instinct_is_read_in_the_units_of_the_program(amd: Ask) -> None:
    answer = amd(READ, STUB_USED=str(30 * GIB), STUB_ACTIVE="Ph")
    (gpu,) = answer["gpus"]
    assert answer["why"] is None
    assert answer["driver"] == "6.14.14"
    assert gpu["name"] == "AMD Instinct MI300X"
    assert gpu["uuid"] == "GPU-02d8dc97f3fa2f1"
    assert (gpu["total"], gpu["used"], gpu["free"]) == (MI300, 30 * GIB, MI300 - 30 * GIB)
    assert gpu["utilisation"] == pytest.approx(0.63)
    assert (gpu["temperature_c"], gpu["power_w"]) == (47.0, 412.0)
    assert (gpu["sm_clock_mhz"], gpu["mem_clock_mhz"]) == (2104.0, 1300.0)
    assert gpu["throttle"] == ["power cap", "thermal (HBM)"]
    assert answer["stdout"] == answer["stderr"] == ""


def test_a_radeon_has_other_sensors_and_tells_throttling_by_bits(amd: Ask) -> None:
    bits = hex(1 << 0 | 1 << 16 | 1 << 36)
    (gpu,) = amd(READ, STUB_KIND="radeon", STUB_BITS=bits)["gpus"]
    assert gpu["name"] == "AMD Radeon RX 7900 XTX"
    assert gpu["total"] == RADEON
    assert (gpu["temperature_c"], gpu["power_w"]) == (54.0, 303.0)
    assert gpu["throttle"] == ["power cap", "current limit", "thermal (hardware)"]


def test_no_throttling_and_not_told_are_both_silent(amd: Ask) -> None:
    assert amd(READ)["gpus"][0]["throttle"] == []
    assert amd(READ, STUB_KIND="radeon", STUB_BITS="0xFFFFFFFFFFFFFFFF")["gpus"][0]["throttle"] == []


DENIED = {
    "amdsmi_get_gpu_activity": "utilisation",
    "amdsmi_get_power_info": "power_w",
    "amdsmi_get_clock_info": "sm_clock_mhz",
    "amdsmi_get_temp_metric": "temperature_c",
    "amdsmi_get_gpu_memory_usage,amdsmi_get_gpu_vram_usage": "used",
    "amdsmi_get_gpu_process_list": "ours",
}


def test_what_a_gpu_does_not_say_is_none_and_the_rest_stays(amd: Ask) -> None:
    script = (
        READ
        + """
for functions in os.environ["DENIED"].split(";"):
    os.environ["STUB_DENY"] = functions
    answers[functions] = gpus(source.read(owners))[0]
"""
    )
    answer = amd(script, DENIED=";".join(DENIED), STUB_PROCS=f"{os.getpid()}:{GIB}:x")
    (whole,) = answer["gpus"]
    assert {name for name, value in whole.items() if value is None} == {"problem", "reserved"}
    for functions, lacking in DENIED.items():
        gpu = answer[functions]
        assert gpu[lacking] is None, functions
        goes_along = {"used": {"total", "free"}, "sm_clock_mhz": {"mem_clock_mhz"}}.get(lacking, set())
        assert {name for name in gpu if gpu[name] != whole[name]} == {lacking, *goes_along}
    assert answer["stdout"] == answer["stderr"] == ""


def test_memory_in_mib_is_taken_where_bytes_are_not_told(amd: Ask) -> None:
    (gpu,) = amd(READ, STUB_DENY="amdsmi_get_gpu_memory_usage", STUB_USED=str(5 * GIB))["gpus"]
    assert gpu["used"] == 5 * GIB
    assert gpu["total"] == MI300 >> 20 << 20


def test_processes_of_the_group_are_ours_and_others_are_named(amd: Ask) -> None:
    script = (
        """
os.setpgid(0, 0)
os.environ["STUB_PROCS"] = f"{os.getpid()}:1000:mine,{os.environ['STRANGER']}:7000:x,4194999:5:a\\x1b[31mb"
"""
        + READ
    )
    (gpu,) = amd(script, STRANGER=str(os.getpid()))["gpus"]
    assert gpu["ours"] == 1000
    (first, second) = gpu["others"]
    assert (first[0], first[2]) == (os.getpid(), 7000)
    assert second == [4194999, "a?[31mb", 5]  # hidden from us, named by the library, and made safe to print


def test_devices_stand_in_the_order_of_hip(amd: Ask) -> None:
    script = (
        READ
        + """
from probes.gpu.devices import visible
answers["first"] = visible(source.devices, {"HIP_VISIBLE_DEVICES": "0"}).devices[0].uuid
"""
    )
    answer = amd(script, STUB_GPUS="3")
    assert [gpu["index"] for gpu in answer["gpus"]] == [2, 1, 0]
    assert answer["first"] == "GPU-22d8dc97f3fa2f1"


def test_one_gpu_at_a_time_is_asked_for_violations(amd: Ask) -> None:
    script = READ + "answers['next'] = gpus(source.read(owners))\n"
    answer = amd(script, STUB_GPUS="2", STUB_ACTIVE="s")
    assert [gpu["throttle"] for gpu in answer["gpus"]] == [["thermal (socket)"], []]
    assert [gpu["throttle"] for gpu in answer["next"]] == [["thermal (socket)"], ["thermal (socket)"]]


def test_a_lost_gpu_is_a_value_and_comes_back(amd: Ask) -> None:
    script = (
        READ
        + """
def step(name, seconds):
    time[0] += seconds
    answers[name] = sorted(gpus(source.read(owners)), key=lambda gpu: gpu["index"])
os.environ["STUB_LOST"] = "1"
step("lost", 1)
step("still", 10)
del os.environ["STUB_LOST"]
step("back", 20)
"""
    )
    answer = amd(script, STUB_GPUS="2")
    for name in ("lost", "still"):
        healthy, lost = answer[name]
        assert healthy["total"] == MI300
        assert lost["total"] is None
        assert lost["problem"]
    assert [gpu["problem"] for gpu in answer["back"]] == [None, None]
    assert answer["stdout"] == answer["stderr"] == ""


def test_a_library_that_does_not_start_says_why_and_its_noise_is_swallowed(amd: Ask) -> None:
    script = "print('before')\n" + READ + "print('after')\n"
    answer = amd(script, STUB_INIT="34", STUB_NOISE="rsmi_init failed\n")
    assert answer["why"].startswith("amdsmi: AMDSMI_STATUS_DRIVER_NOT_LOADED")
    assert answer["stdout"] == "before\nafter\n"
    assert answer["stderr"] == ""


def test_descriptors_are_left_alone_where_somebody_else_owns_the_output(amd: Ask) -> None:
    script = (
        """
import io
sys.stdout = io.StringIO()
"""
        + READ
        + "sys.stdout = sys.__stdout__\n"
    )
    answer = amd(script, STUB_NOISE="noise")
    assert answer["stdout"] == "noise"  # not captured: a screen writes there
    assert len(answer["gpus"]) == 1


def test_closed_standard_streams_are_no_obstacle(amd: Ask) -> None:
    answer = amd("os.close(1)\nos.close(2)\n" + READ)
    assert len(answer["gpus"]) == 1


def test_no_library_is_a_quiet_no_gpu_and_amdsmi_is_not_even_imported(bare: Ask) -> None:
    answer = bare(READ + "answers['imported'] = 'amdsmi' in sys.modules\n")
    assert answer["why"] == "no AMD driver library (libamd_smi.so)"
    assert answer["gpus"] == []
    assert answer["imported"] is False
    assert answer["stdout"] == answer["stderr"] == ""


def test_a_library_that_lacks_what_the_package_binds_is_a_reason(bare: Ask, tmp_path: Path, nvml_folder: Path) -> None:
    rocm = tmp_path / "odd"
    (rocm / "lib").mkdir(parents=True)
    (rocm / "lib" / "libamd_smi.so").write_bytes((nvml_folder / "libnvidia-ml.so.1").read_bytes())
    answer = bare(READ, ROCM_PATH=str(rocm))
    assert answer["why"].startswith(f"amdsmi does not fit {rocm}/lib/libamd_smi.so: AttributeError")
    assert answer["stdout"] == answer["stderr"] == ""


def test_the_copy_that_came_with_rocm_is_preferred(bare: Ask, tmp_path: Path, rocm_folder: Path) -> None:
    rocm = tmp_path / "rocm"
    (rocm / "share" / "amd_smi" / "amdsmi").mkdir(parents=True)
    (rocm / "lib").symlink_to(rocm_folder / "lib")
    (rocm / "share" / "amd_smi" / "amdsmi" / "__init__.py").write_text("print('hello')\nfrom_rocm = True\n")
    script = """
from probes.gpu.amd import load
path = list(sys.path)
module, why = load()
answers["from_rocm"] = module.from_rocm
answers["path_kept"] = sys.path == path
"""
    answer = bare(script, ROCM_PATH=str(rocm))
    assert answer["from_rocm"] is True
    assert answer["path_kept"] is True
    assert answer["stdout"] == ""
