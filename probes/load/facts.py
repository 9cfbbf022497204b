"""From a stream's stamped events to the figures of one request. Pure and total: no text makes it raise.

Tokens come from the server's counts, never from counting chunks; what the server does not say stays None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from probes.load.outcomes import error_text
from probes.load.sse import Stamped

BURST_S = 0.001
"""Chunks closer than this always belong to one burst."""
BURST_SHARE = 0.25
"""And so do chunks closer than this share of the mean gap: a server short of CPU takes its time to write one step."""
FIRST_BURST_S = 0.0003
"""Chunks this close behind the first arrived with it."""
LEFT_OUT = frozenset({"choices", "object", "created", "model", "system_fingerprint", "service_tier"})

_decode = msgspec.json.Decoder().decode


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta
    finish_reason: None = None
    token_ids: None = None


class _Timings(msgspec.Struct):
    predicted_n: int = 0


class _Chunk(msgspec.Struct):
    """A chunk that only adds text, as nearly every one does: anything more does not fit, and is read in full."""

    choices: tuple[_Choice]
    timings: _Timings | None = None
    usage: None = None
    meta_info: None = None
    error: None = None


_decode_chunk = msgspec.json.Decoder(_Chunk).decode


def whole(value: Any) -> int | None:
    """A count that a server stated, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        return None
    return int(value) if int(value) == value else None


def number(value: Any) -> float | None:
    """A finite, non-negative figure that a server stated, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        return None
    return float(value)


def mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def _counted(obj: Mapping[str, Any]) -> int | None:
    """Output tokens so far as a chunk states them: llama.cpp and ninfer `timings_per_token`, continuous usage."""
    for part, key in (("timings", "predicted_n"), ("usage", "completion_tokens"), ("meta_info", "completion_tokens")):
        count = whole(mapping(obj.get(part)).get(key))
        if count:
            return count
    return None


class Stream:
    """Takes a stream's events one by one and keeps what the figures need."""

    __slots__ = (
        "bad", "counts", "done", "error", "final", "finish_reason", "stamps", "text", "token_ids",
    )  # fmt: skip

    def __init__(self) -> None:
        self.stamps: list[float] = []
        """Arrival of each chunk with visible text, in seconds."""
        self.counts: list[int | None] = []
        """Output tokens stated up to and with that chunk."""
        self.text: list[str] = []
        self.final: dict[str, Any] = {}
        self.finish_reason: str | None = None
        self.error: str | None = None
        self.done = False
        self.bad = 0
        self.token_ids = 0

    def take(self, events: Iterable[Stamped]) -> None:
        """Take the next events. Nearly all only add text, and there are thousands a second: those go the short way."""
        decode, stamps, counts, text = _decode_chunk, self.stamps, self.counts, self.text
        for stamp, data in events:
            if not self.final:  # the first one says more than the text
                self.add(stamp, data)
                continue
            try:
                chunk = decode(data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                self.add(stamp, data)
                continue
            delta = chunk.choices[0].delta
            said, thought = delta.content, delta.reasoning_content or delta.reasoning
            if said or thought:  # an empty one, such as that with the role, is no token
                counted = chunk.timings.predicted_n if chunk.timings is not None else 0
                stamps.append(stamp)
                counts.append(counted if counted > 0 else None)
                if thought:
                    text.append(thought)
                if said:
                    text.append(said)

    def add(self, stamp: float, data: bytes) -> None:
        """Take one event and read it in full."""
        if data.strip() == b"[DONE]":
            self.done = True
            return
        try:
            obj = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.bad += 1
            return
        if not isinstance(obj, dict):
            self.bad += 1
            return
        if obj.get("error") or obj.get("object") == "error":
            self.error = error_text(obj)
        choices = obj.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            self._choice(stamp, obj, choices[0])
        for key, value in obj.items():
            if value is not None and (key != "choices" or value):
                self.final[key] = value

    def _choice(self, stamp: float, obj: Mapping[str, Any], choice: Mapping[str, Any]) -> None:
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            delta = {"content": choice.get("text")}
        ids = choice.get("token_ids")
        if isinstance(ids, list):
            self.token_ids += len(ids)
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        said = delta.get("content")
        self._shown(
            stamp,
            thought if isinstance(thought, str) else None,
            said if isinstance(said, str) else None,
            _counted(obj) or self.token_ids,
        )
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self.finish_reason = reason
        elif isinstance(reason, dict) and isinstance(reason.get("type"), str):
            self.finish_reason = reason["type"]

    def _shown(self, stamp: float, thought: str | None, said: str | None, counted: int) -> None:
        """Take a chunk's text, if it has any: an empty one, such as that with the role, is no token."""
        if not said and not thought:
            return
        self.stamps.append(stamp)
        self.counts.append(counted if counted > 0 else None)
        if thought:
            self.text.append(thought)
        if said:
            self.text.append(said)

    @property
    def raw(self) -> dict[str, Any]:
        """What the server said beside the text: usage, timings, its own id."""
        return {key: value for key, value in self.final.items() if key not in LEFT_OUT}


def standard(final: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of a reply in the forms that several servers share: OpenAI usage, llama.cpp timings."""
    found: dict[str, Any] = {}
    usage, timings = mapping(final.get("usage")), mapping(final.get("timings"))
    cached = whole(mapping(usage.get("prompt_tokens_details")).get("cached_tokens"))
    found["cached_tokens"] = cached if cached is not None else whole(timings.get("cache_n"))
    found["server_ttft_ms"] = number(timings.get("prompt_ms"))
    spent, tokens = number(timings.get("predicted_ms")), whole(timings.get("predicted_n"))
    if spent and tokens and tokens > 1:
        # The servers' own per-token figure is divided by n in some versions and by n - 1 in others.
        found["server_tpot_ms"] = spent / (tokens - 1)
    drafted, accepted = whole(timings.get("draft_n")), whole(timings.get("draft_n_accepted"))
    if drafted is not None and accepted is not None and accepted <= drafted:
        found["drafted"], found["accepted"] = drafted, accepted
    return {key: value for key, value in found.items() if value is not None}


def median(values: Sequence[float]) -> float | None:
    """The middle value, or None for no value."""
    ordered = sorted(values)
    half = len(ordered) // 2
    if not ordered:
        return None
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def bursts(stamps: Sequence[float]) -> list[float]:
    """When each burst began: a run of chunks, each at most 1 ms (or a quarter of the mean gap) behind the one before.

    With speculation a burst is one step of the server: accepted drafts leave it together, and the mean gap between
    chunks is far above the gaps inside a step and below those between steps.
    """
    if not stamps:
        return []
    mean = (stamps[-1] - stamps[0]) / max(1, len(stamps) - 1)
    apart = max(BURST_S, BURST_SHARE * mean)
    return [stamps[0], *(now for before, now in pairwise(stamps) if now - before > apart)]


def burst_gap_ms(starts: Sequence[float]) -> float | None:
    """Median time from the start of one burst to the start of the next, in ms; None below three bursts.

    A second route to the step time that uses no token count.
    """
    if len(starts) < 3:
        return None
    middle = median([later - earlier for earlier, later in pairwise(starts)])
    return None if middle is None else middle * 1000


def first_burst(stamps: Sequence[float]) -> int:
    """How many chunks arrived together with the first one."""
    return sum(1 for stamp in stamps if stamp - stamps[0] <= FIRST_BURST_S)


def first_tokens(stream: Stream, tokens: int | None, server_tpot_ms: float | None) -> tuple[int | None, str | None]:
    """Tokens that arrived with the first visible chunk, and how that is known; (None, None) when it isn't.

    Three ways, surest first: the chunks state running counts; there is exactly one chunk a token (a stop token, which
    shows nothing, set aside), so none carries two; the server states its own time a token.
    """
    stamps = stream.stamps
    if not stamps:
        return None, None
    together = first_burst(stamps)
    stated = [count for count in stream.counts[:together] if count is not None]
    if stated:
        return stated[-1], "running counts"
    if tokens is None:
        return None, None
    hidden = 1 if stream.finish_reason == "stop" else 0
    if len(stamps) in {tokens, tokens - hidden}:
        return together, "one token a chunk"
    if server_tpot_ms and tokens > 1:
        after = round((stamps[-1] - stamps[0]) * 1000 / server_tpot_ms)
        return max(1, min(tokens - 1, tokens - after)), "server timings"
    return None, None


def shown_tokens(stream: Stream, tokens: int | None) -> int | None:
    """Tokens up to the last visible chunk: a stop token or a hidden tool call is in the usage but has no chunk."""
    if tokens is None or not stream.stamps:
        return tokens
    stated = stream.counts[-1]
    if stated is not None:
        return min(stated, tokens)
    if stream.finish_reason == "stop" and len(stream.stamps) == tokens - 1:
        return tokens - 1
    return tokens
