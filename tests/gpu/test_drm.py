"""AMD cards by the kernel's files, on a made-up /sys and /proc."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from probes.gpu.drm import Drm, vram_by_process
from probes.gpu.host import Group, Owners


def card(root: Path, number: int, pci: str, vendor: str = "0x1002", **files: str) -> Path:
    device = root / "devices" / pci
    device.mkdir(parents=True)
    (root / "class" / "drm" / f"card{number}").mkdir(parents=True)
    (root / "class" / "drm" / f"card{number}" / "device").symlink_to(device)
    for name, text in {"vendor": vendor, **files}.items():
        (device / name).write_text(text + "\n")
    return device


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two AMD cards and one of another make; one process with two descriptors of one client."""
    first = card(
        tmp_path,
        0,
        "0000:03:00.0",
        mem_info_vram_total="25753026560",
        mem_info_vram_used="1073741824",
        gpu_busy_percent="63",
        unique_id="2d8dc97f3fa2f1",
    )
    sensors = first / "hwmon" / "hwmon4"
    sensors.mkdir(parents=True)
    for name, text in {"temp1_input": "54000", "power1_average": "303000000", "freq1_input": "2104000000"}.items():
        (sensors / name).write_text(text)
    card(tmp_path, 1, "0000:0a:00.0", vendor="0x10de", mem_info_vram_total="1")
    card(tmp_path, 10, "0000:83:00.0", mem_info_vram_total="25753026560", mem_info_vram_used="0")
    (tmp_path / "class" / "drm" / "card0-DP-1").mkdir()
    process = tmp_path / "proc" / str(os.getpid())
    (process / "fd").mkdir(parents=True)
    (process / "fdinfo").mkdir()
    facts = "pos:\t0\ndrm-driver:\tamdgpu\ndrm-pdev:\t0000:03:00.0\ndrm-client-id:\t{}\ndrm-memory-vram:\t{}\n"
    for fd, target, text in (
        ("3", "/dev/dri/renderD128", facts.format(7, "1024 KiB")),
        ("4", "/dev/dri/renderD128", facts.format(7, "1024 KiB")),
        ("5", "/dev/dri/renderD128", facts.format(8, "2 MiB")),
        ("6", "/etc/passwd", "pos:\t0\n"),
    ):
        (process / "fd" / fd).symlink_to(target)
        (process / "fdinfo" / fd).write_text(text)
    (tmp_path / "proc" / "self").mkdir()
    return tmp_path


def test_cards_are_read(tree: Path) -> None:
    source = Drm(tree, tree / "proc")
    assert source.why is None
    first, second = source.read(Owners(Group(os.getpgid(0))))
    assert (first.index, first.uuid, first.total, first.used) == (0, "GPU-2d8dc97f3fa2f1", 25753026560, 1 << 30)
    assert first.free == 25753026560 - (1 << 30)
    assert (first.utilisation, first.temperature_c, first.power_w, first.sm_clock_mhz) == (0.63, 54.0, 303.0, 2104.0)
    assert first.ours == 3 << 20
    assert (second.index, second.uuid, second.temperature_c, second.mem_clock_mhz) == (1, "0000:83:00.0", None, None)


def test_a_client_with_two_descriptors_counts_once(tree: Path) -> None:
    assert vram_by_process(tree / "proc") == {"0000:03:00.0": {os.getpid(): 3 << 20}}


def test_files_are_scanned_seldom(tree: Path) -> None:
    now = [0.0]
    source = Drm(tree, tree / "proc", clock=lambda: now[0])
    owners = Owners(Group(os.getpgid(0)))
    source.read(owners)
    for fd in ("3", "4", "5"):
        (tree / "proc" / str(os.getpid()) / "fd" / fd).unlink()
    now[0] = 4.0
    assert source.read(owners)[0].ours == 3 << 20
    now[0] = 6.0
    assert source.read(owners)[0].ours is None  # memory is in use and nobody can be named


def test_a_card_that_went_away_is_a_value(tree: Path) -> None:
    source = Drm(tree, tree / "proc")
    (tree / "devices" / "0000:03:00.0" / "mem_info_vram_total").unlink()
    first, second = source.read(Owners())
    assert first.problem is not None
    assert first.total is None
    assert second.problem is None


def test_a_machine_without_cards_says_so(tmp_path: Path) -> None:
    assert Drm(tmp_path, tmp_path).why == "no card of the amdgpu driver under /sys/class/drm"
