"""The whole loop on a real llama-server: start, load, log, events, frame, result, kill, resume."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from probes import engines, preset, store
from probes.lab import Lab
from probes.measure.sweep import sweep
from probes.recipe import Recipe
from probes.replay import replay
from probes.session import Frame, Session

pytestmark = pytest.mark.llama
VOLATILE = {"version", "result_version", "boots", "memory", "activity", "engine"}


def recipe(**workload: Any) -> Recipe:
    found = preset.load("llamacpp-smollm2-ngram")
    fast = {"prompts_per_category": 1, "max_tokens": 24, **workload}
    return dataclasses.replace(
        found,
        model="@smollm2",
        dial=dataclasses.replace(found.dial, values=(0, 3, 6)),
        workload=dataclasses.replace(found.workload, **fast),
    )


def measure(what: Recipe, run: store.Run, depths: tuple[int, ...], rounds: int = 1) -> tuple[Session, list[Any]]:
    session = Session()

    async def whole() -> list[Any]:
        lab = Lab(what, run, session.apply, depths)
        await lab.open()
        try:
            return await lab.carry_out("sweep", sweep(depths, rounds, 1), len(depths) * rounds)
        finally:
            await lab.close()

    return session, asyncio.run(whole())


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[store.Run, Session, list[Any]]:
    run = store.create(tmp_path_factory.mktemp("runs"))
    session, outcomes = measure(recipe(), run, (0, 6))
    return run, session, outcomes


def test_every_point_is_measured_and_stored(swept: tuple[store.Run, Session, list[Any]]) -> None:
    run, session, outcomes = swept
    assert [o.failed for o in outcomes] == [None, None]
    result = run.result()
    assert result is not None
    assert {(c["depth"], c["category"]) for c in result["cells"] if c["requests"]} == {
        (d, c) for d in (0, 6) for c in ("code", "story", "translation", "structured")
    }
    assert all(c["accept_rate"] is None for c in result["cells"] if c["depth"] == 0)
    assert len(result["boot_s"]) == 2
    assert result["wall_s"] > result["request_s"]
    assert session.frame().result == result | {"final": True}


def test_counters_equal_the_servers_own_lines(swept: tuple[store.Run, Session, list[Any]]) -> None:
    run, _, _ = swept
    records = engines.parse("llamacpp", run.server_log.read_text(errors="replace").splitlines())
    logged = [
        (r.fields["drafted"], r.fields["accepted"]) for r in records if r.kind == "request" and r.fields.get("drafted")
    ]
    measured = [(r.drafted, r.accepted) for r in run.requests() if r.drafted]
    assert measured
    assert sorted(logged) == sorted(measured)


def test_replay_gives_the_same_last_frame(swept: tuple[store.Run, Session, list[Any]]) -> None:
    run, session, _ = swept
    again = Session()
    again.apply_all(replay(run))
    for name in Frame.__slots__:
        if name not in {"version", "result_version", "recent"}:
            assert getattr(again.frame(), name) == getattr(session.frame(), name), name
    assert [r.id for r in again.frame().recent] == [r.id for r in session.frame().recent]


def test_nothing_is_left_running(swept: tuple[store.Run, Session, list[Any]]) -> None:
    run, _, _ = swept
    marks = {str(run.server_log), str(run.load_log)}
    left = [p.info["cmdline"] for p in psutil.process_iter(["cmdline"]) if marks & set(p.info["cmdline"] or [])]
    assert left == []


def command(run_root: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "probes", "sweep", *words, "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
        env={**os.environ, "DRAFTDIAL_RUNS": str(run_root)},
    )  # fmt: skip


def facts(process: subprocess.Popen[str], kind: str, count: int) -> list[dict[str, Any]]:
    """Until so many facts of a kind were printed."""
    assert process.stdout is not None
    found = []
    for line in process.stdout:
        fact = json.loads(line)
        if fact["kind"] == kind:
            found.append(fact)
            if len(found) == count:
                break
    return found


WORDS = ("llamacpp-smollm2-ngram", "--depths", "0,6", "--prompts", "1", "--max-tokens", "24")


def counted(run: store.Run) -> dict[tuple[int | None, str], tuple[Any, ...]]:
    return {
        (r.depth, r.prompt_id): (r.drafted, r.accepted, r.completion_tokens, r.text_hash)
        for r in run.requests()
        if r.outcome == "ok" and not r.warmup
    }


@pytest.mark.parametrize("victim", ["console", "server", "load"])
def test_a_kill_loses_nothing_and_resume_finishes_the_same(victim: str, tmp_path: Path) -> None:
    """The three kills that the console must survive; benchmarks/kills.py does them at twenty random moments."""
    process = command(tmp_path, *WORDS)
    ready = [f for f in facts(process, "done", 3) if f]
    assert len(ready) == 3
    run = store.listing(tmp_path)[0]
    children = psutil.Process(process.pid).children(recursive=True)
    servers = [p for p in children if "llama-server" in p.name()]
    loads = [p for p in children if "probes.load" in " ".join(p.cmdline())]
    assert len(servers) == len(loads) == 1
    before = {r.id for r in run.requests()}
    {"console": psutil.Process(process.pid), "server": servers[0], "load": loads[0]}[victim].kill()
    assert process.stdout is not None
    with process.stdout:
        rest = process.stdout.read()
    process.wait(60)
    _, left = psutil.wait_procs([*servers, *loads], timeout=2 if victim == "console" else 10)
    alive = [p for p in left if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]  # init may reap late
    assert not alive, "an orphan"
    if victim == "console":
        assert process.returncode == -signal.SIGKILL
        again = command(tmp_path, "--resume", run.name)
        assert again.stdout is not None
        with again.stdout:
            rest = again.stdout.read()
        assert again.wait(60) == 0
    else:
        assert process.returncode == 0
    assert before <= {r.id for r in run.requests()}
    result = json.loads(rest.splitlines()[-1])
    assert result["kind"] == "result"
    assert {(d, c) for d, c in ((c["depth"], c["category"]) for c in result["cells"] if c["n"])} == {
        (d, c) for d in (0, 6) for c in ("code", "story", "translation", "structured")
    }
    whole = command(tmp_path, *WORDS)
    assert whole.stdout is not None
    with whole.stdout:
        whole.stdout.read()
    assert whole.wait(60) == 0
    undisturbed = next(r for r in store.listing(tmp_path) if r.name != run.name)
    assert counted(run) == counted(undisturbed)


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    process = command(tmp_path, *WORDS)
    facts(process, "done", 2)
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    with process.stdout:
        last = process.stdout.read().splitlines()[-1]
    assert process.wait(60) == 130
    assert json.loads(last)["kind"] == "result"
    assert len(list(store.listing(tmp_path)[0].requests())) >= 2


def test_a_refused_setting_never_starts(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "probes", "sweep", "llamacpp-smollm2-ngram", "--depths", "0-99"],
        capture_output=True, text=True, check=False, env={**os.environ, "DRAFTDIAL_RUNS": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 2
    assert re.fullmatch(r"draftdial: --depths 0-99: \d+ is not on the dial: .*\n", done.stderr)
    assert not store.listing(tmp_path)
