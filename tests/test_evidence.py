"""Logs of real servers on a GPU, kept under docs/evidence: read right, and their presets still give what ran."""

from __future__ import annotations

import gzip
import json
import shlex
from pathlib import Path

import pytest

from probes import engines, preset
from probes.events import Record
from probes.reading import Reading, read

EVIDENCE = Path(__file__).resolve().parent.parent / "docs" / "evidence"
RUNS = sorted(p.name for p in (EVIDENCE / "runs").iterdir())


def reading(run: str, folder: Path) -> tuple[Reading, list[Record]]:
    """The run's log, read as anybody's log would be."""
    log = folder / "server.log"
    log.write_bytes(gzip.decompress((EVIDENCE / "runs" / run / "server.log.gz").read_bytes()))
    records: list[Record] = []
    return read(log, on_record=records.append), records


@pytest.mark.parametrize("run", RUNS)
def test_the_engine_is_known_and_every_start_was_ready_and_ended(run: str, tmp_path: Path) -> None:
    found, records = reading(run, tmp_path)
    result = json.loads((EVIDENCE / "runs" / run / "result.json").read_text())
    assert found.engine == result["engine"]
    assert sum(r.kind == "ready" for r in records) == len(result["boot_s"])
    assert not [r for r in records if r.kind in {"crash", "oom", "error"}]
    assert found.capacity.lanes is not None
    assert found.capacity.kv_pool_tokens


@pytest.mark.parametrize(("run", "verdict", "lanes", "pool"), [
    ("vllm-slots", "lanes", 2, 93_200),
    ("vllm-kv", "kv_pool", 64, 1_024),
])  # fmt: skip
def test_two_queues_of_one_engine_are_told_apart(run: str, verdict: str, lanes: int, pool: int, tmp_path: Path) -> None:
    found, _ = reading(run, tmp_path)
    assert found.ceiling is not None
    assert (found.ceiling.verdict, found.ceiling.confidence) == (verdict, "high")
    assert (found.capacity.lanes, found.capacity.kv_pool_tokens) == (lanes, pool)


@pytest.mark.parametrize("path", sorted((EVIDENCE / "presets").glob("*.yaml")), ids=lambda p: p.stem)
def test_presets_still_give_the_command_lines_that_ran(path: Path) -> None:
    recipe = preset.load(str(path))
    engine = engines.engine(recipe.engine)
    assert len({tuple(engine.command(recipe, {}, d, 1)) for d in recipe.dial.values}) == len(recipe.dial.values)
    runs = {"llamacpp-draft": "llamacpp-cuda-draft", "llamacpp-ngram": "llamacpp-cuda-ngram"}
    log = gzip.decompress((EVIDENCE / "runs" / runs.get(path.stem, path.stem) / "server.log.gz").read_bytes()).decode()
    heads = [line.split(" · ") for line in log.splitlines() if line.startswith("# draftdial restart ")]
    assert heads
    for _, _, depth, ran in heads:
        asked = engine.command(recipe, {}, int(depth.removeprefix("depth ")), 1)
        flags = [word for word in asked if word.startswith("-") and not word.startswith("-m")]
        assert [word for word in shlex.split(ran) if word.startswith("-") and not word.startswith("-m")] == flags
