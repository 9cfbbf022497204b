"""The seeds' table and small made-up sweeps through the whole judgment."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import pytest

from probes.events import CATEGORIES, RequestDone
from probes.stats.result import judge_sweep

TABLE: dict[int, dict[str, float]] = {
    1: {"code": 120.8, "story": 114.7, "translation": 126.8, "structured": 126.6},
    3: {"code": 180.9, "story": 147.0, "translation": 195.4, "structured": 209.4},
    4: {"code": 200.2, "story": 134.7, "translation": 188.8, "structured": 200.8},
    5: {"code": 178.8, "story": 125.7, "translation": 202.9, "structured": 232.0},
}


def request(depth: int, category: str, tps: float, prompt: int = 0, **more: Any) -> RequestDone:
    """A request of 401 tokens, the first alone in its chunk, decoded at `tps`."""
    name = f"{category}-{prompt}"
    base = RequestDone(
        id=f"{depth}-{name}",
        prompt_id=name,
        prompt_hash=name,
        category=category,
        depth=depth,
        restart=depth,
        block=0,
        outcome="ok",
        sent=10.0 * depth,
        first=10.0 * depth + 0.05,
        last=10.0 * depth + 0.05 + 400 / tps,
        done=10.0 * depth + 0.05 + 400 / tps,
        completion_tokens=401,
        first_tokens=1,
        prompt_tokens=60,
        text_hash=name,
    )
    return dataclasses.replace(base, **more)


def sweep(table: Mapping[int, Mapping[str, float]], prompts: int = 2) -> list[RequestDone]:
    """Every cell of a table, each prompt at exactly the cell's speed."""
    return [request(d, c, v, p) for d, row in table.items() for c, v in row.items() for p in range(prompts)]


def judge(requests: list[RequestDone], **more: Any) -> dict[str, Any]:
    """Judge with everything else plain."""
    given: dict[str, Any] = {"depths": [1, 3, 4, 5], "categories": CATEGORIES}
    return judge_sweep(requests, engine="ninfer", run="r", simulated=False, **(given | more))


def test_the_published_table_is_undecided_though_its_arithmetic_holds() -> None:
    result = judge(sweep(TABLE))
    assert result["picks"] == {"median": 4, "mean": 5, "minimax": 3}
    worst = {d: round(100 * row["worst"], 2) for d, row in result["regret"].items()}
    assert worst == {"1": 45.43, "3": 9.74, "4": 13.45, "5": 14.49}
    assert result["verdict"]["state"] == "UNDECIDED"
    assert result["verdict"]["depth"] is None
    assert "MEAN_MEDIAN_DISAGREE" in result["flags"]
    json.dumps(result, allow_nan=False)


def counted(depth: int, category: str, tps: float, length: float, prompt: int = 0, **more: Any) -> RequestDone:
    """A long request whose counters give an accept length."""
    steps = round(4000 / length)
    start = 10.0 * depth + 0.05
    own = {"completion_tokens": 4001, "last": start + 4000 / tps, "drafted": steps * depth, "accepted": 4000 - steps}
    return request(depth, category, tps, prompt, **(own | more))


def test_what_the_seed_printed_of_acceptance_shows_that_the_table_does_not_hang_together() -> None:
    """Lengths from the printed accept rates (depths 1 and 5, and story at 4); the rest only has speeds."""
    printed = {
        (1, "code"): 1.761, (1, "story"): 1.679, (1, "translation"): 1.855, (1, "structured"): 1.842,
        (5, "code"): 3.135, (5, "story"): 2.215, (5, "translation"): 3.575, (5, "structured"): 4.075,
        (4, "story"): 2.224,
    }  # fmt: skip
    rows = [
        counted(r.depth or 0, r.category, TABLE[r.depth or 0][r.category], printed[r.depth or 0, r.category], p)
        if (r.depth, r.category) in printed
        else r
        for i, r in enumerate(sweep(TABLE))
        for p in [i % 2]
    ]
    result = judge(rows)
    assert {"INCOHERENT", "MEAN_MEDIAN_DISAGREE"} <= set(result["flags"])
    assert result["picks"] == {"median": 4, "mean": 5, "minimax": 3}
    assert (result["verdict"]["state"], result["verdict"]["depth"]) == ("UNDECIDED", None)


def test_lengths_that_cannot_be_one_texts_are_never_a_pick() -> None:
    step = {1: 14.6, 3: 15.95, 4: 16.51, 5: 17.6}
    rows = [counted(d, c, v, v * step[d] / 1000, p) for d, row in TABLE.items() for c, v in row.items() for p in (0, 1)]
    result = judge(rows)
    assert result["decision"]["route"] == "counters"
    assert "INCOHERENT" in result["flags"]
    assert result["verdict"]["state"] == "UNDECIDED"
    assert "prompts" in result["verdict"]["sentence"]


def clear_winner(noise: float = 0.01, prompts: int = 4) -> list[RequestDone]:
    """Accept lengths that level off while steps go on getting longer: depth 3 is best everywhere, 4 close by."""
    gained = [0.0, 0.8, 1.36, 1.70, 1.86, 1.93]
    rows = []
    for d in range(6):
        for k, c in enumerate(CATEGORIES):
            for p in range(prompts):
                wobble = 1 + noise * ((7 * d + 3 * k + 5 * p) % 5 - 2)
                length = 1 + gained[d] * (0.97 + 0.02 * k) * wobble
                step = 13.6 * (1 + 0.12 * d)
                rows.append(counted(d, c, 1000 * length / step, length, p) if d else request(0, c, 1000 / step, p))
    return rows


def test_a_clear_winner_is_picked_and_said_in_plain_words() -> None:
    result = judge(clear_winner(), depths=range(6))
    assert (result["verdict"]["state"], result["verdict"]["depth"]) == ("PICK", 3)
    assert result["verdict"]["sentence"].startswith("Use depth 3: ")
    assert result["decision"]["p_within"]["3"] >= 0.93
    assert {c["state"] for c in result["cells"]} == {"VERDICT"}


def test_the_depth_in_use_is_kept_when_it_is_as_good() -> None:
    rows = clear_winner()
    assert judge(rows, depths=range(6), incumbent=3)["verdict"]["sentence"].startswith("Stay at depth 3")
    assert judge(rows, depths=range(6), incumbent=1)["verdict"]["depth"] == 3


def test_a_depth_that_may_not_win_never_does() -> None:
    result = judge(clear_winner(), depths=range(6), unverified={3})
    assert result["verdict"]["depth"] in {None, 2, 4}
    without = [r for r in clear_winner() if not (r.depth == 3 and r.category == "story")]
    assert judge(without, depths=range(6))["verdict"]["depth"] in {None, 2, 4}


def test_depths_that_do_not_differ_leave_nothing_to_choose() -> None:
    rows = [
        counted(d, c, 1000 / 13, length, p) for d, length in ((1, 1.7), (2, 2.2)) for c in CATEGORIES for p in range(8)
    ]
    result = judge(rows, depths=[1, 2], floor_sd=0.003)
    assert result["verdict"]["state"] == "NOTHING_TO_CHOOSE"
    assert result["verdict"]["depth"] is None


def test_one_depth_is_nothing_to_compare_and_settles_no_figure() -> None:
    rows = [counted(2, c, 1000 / 13, 2.2, p) for c in CATEGORIES for p in range(8)]
    result = judge(rows, depths=[1, 2])
    assert result["verdict"]["state"] == "NO_CLAIM"
    assert result["verdict"]["sentence"].startswith("Nothing to compare: only depth 2 ")
    assert {c["state"] for c in result["cells"] if c["n"]} == {"UNDECIDED"}


def test_the_same_records_give_the_same_result() -> None:
    rows = clear_winner(noise=0.04, prompts=2)
    assert judge(rows, depths=range(6)) == judge(list(reversed(rows)), depths=range(6))


def test_only_sound_measured_requests_speak_of_speed() -> None:
    loop = "the same words again " * 60
    rows = [
        request(1, "code", 100.0),
        request(1, "code", 900.0, 1, warmup=True),
        request(1, "code", 900.0, 2, outcome="aborted"),
        request(1, "code", 900.0, 3, text=loop),
        request(1, "code", 900.0, 4, outcome="degenerate"),
    ]
    cell = judge(rows, depths=[1], categories=["code"])["cells"][0]
    assert cell["decode_tps"] == [100.0]
    assert (cell["n"], cell["requests"]) == (1, 1)
    assert cell["outcomes"] == {"ok": 1, "aborted": 1, "degenerate": 2}


def test_repeats_of_a_prompt_are_no_replicates() -> None:
    rows = [dataclasses.replace(request(1, "code", 100.0), id=str(i)) for i in range(5)]
    cell = judge(rows, depths=[1], categories=["code"])["cells"][0]
    assert (cell["n"], cell["requests"], cell["state"]) == (1, 5, "NO_CLAIM")


def test_acceptance_is_pooled_by_sums_and_null_without_drafts() -> None:
    rows = [
        request(2, "code", 100.0, 0, drafted=100, accepted=90, steps=310),
        request(2, "code", 100.0, 1, drafted=300, accepted=90, steps=310),
        request(0, "code", 50.0, 0, drafted=0, accepted=0),
    ]
    plain, drafting = judge(rows, depths=[0, 2], categories=["code"])["cells"]
    assert drafting["accept_rate"] == pytest.approx(180 / 400)
    assert drafting["accept_len"] == pytest.approx(1 + 180 / 620, abs=1e-6)
    assert drafting["step_ms"] == pytest.approx(10.0 * (1 + 180 / 620), abs=1e-3)
    assert plain["accept_rate"] is plain["accept_len"] is plain["drafted"] is None
    assert plain["step_ms"] == pytest.approx(20.0)


def test_a_missing_cell_keeps_its_depth_from_winning() -> None:
    table = {d: dict(row) for d, row in TABLE.items()}
    del table[3]["story"]
    result = judge(sweep(table))
    assert result["picks"]["minimax"] == 5
    assert result["regret"]["3"]["worst"] is None
    assert result["unmeasured"]["depths"] == [3]


def test_an_unverified_depth_neither_wins_nor_sets_the_mark() -> None:
    result = judge(sweep(TABLE), unverified={3})
    assert 3 not in result["picks"].values()
    assert "3" not in result["regret"]
    assert result["regret"]["4"]["story"] == 0.0
    assert "CONFIG_UNVERIFIED" in result["flags"]


def test_weights_of_real_traffic() -> None:
    shown = judge(sweep(TABLE), mix={"story": 1.0})["regret"]
    assert shown["3"]["weighted"] == 0.0
    assert shown["5"]["weighted"] == pytest.approx(0.1449, abs=1e-4)


def test_no_records_at_all_is_an_answer_too() -> None:
    result = judge([])
    assert result["verdict"]["state"] == "NO_CLAIM"
    assert {c["state"] for c in result["cells"]} == {"RAW"}
    json.dumps(result, allow_nan=False)


@pytest.mark.parametrize(
    ("flag", "more"),
    [
        ("ACCEPT_TOO_GOOD", {"drafted": 300, "accepted": 290, "steps": 111}),
        ("CACHE_HITS", {"cached_tokens": 50}),
        ("DEGENERATE", {"outcome": "degenerate"}),
        ("STEP_ROUTES_DIFFER", {"drafted": 300, "accepted": 200, "steps": 201, "burst_gap_ms": 40.0}),
        ("STEPS_DISAGREE", {"drafted": 300, "accepted": 200, "steps": 150}),
        ("COUNTERS_ODD", {"drafted": 100, "accepted": 200}),
        ("NON_IDENTICAL_GREEDY", {"text_hash": "another"}),
    ],
)
def test_each_guard_speaks_when_it_should_and_only_then(flag: str, more: dict[str, Any]) -> None:
    rows = sweep(TABLE)
    assert flag not in judge(rows)["flags"]
    at = next(i for i, r in enumerate(rows) if r.depth == 3)
    rows[at] = dataclasses.replace(rows[at], **more)
    result = judge(rows)
    assert flag in result["flags"]
    assert any("3" in s or "code" in s for s in result["flag_details"][flag])


def test_steps_too_short_for_bursts_are_not_timed_by_them() -> None:
    """Steps of 1.1 ms and a pause of 1 ms to tell bursts by: neighbours run together, and their gaps mean nothing."""
    table = {0: dict.fromkeys(TABLE[3], 900.0)}
    fast = [dataclasses.replace(r, drafted=None, accepted=None, burst_gap_ms=1.7) for r in sweep(table)]
    assert "STEP_ROUTES_DIFFER" not in judge(fast, depths=[0])["flags"]
    table = {0: dict.fromkeys(TABLE[3], 250.0)}
    slow = [dataclasses.replace(r, drafted=None, accepted=None, burst_gap_ms=6.0) for r in sweep(table)]
    assert "STEP_ROUTES_DIFFER" in judge(slow, depths=[0])["flags"]


def test_throttled_and_idle_lanes_are_named() -> None:
    result = judge(sweep(TABLE), throttled={4: 0.2, 5: 0.01}, concurrency=8)
    assert "THROTTLED" in result["flags"]
    assert 4 not in result["picks"].values()
    assert "LOW_CONCURRENCY" in result["flags"]
