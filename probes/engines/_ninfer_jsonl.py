"""ninfer's request log (`--request-log-jsonl`): one JSON object an event, the fullest source of a request's figures.

Schema 2 (2026-07) to 25 (2026-10); newer numbers are read the same way, by key. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from probes.engines import _ninfer_pool as pool
from probes.engines._ninfer_clauses import drafts
from probes.engines._ninfer_trouble import code_of, hint, outcome
from probes.events import Capacity, Kind, Record

MARK = "ninfer_serve_request_log"
NEWEST = 25
"""The newest schema seen; a higher one gets a remark, not a refusal."""

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """What one line of the request log says. `capacity` and `instance` are set by a start's event alone."""

    record: Record | None
    capacity: Capacity | None = None
    problems: tuple[str, ...] = ()
    instance: str | None = None
    """Which process it is: a log that is rotated begins again with the start of the process that goes on."""


def parse(text: str) -> Object | None:
    """The event's object, or None when the line is torn or isn't one of this log."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and found.get("artifact_type") == MARK else None


def read(line: int, text: str) -> Entry | None:
    """The record of one line; None when the line is torn."""
    event = parse(text)
    if event is None:
        return None
    name = str(event.get("event"))
    at = _stamp(event.get("timestamp_unix_ms"))
    problems: list[str] = []
    schema = event.get("schema_version")
    if name == "server_start":
        if isinstance(schema, int) and schema > NEWEST:
            problems.append(f"request log schema {schema} is newer than {NEWEST}: fields are read by name")
        fields, capacity = _start(line, event)
        record = Record(line, "boot", fields, at, text=name)
        return Entry(record, capacity, tuple(problems), word(event.get("server_instance_id")))
    kind, fields = _event(name, event, problems)
    if kind is None:
        return Entry(None)
    return Entry(Record(line, kind, fields, at, text=_summary(name, fields)), None, tuple(problems))


def _event(name: str, event: Object, problems: list[str]) -> tuple[Kind | None, dict[str, Any]]:
    head = {"request_id": whole(part(event, "request").get("request_id"))}
    if name == "request_start":
        asked = part(event, "request")
        more = {"phase": "started", "max_tokens": whole(asked.get("requested_output_tokens"))}
        return "request", known(
            head | more | {"protocol": word(asked.get("protocol")), "stream": flag(asked.get("stream"))}
        )
    if name == "request_done":
        return "request", known(head | {"phase": "done"}) | done(event, problems)
    if name in {"request_rejected", "request_error"}:
        return _failed(name, event, head)
    if name == "throughput":
        return "throughput", report(event)
    if name == "request_scheduling" and event.get("transition") == "paused":
        return "preempt", known(head | {"phase": "paused", "reason": "paused until the KV pool has pages for it again"})
    return None, {}


def done(event: Object, problems: list[str] | None = None) -> dict[str, Any]:
    """Canonical fields of a `request_done` event, with `rounds`, `fallback_steps`, `finish` and `depth` as extras.

    accept_len = 1 + accepted / rounds; per_position[i] = share of rounds that accepted more than i drafts;
    tpot_ms = (total - ttft) / (n - 1), which holds stalls while other requests prefill; gen_tps leaves those out.
    """
    result, spent, spec = part(event, "result"), part(event, "timings_seconds"), part(event, "speculative")
    n, prompt = whole(result.get("completion_tokens")), whole(result.get("prompt_tokens"))
    total, ttft, decode = real(spent.get("total")), real(spent.get("ttft")), real(spent.get("decode"))
    cached, computed = whole(result.get("prefix_cache_hit_tokens")), whole(result.get("computed_prefill_tokens"))
    found: dict[str, Any] = {
        "prompt_tokens": prompt,
        "output_tokens": n,
        "cached_tokens": cached,
        "ttft_ms": ms(ttft),
        "total_ms": ms(total),
        "queue_ms": ms(real(part(event, "engine_timing").get("queue_wait_seconds"))),
        "finish": str(result["finish_reason"]).replace("_", " ") if result.get("finish_reason") else None,
    }
    prefill = real(spent.get("prefill"))
    if computed is None and prompt is not None and cached is not None:
        computed = prompt - cached
    if prefill and computed:
        found["prompt_tps"] = computed / prefill
    if n is not None and n > 1:
        if decode:
            found["gen_tps"] = (n - 1) / decode
        if total is not None and ttft is not None and total > ttft:
            found["tpot_ms"] = (total - ttft) / (n - 1) * 1000
    return known(found | speculation(spec, problems if problems is not None else []))


def speculation(spec: Object, problems: list[str]) -> dict[str, Any]:
    """Drafts of one request; the counters are checked against each other, see `problems`."""
    drafted, accepted, rounds = (whole(spec.get(k)) for k in ("drafted_tokens", "accepted_tokens", "rounds"))
    if not drafted or accepted is None:
        return {}
    found: dict[str, Any] = drafts(drafted, accepted) | {
        "spec_backend": word(spec.get("backend")),
        "fallback_steps": whole(spec.get("fallback_steps")),
        "depth": whole(spec.get("draft_window")),
    }
    if whole(spec.get("ngram_rounds")) or whole(spec.get("tree_rounds")):
        # Drafts copied from the text, or of side branches, have rounds and lengths of their own: what the totals are
        # a round, or by position, is not told.
        return found | {k: whole(spec.get(f"{k}_tokens")) for k in ("ngram_drafted", "ngram_accepted")}
    if rounds:
        found |= {"rounds": rounds, "accept_len": 1 + accepted / rounds}
        raw = spec.get("accepted_per_position")
        if isinstance(raw, list) and raw and all(whole(v) is not None for v in raw):
            found["per_position"] = tuple(v / rounds for v in raw)
            if sum(raw) != accepted or raw != sorted(raw, reverse=True):
                problems.append(f"accepted per position {raw} does not add up to {accepted} or rises: counters are off")
        if found["depth"] and found["depth"] * rounds != drafted:
            problems.append(f"{drafted} drafted tokens are not {rounds} rounds of {found['depth']}")
    return found


def report(event: Object) -> dict[str, Any]:
    """Canonical fields of a `throughput` event. Zeros are printed here, so an absent field is unknown."""
    scheduler, batch = part(event, "scheduler"), part(event, "decode_batch")
    tokens, seconds = part(event, "tokens"), real(event.get("interval_seconds"))
    found: dict[str, Any] = {
        name: whole(scheduler.get(name))
        for name in ("running", "waiting", "decode_ready", "prefilling", "materializing", "terminal_pending", "paused")
    }
    if seconds:
        found["interval_ms"] = seconds * 1000
        for key, name in (("committed_decode", "gen_tps"), ("computed_prefill", "prompt_tps")):
            if (many := whole(tokens.get(key))) is not None:
                found[name] = many / seconds
    if whole(batch.get("rounds")):
        found["batch"] = real(batch.get("average_size"))
    return known(found)


def _failed(name: str, event: Object, head: dict[str, Any]) -> tuple[Kind, dict[str, Any]]:
    error = part(event, "error") or part(event, "rejection") or event
    said = str(error.get("code") or error.get("type") or "").replace("_", " ")
    code = said or code_of(str(error.get("message") or "")) or "failed"
    status = whole(error.get("status"))
    kind, result = outcome(code, status, refused=name == "request_rejected")
    fields = head | {
        "phase": "rejected" if name == "request_rejected" else "failed",
        "status": status,
        "code": code.replace(" ", "_"),
        "reason": str(error.get("message") or code),
        "hint": hint(code) or None,
        "outcome": result,
    }
    return kind, known(fields)


_ENGINE = {
    "max_context": "max_context",
    "max_concurrency": "max_concurrency",
    "max_pending_requests": "max_pending_requests",
    "pending_timeout_ms": "pending_timeout_ms",
    "prefill_chunk": "prefill_chunk",
    "kv_cache": "kv_dtype",
    "kv_capacity_mode": "kv_mode",
    "prefix_reuse": "prefix_reuse",
    "speculative_backend": "spec_backend",
    "speculative_draft_window": "depth",
    "proposal_head": "proposal_head",
}


def _start(line: int, event: Object) -> tuple[dict[str, Any], Capacity]:
    """The flags in force, as the engine itself resolved them, and the pool."""
    engine = part(event, "engine")
    fields: dict[str, Any] = {}
    for key, name in _ENGINE.items():
        value = engine.get(key)
        fields[name] = value if isinstance(value, (str, bool)) else whole(value)
    fields["model"] = word(part(event, "server").get("public_model_id"))
    pages, worst = whole(engine.get("kv_capacity_page_groups")), whole(engine.get("kv_capacity_max_page_groups"))
    tokens = whole(engine.get("kv_capacity")) if pages is None else pages * pool.PAGE_TOKENS
    lanes = whole(engine.get("max_concurrency"))
    if tokens is None:
        return known(fields), Capacity(lanes=lanes, lines={"lanes": line} if lanes else {})
    memory = part(event, "memory")
    runtime, free = whole(memory.get("runtime_reservation_bytes")), whole(memory.get("available_after_startup_bytes"))
    found = pool.Pool(tokens, word(fields["kv_dtype"]), word(fields["kv_mode"]), pages, worst, runtime, free)
    capacity = pool.capacity(found, lanes, None, reserving=None)
    exact = whole(engine.get("max_context"))
    capacity = replace(
        capacity,
        max_context=exact or capacity.max_context,
        batch_tokens=whole(engine.get("prefill_chunk")),
        weights_bytes=whole(part(memory, "weights").get("used_bytes")),
        kv_bytes=whole(memory.get("kv_payload_bytes")),
    )
    names = [n for n in capacity.__slots__ if n not in {"lines", "explain", "per"} and getattr(capacity, n) is not None]
    return known(fields), replace(capacity, lines=dict.fromkeys(names, line))


# ------------------------------------------------------------------------------------------------- small readings


def part(event: Object, key: str) -> Object:
    """The object under `key`, or an empty one."""
    found = event.get(key)
    return found if isinstance(found, dict) else {}


def whole(value: Any) -> int | None:
    """A count, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < MOST or value != int(value):
        return None
    return int(value)


def word(value: Any) -> str | None:
    """A text, or None."""
    return value if isinstance(value, str) and value else None


def flag(value: Any) -> bool | None:
    """A switch, or None."""
    return value if isinstance(value, bool) else None


MOST = 1e15
"""No figure of such a log is larger; what is was damaged."""


def real(value: Any) -> float | None:
    """A figure within reason that isn't negative, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < MOST:
        return None
    return float(value)


def ms(seconds: float | None) -> float | None:
    """Seconds as milliseconds."""
    return None if seconds is None else round(seconds * 1000, 6)


def known(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}


def _stamp(value: Any) -> str | None:
    number = whole(value)
    if number is None or number > 4_000_000_000_000:
        return None
    return datetime.fromtimestamp(number / 1000, UTC).isoformat(timespec="milliseconds")


def _summary(name: str, fields: Mapping[str, Any]) -> str:
    shown = " ".join(f"{key}={value}" for key, value in fields.items() if isinstance(value, (int, float, str)))
    return f"{name} {shown}"[:500]
