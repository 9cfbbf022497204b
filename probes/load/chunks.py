"""Drafts of one request, told by its stream, for servers that say nothing of them: there each chunk is one step.

That holds for a request that is alone on a server which sends what each step made at once and verifies the same number
of drafts in every step. Whether it does is the engine's knowledge; here is only the counting. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from probes.events import RequestDone

GATHERED = 0.1
"""Share of chunks that may carry more than one step: text is held back until a character is whole, now and then."""
SOURCE = "chunks"
"""What a record's `drafts_source` then says."""


def drafts(counts: Sequence[int | None], tokens: int | None, each: int) -> dict[str, int]:
    """`steps`, `drafted` and `accepted` of a stream's decode phase, or nothing where they can't be told.

    `counts`: output tokens stated up to and with each visible chunk; `tokens`: of the whole reply; `each`: drafts that
    every step verifies. A step puts out 1 to `each` + 1 tokens, the bonus token among them. A server that gathers steps
    (a stream interval, a slow way here) sends more at once: beyond a tenth of the chunks nothing is told. A stop
    token shows nothing and belongs to the last step where that has room for it.
    """
    known = [count for count in counts if count is not None]
    if each < 1 or tokens is None or len(known) < len(counts) or len(known) < 2 or known[-1] > tokens:
        return {}
    gains = [later - earlier for earlier, later in pairwise([1, *known[:-1], tokens])]
    if any(gain < 0 for gain in gains):
        return {}
    steps = [-(-gain // (each + 1)) for gain in gains]
    if sum(n > 1 for n in steps) > GATHERED * len(steps) or not sum(steps):
        return {}
    total = sum(steps)
    return {"steps": total, "drafted": total * each, "accepted": sum(gains) - total}


def drafting(request: RequestDone) -> bool:
    """Whether drafts were made, as this request shows: counted chunks assume it, only an accepted draft proves it."""
    return bool(request.accepted if request.raw.get("drafts_source") == SOURCE else request.drafted)
