"""The whole loop on a real vLLM, by hand: its CPU wheel takes 3.5 GB and more than a minute a start.

DRAFTDIAL_VLLM=/path/to/vllm DRAFTDIAL_VLLM_MODEL=/path/to/folder pytest -m vllm_cpu
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import psutil
import pytest

from probes import preset, store
from probes.events import CapacityRead, EngineSample, Event, FlagsInForce
from probes.lab import Lab
from probes.measure.sweep import sweep
from probes.recipe import Recipe
from probes.session import Session

pytestmark = pytest.mark.vllm_cpu
DEPTHS = (0, 3)
FLAGS = {"--enforce-eager": True, "--dtype": "bfloat16", "--kv-cache-memory-bytes": "64M"}


def recipe() -> Recipe:
    """The shipped n-gram preset, made to fit a processor."""
    found = preset.load("vllm-ngram")
    return dataclasses.replace(
        found,
        binary=os.environ["DRAFTDIAL_VLLM"],
        model=os.environ["DRAFTDIAL_VLLM_MODEL"],
        flags={**found.flags, **FLAGS},
        env={"HF_HUB_OFFLINE": "1"},
        settings={"lanes": 4, "ctx": 1024, "request_drafts": "summary"},
        workload=dataclasses.replace(found.workload, prompts_per_category=1, max_tokens=24),
    )


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[store.Run, list[Event], list[Any]]:
    run, seen, session = store.create(tmp_path_factory.mktemp("runs")), [], Session()

    def take(event: Event) -> None:
        seen.append(event)
        session.apply(event)

    async def whole() -> list[Any]:
        lab = Lab(recipe(), run, take, DEPTHS)
        await lab.open()
        try:
            return await lab.carry_out("sweep", sweep(DEPTHS, 1, 1), len(DEPTHS))
        finally:
            await lab.close()

    return run, seen, asyncio.run(whole())


def test_every_depth_starts_and_is_proven(swept: tuple[store.Run, list[Event], list[Any]]) -> None:
    _, seen, outcomes = swept
    assert [o.failed for o in outcomes] == [None, None]
    flags = [e for e in seen if isinstance(e, FlagsInForce)]
    assert {(f.depth, f.proven, f.in_force["draft_depth"]) for f in flags} == {(0, True, 0), (3, True, 3)}
    assert {f.in_force["max_num_seqs"] for f in flags} == {4}


def test_capacity_is_what_the_log_says(swept: tuple[store.Run, list[Event], list[Any]]) -> None:
    run, seen, _ = swept
    pools = {e.capacity.kv_pool_tokens for e in seen if isinstance(e, CapacityRead)}
    (tokens,) = pools - {None}  # flags are told before the pool is
    assert f"KV cache size: {tokens:,} tokens" in run.server_log.read_text(errors="replace")


def test_a_replys_drafts_are_those_that_the_server_counts(swept: tuple[store.Run, list[Event], list[Any]]) -> None:
    """A sample of the counters may miss the end of the last request, and nothing else."""
    run, seen, _ = swept
    done = [r for r in run.requests() if r.outcome == "ok"]
    assert all(r.drafted is None for r in done if r.depth == 0)
    drafting = [r for r in done if r.depth == 3]
    assert all(r.drafted is not None and r.accepted is not None for r in drafting)
    told = [e.fields for e in seen if isinstance(e, EngineSample) and e.restart == drafting[0].restart]
    last: Mapping[str, Any] = max(told, key=lambda f: f.get("total_drafted") or 0)
    for name in ("drafted", "accepted"):
        replies = [getattr(r, name) for r in drafting]
        assert sum(replies) - replies[-1] <= last[f"total_{name}"] <= sum(replies)


def test_nothing_is_left_running(swept: tuple[store.Run, list[Event], list[Any]]) -> None:
    del swept
    model = os.environ["DRAFTDIAL_VLLM_MODEL"]
    assert [p.pid for p in psutil.process_iter(["cmdline"]) if model in (p.info["cmdline"] or [])] == []
