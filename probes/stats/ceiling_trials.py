"""What experiments say about a ceiling: the same load, changed in one thing, before and after. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from probes.events import Capacity, Ceiling, Verdict

Change = Literal["output", "prompt", "lanes"]
ENOUGH = 3
"""Reports that tell how a load went."""
Says = Literal["confirmed", "contradicted", "undecided"]
Effect = tuple[frozenset[Verdict], frozenset[Verdict], str]
"""Limits that an experiment speaks for, those that it speaks against, and that in one sentence."""
SOME = 0.34
"""Share of the reports in which something waits from which on it is the load that waits, and no moment of it."""


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
    others: int = 0
    """Requests in the server beyond those of the load, in a quarter of the reports at least: somebody else's."""


def seen(
    queue: Sequence[tuple[int, int]], *, streams: int, max_tokens: int, prompt_tokens: int, ceiling: Ceiling | None,
    capacity: Capacity | None, outcomes: Mapping[str, int],
) -> Seen:  # fmt: skip
    """A load's reports in short."""
    busy = under_load(queue)
    late = [pair for pair in busy if pair[1]]
    # Where few reports show a queue, it is no queue that those without one tell of what ran.
    told = late if len(late) >= SOME * len(busy) else busy
    return Seen(
        streams, max_tokens, prompt_tokens, capacity.lanes if capacity else None,
        quartile([r for r, _ in told]) if busy else None, quartile([w for _, w in busy]) if busy else None,
        len(late) / len(busy) if busy else None, ceiling.verdict if ceiling else "unknown", dict(outcomes),
        max(0, int(quartile([r + w for r, w in busy])) - streams) if busy and streams else 0,
    )  # fmt: skip


def under_load(queue: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Reports with load, from the first on in which nearly as many run as ever: before it, the load still came in."""
    busy = [pair for pair in queue if pair[0] or pair[1]]
    most = max((running for running, _ in busy), default=0)
    start = next((place for place, (running, _) in enumerate(busy) if running >= 0.9 * most), 0)
    return busy[start:] if len(busy) - start >= ENOUGH else busy


def quartile(values: Sequence[int]) -> float:
    """The upper quartile, a value that was seen: clients leave gaps between requests, which pull a median down."""
    ordered = sorted(values)
    return float(ordered[min(len(ordered) - 1, (3 * len(ordered)) // 4)])


def effect(change: Change, before: Seen, after: Seen) -> Effect:
    """Which limits the change speaks for, which against, and that in one sentence."""
    if None in {before.running, after.running, before.waiting, after.waiting} or not before.waited_share:
        return frozenset(), frozenset(), "no report tells how many ran and waited"
    if before.waited_share < 0.5:
        return frozenset(), frozenset(), "too few reports of the load before had a queue to compare with"
    b_run, a_run = before.running or 0.0, after.running or 0.0
    b_wait, a_wait = before.waiting or 0.0, after.waiting or 0.0
    gone = (after.waited_share or 0.0) <= SOME * before.waited_share
    more, fewer = a_run - b_run, b_wait - a_wait
    # As many are in flight before and after: one more that runs is one less that waits, or neither is more than noise.
    moved = more >= max(1.0, 0.04 * b_run) and fewer >= max(1.0, 0.04 * b_wait)
    moving = more >= max(1.0, 0.04 * b_run) or fewer >= max(1.0, 0.04 * b_wait)
    text = f"running {b_run:g} → {a_run:g}, waiting {b_wait:g} → {a_wait:g}"
    if change == "lanes":
        if gone or moved:
            return (
                frozenset({"lanes"}),
                frozenset({"kv_pool", "state_pool", "prefill"}),
                f"{text}: more lanes, more run",
            )
        if moving:
            return frozenset(), frozenset(), f"{text}: more lanes, and no clear change"
        return frozenset({"kv_pool", "state_pool"}), frozenset({"lanes"}), f"{text}: more lanes, no more run"
    what = "less output" if change == "output" else "shorter prompts"
    if gone or moved:
        against: set[Verdict] = {"lanes", "state_pool"}
        speaks: set[Verdict] = {"kv_pool"} if change == "output" else {"kv_pool", "prefill"}
        return frozenset(speaks), frozenset(against), f"{text}: {what}, less waits"
    if moving:
        return frozenset(), frozenset(), f"{text}: {what}, and no clear change"
    if change == "prompt":
        return frozenset({"lanes", "state_pool"}), frozenset({"prefill"}), f"{text}: shorter prompts, the wait stays"
    if before.prompt_tokens > before.max_tokens:  # half of little: a pool is as full as before
        return frozenset(), frozenset(), f"{text}: less output, the wait stays, as prompts are most of a request"
    return frozenset({"lanes", "state_pool"}), frozenset(), f"{text}: less output, the wait stays"


def _settle(rivals: Sequence[Verdict], told: Sequence[Effect]) -> tuple[Says, str, Verdict]:
    """What experiments make of an open question: what one of them speaks for alone, or the one of the rivals left."""
    if not rivals:
        return "undecided", "nothing is known that the experiments could tell apart", "unknown"
    against = frozenset[Verdict]().union(*(a for _, a, _ in told))
    alone = {next(iter(speaks)) for speaks, _, _ in told if len(speaks) == 1} - against
    if len(alone) == 1:
        only = next(iter(alone))
        return "confirmed", f"an experiment speaks for {only} alone", only
    left = set(rivals) - against
    # Where one limit only was thought of, others were not excluded by anything.
    if len(rivals) > 1 and len(left) == 1 and any(left <= speaks for speaks, _, _ in told):
        only = next(iter(left))
        return "confirmed", f"the experiments leave {only}", only
    return "undecided", "the experiments leave " + (" and ".join(sorted(left)) or "nothing"), "unknown"


def conclude(verdict: Ceiling, effects: Sequence[Effect]) -> tuple[Says, str, Verdict]:
    """Whether the experiments bear a verdict out, why, and the verdict after them.

    One that speaks against it is enough to contradict, and leaves `unknown`.
    """
    told = [e for e in effects if e[0] or e[1]]
    if not told:
        return "undecided", "no experiment told anything", verdict.verdict
    if verdict.verdict == "unknown":
        return _settle(verdict.rivals, told)
    if any(verdict.verdict in against for _, against, _ in told):
        return "contradicted", f"an experiment speaks against {verdict.verdict}", "unknown"
    if any(verdict.verdict in speaks for speaks, _, _ in told):
        return "confirmed", f"the experiments bear {verdict.verdict} out", verdict.verdict
    return "undecided", "no experiment spoke for or against it", verdict.verdict
