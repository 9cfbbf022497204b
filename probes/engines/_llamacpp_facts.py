"""What a running llama-server says over HTTP: metrics, timings of a reply, flags in force. Reads, never asks."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from probes.engines._llamacpp_flags import command, flags_of, main_kind
from probes.events import Capacity, FlagsInForce, Record
from probes.recipe import Recipe

STATE_PATHS = ("/props", "/slots", "/v1/models")
CELL_STEP = 256
"""Context is rounded up to a multiple of this many cells, per stream."""

_SAMPLE = re.compile(r"^llamacpp[:_](\w+)(?:\{([^}]*)\})?\s+(\S+)", re.MULTILINE)
_GAUGES = {
    "requests_processing": "running",
    "requests_deferred": "waiting",
    "kv_cache_usage_ratio": "kv_usage",
    "kv_cache_tokens": "kv_used_tokens",
}
_COUNTERS = {
    "prompt_tokens": "total_prompt_tokens",
    "prompt_seconds": "total_prompt_seconds",
    "prompt_tokens_cached": "total_cached_tokens",
    "tokens_predicted": "total_output_tokens",
    "tokens_predicted_seconds": "total_output_seconds",
    "n_decode": "total_decode_calls",
    "spec_decode_num_draft_tokens": "total_drafted",
    "spec_decode_num_accepted_tokens": "total_accepted",
    "spec_decode_num_drafts": "total_drafts",
}
_LIFETIME = {
    "prompt_tokens_seconds": "lifetime_prompt_tps",
    "predicted_tokens_seconds": "lifetime_gen_tps",
    "n_busy_slots_per_decode": "lifetime_busy_slots",
    "n_tokens_max": "lifetime_longest_tokens",
}
_PER_POSITION = "spec_decode_num_accepted_tokens_per_pos"


def metrics(text: str) -> dict[str, Any]:
    """Prometheus text of `/metrics` (server started with --metrics) as canonical fields.

    Gauges: running, waiting, and on builds before mid-2025 kv_usage (0..1) and kv_used_tokens. Counters as `total_*`,
    with and without the suffix `_total`; `total_accepted_per_position` is a list of counters. The average rates that
    the server prints are over its whole life and are called `lifetime_*`, so that nobody charts them as current.
    """
    found: dict[str, Any] = {}
    positions: dict[int, float] = {}
    for name, labels, raw in _SAMPLE.findall(text):
        try:
            value = float(raw)
        except ValueError:
            continue
        if not math.isfinite(value):
            continue
        base = name.removesuffix("_total")
        if base == _PER_POSITION:
            place = re.search(r'position="(\d{1,4})"', labels)
            if place:
                positions[int(place[1])] = value
        elif name in _GAUGES:
            found[_GAUGES[name]] = value if name == "kv_cache_usage_ratio" else int(value)
        elif name in _LIFETIME:
            found[_LIFETIME[name]] = value
        elif base in _COUNTERS:
            found[_COUNTERS[base]] = value if base.endswith("seconds") else int(value)
    if positions:
        found["total_accepted_per_position"] = [int(positions.get(i, 0)) for i in range(max(positions) + 1)]
    return found


def request(body: dict[str, Any], recipe: Recipe) -> dict[str, Any]:
    """The chat body plus what makes timings exact and requests comparable.

    `cache_prompt` off: else a repeated prompt has no prefill and another first token time. `timings_per_token`: every
    content chunk then carries `timings.predicted_n`, the tokens so far, so that the first content chunk tells how many
    tokens it stands for (see `reply`). `stream_options.include_usage` brings the final usage chunk.
    """
    extra = dict(recipe.workload.extra)
    sent: dict[str, Any] = {"cache_prompt": False, "seed": 1, "timings_per_token": True, **body, **extra}
    if sent.get("stream"):
        options = sent.get("stream_options")
        sent["stream_options"] = {**(options if isinstance(options, Mapping) else {}), "include_usage": True}
    else:
        sent.pop("stream_options", None)
    return sent


def reply(final: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of one finished request from its last JSON objects merged; keys are absent when the server doesn't say.

    `timings` is in the body of a plain reply and in the last chunk of a stream (the one with `usage`):
    prompt_ms / prompt_n (without cache_n), predicted_ms from the end of the prompt to the last token / predicted_n, and
    draft_n / draft_n_accepted (both without the bonus token) only if something was drafted: absent means "no drafts",
    not 0 % accepted. server_tpot_ms = predicted_ms / (predicted_n - 1): the server's own per-token figure divides by n
    up to b10068 and by n - 1 from b11434. server_ttft_ms = prompt_ms, which leaves out the wait for a slot.

    A stream, as seen on b10068: one chunk a token, also under speculation; accepted tokens arrive as a burst within one
    millisecond, then a gap. The first chunk has only the role and `content: null`. The first content chunk is the token
    sampled from the prompt, `timings.predicted_n` = 1, unless the chat parser held text back: then it says so
    (predicted_n > 1). Divide by predicted_n(final) - predicted_n(first content chunk).
    """
    timings = final.get("timings")
    found: dict[str, Any] = {}
    usage = final.get("usage")
    details = usage.get("prompt_tokens_details") if isinstance(usage, Mapping) else None
    if isinstance(details, Mapping) and isinstance(details.get("cached_tokens"), int):
        found["cached_tokens"] = details["cached_tokens"]
    if not isinstance(timings, Mapping):
        return found
    drafted, accepted = _count(timings, "draft_n"), _count(timings, "draft_n_accepted")
    if drafted:
        found["drafted"] = drafted
        if accepted is not None:
            found["accepted"] = accepted
    cached = _count(timings, "cache_n")
    if cached is not None:
        found["cached_tokens"] = cached
    prompt_ms = _number(timings.get("prompt_ms"))
    if prompt_ms:
        found["server_ttft_ms"] = prompt_ms
    tokens, spent = _count(timings, "predicted_n"), _number(timings.get("predicted_ms"))
    if tokens is not None and tokens > 1 and spent is not None:
        found["server_tpot_ms"] = spent / (tokens - 1)
    return found


def _number(value: Any) -> float | None:
    """A finite number that isn't negative, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if 0 <= number < math.inf else None


def _count(source: Mapping[str, Any], key: str) -> int | None:
    number = _number(source.get(key))
    return None if number is None else int(number)


# ------------------------------------------------------------------------------------------------- flags in force


def in_force(
    recipe: Recipe,
    settings: Mapping[str, Any],
    depth: int | None,
    replies: Mapping[str, Any],
    records: Sequence[Record],
) -> FlagsInForce:
    """Flags asked against flags in force.

    Slots, context a slot, model: `/props` and `/slots`; kind and depth of speculation: the boot lines of verbosity 4
    (`adding speculative implementation`), since no route tells the depth, and `/slots[].speculative`, which a
    speculator that can never draft shows as true too. Per-request overrides of the depth are compiled out.
    """
    options = flags_of(command(recipe, settings, depth, 0))
    told = _told(replies, records, main_kind(recipe.dial))
    asked: dict[str, Any] = {}
    notes: list[str] = []
    wrong = False
    for name, value in _asked(recipe, options, depth).items():
        asked[name] = value
        if name == "ctx":
            wrong |= not _context_fits(value, options, told, notes)
        elif name not in told:
            notes.append(f"{name}: asked {value}, the server does not say")
            wrong = True
        elif told[name] != value:
            notes.append(f"{name}: asked {value}, in force {told[name]}")
            wrong = True
    return FlagsInForce(0, depth, asked, told, not wrong, tuple(notes))


def _asked(recipe: Recipe, options: Mapping[str, Any], depth: int | None) -> dict[str, Any]:
    asked: dict[str, Any] = {}
    if "--model" in options:
        asked["model"] = str(options["--model"])
    slots = _whole(options.get("--parallel"))
    if slots is not None and slots > 0:
        asked["lanes"] = slots
    context = _whole(options.get("--ctx-size"))
    if context:
        asked["ctx"] = context
    if depth is not None:
        asked["speculative"] = depth > 0
        asked["depth"] = depth
        if depth > 0 and recipe.dial.kind != "draft-max":
            asked["spec_type"] = ",".join(sorted({kind.strip() for kind in recipe.dial.kind.split(",")} - {"none"}))
    return asked


def announced(replies: Mapping[str, Any]) -> Capacity:
    """Slots and what each may hold, from `/props` and `/slots`. Whether slots share a pool is told nowhere there."""
    told = _told(replies, (), "")
    lanes, each = told.get("lanes"), told.get("ctx_slot")
    explain = []
    if lanes is not None:
        explain.append(f"At most {lanes:,} requests run at once (/props: total_slots); it is a cap.")
    if each is not None:
        explain.append(f"A request may hold at most {each:,} tokens, prompt and output together; that is no pool.")
    return Capacity(lanes=lanes, max_context=each, explain=tuple(explain))


def _told(replies: Mapping[str, Any], records: Sequence[Record], turned: str) -> dict[str, Any]:
    """What the server says of itself, under the names of `_asked`; `turned`: the speculator that has the depth."""
    told: dict[str, Any] = {}
    props, slots = replies.get("/props"), replies.get("/slots")
    if isinstance(props, Mapping):
        if isinstance(props.get("model_path"), str):
            told["model"] = props["model_path"]
        if isinstance(props.get("total_slots"), int):
            told["lanes"] = props["total_slots"]
        defaults = props.get("default_generation_settings")
        if isinstance(defaults, Mapping) and isinstance(defaults.get("n_ctx"), int):
            told["ctx_slot"] = defaults["n_ctx"]
        if isinstance(props.get("build_info"), str):
            told["version"] = props["build_info"]
    if isinstance(slots, Sequence) and slots and all(isinstance(slot, Mapping) for slot in slots):
        told.setdefault("lanes", len(slots))
        states = {slot.get("speculative") for slot in slots}
        if len(states) == 1 and isinstance(next(iter(states)), bool):
            told["speculative"] = states.pop()
    kinds = []
    for record in records:
        fields = record.fields
        if "spec_type" in fields:
            kinds.append(str(fields["spec_type"]))
            if "depth" in fields and fields["spec_type"] == turned:
                told["depth"] = fields["depth"]
        if "kv_unified" in fields:
            told["kv_unified"] = fields["kv_unified"]
    if kinds:
        told["spec_type"] = ",".join(sorted(set(kinds)))
    elif told.get("speculative") is False:
        told["depth"] = 0
    if "speculative" not in told and kinds:
        told["speculative"] = True
    return told


def _context_fits(asked: int, options: Mapping[str, Any], told: dict[str, Any], notes: list[str]) -> bool:
    """Whether the context in force is the one asked, rounded up to a multiple of 256 a stream."""
    slot, lanes = told.get("ctx_slot"), told.get("lanes")
    if not isinstance(slot, int) or not isinstance(lanes, int):
        notes.append(f"ctx: asked {asked}, the server does not say")
        return False
    unified = told.get("kv_unified", options.get("--kv-unified") is True or "--parallel" not in options)
    total = slot if unified else slot * lanes
    told["ctx"] = total
    streams = 1 if unified else lanes
    if total != asked and asked < total <= asked + CELL_STEP * streams:
        notes.append(f"ctx: asked {asked}, rounded up to {total} (multiples of {CELL_STEP} cells)")
        return True
    if total != asked:
        notes.append(f"ctx: asked {asked}, in force {total}")
    return total == asked


def _whole(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError):
        return None
