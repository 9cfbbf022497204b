"""What a running SGLang server answers: counters, a request's own figures, flags in force, why a start failed. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from probes.engines import _sglang_flags as flags
from probes.engines._sglang_knobs import KNOBS
from probes.engines._sglang_log import Reader
from probes.engines._sglang_trouble import exit_words
from probes.events import Capacity, FlagsInForce, Record
from probes.recipe import Recipe, Refused

STATE_PATHS = ("/server_info", "/get_server_info", "/v1/loads?format=json&include=all")
"""`/get_server_info` is the older name of `/server_info`; `/v1/loads` is there from 0.5.8."""

_SAMPLE = re.compile(r"^sglang[:_](\w+?)(?:\{([^}]*)\})?\s+(\S+)(?:\s+\d+)?\s*$", re.MULTILINE | re.ASCII)
_LABEL = re.compile(r'(\w+)="([^"]*)"')

_SUMS = {
    "num_running_reqs": "running", "num_queue_reqs": "waiting", "gen_throughput": "gen_tps",
    "num_used_tokens": "kv_used_tokens", "mamba_used_tokens": "state_slots_used",
}  # fmt: skip
_MOST = {
    "full_token_usage": "kv_usage", "swa_token_usage": "swa_usage", "mamba_usage": "state_usage",
    "token_usage": "busiest_pool_usage", "new_token_ratio": "new_token_ratio",
}  # fmt: skip
_MEANS = {
    "spec_accept_length": "accept_len",
    "spec_accept_rate": "accept_rate_printed",
    "cache_hit_rate": "cache_hit_rate",
}
_SAME = {
    "max_total_num_tokens": "kv_pool_tokens", "page_size": "page_tokens", "context_len": "max_context",
    "spec_num_draft_tokens": "num_draft_tokens", "spec_num_steps": "num_steps",
}  # fmt: skip
_COUNTERS = {
    "prompt_tokens": "total_prompt_tokens", "generation_tokens": "total_output_tokens",
    "num_requests": "total_requests", "cached_tokens": "total_cached_tokens",
    "num_retracted_requests": "total_retracted", "num_aborted_requests": "total_aborted",
    "spec_verify_calls": "total_spec_steps",
}  # fmt: skip
_WHOLE = frozenset({"running", "waiting", "kv_used_tokens", "state_slots_used", *_SAME.values(), *_COUNTERS.values()})


def metrics(text: str) -> dict[str, Any]:
    """Prometheus text of `/metrics` (server started with --enable-metrics) as canonical fields and `total_*` counters.

    Tensor- and pipeline-parallel copies count once, data-parallel ranks are added up; a usage is the fullest rank's.
    `token_usage` is the maximum over all pools in newer versions, so `kv_usage` comes from it only where no per-pool
    gauge is given. Gauges move at the decode-log interval only, and the accept figures are of the last window.
    """
    series: dict[str, dict[str, tuple[tuple[int, int], float]]] = {}
    for name, labels, raw in _SAMPLE.findall(text):
        base = name.removesuffix("_total")
        if base not in _COUNTERS and name not in _GAUGES:
            continue
        try:
            value = float(raw)
        except ValueError:
            continue
        if not math.isfinite(value):
            continue
        found = dict(_LABEL.findall(labels))
        place = (int_or(found.get("pp_rank"), 0), int_or(found.get("tp_rank"), 0))
        parts = [
            found.get("dp_rank", ""),
            *(v for k, v in sorted(found.items()) if k in ("cache_source", "model_name")),
        ]
        rank = "|".join(parts)
        kept = series.setdefault(base if base in _COUNTERS else name, {})
        if rank not in kept or place < kept[rank][0]:
            kept[rank] = (place, value)
    out: dict[str, Any] = {}
    for name, ranks in series.items():
        values = [value for _, value in ranks.values()]
        field, value = _joined(name, values)
        out[field] = int(value) if field in _WHOLE else value
    if "kv_usage" not in out and "busiest_pool_usage" in out:
        out["kv_usage"] = out["busiest_pool_usage"]
    for field in ("swa_usage", "state_usage"):
        if out.get(field) == 0:  # printed for models that have no such pool, too
            del out[field]
    if out.get("accept_len") == 0:  # the gauge of a server that does not speculate, or has not yet
        out.pop("accept_len")
        out.pop("accept_rate_printed", None)
    return out


_COPIES = frozenset({"tp_rank", "pp_rank", "moe_ep_rank", "attn_cp_rank", "moe_dp_rank", "pid"})
"""Labels that tell copies of one series apart."""
_GAUGES = frozenset({*_SUMS, *_MOST, *_MEANS, *_SAME})


def _joined(name: str, values: Sequence[float]) -> tuple[str, float]:
    """The field of a metric and its value over the data-parallel ranks."""
    if name in _COUNTERS:
        return _COUNTERS[name], sum(values)
    if name in _SUMS:
        return _SUMS[name], sum(values)
    if name in _MOST:
        return _MOST[name], max(values)
    if name in _MEANS:
        return _MEANS[name], sum(values) / len(values)
    return _SAME[name], min(values)


def int_or(value: Any, other: int) -> int:
    """A label's number, or `other`."""
    return int(value) if isinstance(value, str) and value.isdecimal() else other


# -------------------------------------------------------------------------------------------------------- requests


def request(body: dict[str, Any], recipe: Recipe) -> dict[str, Any]:
    """The chat body plus what brings figures of this one request back.

    `return_spec_tokens_details` puts the draft counts into `sglext` (versions that lack it ignore it); usage in every
    chunk tells how many tokens a chunk carries, which counting chunks does not.
    """
    sent: dict[str, Any] = {"return_spec_tokens_details": True, **body, **dict(recipe.workload.extra)}
    if sent.get("stream"):
        options = sent.get("stream_options")
        given = options if isinstance(options, Mapping) else {}
        sent["stream_options"] = {"continuous_usage_stats": True, **given, "include_usage": True}
    else:
        sent.pop("stream_options", None)
        sent.setdefault("return_meta_info", True)
    return sent


_DRAFTED = ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
_ACCEPTED = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
_HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram")


def reply(final: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of a finished request; a key is absent when this version does not say.

    Draft counts leave the bonus token out. `per_position`[i] is the share of steps in which the draft at position i + 1
    was accepted, from the histogram of accepted drafts a step (0.5.9 and newer). Before 0.5.6 there is only the number
    of steps. `cached_tokens` may be printed larger than the prompt after a retraction: then it is left out.
    """
    sources = _sources(final)
    out: dict[str, Any] = {}
    drafted, accepted = _whole(sources, _DRAFTED), _whole(sources, _ACCEPTED)
    if drafted and accepted is not None and accepted <= drafted:
        out |= {"drafted": drafted, "accepted": accepted}
    if steps := _whole(sources, ("spec_verify_ct",)):
        out["steps"] = steps
    histogram = next((s[k] for s in sources for k in _HISTOGRAM if isinstance(s.get(k), list)), None)
    if histogram and len(histogram) > 1 and all(isinstance(n, int) and n >= 0 for n in histogram) and sum(histogram):
        total = sum(histogram)
        out["per_position"] = tuple(sum(histogram[i:]) / total for i in range(1, len(histogram)))
    if (ttft := _real(sources, "first_token_latency")) is not None:
        out["server_ttft_ms"] = 1000 * ttft
    if speed := _real(sources, "decode_throughput"):
        out["server_tpot_ms"] = 1000 / speed
    cached, prompt = _whole(sources, ("cached_tokens",)), _whole(sources, ("prompt_tokens",))
    if cached is not None and (prompt is None or cached <= prompt):
        out["cached_tokens"] = cached
    return out


def _sources(final: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Every part of a reply that may hold figures, the most telling first."""
    choices = final.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    usage = final.get("usage")
    found: Iterable[Any] = (
        final.get("meta_info"),
        first.get("meta_info") if isinstance(first, Mapping) else None,
        _inside(final.get("sglext"), "spec_tokens_details"),
        _inside(first.get("sglext") if isinstance(first, Mapping) else None, "spec_tokens_details"),
        _inside(usage, "prompt_tokens_details"),
        usage,
    )
    return [part for part in found if isinstance(part, Mapping)]


def _inside(whole: Any, name: str) -> Any:
    return whole.get(name) if isinstance(whole, Mapping) else None


def _whole(sources: Sequence[Mapping[str, Any]], names: Sequence[str]) -> int | None:
    for source in sources:
        for name in names:
            value = source.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
                return value
    return None


def _real(sources: Sequence[Mapping[str, Any]], name: str) -> float | None:
    for source in sources:
        value = source.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0:
            return float(value)
    return None


# -------------------------------------------------------------------------------------------------- flags in force


def in_force(
    recipe: Recipe,
    settings: Mapping[str, Any],
    depth: int | None,
    replies: Mapping[str, Any],
    records: Sequence[Record],
) -> FlagsInForce:
    """Asked against in force, from `/server_info`, else from the start's own `server_args` line.

    `/server_info` shows the requested running limit at its top; the effective one is in `internal_states`.
    """
    source = next((r for p in STATE_PATHS[:2] if isinstance(r := replies.get(p), Mapping) and r), None)
    boots = [r.fields for r in records if r.kind == "boot"]
    said: Mapping[str, Any] = source if source is not None else boots[-1] if boots else {}
    notes: list[str] = [] if said else ["neither /server_info nor the start's flags line was seen"]
    asked = _asked(recipe, settings, depth)
    found: dict[str, Any] = {}
    proven = bool(said)
    for name, value in asked.items():
        got = _effective_lanes(said, replies, records) if name == "max_running_requests" else said.get(name)
        found[name] = got
        if name == "speculative_algorithm" and value is None and said:
            got = got or None
        if not _equal(value, got):
            proven = False
            notes.append(f"{name}: asked {value}, in force {'unknown' if got is None and value is not None else got}")
    if depth is not None:
        found["depth"] = _drafted(said, records)
        if found["depth"] is not None and found["depth"] != depth and _topk(asked) == 1:
            proven = False
            notes.append(f"the server drafts {found['depth']} tokens a step, asked were {depth}")
        longest = max((r.fields["accept_len"] for r in records if "accept_len" in r.fields), default=None)
        if longest is not None and longest > depth + 1.01:
            proven = False
            notes.append(f"a step gave {longest} tokens, more than depth {depth} can")
    version = said.get("version") or (source or {}).get("sglang_version")
    if version is not None:
        found["version"] = version
    return FlagsInForce(0, depth, {**asked, **({} if depth is None else {"depth": depth})}, found, proven, tuple(notes))


def _topk(asked: Mapping[str, Any]) -> int:
    topk = asked.get("speculative_eagle_topk")
    return topk if isinstance(topk, int) else 1


def _asked(recipe: Recipe, settings: Mapping[str, Any], depth: int | None) -> dict[str, Any]:
    """The options of this start that are settings or speculation, under the engine's own names."""
    try:
        argv = flags.command(recipe, settings, depth, 1)
    except Refused:
        return {}
    named = {k.name: k.flag for k in (*KNOBS, *recipe.knobs)}
    turned = {named[n] for n in {**recipe.settings, **settings} if n in named}
    out: dict[str, Any] = {}
    for i, word in enumerate(argv):
        if word in turned or word.startswith("--speculative-"):
            value = argv[i + 1] if i + 1 < len(argv) and not argv[i + 1].startswith("--") else True
            out[word.removeprefix("--").replace("-", "_")] = _typed(value)
    if depth == 0:
        out["speculative_algorithm"] = None
    return out


def _typed(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    for read in (int, float):
        try:
            return read(value)
        except ValueError:
            continue
    return value


def _equal(asked: Any, got: Any) -> bool:
    if isinstance(asked, (int, float)) and isinstance(got, (int, float)):
        return math.isclose(float(asked), float(got), rel_tol=1e-9)
    if isinstance(asked, str) and isinstance(got, str):
        return asked == got or {asked.upper(), got.upper()} == {"NEXTN", "EAGLE"}
    return bool(asked == got)


def announced(replies: Mapping[str, Any]) -> Capacity:
    """Lanes, pool and longest request of a rank, from `/server_info` and `/v1/loads`."""
    said = next((r for p in STATE_PATHS[:2] if isinstance(r := replies.get(p), Mapping) and r), {})
    parts = _inside(replies.get(STATE_PATHS[2]), "loads")
    loads = [part for part in parts if isinstance(part, Mapping)] if isinstance(parts, list) else []
    inner = said.get("internal_states")
    states = [s for s in inner if isinstance(s, Mapping)] if isinstance(inner, list) else []
    each = [s.get("effective_max_running_requests_per_dp") for s in states] + [
        p.get("max_running_requests") for p in loads
    ]
    pools = [p.get("max_total_num_tokens") for p in loads] + [
        _inside(s.get("memory_usage"), "token_capacity") for s in states
    ]
    lanes, pool = (min((n for n in told if type(n) is int and n > 0), default=None) for told in (each, pools))
    longest, step = (
        n if type(n := said.get(k)) is int and n > 0 else None for k in ("context_length", "chunked_prefill_size")
    )
    explain = []
    if pool is not None:
        explain.append(f"The KV pool holds {pool:,} tokens on a rank (/v1/loads); it is a cap.")
    if lanes is not None:
        explain.append(f"At most {lanes:,} requests run at once on a rank, the limit in force; it is a cap.")
    if longest is not None:
        explain.append(f"A request may hold at most {longest:,} tokens, prompt and output together.")
    return Capacity(
        lanes=lanes,
        kv_pool_tokens=pool,
        max_context=longest,
        batch_tokens=step if explain else None,
        explain=tuple(explain),
    )


def _effective_lanes(said: Mapping[str, Any], replies: Mapping[str, Any], records: Sequence[Record]) -> Any:
    """The running limit that holds, over all attention-parallel ranks."""
    ways = max((n for k in ("attn_dp_size", "dp_size") if isinstance(n := said.get(k), int)), default=1)
    states = said.get("internal_states")
    each = (
        [s.get("effective_max_running_requests_per_dp") for s in states if isinstance(s, Mapping)]
        if isinstance(states, list)
        else []
    )
    loads = _inside(replies.get(STATE_PATHS[2]), "loads")
    if isinstance(loads, list):
        each += [part.get("max_running_requests") for part in loads if isinstance(part, Mapping)]
    each += [r.fields.get("lanes") for r in records if r.kind == "capacity" and "pool_tokens" in r.fields]
    least = min((n for n in each if isinstance(n, int)), default=None)
    asked = said.get("max_running_requests")
    if least is None:
        return asked
    return asked if isinstance(asked, int) and asked // ways == least else least * ways


def _drafted(said: Mapping[str, Any], records: Sequence[Record]) -> int | None:
    """Drafted tokens a step, by the draft runner's own word, else by the resolved flags; 0 without speculation."""
    told = [r.fields["num_draft_tokens"] for r in records if r.kind == "capacity" and "num_draft_tokens" in r.fields]
    if told:
        return int(told[-1]) - 1
    if not said:
        return None
    if not said.get("speculative_algorithm"):
        return 0
    window = said.get("speculative_num_draft_tokens")
    gamma = said.get("speculative_dspark_block_size")
    return window - 1 if isinstance(window, int) else gamma if isinstance(gamma, int) else None


# ---------------------------------------------------------------------------------------------------- failed starts

_WEIGHT = {"oom": 3, "error": 3, "crash": 2, "exit": 0}


def failure(lines: Sequence[str], exit_code: int | None) -> tuple[str | None, str | None]:
    """Reason and cure of a start that failed. The first exception is the cause; later ones are consequences."""
    reader = Reader()
    records: list[Record] = []
    for number, text in enumerate(lines, 1):
        records.extend(reader.feed(number, text))
    records.extend(reader.close())
    troubles = [r for r in records if r.kind in _WEIGHT and r.fields.get("cause") != "stopped"]
    best = max(troubles, key=lambda r: (_told(r), _WEIGHT[r.kind], -r.line), default=None)
    if best is not None:
        return str(best.fields.get("reason") or best.text), best.fields.get("hint")
    return exit_words(exit_code), None


def _told(record: Record) -> bool:
    """Whether the cause itself was recognised, and not only that something failed."""
    return record.fields.get("cause") not in {"exception", "child_failed", "hang"}
