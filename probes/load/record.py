"""One request and its unread reply become one record. Nothing in a reply makes this raise; it does no I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from probes.events import Outcome, RequestDone, RequestSent
from probes.load import chunks
from probes.load.facts import Stream, burst_gap_ms, bursts, first_tokens, mapping, number, shown_tokens, standard, whole
from probes.load.outcomes import error_text, from_status
from probes.load.simtime import in_its_time, speed_of
from probes.load.sse import events
from probes.load.wire import Reply
from probes.stats.match import of_all_steps

SLICE = 32
"""Events that are read before others get their turn."""
TEXT_MOST = 1 << 20
"""Letters of a reply that its record keeps; the hash is of the whole."""
RAW_MOST = 1 << 16
"""Bytes that the server's own figures may have; what is larger is none."""
ReplyFacts = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""An engine's `reply`: last JSON objects merged -> canonical facts."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a job, encoded for the wire, with the labels that its record carries."""

    id: str
    prompt_id: str
    prompt_hash: str
    category: str
    wire: bytes
    max_tokens: int = 0
    depth: int | None = None
    restart: int = 0
    block: int = 0
    warmup: bool = False
    prompt_tokens: int | None = None
    """Length of the prompt, where the server counted it before."""
    step_drafts: int | None = None
    """Drafts that every step verifies, where a chunk is a step and the request is alone (see `chunks`)."""
    attempt: int = 1
    """Counts up when it is sent again because the server had no room."""


def sent(request: Request, reply: Reply) -> RequestSent:
    """The ledger's entry."""
    return RequestSent(
        id=request.id,
        sent=reply.sent,
        prompt_id=request.prompt_id,
        category=request.category,
        max_tokens=request.max_tokens,
        restart=request.restart,
        prompt_tokens=request.prompt_tokens,
    )


def outcome(reply: Reply, stream: Stream, body: bytes) -> tuple[Outcome, str | None]:
    """The outcome and, unless it is `ok`, why in one line."""
    if reply.end in {"timeout", "cancelled"}:
        return ("timeout" if reply.end == "timeout" else "aborted"), reply.error or reply.end
    if reply.status is None:
        return "disconnected", reply.error or "the connection ended without a reply"
    if reply.status != 200:
        text = body[:100_000].decode("utf-8", "replace")
        why = stream.error or error_text(text) or "no body"
        return from_status(reply.status, text), f"HTTP {reply.status}: {why}"
    if stream.error is not None:
        return "aborted", stream.error
    if not stream.done:
        if reply.end == "complete":
            return "aborted", "the stream ended without its end mark"
        return ("aborted" if reply.end == "garbage" else "disconnected"), reply.error or "connection lost"
    if stream.finish_reason in {"abort", "error", "abort_error"}:
        return "aborted", f"finish reason {stream.finish_reason}"
    if not stream.stamps and not stream.text and not whole(mapping(stream.final.get("usage")).get("completion_tokens")):
        return "aborted", "the stream ended without a token"
    return "ok", None


def digest(request: Request, reply: Reply, engine: ReplyFacts | None) -> Iterator[RequestDone | None]:
    """Read a reply in small slices: yields None between slices, and the record last.

    The caller returns to its loop at each None, so that reading one stream delays the stamps of no other.
    """
    stream = Stream()
    speed = speed_of(reply)
    if speed not in {None, 1.0}:
        reply = in_its_time(reply, speed or 1.0)
    plain = reply.status != 200 or "json" in reply.headers.get("content-type", "")
    body = b"".join(part for _, part in reply.parts) if plain else b""
    if plain:
        _whole_body(stream, body)
    else:
        coming = events(reply.parts)
        while slice_ := tuple(islice(coming, SLICE)):
            stream.take(slice_)
            if len(slice_) == SLICE:
                yield None
    yield _record(request, reply, stream, body, engine)


def _whole_body(stream: Stream, body: bytes) -> None:
    """A reply that is one JSON object: an error, or an answer that was not streamed (no stamps then)."""
    stream.add(0.0, body)
    stream.bad = 0
    choices = stream.final.get("choices")
    message = mapping(choices[0]).get("message") if isinstance(choices, list) and choices else None
    if isinstance(message, dict):
        stream.done = True
        stream.stamps, stream.counts = [], []
        said = (message.get("reasoning_content"), message.get("content"))
        stream.text = [part for part in said if isinstance(part, str) and part]


def _server_facts(stream: Stream, engine: ReplyFacts | None) -> dict[str, Any]:
    """The engine's reading of the last objects, completed by the forms that servers share."""
    facts = standard(stream.final)
    if engine is not None:
        try:
            facts.update({key: value for key, value in engine(stream.final).items() if value is not None})
        except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError, IndexError) as error:
            facts["unread"] = f"{type(error).__name__}: {error}"
    return facts


def _figures(stream: Stream, reply: Reply) -> dict[str, Any]:
    """What the server said beside the text, without what is too large to be a figure."""
    raw = stream.raw
    small = sum(len(data) for _, data in reply.parts) <= RAW_MOST
    return raw if small else {key: value for key, value in raw.items() if _small(value)}


def _small(value: Any) -> bool:
    try:
        return len(msgspec.json.encode(value)) <= RAW_MOST
    except (TypeError, ValueError, OverflowError, RecursionError, UnicodeError, msgspec.MsgspecError):
        return False


def _speed(reply: Reply, stream: Stream, tokens: int | None, server_tpot: float | None) -> tuple[dict[str, Any], Any]:
    """What the stamps say, as fields of the record, and what goes beside them into `raw`."""
    stamps = stream.stamps
    n_first, known_by = first_tokens(stream, tokens, server_tpot)
    shown = shown_tokens(stream, tokens)
    first, last = (stamps[0], stamps[-1]) if stamps else (None, None)
    tpot = None
    if first is not None and last is not None and last > first and shown is not None:
        after = shown - (n_first or 1)
        tpot = (last - first) * 1000 / after if after > 0 else None
    starts = bursts(stamps)
    beside = {
        "tpot_source": (known_by or "one token assumed") if tpot is not None else None,
        "shown_tokens": shown if shown != tokens else None,
        "bursts": len(starts) if len(starts) > 2 else None,
        # Steps of unequal length pull a median off: the mean is what accept length x TPOT should equal.
        "burst_mean_ms": (starts[-1] - starts[0]) * 1000 / (len(starts) - 1) if len(starts) > 2 else None,
        "bad_events": stream.bad or None,
    }
    fields = {
        "first": first,
        "last": last,
        "first_tokens": n_first,
        "ttft_ms": None if first is None else (first - reply.sent) * 1000,
        "tpot_ms": tpot,
        "tpot_exact": tpot is not None and n_first is not None,
        "decode_tps": 1000 / tpot if tpot else None,
        "chunks": len(stamps) if reply.status == 200 else None,
        "burst_gap_ms": burst_gap_ms(starts),
    }
    return fields, beside


def _record(request: Request, reply: Reply, stream: Stream, body: bytes, engine: ReplyFacts | None) -> RequestDone:
    result, why = outcome(reply, stream, body)
    facts = _server_facts(stream, engine)
    # An interrupted stream has no usage; running counts in it say what was made so far, not what was asked.
    usage = mapping(stream.final.get("usage")) if stream.done else {}
    tokens = whole(usage.get("completion_tokens"))
    server_tpot = number(facts.get("server_tpot_ms"))
    speed, beside = _speed(reply, stream, tokens, server_tpot)
    if request.step_drafts and result == "ok" and facts.get("drafted") is None:
        counted = chunks.drafts(stream.counts, tokens, request.step_drafts)
        facts.update(counted)
        beside["drafts_source"] = chunks.SOURCE if counted else None
    beside["unread"] = facts.get("unread")
    beside["simulated_speed"] = speed_of(reply)
    text = "".join(stream.text)
    kept = text if len(text) <= TEXT_MOST else text[:TEXT_MOST] + "…"
    per_position = facts.get("per_position")
    return RequestDone(
        id=request.id,
        prompt_id=request.prompt_id,
        prompt_hash=request.prompt_hash,
        category=request.category,
        depth=request.depth,
        restart=request.restart,
        block=request.block,
        warmup=request.warmup,
        max_tokens=request.max_tokens or None,
        outcome=result,
        error=why,
        status=reply.status,
        sent=reply.sent,
        done=reply.done or None,
        prompt_tokens=whole(usage.get("prompt_tokens")),
        cached_tokens=whole(facts.get("cached_tokens")),
        completion_tokens=tokens,
        finish_reason=stream.finish_reason,
        server_ttft_ms=number(facts.get("server_ttft_ms")),
        server_tpot_ms=server_tpot,
        drafted=whole(facts.get("drafted")),
        accepted=whole(facts.get("accepted")),
        steps=whole(facts.get("steps")),
        per_position=of_all_steps(per_position, whole(facts.get("accepted")), tokens)
        if isinstance(per_position, list | tuple)
        else None,
        text_hash=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() if text else None,
        text=kept,
        raw=_figures(stream, reply) | {key: value for key, value in beside.items() if value is not None},
        **speed,
    )
