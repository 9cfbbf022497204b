"""Environment variables to devices, as the runtimes read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.events import GpuReading
from probes.gpu.devices import Device, tightest, visible

UUIDS = ("GPU-18ef14e9-dec6-1d7e", "GPU-849d5a8d-610e-eeea", "GPU-849d77aa-0000-1111", "GPU-c0ffee00-0000-2222")
FOUR = tuple(Device("nvidia", index, "NVIDIA H200", uuid) for index, uuid in enumerate(UUIDS))
MIG = (
    FOUR[0],
    Device("nvidia", 0, "MIG a", "MIG-d184f67c-c95f", parent=UUIDS[0], gpu_instance=13, compute_instance=0),
    Device("nvidia", 0, "MIG b", "MIG-37b51284-1df4", parent=UUIDS[0], gpu_instance=14, compute_instance=0),
    FOUR[1],
)
AMD = tuple(Device("amd", index, "MI300X", f"GPU-{index}2d8dc97f3fa2f1") for index in range(4))


def seen(devices: tuple[Device, ...], **environ: str) -> list[int]:
    return [device.index for device in visible(devices, environ).devices]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("2,0", [2, 0]),
        (" 1 , 3", [1, 3]),
        ("", []),
        ("-1", []),
        ("1,-1,0", [1]),
        ("0,9,1", [0]),
        ("9", []),
        ("0,x,1", [0]),
        ("0,0", []),
        ("1,2,1", []),
        ("GPU-18ef", [0]),
        ("GPU-c0ffee00-0000-2222,GPU-18ef14e9-dec6-1d7e", [3, 0]),
        ("gpu-18ef", []),
        ("GPU-849d", []),
        ("GPU-849d5", [1]),
        ("GPU-", []),
        ("0,GPU-c0ffee", [0]),
        ("GPU-c0ffee,0", [3]),
        ("NoDevFiles", []),
    ],
)
def test_cuda_visible_devices(asked: str, expected: list[int]) -> None:
    assert seen(FOUR, CUDA_VISIBLE_DEVICES=asked) == expected


def test_without_the_variable_every_gpu_is_seen() -> None:
    assert seen(FOUR) == [0, 1, 2, 3]
    assert seen(AMD) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("MIG-37b5", ["MIG b"]),
        ("MIG-37b51284-1df4,MIG-d184f67c-c95f", ["MIG b", "MIG a"]),
        ("MIG-GPU-18ef14e9/14/0", ["MIG b"]),
        ("MIG-GPU-18ef14e9/15/0", []),
        ("0", ["MIG a"]),
        ("GPU-18ef14e9", ["MIG a"]),
        ("1", ["NVIDIA H200"]),
    ],
)
def test_mig_instances(asked: str, expected: list[str]) -> None:
    assert [d.name for d in visible(MIG, {"CUDA_VISIBLE_DEVICES": asked}).devices] == expected


def test_a_split_gpu_shows_as_its_instances() -> None:
    assert [d.name for d in visible(MIG, {}).devices] == ["MIG a", "MIG b", "NVIDIA H200"]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"ROCR_VISIBLE_DEVICES": "3,1"}, [3, 1]),
        ({"HIP_VISIBLE_DEVICES": "2"}, [2]),
        ({"CUDA_VISIBLE_DEVICES": "2"}, [2]),
        ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "2"}, [1]),
        ({"ROCR_VISIBLE_DEVICES": "3,1", "HIP_VISIBLE_DEVICES": "1"}, [1]),
        ({"ROCR_VISIBLE_DEVICES": "3,1", "HIP_VISIBLE_DEVICES": "2"}, []),
        ({"ROCR_VISIBLE_DEVICES": "GPU-22d8dc97f3fa2f1,GPU-0"}, [2, 0]),
        ({"HIP_VISIBLE_DEVICES": ""}, []),
        ({"ROCR_VISIBLE_DEVICES": "0,nothing,1"}, [0]),
    ],
)
def test_rocm_filters_twice(environ: dict[str, str], expected: list[int]) -> None:
    assert seen(AMD, **environ) == expected


def test_a_bad_entry_is_named() -> None:
    (note,) = visible(FOUR, {"CUDA_VISIBLE_DEVICES": "0,9,1"}).notes
    assert note == "CUDA_VISIBLE_DEVICES=0,9,1: '9' names no device here; it and what follows is ignored"
    (note,) = visible(FOUR, {"CUDA_VISIBLE_DEVICES": "0,0"}).notes
    assert "twice" in note
    assert visible(FOUR, {"CUDA_VISIBLE_DEVICES": ""}).notes == ()
    assert visible(FOUR, {"CUDA_VISIBLE_DEVICES": "1,2"}).notes == ()


def test_indices_are_doubted_where_models_differ() -> None:
    mixed = (*FOUR[:1], Device("nvidia", 1, "NVIDIA L4", "GPU-4"))
    assert "CUDA_DEVICE_ORDER" in visible(mixed, {"CUDA_VISIBLE_DEVICES": "0"}).notes[0]
    assert visible(mixed, {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}).notes == ()
    assert visible(mixed, {"CUDA_VISIBLE_DEVICES": "GPU-4"}).notes == ()


@given(st.text(alphabet="0123 ,-GPUMIGx8e/", max_size=24))
def test_no_text_breaks_it_and_no_device_is_seen_twice(asked: str) -> None:
    for devices in (FOUR, MIG, AMD):
        found = visible(devices, {"CUDA_VISIBLE_DEVICES": asked, "ROCR_VISIBLE_DEVICES": asked}).devices
        assert len(set(found)) == len(found)
        assert set(found) <= set(devices)


@given(st.permutations(range(4)), st.integers(0, 4))
def test_indices_and_uuids_name_the_same_devices(order: list[int], n: int) -> None:
    by_index = visible(FOUR, {"CUDA_VISIBLE_DEVICES": ",".join(map(str, order[:n]))}).devices
    by_uuid = visible(FOUR, {"CUDA_VISIBLE_DEVICES": ",".join(UUIDS[i] for i in order[:n])}).devices
    assert by_index == by_uuid == tuple(FOUR[i] for i in order[:n])


def test_the_tightest_gpu_comes_first_and_a_silent_one_last() -> None:
    free = (None, 9, 3, 3)
    readings = [GpuReading(index, "x", free=size) for index, size in enumerate(free)]
    assert [reading.index for reading in tightest(readings)] == [2, 3, 1, 0]
