"""The load process as the lab holds it, with stand-ins for the process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from probes import codec
from probes.events import RequestSent
from probes.load.process import LoadProcess


def played(
    script: str, folder: Path, monkeypatch: pytest.MonkeyPatch, sink: Callable[[object], None] = lambda _: None
) -> str | None:
    """A job given to a process that does this in place of `probes.load`, once the job has come; how it ended."""
    package = folder / "fake" / "probes"
    (package / "load").mkdir(parents=True)
    for place in (package, package / "load"):
        (place / "__init__.py").write_text("")
    (package / "load" / "__main__.py").write_text(f"import sys\nsys.stdin.readline()\n{script}\n")
    monkeypatch.setattr("probes.load.process._path", lambda: str(folder / "fake"))
    monkeypatch.chdir(folder)

    async def whole() -> str | None:
        load = LoadProcess(folder / "load.jsonl", sink)
        try:
            return await asyncio.wait_for(load.run({"url": "", "requests": []}), 20)
        finally:
            await load.close()

    return asyncio.run(whole())


def test_a_line_beyond_all_bounds_ends_the_process_not_the_console(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("probes.load.process.LINE_MAX", 1 << 16)
    trouble = played("while True: print('x' * 65536, end='', flush=True)", tmp_path, monkeypatch)
    assert str(trouble).startswith("the load process ended")


def test_lines_that_are_none_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    lines = ["nonsense", "[1]", '{"kind": "done"}', '{"kind": "idle", "job": "x"}', '{"kind": "idle", "job": "job-1"}']
    assert played(f"for x in {lines!r}: print(x)", tmp_path, monkeypatch, seen.append) is None
    assert seen == []


def test_a_sink_that_fails_is_not_taken_for_the_end_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object) -> None:
        raise OSError(28, "No space left on device")

    fact = codec.encode(RequestSent("a", 1.0, "p", "code", 5, 1)).decode().strip()
    with pytest.raises(OSError, match="No space left"):
        played(f"print({fact!r}, flush=True)\nsys.stdin.readline()", tmp_path, monkeypatch, full)
