"""What experiments say about a ceiling: the same load, changed in one thing, before and after. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from probes.events import Capacity, Ceiling, Verdict

Change = Literal["output", "prompt", "lanes"]
Says = Literal["confirmed", "contradicted", "undecided"]


@dataclass(frozen=True, slots=True)
class Seen:
    """One load as it went: how many ran and waited in three of four reports with load (None: no report)."""

    streams: int
    max_tokens: int
    prompt_tokens: int
    lanes: int | None
    running: float | None
    waiting: float | None
    waited_share: float | None
    """Share of the reports with load in which something waited."""
    verdict: Verdict = "unknown"
    outcomes: Mapping[str, int] = field(default_factory=dict)


def seen(
    queue: Sequence[tuple[int, int]], *, streams: int, max_tokens: int, prompt_tokens: int, ceiling: Ceiling | None,
    capacity: Capacity | None, outcomes: Mapping[str, int],
) -> Seen:  # fmt: skip
    """A load's reports in short."""
    busy = [pair for pair in queue if pair[0] or pair[1]]
    late = [pair for pair in busy if pair[1]] or busy
    return Seen(
        streams, max_tokens, prompt_tokens, capacity.lanes if capacity else None,
        quartile([r for r, _ in late]) if busy else None, quartile([w for _, w in busy]) if busy else None,
        sum(1 for _, w in busy if w) / len(busy) if busy else None, ceiling.verdict if ceiling else "unknown",
        dict(outcomes),
    )  # fmt: skip


def quartile(values: Sequence[int]) -> float:
    """The upper quartile, a value that was seen: clients leave gaps between requests, which pull a median down."""
    ordered = sorted(values)
    return float(ordered[min(len(ordered) - 1, (3 * len(ordered)) // 4)])


def effect(change: Change, before: Seen, after: Seen) -> tuple[frozenset[Verdict], frozenset[Verdict], str]:
    """Which limits the change speaks for, which against, and that in one sentence."""
    if None in {before.running, after.running, before.waiting, after.waiting} or not before.waited_share:
        return frozenset(), frozenset(), "no report tells how many ran and waited"
    b_run, a_run = before.running or 0.0, after.running or 0.0
    b_wait, a_wait = before.waiting or 0.0, after.waiting or 0.0
    gone = (after.waited_share or 0.0) <= 0.34 * before.waited_share
    more = a_run >= b_run + max(1.0, 0.04 * b_run)
    text = f"running {b_run:g} → {a_run:g}, waiting {b_wait:g} → {a_wait:g}"
    if change == "lanes":
        if more:
            return (
                frozenset({"lanes"}),
                frozenset({"kv_pool", "state_pool", "prefill"}),
                f"{text}: more lanes, more run",
            )
        return frozenset({"kv_pool", "state_pool"}), frozenset({"lanes"}), f"{text}: more lanes, no more run"
    what = "less output" if change == "output" else "shorter prompts"
    if gone or more:
        against: set[Verdict] = {"lanes", "state_pool"}
        speaks: set[Verdict] = {"kv_pool"} if change == "output" else {"kv_pool", "prefill"}
        return frozenset(speaks), frozenset(against), f"{text}: {what}, less waits"
    if change == "output":
        return frozenset({"lanes", "state_pool"}), frozenset(), f"{text}: less output, the wait stays"
    return frozenset({"lanes", "state_pool"}), frozenset({"prefill"}), f"{text}: shorter prompts, the wait stays"


def conclude(
    verdict: Ceiling, effects: Sequence[tuple[frozenset[Verdict], frozenset[Verdict], str]]
) -> tuple[Says, str]:
    """Whether the experiments bear a verdict out. One that speaks against it is enough to contradict."""
    told = [e for e in effects if e[0] or e[1]]
    if not told:
        return "undecided", "no experiment told anything"
    if verdict.verdict == "unknown":
        left: set[Verdict] = set(verdict.rivals or ("lanes", "kv_pool", "state_pool", "prefill"))
        for _, against, _ in told:
            left -= against
        for speaks, _, _ in told:
            left = left & speaks or left
        if len(left) == 1:
            return "confirmed", f"the experiments leave {next(iter(left))}"
        return "undecided", "the experiments leave " + (" and ".join(sorted(left)) or "nothing")
    if any(verdict.verdict in against for _, against, _ in told):
        return "contradicted", f"an experiment speaks against {verdict.verdict}"
    if any(verdict.verdict in speaks for speaks, _, _ in told):
        return "confirmed", f"the experiments bear {verdict.verdict} out"
    return "undecided", "no experiment spoke for or against it"


def admits(verdict: Verdict, load: Seen, capacity: Capacity | None, engine: str) -> dict[str, Any] | None:
    """The setting that would let the whole load run at once, by arithmetic; None where there is none to give."""
    if verdict == "lanes":
        knob = {"ninfer": "--max-concurrency", "sglang": "--max-running-requests", "vllm": "--max-num-seqs",
                "llamacpp": "-np"}.get(engine, "lanes")  # fmt: skip
        legal = load.streams <= 8 or engine != "ninfer"
        note = "" if legal else "; the engine takes 8 at most, so send fewer at once"
        return {"knob": knob, "value": load.streams, "legal": legal,
                "sentence": f"{knob} {load.streams} would let all {load.streams} run{note}."}  # fmt: skip
    if verdict == "kv_pool" and capacity is not None and capacity.kv_pool_tokens:
        page, pool = capacity.page_tokens or 1, capacity.kv_pool_tokens
        each = -(-(load.prompt_tokens + load.max_tokens) // page) * page
        fits = max(0, pool // load.streams // page * page - load.prompt_tokens)
        text = f"{load.streams} × {each:,} tokens need a pool of {load.streams * each:,}; this one holds {pool:,}"
        text += f", which admits {load.streams} with at most {fits:,} tokens of output each."
        return {"pool_tokens": load.streams * each, "max_tokens": fits, "sentence": text}
    return None
