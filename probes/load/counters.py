"""The server's own counters before and after each request, for engines that tell drafts in `/metrics` alone.

Only where one request is under way at a time is the difference that request's own; any sign of other traffic leaves it
out. It changes no stamp: it looks while nothing is under way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from probes.events import RequestDone
from probes.load.ask import ask
from probes.load.wire import target

LOOK_S = 1.0
"""A look that takes longer is given up: the request then has no counters."""
Reader = Callable[[str], Mapping[str, Any]]
"""An engine's `metrics`: Prometheus text -> canonical fields."""


class Counters:
    """Looks at `/metrics` of the server at `url` and keeps the last look, to tell what one request added."""

    def __init__(self, url: str, read: Reader, headers: Mapping[str, str] | None = None) -> None:
        prefix = target(url).path.removesuffix("/chat/completions").removesuffix("/v1")
        self._url, self._path, self._read = url, f"{prefix}/metrics", read
        self._headers = dict(headers or {})
        self._last: Mapping[str, Any] | None = None

    async def look(self) -> None:
        """What the counters stand at now; call it while nothing is under way."""
        self._last = await self._fields()

    async def since(self) -> Mapping[str, Any]:
        """What the one request since the last look added; empty where that can't be said."""
        before, self._last = self._last, await self._fields()
        return drafts(before, self._last)

    async def _fields(self) -> Mapping[str, Any] | None:
        """The counters, or None when the server does not tell them in time."""
        try:
            status, body = await ask(self._url, self._path, self._headers, LOOK_S)
        except OSError:
            return None
        return self._read(body.decode("utf-8", "replace")) if status == 200 else None


def drafts(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Drafted and accepted tokens, and accepted ones by position, between two looks that exactly one request parts."""
    if before is None or after is None or "total_drafted" not in after:
        return {}

    def grown(name: str) -> int:
        return int(after.get(name, 0)) - int(before.get(name, 0))

    drafted, accepted = grown("total_drafted"), grown("total_accepted")
    if grown("total_requests") != 1 or not 0 <= accepted <= drafted:
        return {}
    now = list(after.get("total_accepted_per_position") or ())
    then = list(before.get("total_accepted_per_position") or ())
    positions = [n - (then[i] if i < len(then) else 0) for i, n in enumerate(now)]
    whole = sum(positions) == accepted and all(n >= 0 for n in positions)
    return {"drafted": drafted, "accepted": accepted, "positions": positions if whole else []}


def told(record: RequestDone, added: Mapping[str, Any]) -> RequestDone:
    """The record with what the counters say, where the reply itself said nothing.

    Acceptance by position is over all steps, those without a draft too, so that it sums to accept length - 1; a step
    puts out one token beside the accepted ones, hence steps = decode tokens - accepted.
    """
    if record.outcome != "ok" or record.drafted is not None or not added:
        return record
    accepted, total = int(added["accepted"]), record.completion_tokens
    steps = total - 1 - accepted if total is not None else 0
    survival = tuple(n / steps for n in added["positions"]) if steps > 0 and added["drafted"] else ()
    falling = all(a >= b for a, b in pairwise(survival)) and all(s <= 1 for s in survival)
    return replace(
        record,
        drafted=int(added["drafted"]),
        accepted=accepted,
        per_position=survival if survival and falling else None,
        raw={**record.raw, "drafts_source": "/metrics"},
    )
