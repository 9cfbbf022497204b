"""The commands on the simulated engine, whole: the published sweep comes out again, and so do the two queues."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent.parent


def command(runs: Path, *words: str) -> dict[str, Any]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "DRAFTDIAL_RUNS": str(runs)}
    done = subprocess.run([sys.executable, "-m", "probes", *words, "--json"], capture_output=True, text=True, cwd=ROOT,
                          env=env, timeout=170, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return command(tmp_path_factory.mktemp("runs"), "sweep", "sim-ninfer-5090", "--depths", "0-5")


def test_the_published_sweep_comes_out_again(swept: dict[str, Any], golden: Path) -> None:
    published = yaml.safe_load((golden / "ninfer_depth.yaml").read_text())
    cells = {(c["depth"], c["category"]): c for c in swept["cells"]}
    assert {c["outcomes"]["ok"] for c in swept["cells"]} == {2}
    per = published["per_category"]
    for kind, speeds in per["tok_s"].items():
        for depth, speed in zip(per["depths"], speeds, strict=True):
            measured = cells[depth, kind]["decode_tps"]
            assert sum(measured) / len(measured) == pytest.approx(speed, rel=0.025), (depth, kind)
    for kind, rates in per["accept_rate"].items():
        for depth, rate in rates.items():
            assert cells[depth, kind]["accept_rate"] == pytest.approx(rate, abs=0.015), (depth, kind)
    for row in published["overall"]:
        speeds = sorted(s for (d, _), c in cells.items() if d == row["depth"] for s in c["decode_tps"])
        assert sum(speeds) / 8 == pytest.approx(row["mean"], rel=0.015)
        assert (speeds[3] + speeds[4]) / 2 == pytest.approx(row["median"], rel=0.015)


def test_so_do_its_peaks_and_the_doubt_about_them(swept: dict[str, Any]) -> None:
    assert swept["picks"] == {"median": 4, "mean": 5, "minimax": 3}
    assert swept["verdict"]["state"] == "UNDECIDED"
    assert {"INCOHERENT", "MEAN_MEDIAN_DISAGREE"} <= set(swept["flags"])
    worst = {int(d): row["worst"] for d, row in swept["regret"].items()}
    for depth, regret in ((3, 0.097), (4, 0.134), (5, 0.145)):
        assert worst[depth] == pytest.approx(regret, abs=0.015)


def test_steps_take_the_published_time_and_starts_five_seconds(swept: dict[str, Any]) -> None:
    for cell in swept["cells"]:
        published = {0: 13.569, 1: 14.58, 2: 15.838, 3: 15.886, 4: 16.55, 5: 17.58}[cell["depth"]]
        assert cell["step_ms"] == pytest.approx(published, rel=0.02)
    assert swept["boot_s"] == pytest.approx([5.31] * 6, abs=0.05)


def test_everything_is_marked_as_simulated(swept: dict[str, Any]) -> None:
    assert swept["simulated"] is True
    run = Path(swept["run_path"])
    started = json.loads((run / "events.jsonl").read_text().splitlines()[0])
    assert started["simulated"] is True
    records = [json.loads(line) for line in (run / "load.jsonl").read_text().splitlines()]
    assert {r["raw"]["simulated_speed"] for r in records} == {40.0}


def test_the_two_queues_of_three_lanes_are_told_apart_and_settled(tmp_path: Path) -> None:
    result = command(tmp_path, "ceiling", "sim-ninfer-5090")
    pool, lanes = result["loads"]
    assert (pool["ceiling"]["verdict"], pool["ceiling"]["confidence"]) == ("kv_pool", "high")
    assert pool["measured"]["running"] == 2
    assert (lanes["ceiling"]["verdict"], lanes["ceiling"]["confidence"]) == ("lanes", "high")
    assert lanes["measured"]["running"] == 3
    assert [load["conclusion"] for load in result["loads"]] == ["confirmed", "confirmed"]
    assert pool["admits"]["pool_tokens"] > 224_000
    assert lanes["admits"]["value"] == 4
    assert result["simulated"] is True
