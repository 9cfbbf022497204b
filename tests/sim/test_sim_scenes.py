"""Queues with a known cause in all four dialects: the live diagnosis may abstain, and is never wrong and sure of it."""

from __future__ import annotations

import dataclasses
import functools

import pytest

from benchmarks.ceiling_scenes import SCENES, Scene, Stage, judge, right, table
from probes.events import Ceiling

SURE = {
    "ninfer: three of 100,000 on three lanes": "kv_pool",
    "ninfer: four of 1,200 on three lanes": "lanes",
    "sglang: states for 8 of 96": "state_pool",
    "vllm: a pool of 9,600 in use": "kv_pool",
    "vllm: eight on four lanes": "lanes",
}


NAMED = {scene.name: scene for scene in SCENES}


@functools.cache
def judged(name: str) -> Ceiling:
    return judge(NAMED[name])


@pytest.mark.parametrize("scene", SCENES, ids=lambda s: s.name)
def test_no_verdict_is_wrong(scene: Scene) -> None:
    found = judged(scene.name)
    how = right(scene, found)
    assert how != "wrong", found.sentence
    if how == "open" and found.rivals:
        assert set(scene.truth) & set(found.rivals), found.sentence
    if scene.name in SURE:
        assert (found.verdict, found.confidence) == (SURE[scene.name], "high")


def test_there_are_enough_scenes_and_most_are_decided(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [(scene, judged(scene.name)) for scene in SCENES]
    with capsys.disabled():
        print("\n" + table(rows))
    assert len(SCENES) >= 30
    assert len({s.dialect for s in SCENES}) == 4
    assert sum(right(scene, found) == "right" for scene, found in rows) >= 0.75 * len(rows)


def test_what_the_scenes_do_comes_from_the_pool_and_not_from_the_wording() -> None:
    first = next(s for s in SCENES if s.name.startswith("ninfer: three of 100,000"))
    small, large = "--max-context 224000 --kv-capacity 224000", "--max-context 120000 --kv-capacity 310000"
    larger = dataclasses.replace(first, argv=first.argv.replace(small, large))
    assert judge(larger).verdict == "none"
    stage = Stage(first)
    stage.run()
    assert {len(stage.front.core.running), len(stage.front.core.queue)} == {2, 1}


@pytest.mark.parametrize("name", ["ninfer: four of 1,200 on three lanes", "vllm: eight on four lanes"])
def test_a_server_that_hangs_is_at_no_ceiling(name: str) -> None:
    """All lanes are taken and the rest waits, report after report, and not a token is made."""
    stage = Stage(NAMED[name])
    ready = max(at for at, _ in stage.front.boot())

    def hang() -> None:
        stage.front.core.hung = True

    stage.front.core.when(ready + 1.0, hang)
    found = stage.run()
    assert found.verdict == "unknown"
    assert "no token is computed any more" in found.sentence
    assert found.missing == ("whether the server still answers",)
