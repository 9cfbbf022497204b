"""Logs of real servers on a GPU, kept under docs/evidence: read right, and their presets still give what ran."""

from __future__ import annotations

import gzip
import json
import shlex
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import yaml

from probes import engines, preset
from probes.events import Record, RequestDone, RequestSent
from probes.reading import Reading, read
from probes.stats.ceilings import Judge
from probes.stats.windows import Traits

EVIDENCE = Path(__file__).resolve().parent.parent / "docs" / "evidence"
FAILED = "sglang-standalone-oom"
RUNS = sorted(p.name for p in (EVIDENCE / "runs").iterdir() if p.name != FAILED)


def reading(run: str, folder: Path) -> tuple[Reading, list[Record]]:
    """The run's log, read as anybody's log would be."""
    log = folder / "server.log"
    log.write_bytes(gzip.decompress((EVIDENCE / "runs" / run / "server.log.gz").read_bytes()))
    records: list[Record] = []
    return read(log, on_record=records.append), records


def load(run: str) -> list[dict[str, Any]]:
    """The run's requests, as the load client kept them."""
    kept = gzip.decompress((EVIDENCE / "runs" / run / "load.jsonl.gz").read_bytes()).decode()
    return [json.loads(line) for line in kept.rstrip("\n").split("\n")]


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
    ("sglang-default", "lanes", 54, 65_536),
    ("sglang-pool", "kv_pool", 36, 4_096),
    ("sglang-estimate", "kv_pool", 72, 6_000),
])  # fmt: skip
def test_queues_of_one_engine_are_told_apart(run: str, verdict: str, lanes: int, pool: int, tmp_path: Path) -> None:
    found, _ = reading(run, tmp_path)
    assert found.ceiling is not None
    assert (found.ceiling.verdict, found.ceiling.confidence) == (verdict, "high")
    assert (found.capacity.lanes, found.capacity.kv_pool_tokens) == (lanes, pool)


def test_a_start_that_ran_out_of_memory_is_told_with_its_cause(tmp_path: Path) -> None:
    """The draft's pool came on top of the memory fraction; the second start was given up by hand."""
    found, records = reading(FAILED, tmp_path)
    assert not [r for r in records if r.kind == "ready"]
    (trouble,) = [r for r in records if r.kind == "oom"]
    assert trouble.fields["want_bytes"] == trouble.fields["free_bytes"] == round(2.01 * 2**30)
    assert "the draft model gets a pool of its own" in trouble.fields["hint"]
    assert found.capacity.kv_pool_tokens == 5_608_573


@pytest.mark.parametrize(("run", "depth", "length"), [
    ("sglang-ngram-chunks", 2, 1.65), ("sglang-ngram-chunks", 4, 1.92),
    ("sglang-standalone", 1, 1.67), ("sglang-standalone", 3, 2.11),
])  # fmt: skip
def test_drafts_counted_from_the_stream_agree_with_the_servers_log(
    run: str, depth: int, length: float, tmp_path: Path
) -> None:
    """SGLang 0.5.11 tells a request's drafts nowhere; its log's reports are means of ten steps each."""
    _, records = reading(run, tmp_path)
    at, told = -1, []
    starts = [e for e in load(run) if e["warmup"]]
    depths = {e["restart"]: e["depth"] for e in starts}
    for record in records:
        at += record.kind == "boot"
        if "accept_len" in record.fields and depths[at + 1] == depth:
            told.append(record.fields["accept_len"])
    counted = [e for e in load(run) if e["depth"] == depth]
    assert {e["raw"]["drafts_source"] for e in counted} == {"chunks"}
    steps = sum(e["steps"] for e in counted)
    mine = 1 + sum(e["accepted"] for e in counted) / steps
    assert mine == pytest.approx(length, abs=0.005)
    assert fmean(told) == pytest.approx(mine, rel=0.006)
    assert 10 * len(told) == pytest.approx(steps, rel=0.02)


def test_what_is_set_aside_explains_a_queue_that_the_log_alone_does_not(tmp_path: Path) -> None:
    """The log and our own requests by their stamps: 3 to 6 of 64 run for seconds, on a pool between 6 and 92 %."""
    run = "sglang-estimate-tight"
    found, records = reading(run, tmp_path)
    assert found.ceiling is not None
    assert (found.ceiling.verdict, found.ceiling.rivals) == ("unknown", ("kv_pool",))
    engine, sent = engines.engine("sglang"), load(run)
    begins = min(e["first"] for e in sent if e.get("first"))
    third = [r for r in records if r.kind == "prefill"][2]  # the first two are the server's own
    events: list[tuple[float, int, Any]] = [(e["sent"] - begins, 0, e) for e in sent]
    events += [(e["done"] - begins, 1, e) for e in sent if e.get("done")]
    events += [(seconds(r) - seconds(third), 2, r) for r in records if r.at]
    judge = Judge(Traits.of(engine))
    judge.capacity(found.capacity)
    for _, kind, event in sorted(events, key=lambda e: e[:2]):
        if kind == 2:
            judge.see(event)
        elif kind:
            judge.done(RequestDone(event["id"], "", "", "burst", 0, 1, 0, event["outcome"], 0.0))
        else:
            judge.sent(RequestSent(event["id"], 0.0, "", "burst", event["max_tokens"], 0, None))
    verdict = judge.verdict()
    assert (verdict.verdict, verdict.confidence, verdict.rivals) == ("kv_pool", "medium", ("admission_delay",))
    assert "running may still put out, and the next needs 1,500 at once" in verdict.sentence


def seconds(record: Record) -> float:
    """A stamped record's time."""
    return datetime.fromisoformat(record.at or "").timestamp()


@pytest.mark.parametrize("path", sorted((EVIDENCE / "presets").glob("*.yaml")), ids=lambda p: p.stem)
def test_presets_still_give_the_command_lines_that_ran(path: Path) -> None:
    recipe = preset.load(str(path))
    engine = engines.engine(recipe.engine)
    assert len({tuple(engine.command(recipe, {}, d, 1)) for d in recipe.dial.values}) == len(recipe.dial.values)
    runs = {"llamacpp-draft": "llamacpp-cuda-draft", "llamacpp-ngram": "llamacpp-cuda-ngram"}
    name = runs.get(path.stem, path.stem)
    log = gzip.decompress((EVIDENCE / "runs" / name / "server.log.gz").read_bytes()).decode()
    heads = [line.split(" · ") for line in log.splitlines() if line.startswith("# draftdial restart ")]
    assert heads
    kept = yaml.safe_load((EVIDENCE / "runs" / name / "run.yaml").read_text())["starts"]
    for restart, _, depth, ran in heads:
        settings = kept[restart.removeprefix("# draftdial restart ")]["settings"]
        asked = engine.command(recipe, settings, int(depth.removeprefix("depth ")), 1)
        flags = [word for word in asked if word.startswith("-") and not word.startswith("-m")]
        assert [word for word in shlex.split(ran) if word.startswith("-") and not word.startswith("-m")] == flags
