"""What a running ninfer says of a request and of itself: timings of a reply, flags in force. Reads, never asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from probes.engines import _ninfer_jsonl as jsonl
from probes.engines._ninfer_flags import command
from probes.engines._ninfer_pool import PAGE_TOKENS
from probes.events import Capacity, FlagsInForce, Record
from probes.recipe import Recipe

STATE_PATHS = ("/v1/models",)
"""There is no /metrics, /props or /slots upstream; the model list tells the context length in force."""
KV_NAMES = {"int8-group64": "int8", "fp8-e4m3-row256": "fp8"}
"""Longer names of KV types in the request log."""


def request(body: dict[str, Any], recipe: Recipe) -> dict[str, Any]:
    """The chat body plus what brings the counts: the usage chunk, and cumulative timings on each chunk.

    `timings` comes at the end without being asked for. The prefix cache has no switch in a request: it is on unless
    the server runs with --no-prefix-reuse, so repeated prompts have to be told by `cached_tokens`.
    """
    sent: dict[str, Any] = {**body, **recipe.workload.extra}
    if sent.get("stream"):
        options = sent.get("stream_options")
        sent["stream_options"] = {**(options if isinstance(options, Mapping) else {}), "include_usage": True}
        sent.setdefault("timings_per_token", True)
    return sent


def reply(final: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of one finished request, from its reply's `timings` or from its `request_done` event of the request log.

    server_ttft_ms: from the reply it starts at admission (queue and preparation excluded), from the log it is the
    engine's `ttft` less the wait in the queue. server_tpot_ms = wall time from first to last token / (n - 1).
    `draft_n` is absent when nothing was drafted: unknown, not 0 %. Rounds and positions are in the log's event alone.
    """
    if final.get("artifact_type") == jsonl.MARK or "timings_seconds" in final:
        return _from_log(final)
    found: dict[str, Any] = {}
    usage, timings = jsonl.part(final, "usage"), jsonl.part(final, "timings")
    cached = jsonl.whole(jsonl.part(usage, "prompt_tokens_details").get("cached_tokens"))
    found["cached_tokens"] = cached if cached is not None else jsonl.whole(timings.get("cache_n"))
    found["server_ttft_ms"] = jsonl.real(timings.get("prompt_ms")) or None
    spent, tokens = jsonl.real(timings.get("predicted_ms")), jsonl.whole(timings.get("predicted_n"))
    if spent and tokens and tokens > 1:
        found["server_tpot_ms"] = spent / (tokens - 1)
    drafted, accepted = jsonl.whole(timings.get("draft_n")), jsonl.whole(timings.get("draft_n_accepted"))
    if drafted and accepted is not None and accepted <= drafted:
        found["drafted"], found["accepted"] = drafted, accepted
    return jsonl.known(found)


def _from_log(event: Mapping[str, Any]) -> dict[str, Any]:
    told = jsonl.done(event)
    ttft, queued = told.get("ttft_ms"), told.get("queue_ms")
    return jsonl.known(
        {
            "drafted": told.get("drafted"),
            "accepted": told.get("accepted"),
            "steps": told.get("rounds"),
            "per_position": told.get("per_position"),
            "cached_tokens": told.get("cached_tokens"),
            "server_ttft_ms": None if ttft is None else ttft - (queued or 0.0),
            "server_tpot_ms": told.get("tpot_ms"),
        }
    )


# ------------------------------------------------------------------------------------------------- flags in force


def in_force(
    recipe: Recipe,
    settings: Mapping[str, Any],
    depth: int | None,
    replies: Mapping[str, Any],
    records: Sequence[Record],
) -> FlagsInForce:
    """Flags asked against flags in force.

    Context: `/v1/models`. Pool, KV type and lanes: the start-up lines. Depth: the request log's start event; else the
    drafts of finished requests (every round drafts exactly the depth, so drafted mod depth is 0); else the engine's
    rule that a value out of range ends the start, so a server that listens runs with what its argv says.
    """
    options = _options(command(recipe, settings, depth, 0))
    told = _told(replies, records)
    asked = _asked(options, depth)
    notes: list[str] = []
    wrong = False
    for name, value in asked.items():
        if name == "depth":
            wrong |= not _depth_fits(value, told, records, notes)
        elif name not in told:
            if name in {"lanes", "kv_dtype"} and told.get("listens"):
                notes.append(f"{name}: asked {value}; not printed, but the server refuses what it cannot run")
                continue
            notes.append(f"{name}: asked {value}, the server does not say")
            wrong = True
        elif told[name] != value:
            notes.append(f"{name}: asked {value}, in force {told[name]}")
            wrong = True
    told.pop("listens", None)
    return FlagsInForce(0, depth, asked, told, not wrong, tuple(notes))


def _options(argv: Sequence[str]) -> dict[str, str]:
    """`--flag value` pairs of an argv of this engine (a switch has an empty value)."""
    found: dict[str, str] = {}
    name = ""
    for word in argv[2:]:
        if word.startswith("--"):
            name = word
            found[name] = ""
        elif name:
            found[name] = word
    return found


def _asked(options: Mapping[str, str], depth: int | None) -> dict[str, Any]:
    asked: dict[str, Any] = {"max_context": int(options.get("--max-context", "8192"))}
    pool = options.get("--kv-capacity", str(asked["max_context"]))
    if pool != "auto":
        asked["kv_pool_tokens"] = -(-int(pool) // PAGE_TOKENS) * PAGE_TOKENS
    if "--max-concurrency" in options:
        asked["lanes"] = int(options["--max-concurrency"])
    if "--kv-dtype" in options:
        asked["kv_dtype"] = options["--kv-dtype"]
    if depth is not None:
        asked["depth"] = depth
    return asked


def announced(replies: Mapping[str, Any]) -> Capacity:
    """The longest request, from `/v1/models`; the pool and the lanes stand in the log alone."""
    longest = _told(replies, ()).get("max_context")
    if longest is None:
        return Capacity()
    return Capacity(
        max_context=longest, explain=(f"A request may hold at most {longest:,} tokens, prompt and output together.",)
    )


def _told(replies: Mapping[str, Any], records: Sequence[Record]) -> dict[str, Any]:
    told: dict[str, Any] = {}
    models = replies.get("/v1/models")
    if isinstance(models, Mapping) and isinstance(models.get("data"), list) and models["data"]:
        first = models["data"][0]
        if isinstance(first, Mapping):
            told["listens"] = True
            length = jsonl.whole(first.get("max_model_len"))
            if length is not None:
                told["max_context"] = length
            if isinstance(first.get("id"), str):
                told["model"] = first["id"]
    for record in records:
        fields = record.fields
        if record.kind == "ready":
            told["listens"] = True
        for name in ("kv_pool_tokens", "lanes", "max_context", "max_pending_requests", "prefill_chunk"):
            if name in fields and record.kind in {"boot", "pool", "capacity"}:
                told[name] = fields[name]
        if "max_concurrency" in fields:
            told["lanes"] = fields["max_concurrency"]
        if "kv_dtype" in fields:
            told["kv_dtype"] = KV_NAMES.get(str(fields["kv_dtype"]), str(fields["kv_dtype"]))
        if record.kind == "boot" and "spec_backend" in fields:
            told["depth"] = 0 if fields["spec_backend"] in {"none", "off", ""} else fields.get("depth")
    return jsonl.known(told)


def _depth_fits(depth: int, told: dict[str, Any], records: Sequence[Record], notes: list[str]) -> bool:
    """Whether nothing speaks against the depth asked, and at least the engine's own start speaks for it."""
    if "depth" in told:
        if told["depth"] != depth:
            notes.append(f"depth: asked {depth}, in force {told['depth']}")
        return bool(told["depth"] == depth)
    drafted = [d for r in records if r.kind == "request" and (d := r.fields.get("drafted"))]
    if drafted and depth == 0:
        notes.append(f"depth: asked 0, but {drafted[0]} tokens were drafted for a request")
        return False
    if odd := [d for d in drafted if depth and d % depth]:
        notes.append(f"depth: asked {depth}, but {odd[0]} drafted tokens are no whole number of rounds")
        return False
    if drafted:
        told["depth"] = depth
        notes.append(f"depth: {len(drafted)} requests drafted whole rounds of {depth}")
        return True
    if told.get("listens"):
        told["depth"] = depth
        notes.append("depth: as in the argv: the server ends its start on a depth that it cannot run, it never clamps")
        return True
    notes.append(f"depth: asked {depth}, nothing is known of the start")
    return False
