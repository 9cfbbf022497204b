"""What a vLLM start was told: its echo of the flags, and the engine's config line, as plain values without secrets."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

_SECRET = re.compile(r"(?:api_?key|token(?!s|iz)|secret|passw|credential)", re.IGNORECASE)
_MASK = re.compile(
    r"(['\"]?\b\w*(?:api_key|hf_token|secret|password)\w*['\"]?\s*[:=]\s*)(\[[^\]]*\]|'[^']*'|\"[^\"]*\"|[^\s,})]+)",
    re.IGNORECASE,
)
_PAIR = re.compile(
    r"'(?P<key>[a-z_][\w.]{0,60})': (?P<value>'(?:[^'\\]|\\.){0,500}'|-?\d+(?:\.\d+)?(?![\w.])|True|False|None)",
    re.ASCII,
)
_NAMED = re.compile(
    r"[(,] ?(?P<key>[a-z_]\w{0,60})="
    r"(?P<value>'(?:[^'\\]|\\.){0,500}'|-?\d+(?:\.\d+)?(?![\w.])|True|False|None)(?=[,)])",
    re.ASCII,
)
_OBJECT = re.compile(r"<([A-Za-z_][\w.]{0,60}): [^<>]{0,60}>", re.ASCII)
"""A member of an enumeration as Python shows it, e.g. `<CUDAGraphMode.FULL: 2>`: no literal, but its name is one."""
_CONFIG = re.compile(r"Initializing an? (?:V\d )?LLM engine (?:\(v([^()\s]{1,60})\) )?with config: ", re.ASCII)
_SPEC = re.compile(r"speculative_config=SpeculativeConfig\(([^()]{0,600})\)", re.ASCII)
_KEY = re.compile(r"(?:^|[ ,(])([a-z_]{2,40})=(?:'([^']{0,500})'|([\w.+-]{1,80}))(?=[,)]|$)", re.ASCII)
_WANTED = {
    "max_seq_len": "max_model_len",
    "tensor_parallel_size": "tp",
    "pipeline_parallel_size": "pp",
    "data_parallel_size": "dp",
    "kv_cache_dtype": "kv_cache_dtype",
    "enforce_eager": "enforce_eager",
    "enable_prefix_caching": "prefix_caching",
    "enable_chunked_prefill": "chunked_prefill",
    "quantization": "quantization",
    "dtype": "dtype",
    "model": "model",
}
"""Names in the config line -> names of a boot record's extras."""


def is_args(message: str) -> bool:
    """Whether this message echoes the flags: 0.9 on `non-default args: {…}`, before that `args: Namespace(…)`."""
    return message.startswith(("non-default args: {", "args: Namespace(", "vLLM API server args"))


def args(message: str) -> dict[str, Any]:
    """The flags echoed, by their long name with underscores; only plain values, no secrets. Never raises.

    A dict that holds something else than literals, or is cut, still gives the pairs that are whole.
    """
    start = message.find("{")
    found: Any = None
    if message.startswith("non-default") and start >= 0 and len(message) < 20_000:
        try:
            found = ast.literal_eval(_OBJECT.sub(r"'\1'", message[start:].strip()))
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            found = None
    if not isinstance(found, dict):
        pattern = _PAIR if start >= 0 and message.startswith("non-default") else _NAMED
        found = {}
        for pair in pattern.finditer(message[:20_000]):  # the first counts: `model` is there again inside others
            found.setdefault(pair["key"], _plain(pair["value"]))
    return {k: _open(v) for k, v in found.items() if isinstance(k, str) and not _SECRET.search(k)}


def _plain(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None


def _open(value: Any, depth: int = 0) -> Any:
    """A literal as JSON can hold it, secrets inside dropped."""
    if depth > 4:
        return str(value)
    if isinstance(value, dict):
        return {str(k): _open(v, depth + 1) for k, v in value.items() if not _SECRET.search(str(k))}
    if isinstance(value, list | tuple):
        return [_open(v, depth + 1) for v in value]
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


def mask(text: str) -> str:
    """The line with values of keys and passwords blotted out: for showing."""
    return _MASK.sub(r"\1'***'", text)


def config(message: str) -> tuple[str | None, dict[str, Any]] | None:
    """Version and extras of an `Initializing … LLM engine (v…) with config` line; None when it is another line.

    The version is None in the lines of 2023, which tell none.

    `draft_depth` is 0 when the line says `speculative_config=None`, absent when it does not say.
    """
    head = _CONFIG.match(message)
    if head is None:
        return None
    found: dict[str, Any] = {}
    body = message[head.end() : head.end() + 20_000]
    spec = _SPEC.search(body)
    if spec is not None:
        inner = {m[1]: m[2] if m[2] is not None else m[3] for m in _KEY.finditer(spec[1])}
        depth = inner.get("num_spec_tokens", "")
        if depth.isdecimal():
            found["draft_depth"] = int(depth)
        method = inner.get("method") or ("draft_model" if inner.get("draft_model") else None)
        if method:
            found["spec_algorithm"] = method.strip("[]")
        if inner.get("model") not in (None, "None"):
            found["draft_model"] = inner["model"]
        body = body[: spec.start()] + body[spec.end() :]
    elif "speculative_config=None" in body:
        found["draft_depth"] = 0
    for key in _KEY.finditer(body):
        name = _WANTED.get(key[1])
        if name is not None and name not in found:
            found[name] = key[2] if key[2] is not None else _scalar(key[3])
    return head[1], {k: v for k, v in found.items() if v is not None}


def _scalar(text: str) -> Any:
    if text.isdecimal():
        return int(text)
    return {"True": True, "False": False, "None": None}.get(text, text.removeprefix("torch."))


def facts(flags: Mapping[str, Any]) -> dict[str, Any]:
    """A boot record's extras from the flags echoed: lanes, limits, speculation; only what was said."""
    found: dict[str, Any] = {}
    for key, name in (
        ("max_num_batched_tokens", "max_num_batched_tokens"),
        ("max_model_len", "max_model_len"),
        ("gpu_memory_utilization", "gpu_memory_utilization"),
        ("kv_cache_memory_bytes", "kv_cache_memory_bytes"),
        ("kv_cache_dtype", "kv_cache_dtype"),
        ("block_size", "block_size"),
        ("num_gpu_blocks_override", "num_gpu_blocks_override"),
        ("tensor_parallel_size", "tp"),
        ("pipeline_parallel_size", "pp"),
        ("data_parallel_size", "dp"),
        ("enforce_eager", "enforce_eager"),
        ("enable_prefix_caching", "prefix_caching"),
        ("enable_chunked_prefill", "chunked_prefill"),
        ("watermark", "watermark"),
        ("scheduling_policy", "scheduling_policy"),
        ("async_scheduling", "async_scheduling"),
        ("max_num_queued_reqs", "max_num_queued_reqs"),
        ("max_num_queued_tokens", "max_num_queued_tokens"),
    ):
        if flags.get(key) is not None:
            found[name] = flags[key]
    model = flags.get("model") or flags.get("model_tag")
    if isinstance(model, str):
        found["model"] = model
    lanes = [flags[k] for k in ("max_num_active_seqs", "max_num_seqs") if _count(flags.get(k))]
    if lanes:
        found["lanes"] = min(lanes)
    return found | _spec_facts(flags)


def _spec_facts(flags: Mapping[str, Any]) -> dict[str, Any]:
    spec = flags.get("speculative_config")
    if not isinstance(spec, Mapping):
        spec = {
            "method": flags.get("spec_method"),
            "model": flags.get("spec_model") or flags.get("speculative_model"),
            "num_speculative_tokens": flags.get("spec_tokens") or flags.get("num_speculative_tokens"),
        }
    found: dict[str, Any] = {}
    for key, name in (
        ("method", "spec_algorithm"),
        ("model", "draft_model"),
        ("num_speculative_tokens", "draft_depth"),
        ("num_speculative_tokens_per_batch_size", "draft_schedule"),
        ("rejection_sample_method", "rejection_sample_method"),
    ):
        if spec.get(key) is not None:
            found[name] = spec[key]
    return found


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
