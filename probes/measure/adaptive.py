"""The adaptive sweep: deepest first, then what most helps the decision per restart, until decided or out of blocks.

One run at the deepest depth speaks, by its acceptance by position, for every smaller one; those need only their step
time. A predicted point is never evidence: the pick and its neighbours are always measured before anything is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from probes.measure.steps import Measure, Measured, Plan

TIMING_TOKENS = 64
"""Tokens of a short timing run: enough for a step time, too few for an accept length."""
SETTLED = ("PICK", "NOTHING_TO_CHOOSE")
CONTENDER = 0.05
"""A depth with less chance than this of being best gets no more runs, unless it is the pick's neighbour."""


def adaptive(depths: Sequence[int], prompts: int, max_tokens: int, most_blocks: int = 6) -> Plan:
    """Yields the next point; is sent what came of it, with the judgment so far in `Measured.judged`.

    At most `most_blocks` restarts a depth. Ends when the verdict is settled and the pick and its neighbours have been
    measured in full.
    """
    order = sorted(depths)
    full: dict[int, int] = dict.fromkeys(order, 0)
    spoke = False
    judged: Mapping[str, Any] = {}
    for depth in dict.fromkeys([order[-1], order[0], *_bracket(order)]):
        short = spoke and depth not in {order[0], order[-1]}
        why = (
            "its acceptance by position speaks for all smaller depths"
            if depth == order[-1]
            else "what plain decoding does"
        )
        step = Measure(
            depth=depth, block=full[depth], prompts=1 if short else prompts,
            max_tokens=min(TIMING_TOKENS, max_tokens) if short else None,
            why=f"depth {depth}: {'its step time, in short runs' if short else why}",
        )  # fmt: skip
        came = yield step
        judged = came.judged or judged
        full[depth] += 0 if short or came.failed else 1
        spoke = spoke or (depth == order[-1] and by_position(came))
    while (chosen := following(order, full, judged, most_blocks)) is not None:
        depth, block = chosen, full[chosen] or 1
        why = "confirms the pick" if depth == leading(judged) else "a rival of the pick"
        came = yield Measure(
            depth=depth, block=block, offset=block * prompts, prompts=prompts, why=f"depth {depth}: {why}"
        )
        judged = came.judged or judged
        full[depth] = max(block, full[depth]) + 1


def by_position(came: Measured) -> bool:
    """Whether the engine told acceptance by position."""
    return any(r.per_position for r in came.requests)


def leading(judged: Mapping[str, Any]) -> int | None:
    """The depth that leads at present; it need not be decided."""
    found = (judged.get("decision") or {}).get("leading")
    return found if isinstance(found, int) else None


def following(order: Sequence[int], full: Mapping[int, int], judged: Mapping[str, Any], most: int) -> int | None:
    """The depth to measure next: the pick and its neighbours, then the rival known least. None: enough."""
    verdict = judged.get("verdict") or {}
    lead = leading(judged)
    if lead is None or lead not in order:
        unmeasured = [d for d in order if not full[d]]
        return unmeasured[0] if unmeasured else None
    place = order.index(lead)
    near = [lead, *order[max(0, place - 1) : place], *order[place + 1 : place + 2]]
    for depth in near:
        if not full[depth]:
            return depth
    if verdict.get("state") in SETTLED:
        return None
    chances = (judged.get("decision") or {}).get("p_best") or {}
    rivals = [d for d in order if d in near or chances.get(str(d), 0.0) >= CONTENDER]
    open_ones = [d for d in rivals if full[d] < most]
    if not open_ones:
        return None
    return min(open_ones, key=lambda d: (full[d], -chances.get(str(d), 0.0), d))


def _bracket(order: Sequence[int]) -> list[int]:
    """The inner depths, middle first: a peak is bracketed before it is looked for."""
    inner = list(order[1:-1])
    found: list[int] = []
    spans = [inner]
    while spans:
        span = spans.pop(0)
        if span:
            middle = len(span) // 2
            found.append(span[middle])
            spans += [span[:middle], span[middle + 1 :]]
    return found
