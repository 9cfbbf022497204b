"""The doctor's rows, on this machine and on made-up ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from probes.commands import doctor
from tests.conftest import ROOT


def rows(monkeypatch: pytest.MonkeyPatch, path: str) -> tuple[int, dict[str, dict[str, str]]]:
    monkeypatch.setenv("PATH", path)
    done = CliRunner().invoke(doctor.command, ["--json"], catch_exceptions=False)
    return done.exit_code, {row["name"]: row for row in json.loads(done.stdout)["rows"]}


def fake(folder: Path, name: str, text: str) -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)


def test_engines_on_path_are_found_with_their_versions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake(tmp_path, "ninfer-serve", "echo 'ninfer-serve 0.9.2'")
    fake(tmp_path, "llama-server", "echo 'version: 10068 (571d0d5)' >&2")
    fake(tmp_path, "podman", "exit 1")
    code, found = rows(monkeypatch, str(tmp_path))
    assert code == 0
    assert found["ninfer"]["text"] == f"{tmp_path}/ninfer-serve · ninfer-serve 0.9.2"
    assert found["llama.cpp"]["text"].endswith("version: 10068 (571d0d5)")
    assert found["vLLM"] == {"name": "vLLM", "state": "none", "text": "no vllm on PATH", "cure": "pip install vllm"}
    assert found["launchers"]["text"] == "podman"
    assert found["Python"]["state"] == "ok"
    assert found["memory"]["state"] == "ok"


def test_a_machine_on_which_nothing_can_be_tuned_is_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("probes.machine.demo_obstacles_here", lambda: ("needs glibc 2.35 or newer, this is 2.31",))
    code, found = rows(monkeypatch, str(tmp_path))
    assert code == 1
    assert found["demo"]["state"] == "missing"
    assert "--sim" in found["demo"]["cure"]


def test_a_cache_that_cannot_be_made_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert doctor.cache().state == "ok"
    monkeypatch.setattr("os.access", lambda *_: False)
    row = doctor.cache()
    assert (row.state, row.text) == ("missing", f"{tmp_path}/draftdial cannot be written")


@pytest.mark.parametrize(
    ("environ", "size", "expected"),
    [
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, (160, 48), ("ok", "16.7 million colours", "")),
        ({"TERM": "xterm-256color"}, (80, 24), ("ok", "256 colours", "")),
        ({"TERM": "xterm", "NO_COLOR": "1"}, (80, 24), ("ok", "no colours", "")),
        ({"TERM": "dumb"}, (80, 24), ("missing", "16 colours", "set TERM")),
        ({"TERM": "xterm"}, (79, 24), ("missing", "16 colours", "80×24")),
    ],
)
def test_the_terminal(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], size: tuple[int, int], expected: tuple[str, str, str]
) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda: size)
    row = doctor.terminal(environ, "utf-8", isatty=True)
    state, colours, cure = expected
    assert row.state == state
    assert f"{size[0]}×{size[1]}, {colours}" in row.text
    assert cure in row.cure
    assert bool(row.cure) == bool(cure)


def test_a_terminal_without_unicode_has_a_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda: (80, 24))
    assert "UTF-8" in doctor.terminal({"TERM": "xterm"}, "ANSI_X3.4-1968", isatty=True).cure
    assert doctor.terminal({}, "utf-8", isatty=False).state == "none"


def test_the_command_costs_nothing_until_it_runs() -> None:
    script = (
        "import sys, probes.commands.doctor; print(sorted({'psutil', 'pynvml', 'amdsmi', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
