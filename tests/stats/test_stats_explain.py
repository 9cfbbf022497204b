"""Sentences for a person who knows no statistics: the whole text, and no term of art in it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from probes.stats.explain import verdict_sentence, why

JARGON = re.compile(
    r"posterior|confidence|interval|regret|minimax|median|sigma|p-value|bootstrap|variance|deviation|accept length",
    re.IGNORECASE,
)


def decision(**more: Any) -> dict[str, Any]:
    """Numbers of a decision over depths 2 to 4."""
    base: dict[str, Any] = {
        "route": "counters",
        "objective": "worst",
        "leading": 3,
        "p_best": {"2": 0.05, "3": 0.75, "4": 0.2},
        "cost_90": {"2": [0.05, 0.08, 0.12], "3": [0.02, 0.04, 0.08], "4": [0.03, 0.06, 0.09]},
        "tolerance": 0.03,
        "sure": 0.93,
        "incoherent": False,
        "step_ms": {"2": 16.0, "3": 17.0, "4": 18.7},
        "accept_len": {"code": {"2": 2.4, "3": 2.8, "4": 2.9}, "story": {"2": 1.8, "3": 2.0, "4": 2.1}},
    }
    return base | more


def result(state: str, depth: int | None, **more: Any) -> dict[str, Any]:
    """A sweep's result, as far as words need it."""
    made = decision(**more.pop("decision", {}))
    verdict = {"state": state, "depth": depth, "needs_requests": more.pop("needs", None)}
    verdict["sentence"] = verdict_sentence(verdict, made, [2, 3, 4], more.get("incumbent"))
    base = {
        "verdict": verdict,
        "decision": made,
        "categories": ["code", "story"],
        "regret": {
            "2": {"code": 0.12, "story": 0.0, "worst": 0.12},
            "3": {"code": 0.0, "story": 0.04, "worst": 0.04},
            "4": {"code": 0.01, "story": 0.09, "worst": 0.09},
        },
        "picks": {"mean": 3, "median": 4, "minimax": 3},
        "cells": [{"depth": 3, "category": c, "n": 4} for c in ("code", "story")],
        "unmeasured": {"depths": [5], "categories": []},
        "unverified": [],
    }
    return base | more


def test_a_pick_is_told_whole() -> None:
    assert why(result("PICK", 3)) == [
        (
            "Use depth 3: the kind of text it suits least loses about 4% against its own best depth, 8% at the very"
            " most. No measured depth is a clearly better compromise."
        ),
        "At depth 3 story came out 4% slower than at its best depth (2); every other kind of text lost less.",
        (
            "At depth 3 a step takes 17.0 ms and yields 2.40 tokens on average."
            " Depth 4 yields 4% more tokens a step and each step takes 10% more time."
        ),
        (
            "The middle value of all runs favours depth 4: averages hide the kind of text that loses most,"
            " so they do not decide here."
        ),
        "Not measured with every kind of text, so not judged: depth 5.",
        (
            "This rests on 8 different prompts at depth 3; repeating the same prompt would add nothing,"
            " since it gives the same text."
        ),
    ]


@pytest.mark.parametrize(
    ("made", "needs", "incumbent", "sentence"),
    [
        (
            {},
            24,
            4,
            (
                "Undecided between depth 3 (8 chances in 10) and depth 4 (2 chances in 10);"
                " about 24 requests more should settle it. Until then stay at depth 4."
            ),
        ),
        (
            {"p_best": {"2": 0.01, "3": 0.97, "4": 0.02}},
            1,
            None,
            "Not yet sure of depth 3 (97% likely); about 1 request more should settle it.",
        ),
        (
            {"p_best": {"2": 0.3, "3": 0.4, "4": 0.3}},
            None,
            None,
            (
                "Undecided between depth 3 (4 chances in 10), depth 2 (3 chances in 10) and depth 4 (3 chances in 10);"
                " they are too close for more requests to help."
            ),
        ),
        (
            {"unconfirmed": True},
            4,
            None,
            "Depth 3 looks best, but too little was run at it to be sure: 4 requests there would confirm it.",
        ),
        (
            {"incoherent": True},
            32,
            None,
            (
                "Undecided: what was accepted at different depths does not fit together, as if the texts had been"
                " different ones. More prompts of each kind are needed, not more repeats."
            ),
        ),
    ],
)
def test_abstaining_says_between_what_and_how_much_more(
    made: dict[str, Any], needs: int | None, incumbent: int | None, sentence: str
) -> None:
    assert result("UNDECIDED", None, decision=made, needs=needs, incumbent=incumbent)["verdict"]["sentence"] == sentence


def test_nothing_to_choose_and_nothing_to_say() -> None:
    verdict = {"state": "NOTHING_TO_CHOOSE", "depth": None}
    assert verdict_sentence(verdict, decision(), [2, 3], 3).endswith("within 3%. Stay at depth 3.")
    alone = verdict_sentence({"state": "NO_CLAIM"}, None, [2], None)
    assert alone == "Nothing to compare: only depth 2 can be judged so far."
    assert "no depth" in verdict_sentence({"state": "NO_CLAIM"}, None, [], None)
    assert "About 8 requests more" in verdict_sentence({"state": "NO_CLAIM", "needs_requests": 8}, None, [1, 2], None)


def test_a_mix_of_texts_is_spoken_of_as_such() -> None:
    told = result("PICK", 3, decision={"objective": "weighted"})["verdict"]["sentence"]
    assert told.startswith("Use depth 3: on your mix of texts it gives away about 4%, 8% at the very most.")


@pytest.mark.parametrize(
    ("cost", "sentence"),
    [
        (
            [0.03, 0.11, 0.31],
            (
                "Use depth 3: the kind of text it suits least loses somewhere between 3% and 31% against its own best"
                " depth. No measured depth is a clearly better compromise."
            ),
        ),
        (
            [0.0, 0.001, 0.06],
            (
                "Use depth 3: no kind of text runs noticeably faster at another measured depth."
                " At the very worst one loses 6%."
            ),
        ),
        ([0.0, 0.0, 0.0], "Use depth 3: no kind of text runs noticeably faster at another measured depth."),
    ],
)
def test_how_much_is_said_as_surely_as_it_is_known(cost: list[float], sentence: str) -> None:
    assert result("PICK", 3, decision={"cost_90": {"3": cost}})["verdict"]["sentence"] == sentence


@pytest.mark.parametrize(("state", "depth"), [("PICK", 3), ("UNDECIDED", None), ("NOTHING_TO_CHOOSE", None)])
def test_no_term_of_art(state: str, depth: int | None) -> None:
    text = " ".join(why(result(state, depth, unverified=[2])))
    assert not JARGON.search(text)
    assert "could not be proven in force: depth 2." in text
