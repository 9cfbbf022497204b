"""What a running vLLM server says over HTTP: metrics, a reply's own figures, flags in force. Reads, never asks."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from probes.engines._vllm_flags import SPELLINGS, canonical, command, size
from probes.engines._vllm_knobs import KNOBS, SPEC
from probes.events import Capacity, FlagsInForce, Record
from probes.recipe import Recipe

STATE_PATHS = ("/v1/models", "/version", "/metrics", "/server_info?config_format=json")
"""`/server_info` answers only with VLLM_SERVER_DEV_MODE=1."""

_SAMPLE = re.compile(r"^vllm:(\w{1,80})(?:\{([^\n]*)\})? (\S{1,40})$", re.MULTILINE | re.ASCII)
_LABEL = re.compile(r'(\w{1,40})="([^"\n]{0,200})"', re.ASCII)
_GAUGES = {"num_requests_running": "running", "num_requests_waiting": "waiting", "num_requests_swapped": "swapped"}
_USAGES = ("kv_cache_usage_perc", "gpu_cache_usage_perc")
_COUNTERS = {
    "num_preemptions": "total_preemptions",
    "prompt_tokens": "total_prompt_tokens",
    "prompt_tokens_cached": "total_cached_tokens",
    "generation_tokens": "total_output_tokens",
    "request_success": "total_requests",
    "prefix_cache_queries": "total_prefix_queries",
    "prefix_cache_hits": "total_prefix_hits",
    "admission_rejections": "total_rejections",
    "spec_decode_num_drafts": "total_drafts",
    "spec_decode_num_draft_tokens": "total_drafted",
    "spec_decode_num_accepted_tokens": "total_accepted",
    "spec_decode_num_emitted_tokens": "total_emitted",
    "iteration_tokens_total_count": "total_steps",
    "iteration_tokens_total_sum": "total_step_tokens",
    "inter_token_latency_seconds_count": "total_request_steps",
    "time_to_first_token_seconds_count": "total_ttft_count",
    "request_time_per_output_token_seconds_count": "total_tpot_count",
    "request_queue_time_seconds_count": "total_queue_count",
    "e2e_request_latency_seconds_count": "total_e2e_count",
}
_SECONDS = {
    "inter_token_latency_seconds_sum": "total_step_ms",
    "time_to_first_token_seconds_sum": "total_ttft_ms",
    "request_time_per_output_token_seconds_sum": "total_tpot_ms",
    "request_queue_time_seconds_sum": "total_queue_ms",
    "e2e_request_latency_seconds_sum": "total_e2e_ms",
}
_PER_POSITION = "spec_decode_num_accepted_tokens_per_pos"


def metrics(text: str) -> dict[str, Any]:
    """Prometheus text of `/metrics` as canonical fields; counters, with or without `_total`, as `total_*`.

    Engines of a data-parallel server are added up; `kv_usage` (0..1) is the fullest one's. `total_step_ms` over
    `total_request_steps` is the step time a request sees: vLLM calls it inter-token latency, but with speculation one
    such step carries several tokens. Tokens per step: total_output_tokens without each request's first, over
    total_request_steps. Before 0.10.2 that histogram was called time_per_output_token_seconds and is left out.
    `total_accepted_per_position` is a list. `waiting` includes `deferred`; the label "capacity" names no pool.
    """
    found: dict[str, Any] = {}
    positions: dict[int, float] = {}
    for name, labels, raw in _SAMPLE.findall(text):
        try:
            value = float(raw)
        except ValueError:
            continue
        if not math.isfinite(value) or name.endswith("_created"):
            continue
        base = name.removesuffix("_total") if name not in _COUNTERS else name
        if base == _PER_POSITION:
            place = re.search(r'position="(\d{1,3})"', labels)
            if place:
                positions[int(place[1])] = positions.get(int(place[1]), 0) + value
        elif name in _GAUGES:
            found[_GAUGES[name]] = found.get(_GAUGES[name], 0) + int(value)
        elif name in _USAGES:
            found["kv_usage"] = max(found.get("kv_usage", 0.0), value)
        elif base in _COUNTERS:
            found[_COUNTERS[base]] = found.get(_COUNTERS[base], 0) + int(value)
        elif name in _SECONDS:
            found[_SECONDS[name]] = found.get(_SECONDS[name], 0.0) + value * 1000
        elif name == "num_requests_waiting_by_reason" and 'reason="deferred"' in labels:
            found["deferred"] = found.get("deferred", 0) + int(value)
        elif name == "cache_config_info":
            found |= _cache(labels)
    if positions:
        found["total_accepted_per_position"] = [int(positions.get(i, 0)) for i in range(max(positions) + 1)]
    return found


def _cache(labels: str) -> dict[str, Any]:
    """The pool as `cache_config_info` tells it, of one engine."""
    told = dict(_LABEL.findall(labels))
    found: dict[str, Any] = {}
    for label, name in (
        ("kv_cache_size_tokens", "kv_pool_tokens"),
        ("num_gpu_blocks", "pages"),
        ("block_size", "page_tokens"),
    ):
        if told.get(label, "").isdecimal():
            found[name] = int(told[label])
    for label, name in (
        ("gpu_memory_utilization", "gpu_memory_utilization"),
        ("kv_cache_memory_bytes", "kv_cache_memory_bytes"),
        ("cache_dtype", "kv_cache_dtype"),
        ("enable_prefix_caching", "prefix_caching"),
        ("num_gpu_blocks_override", "num_gpu_blocks_override"),
    ):
        if told.get(label, "None") != "None":
            found[name] = told[label]
    return found


def request(body: dict[str, Any], recipe: Recipe) -> dict[str, Any]:
    """The chat body plus usage in every chunk, so that the first one tells how many tokens it stands for.

    A chunk may hold 1 to depth + 1 tokens, more for a slow client: only usage counts them. The prefix cache has no
    switch in a request: presets turn it off for the whole server.
    """
    sent: dict[str, Any] = {"seed": 1, **body, **dict(recipe.workload.extra)}
    if sent.get("stream"):
        options = sent.get("stream_options")
        given = options if isinstance(options, Mapping) else {}
        sent["stream_options"] = {"continuous_usage_stats": True, **given, "include_usage": True}
    else:
        sent.pop("stream_options", None)
    return sent


def reply(final: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of one finished request; keys are absent where the server does not say.

    `metrics.speculative_decoding` (0.30 on, with --per-request-spec-decode-metrics): drafted, accepted, steps that had
    a draft, and `per_position` as survival from the histogram of accepted tokens a step. No step with a draft means
    that nothing was drafted, not that nothing was accepted. `metrics` (0.26 on, with --enable-per-request-metrics):
    server_ttft_ms = queue + from scheduling to the first token; server_tpot_ms = decode time / (tokens − 1).
    """
    found: dict[str, Any] = {}
    usage = final.get("usage")
    details = usage.get("prompt_tokens_details") if isinstance(usage, Mapping) else None
    if isinstance(details, Mapping) and (cached := _count(details, "cached_tokens")) is not None:
        found["cached_tokens"] = cached
    told = final.get("metrics")
    if not isinstance(told, Mapping):
        return found
    first, queue, each = (_real(told, k) for k in ("time_to_first_token_ms", "queue_time_ms", "mean_itl_ms"))
    if first is not None:
        found["server_ttft_ms"] = first + (queue or 0.0)
    if each is not None and each > 0:
        found["server_tpot_ms"] = each
    spec = told.get("speculative_decoding")
    if not isinstance(spec, Mapping):
        return found
    drafted, accepted = _count(spec, "num_draft_tokens"), _count(spec, "num_accepted_draft_tokens")
    if drafted is not None:
        found["drafted"] = drafted
    if accepted is not None:
        found["accepted"] = accepted
    steps = _count(spec, "num_spec_steps")
    if steps:
        found["drafted_steps"] = steps  # n-gram drafting also takes plain steps, which this leaves out
        survival = _survival(spec.get("acceptance_histogram"))
        if survival:
            found["per_position"] = survival
    return found


def _survival(histogram: Any) -> tuple[float, ...]:
    """Share of drafted steps in which at least i tokens were accepted, i = 1..K, from counts of 0..K accepted."""
    if isinstance(histogram, Mapping):
        keys = [k for k in histogram if str(k).isdecimal()]
        histogram = [histogram[k] for k in sorted(keys, key=lambda k: int(str(k)))]
    if not isinstance(histogram, list | tuple) or len(histogram) < 2:
        return ()
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in histogram) or not sum(histogram):
        return ()
    total = sum(histogram)
    return tuple(sum(histogram[i:]) / total for i in range(1, len(histogram)))


def _real(source: Mapping[str, Any], key: str) -> float | None:
    value = source.get(key)
    ok = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
    return float(value) if ok and value is not None else None


def _count(source: Mapping[str, Any], key: str) -> int | None:
    value = _real(source, key)
    return None if value is None or not value.is_integer() else int(value)


def in_force(
    recipe: Recipe,
    settings: Mapping[str, Any],
    depth: int | None,
    replies: Mapping[str, Any],
    records: Sequence[Record],
) -> FlagsInForce:
    """Flags asked against flags in force: the engine's config line for the depth, the flag echo for the rest.

    The echo tells what was set to something else than the default; the config line, /v1/models and cache_config_info
    tell what came of it. A flag that is missing in the echo therefore has its default, which is what was asked.
    """
    asked = _asked(recipe, settings)
    told: dict[str, Any] = {}
    for record in records:
        if record.kind == "boot":
            told |= dict(record.fields)
    told |= _from_replies(replies)
    args = told.get("args")
    echo: Mapping[str, Any] = args if isinstance(args, Mapping) else {}
    force: dict[str, Any] = {}
    notes: list[str] = []
    proven = True
    if depth is not None:
        asked["draft_depth"] = depth
        real = told.get("draft_depth")
        if real is None:
            proven = False
            notes.append("the log does not say which depth is in force")
        else:
            force["draft_depth"] = real
            if real != depth:
                proven = False
                notes.append(f"asked for depth {depth}, in force is {real}")
    for name, value in asked.items():
        if name == "draft_depth":
            continue
        real = _real_value(name, told, echo)
        if real is not None:
            force[name] = real
            if not _same(value, real):
                proven = False
                notes.append(f"{name}: asked for {value}, in force is {real}")
        elif not echo:
            proven = False
            notes.append(f"{name}: asked for {value}, the log has no echo of the flags")
    if depth and (other := _spec_differs(recipe, settings, depth, echo)):
        proven = False
        notes += other
    for name in ("version", "kv_pool_tokens", "spec_algorithm"):
        if told.get(name) is not None:
            force[name] = told[name]
    return FlagsInForce(0, depth, asked, force, proven, tuple(notes))


def _asked(recipe: Recipe, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Options asked, by vLLM's long name with underscores; those that live in the speculative config are left out."""
    flags = {canonical(k): v for k, v in recipe.flags.items()}
    by_name = {k.name: k for k in (*KNOBS, *recipe.knobs)}
    for name, value in {**recipe.settings, **settings}.items():
        knob = by_name.get(name)
        if knob is not None and knob.flag and value is not None and not knob.flag.startswith(SPEC):
            flags[canonical(knob.flag)] = value
    flags.pop("--per-request-spec-decode-metrics", None)
    found = {}
    for option, value in flags.items():
        if option in SPELLINGS or not option.startswith("--"):
            continue
        name = option.removeprefix("--").replace("-", "_")
        off = name.startswith("no_") and value is True
        found[name.removeprefix("no_") if off else name] = False if off else value
    return found


def _spec_differs(recipe: Recipe, settings: Mapping[str, Any], depth: int, echo: Mapping[str, Any]) -> list[str]:
    """Where the echoed speculative config is not the one that was sent."""
    real = echo.get("speculative_config")
    if not isinstance(real, Mapping):
        return []
    argv = command(recipe, settings, depth, 0)
    sent = json.loads(argv[argv.index(SPEC) + 1])
    return [
        f"speculative config {key}: asked for {value}, in force is {real.get(key)}"
        for key, value in sent.items()
        if not _same(value, real.get(key))
    ]


def _from_replies(replies: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    version = replies.get("/version")
    if isinstance(version, Mapping) and isinstance(version.get("version"), str):
        found["version"] = version["version"]
    models = replies.get("/v1/models")
    listed = models.get("data") if isinstance(models, Mapping) else None
    if isinstance(listed, list) and listed and isinstance(listed[0], Mapping):
        length = listed[0].get("max_model_len")
        if isinstance(length, int):
            found["max_model_len"] = length
    text = replies.get("/metrics")
    if isinstance(text, str):
        seen = metrics(text)
        kept = ("kv_pool_tokens", "gpu_memory_utilization", "kv_cache_memory_bytes", "prefix_caching", "kv_cache_dtype")
        found |= {name: seen[name] for name in kept if name in seen}
    return found


def announced(replies: Mapping[str, Any]) -> Capacity:
    """Pool and longest request, from `/metrics` and `/v1/models`; how many run at once is told in the log alone."""
    text = replies.get("/metrics")
    seen = metrics(text) if isinstance(text, str) else {}
    found: dict[str, Any] = {name: seen.get(name) for name in ("kv_pool_tokens", "pages", "page_tokens")}
    found["max_context"] = _from_replies(replies).get("max_model_len")
    explain = []
    if found["kv_pool_tokens"] is not None:
        explain.append(
            f"The KV pool holds {found['kv_pool_tokens']:,} tokens (/metrics: cache_config_info); it is a cap."
        )
    if found["max_context"] is not None:
        explain.append(f"A request may hold at most {found['max_context']:,} tokens, prompt and output together.")
    return Capacity(**found, per="engine", explain=tuple(explain)) if explain else Capacity()


_IN_CONFIG = {
    "max_model_len": "max_model_len",
    "enforce_eager": "enforce_eager",
    "enable_prefix_caching": "prefix_caching",
    "enable_chunked_prefill": "chunked_prefill",
    "tensor_parallel_size": "tp",
    "pipeline_parallel_size": "pp",
    "data_parallel_size": "dp",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "kv_cache_memory_bytes": "kv_cache_memory_bytes",
    "kv_cache_dtype": "kv_cache_dtype",
    "quantization": "quantization",
    "dtype": "dtype",
}


def _real_value(name: str, told: Mapping[str, Any], echo: Mapping[str, Any]) -> Any:
    inner = _IN_CONFIG.get(name)
    if inner is not None and told.get(inner) is not None:
        return told[inner]
    return echo.get(name)


def _same(asked: Any, real: Any) -> bool:
    """Equal as vLLM means it: 64M is 67,108,864, `half` is float16, `True` the label is true."""
    if isinstance(real, list) and not isinstance(asked, list):
        real = real[0] if len(real) == 1 else real
    if asked == real or str(asked).lower() == str(real).lower():
        return True
    same_names = {"half": "float16", "float": "float32", "auto": None}
    if isinstance(asked, str) and asked in same_names:
        return same_names[asked] in {None, real}
    try:
        return float(asked) == float(real)
    except (TypeError, ValueError):
        pass
    first, second = size(asked), size(real)
    return first is not None and first == second
