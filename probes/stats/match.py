"""Joins what only a server's log tells of a request with the client's record of it. Pure; refuses to guess."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from probes.events import Record, RequestDone


def enrich(requests: Sequence[RequestDone], records: Iterable[Record]) -> list[RequestDone]:
    """The requests that gain acceptance by position from request records of the same server.

    A record belongs to a request when drafted, accepted and output tokens are equal. Where several have the same
    three, there must be as many records as requests and all of them must say the same; else all keep what they had.
    """
    by_key: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        key = tuple(record.fields.get(k) for k in ("drafted", "accepted", "output_tokens"))
        if record.fields.get("per_position") and None not in key:
            by_key.setdefault(key, []).append(record)
    found = []
    claims = Counter((r.drafted, r.accepted, r.completion_tokens) for r in requests)
    for r in requests:
        key = (r.drafted, r.accepted, r.completion_tokens)
        matches = by_key.get(key, [])
        told = {tuple(m.fields["per_position"]) for m in matches}
        if r.per_position is None and len(told) == 1 and len(matches) == claims[key]:
            whole = of_all_steps(next(iter(told)), r.accepted, r.completion_tokens)
            found.append(replace(r, per_position=whole))
    return found


def of_all_steps(shares: Sequence[float], accepted: int | None, tokens: int | None) -> tuple[float, ...]:
    """Acceptance by position over all steps, from shares of the steps that drafted; `tokens` are the reply's.

    A speculator that finds nothing to draft takes plain steps, which logs leave out of such shares; over all steps
    they sum to accepted / steps, the accept length less one. Without tokens the shares are left as they are.
    """
    if not accepted or not tokens or not sum(shares):
        return tuple(shares)
    steps = tokens - 1 - accepted
    scale = accepted / steps / sum(shares) if steps > 0 else 1.0
    return tuple(min(1.0, share * min(scale, 1.0)) for share in shares)
