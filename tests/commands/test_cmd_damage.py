"""Runs whose files were cut, emptied, overwritten or replaced: every command has its say, in one line at most."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from probes import store
from probes.commands.export import as_csv
from probes.events import RunStarted

Make = Callable[..., store.Run]
Call = Callable[..., Result]
DAMAGE = {
    "result.json": [
        b"", b"\xff", b"[" * 100_000, b"[1]", b'{"cells": 5}', b'{"cells": [5]}', b'{"verdict": 5}', b'{"floor": 5}',
        b'{"regret": {"0": 5}}', b'{"cells": [{"category": "code", "accept_rate": "x"}]}', b'{"unverified": 5}',
    ],
    "run.yaml": [
        b"", b"\xff", b"[" * 600, b"a: &a [*a]", b"!!bool x", b"recipe: 5", b"recipe: {workload: 5}", b"sweep: 5",
        b"sweep: {mix: code=x}", b"sweep: {mix: code=0}", b"fingerprint: {settings: 5}", b"2020-01-01: 1",
        b"sweep: {preset: sim-vllm, depths: 5, rounds: x}", b"ab: {preset: sim-vllm, a_texts: 5}",
    ],
    "events.jsonl": [b"", b"\xff\n", b"[" * 100_000 + b"\n", b"[1]\n", b'{"kind":"run","at":1e300}\n'],
    "load.jsonl": [b"", b"\xff\n", b"[" * 100_000 + b"\n", b'{"kind":"done"}\n', b"\0" * 5000],
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_no_damage_to_a_run_stops_a_command(name: str, make: Make, call: Call, tmp_path: Path) -> None:
    good, run = make(), make()
    place, victim = run.path / name, run.name
    told = place.read_bytes() if place.exists() else b""
    for data in [*DAMAGE[name], told[: len(told) // 2], None]:
        if data is None:
            place.unlink()
            place.mkdir()
        else:
            place.write_bytes(data)
        for words in (
            ("show", victim, "--recompute"), ("show", victim, "--json"), ("runs",), ("compare", good.name, victim),
            ("export", victim, "--format", "csv", "--cells"), ("export", victim, "--format", "json"),
            ("sweep", "--resume", victim), ("ab", "--resume", victim), ("report", victim, "-o", str(tmp_path / "r")),
        ):  # fmt: skip
            found = call(*words)
            assert found.exit_code in {0, 2}, (words, data and data[:40], found.output)
            assert found.stderr.count("\n") <= 1


def test_a_moment_that_no_calendar_has(make: Make, call: Call) -> None:
    began = RunStarted(1e300, "r", "llamacpp", "mine", "m.gguf", "draft depth", (0, 1), ("code", "story"))
    run = make(events=[began])
    assert "time unknown" in call("show", run.name).stdout
    assert call("runs").exit_code == 0


def test_no_escape_reaches_a_terminal_through_csv() -> None:
    assert as_csv(["a"], [{"a": "x\x1b[2Jy\x9bz\tt"}]) == "a\nx\ufffd[2Jy\ufffdz\tt\n"
