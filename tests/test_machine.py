"""What a machine is, from what it tells."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from probes import machine

GOOD = frozenset({"sse2", "avx2", "fma", "f16c", "bmi2"})


@pytest.mark.parametrize(
    ("system", "arch", "libc", "flags", "expected"),
    [
        ("Linux", "x86_64", (2, 35), GOOD, ()),
        ("Linux", "x86_64", (2, 36), None, ()),
        ("Linux", "x86_64", (2, 31), GOOD, ("needs glibc 2.35 or newer, this is 2.31",)),
        ("Linux", "x86_64", None, GOOD, ("needs glibc, this C library is another",)),
        ("Linux", "x86_64", (2, 39), GOOD - {"avx2", "bmi2"}, ("needs a processor with AVX2, BMI2",)),
        ("Linux", "aarch64", (2, 39), None, ("needs Linux on x86-64, this is Linux on aarch64",)),
        ("Darwin", "x86_64", None, None, ("needs Linux on x86-64, this is Darwin on x86_64",)),
    ],
)
def test_where_the_demo_can_run(
    system: str, arch: str, libc: tuple[int, int] | None, flags: frozenset[str] | None, expected: tuple[str, ...]
) -> None:
    assert machine.demo_obstacles(system, arch, libc, flags) == expected


def test_instruction_sets_are_read(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nflags\t\t: fpu avx2 bmi2\nprocessor\t: 1\nflags\t\t: fpu\n")
    assert machine.cpu_flags(file) == frozenset({"fpu", "avx2", "bmi2"})
    file.write_text("Features\t: fp asimd\n")
    assert machine.cpu_flags(file) is None
    assert machine.cpu_flags(tmp_path / "none") is None


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["ggml_vulkan: 0 devices", "version: 1 (571d0d5)", "built with GNU 11.4.0"], "version: 1 (571d0d5)"),
        (["ninfer-serve 0.9.2"], "ninfer-serve 0.9.2"),
        (["no figures here"], None),
        ([], None),
    ],
)
def test_a_version_is_found_among_other_lines(lines: list[str], expected: str | None) -> None:
    assert machine.said(lines) == expected


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_program_says_its_version_or_does_not(tmp_path: Path) -> None:
    assert machine.version(str(script(tmp_path / "good", "print('version: 7')"))) == "version: 7"
    assert machine.version(str(script(tmp_path / "bad", "print('version: 7'); raise SystemExit(4)"))) is None
    assert machine.version(str(script(tmp_path / "mute", "pass"))) is None
    assert machine.version(str(script(tmp_path / "stuck", "import signal; signal.pause()")), limit_s=0.1) is None
    assert machine.version(str(tmp_path / "absent")) is None


def test_a_slow_program_is_not_run_for_its_version(tmp_path: Path) -> None:
    vllm = script(tmp_path / "bin" / "vllm", f"open({str(tmp_path / 'ran')!r}, 'w')")
    (tmp_path / "lib" / "python3.12" / "site-packages" / "vllm-0.20.2+cu129.dist-info").mkdir(parents=True)
    (tmp_path / "lib" / "python3.12" / "site-packages" / "vllm-extra-9.dist-info").mkdir(parents=True)
    assert machine.version(str(vllm)) == "0.20.2+cu129"
    assert not (tmp_path / "ran").exists()


def test_programs_beside_python_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert machine.program(Path(sys.executable).name) == sys.executable
    assert machine.program("no-such-program") is None
