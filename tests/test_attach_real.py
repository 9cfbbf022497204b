"""A server that someone else started: read, watched, sent load, and alive after we have gone."""

from __future__ import annotations

import asyncio
import dataclasses
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from probes import identify, models, store
from probes.bench import Attached
from probes.events import CapacityRead, Event, Notice, ServerChanged
from probes.lab import Lab
from probes.recipe import Dial, Recipe, Workload
from probes.server import free_port

pytestmark = pytest.mark.llama


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", trust_env=False, timeout=2).status_code == 200
    except httpx.HTTPError:
        return False


def test_attach_watches_probes_and_never_stops(tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "theirs.log"
    url = f"http://127.0.0.1:{port}"
    words = [
        models.binary("llama-server-vulkan"),
        "-m",
        str(models.shipped()),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    words += ["-c", "1024", "-np", "1", "-t", "1", "--poll", "0", "-lv", "4", "--metrics", "--sse-ping-interval", "1"]
    with log.open("wb") as out, subprocess.Popen(words, stdout=out, stderr=out) as theirs:
        try:
            end = time.monotonic() + 60
            while not answers(url):
                assert time.monotonic() < end
            found = identify.whole(url, None)
            assert (found.url, found.engine, found.argv[1:]) == (url, "llamacpp", tuple(words[1:]))
            seen: list[Event] = []
            recipe = Recipe(
                name="attached", engine=found.engine, binary="", model="", dial=Dial("as started", (0,)),
                workload=Workload(prompts_per_category=1, max_tokens=8, categories=("code",)),
            )  # fmt: skip

            async def visit() -> None:
                lab = Lab(
                    recipe,
                    store.create(tmp_path / "runs"),
                    seen.append,
                    attached=Attached(url, log, found.pgid, found.argv),
                )
                await lab.open()
                while lab.bench.server.state != "ready" or lab.bench.depth is None:
                    await asyncio.sleep(0.02)
                assert not await lab.apply(0, {}), "turning a knob of someone else's server starts nothing"
                await lab.probe()
                await lab.stop_server()
                await lab.close()
                assert [r.outcome for r in lab.requests.values()] == ["ok"]

            asyncio.run(visit())
            assert theirs.poll() is None
            assert answers(url), "the server is not ours to stop"
            assert any(isinstance(e, CapacityRead) and e.capacity.kv_pool_tokens == 1024 for e in seen)
            assert {e.state for e in seen if isinstance(e, ServerChanged)} == {"ready"}
            assert any(isinstance(e, Notice) and "is not ours" in e.text for e in seen)
        finally:
            theirs.terminate()
            theirs.wait(30)


def test_a_server_that_does_not_answer_is_looked_for_again(tmp_path: Path) -> None:
    recipe = Recipe(name="attached", engine="llamacpp", binary="", model="", dial=Dial("as started", (0,)))
    recipe = dataclasses.replace(recipe, workload=Workload(categories=("code",)))
    seen: list[Event] = []

    async def visit() -> None:
        lab = Lab(recipe, store.create(tmp_path), seen.append, attached=Attached(f"http://127.0.0.1:{free_port()}"))
        await lab.open()
        while not any(isinstance(e, ServerChanged) for e in seen):
            await asyncio.sleep(0.02)
        await lab.close()

    asyncio.run(visit())
    changed = [e for e in seen if isinstance(e, ServerChanged)]
    assert changed[0].state == "failed"
    assert "does not answer" in str(changed[0].reason)
