from __future__ import annotations

import dataclasses
import math
import random

import pytest

from probes.events import RequestDone
from probes.stats.abresult import judge_ab

CATEGORIES = ("code", "story")


def made(
    effect: float, blocks: int = 6, noise: float = 0.01, floor: int = 3, seed: int = 1, prompts: int = 3
) -> list[RequestDone]:
    """Requests of an A/B with a known true ratio: block noise, prompt levels, request noise."""
    rng = random.Random(seed)
    level = {f"{c}-{i}": rng.gauss(math.log(50), 0.2) for c in CATEGORIES for i in range(prompts)}
    out: list[RequestDone] = []

    def restart(arm: str, block: int, shift: float) -> None:
        own = rng.gauss(0, noise)
        for prompt, base in level.items():
            tps = math.exp(base + own + shift + rng.gauss(0, noise / 2))
            out.append(
                RequestDone(
                    f"{arm}{block}-{prompt}",
                    prompt,
                    "h",
                    prompt.split("-")[0],
                    None,
                    1,
                    block,
                    "ok",
                    0.0,
                    first=1.0,
                    last=1.0 + 100 / tps,
                    done=9.0,
                    completion_tokens=101,
                    first_tokens=1,
                    text="fine",
                    text_hash="t",
                )
            )

    for i in range(floor):
        restart("aa-", i, 0.0)
    for i in range(blocks):
        restart("a-", i, 0.0)
        restart("b-", i, math.log(effect))
    return out


def judge(requests: list[RequestDone], differs: tuple[str, ...] = ("threads: 1 against 2",)) -> dict[str, object]:
    return judge_ab(requests, run="r", engine="llamacpp", simulated=False, differs=differs)


@pytest.mark.parametrize(("effect", "verdict"), [(1.2, "BETTER"), (0.8, "WORSE"), (1.0, "EQUIVALENT")])
def test_a_clear_truth_is_found(effect: float, verdict: str) -> None:
    result = judge(made(effect))
    assert result["verdict"] == verdict
    interval = result["interval"]
    assert isinstance(interval, dict)
    assert interval["low"] <= effect * 1.02
    assert interval["high"] >= effect * 0.98
    assert set(result["per_category"]) == set(CATEGORIES)  # type: ignore[call-overload]


def test_noise_gives_undecided_and_says_how_much_more() -> None:
    result = judge(made(1.04, blocks=3, noise=0.06))
    assert result["verdict"] == "UNDECIDED"
    assert isinstance(result["needs_blocks"], int)
    assert str(result["sentence"]).startswith("Undecided:")


def test_a_gain_below_the_noise_of_identical_servers_is_no_win() -> None:
    requests = made(1.05, blocks=6, noise=0.004, floor=0)
    loud = made(1.0, blocks=0, noise=0.2, floor=4, seed=5)
    result = judge(requests + loud)
    assert result["verdict"] == "UNDECIDED"
    assert "Identical servers here differ by as much" in str(result["sentence"])


def test_too_little_is_no_claim() -> None:
    assert judge(made(1.5, blocks=1))["verdict"] == "NO_CLAIM"
    assert judge(made(1.5, prompts=1))["verdict"] == "NO_CLAIM"
    assert judge([])["verdict"] == "NO_CLAIM"


def test_an_incomplete_block_is_left_out_and_named() -> None:
    requests = [r for r in made(1.2) if not (r.id.startswith("b-5") and r.category == "code")]
    result = judge(requests)
    assert result["blocks"] == 5
    assert result["incomplete_blocks"] == [5]
    assert result["verdict"] == "BETTER"


def test_rows_tell_every_value_of_both_arms_and_of_a_block_under_way() -> None:
    requests = [r for r in made(2.0, blocks=2, noise=0.0) if not r.id.startswith("b-1")]
    rows = judge(requests)["rows"]
    assert isinstance(rows, list)
    assert [(row["block"], row["category"], len(row["a"]), len(row["b"])) for row in rows] == [
        (0, "code", 3, 3), (0, "story", 3, 3), (1, "code", 3, 0), (1, "story", 3, 0),
    ]  # fmt: skip
    warmup = dataclasses.replace(requests[-1], id="a-9", prompt_id="w", category="warmup", warmup=True)
    assert judge([*requests, warmup])["rows"] == rows
    for row in rows[:2]:
        assert [b / a for a, b in zip(row["a"], row["b"], strict=True)] == pytest.approx([2.0] * 3, rel=1e-3)


def test_guards() -> None:
    assert judge(made(1.0), differs=())["flags"] == ["A_A"]
    assert "SEVERAL_KNOBS" in judge(made(1.0), differs=("a", "b"))["flags"]  # type: ignore[operator]


def test_type_one_error_stays_below_seven_percent() -> None:
    wrong = sum(judge(made(1.0, noise=0.03, seed=seed))["verdict"] in {"BETTER", "WORSE"} for seed in range(120))
    assert wrong <= 8


def test_a_restart_on_a_slowed_gpu_is_left_out_and_told() -> None:
    rows = [
        dataclasses.replace(r, restart=99) if r.id.startswith("b-") and r.block == 2 else r for r in made(1.2, blocks=4)
    ]
    found = judge_ab(rows, run="r", engine="e", simulated=False, differs=("x",), slowed={99: 0.3, 1: 0.01})
    assert found["blocks"] == 3
    assert "THROTTLED" in found["flags"]
    assert found["warnings"] == ["arm B, block 3 is left out: the GPU was slowed for 30% of the time"]
    assert "THROTTLED" not in judge(rows)["flags"]  # type: ignore[operator]
