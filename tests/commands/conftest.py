"""A run of the store made of written facts: two starts, three depths, two kinds of text, one GPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from probes import codec, fingerprint, store
from probes.__main__ import cli
from probes.events import (
    Ceiling,
    CeilingChanged,
    Event,
    FlagsInForce,
    GpuReading,
    MemorySample,
    Notice,
    PlanProgress,
    RequestDone,
    RunStarted,
    ServerChanged,
)
from probes.recipe import Dial, Recipe, Workload

GIB = 1 << 30
HOSTILE = "</pre><script>alert(1)</script>\x1b[31m\u202e=cmd"


def request(depth: int, number: int, category: str = "code", **more: Any) -> RequestDone:
    """One request with round figures: 100 tokens a second at depth 0, 50 more for each depth of the story's half."""
    tpot = 1000.0 / (100 + 50 * depth)
    base: dict[str, Any] = {
        "id": f"d{depth}-r1-b0-{category}-{number}", "prompt_id": f"{category}-{number}",
        "prompt_hash": f"hash of {category}-{number}", "category": category, "depth": depth, "restart": depth + 1,
        "block": 0, "outcome": "ok", "sent": 10.0 * depth + number, "first": 10.0 * depth + number + 0.05,
        "last": 10.0 * depth + number + 0.05 + 99 * tpot / 1000, "done": 10.0 * depth + number + 1,
        "prompt_tokens": 20, "completion_tokens": 100, "first_tokens": 1, "ttft_ms": 50.0, "tpot_ms": tpot,
        "tpot_exact": True, "decode_tps": 1000 / tpot, "text": "A calm and varied text about the sea, told once.",
        "text_hash": "t",
    }  # fmt: skip
    if depth:
        base |= {"drafted": 60 * depth, "accepted": 40 * depth, "steps": 60}
    return RequestDone(**(base | more))


def sample(restart: int, phase: str, free: int) -> MemorySample:
    """One GPU of 80 GiB."""
    gpu = GpuReading(0, "H200", "GPU-1", total=80 * GIB, used=80 * GIB - free, free=free)
    return MemorySample(1.0, restart, (gpu,), server_rss=3 * GIB, phase=phase)


def facts(depths: Iterable[int] = (0, 1), *, finished: bool = True, simulated: bool = False) -> list[Event]:
    """What a sweep over these depths writes, without its requests."""
    depths = tuple(depths)
    found: list[Event] = [
        RunStarted(1e9, "r", "llamacpp", "mine", "m.gguf", "draft depth", depths, ("code", "story"), simulated),
        PlanProgress(1e9, "sweep", 0, len(depths), "block 1, depth 0"),
    ]
    for depth in depths:
        restart = depth + 1
        found += [
            ServerChanged(1e9, "starting", restart, depth, argv=("server", "--api-key", "***", HOSTILE)),
            sample(restart, "boot", 40 * GIB),
            ServerChanged(1e9, "ready", restart, depth, boot_s=2.5 + depth),
            FlagsInForce(restart, depth, {"depth": depth}, {"depth": depth}, proven=depth != 2, notes=(HOSTILE,)),
            sample(restart, "idle", 30 * GIB),
            sample(restart, "probe", (20 + depth) * GIB),
        ]
    ceiling = Ceiling("lanes", "high", "Lanes held them back.", experiment="add a lane")
    found += [
        CeilingChanged(1e9, 1, ceiling),
        CeilingChanged(1e9, 2, Ceiling("unknown")),
        Notice(1e9, "warning", HOSTILE),
        PlanProgress(1e9, "sweep", len(depths) if finished else 1, len(depths), "done", finished=finished),
    ]
    return found


def recipe(folder: Path, **more: Any) -> Recipe:
    """A recipe whose files exist."""
    for name in ("m.gguf", "server"):
        (folder / name).write_bytes(name.encode())
        (folder / name).chmod(0o755)
    base: dict[str, Any] = {
        "settings": {"ctx": 1024, "threads": 1}, "workload": Workload(("code", "story"), 2, 100),
    }  # fmt: skip
    whole = base | more
    return Recipe("mine", "llamacpp", str(folder / "server"), str(folder / "m.gguf"), Dial("none", (0, 1, 2)), **whole)


Make = Callable[..., store.Run]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes runs in a store of this test's own."""
    root = tmp_path / "runs"
    monkeypatch.setenv("DRAFTDIAL_RUNS", str(root))
    files = tmp_path / "files"
    files.mkdir()

    def whole(
        requests: Iterable[RequestDone] | None = None,
        events: Iterable[Event] | None = None,
        what: dict[str, Any] | None = None,
        *,
        fingerprinted: bool = True,
    ) -> store.Run:
        run = store.create(root)
        mine = recipe(files, **(what or {}))
        more: dict[str, Any] = {"sweep": {"mix": None}}
        if fingerprinted:
            more["fingerprint"] = fingerprint.gather(mine, mine.settings, fingerprint.hardware([], {}))
        run.describe(mine, more)
        done = [request(d, n, c) for d in (0, 1) for c in ("code", "story") for n in (1, 2)]
        requests = done if requests is None else list(requests)
        run.load_log.write_bytes(b"".join(codec.encode(r) for r in requests))
        run.open()
        for event in facts() if events is None else events:
            run.append(event)
        for r in requests:
            run.append(dataclasses.replace(r))
        run.close()
        run.server_log.write_text("")
        return run

    return whole


Call = Callable[..., Result]


@pytest.fixture
def call() -> Call:
    """Runs a command as a person would; a traceback fails the test."""

    def run(*words: str) -> Result:
        found = CliRunner().invoke(cli, words)
        if found.exception is not None and not isinstance(found.exception, SystemExit):
            raise found.exception
        return found

    return run
