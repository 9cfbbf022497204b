"""The command line of a simulated `vllm serve` 0.32, and what follows from it for capacity."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from probes.sim.front import BadStartError
from probes.sim.tables import Table

PROG = "vllm serve"
INTS = (
    "port", "num-gpu-blocks-override", "max-model-len", "max-num-seqs", "max-num-active-seqs", "max-num-batched-tokens",
    "block-size", "max-cudagraph-capture-size", "stream-interval", "max-num-queued-reqs", "tensor-parallel-size",
    "pipeline-parallel-size", "data-parallel-size", "seed",
)  # fmt: skip
FLOATS = ("gpu-memory-utilization", "watermark")
TEXTS = (
    "host", "kv-cache-memory-bytes", "kv-cache-dtype", "scheduling-policy", "dtype", "quantization",
    "per-request-spec-decode-metrics", "speculative-config", "attention-backend", "api-key", "load-format",
)  # fmt: skip
SWITCHES = (
    "enable-prefix-caching", "enable-chunked-prefill", "enforce-eager", "async-scheduling",
    "enable-logging-iteration-details", "enable-per-request-metrics", "trust-remote-code",
    "disable-uvicorn-access-log", "disable-log-stats", "enable-log-requests",
)  # fmt: skip
METHODS = ("ngram", "ngram_gpu", "eagle", "eagle3", "medusa", "mtp", "draft_model", "suffix", "dflash")
UNITS = {"k": 1000, "m": 1000**2, "g": 1000**3, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        """Usage and reason, code 2."""
        usage = "usage: vllm serve [model_tag] [options]"
        raise BadStartError([usage, f"{self.prog}: error: {message}"], 2)


def parser() -> argparse.ArgumentParser:
    """The options that a tuner meets."""
    made = _Parser(prog=PROG, add_help=False, usage="")
    made.add_argument("model_tag")
    made.add_argument("--served-model-name", nargs="+")
    short = {"tensor-parallel-size": ("-tp",), "pipeline-parallel-size": ("-pp",), "data-parallel-size": ("-dp",),
             "speculative-config": ("-sc",), "quantization": ("-q",)}  # fmt: skip
    for names, kind in ((INTS, int), (FLOATS, float), (TEXTS, str)):
        for name in names:
            made.add_argument(f"--{name}", *short.get(name, ()), type=kind)
    for name in SWITCHES:
        made.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, default=None)
    return made


@dataclass(frozen=True, slots=True)
class Plan:
    """What a command line comes to: pool and limits of the engine."""

    args: Mapping[str, Any]
    spec: Mapping[str, Any] | None
    depth: int
    context: int
    blocks: int
    block: int
    seqs: int
    batch: int
    caching: bool
    kv_gib: float

    @property
    def echo(self) -> dict[str, Any]:
        """What was given, as the server prints it."""
        given = {name: value for name, value in self.args.items() if value is not None}
        return {**given, "model": self.args["model_tag"]} | (
            {"speculative_config": dict(self.spec)} if self.spec else {}
        )


def parse(argv: list[str], table: Table) -> Plan:
    """The plan. Raises `BadStartError` with the real program's words."""
    words = argv[argv.index("serve") + 1 :] if "serve" in argv else argv
    args = vars(parser().parse_args(words))
    m = table.memory
    spec = _spec(args["speculative_config"])
    context = args["max_model_len"] or int(m.get("context", 131072))
    seqs = args["max_num_seqs"] if args["max_num_seqs"] is not None else 256
    batch = args["max_num_batched_tokens"] if args["max_num_batched_tokens"] is not None else 8192
    for name, value in (("max_num_seqs", seqs), ("max_num_batched_tokens", batch)):
        if value < 1:
            raise _invalid("SchedulerConfig", f"Value error, {name} ({value}) must be greater than or equal to 1.")
    if batch < seqs:
        why = f"max_num_batched_tokens ({batch}) must be greater than or equal to max_num_seqs ({seqs})."
        raise _invalid("SchedulerConfig", f"Value error, {why}")
    block = args["block_size"] or int(m.get("block", 16))
    share = args["gpu_memory_utilization"] if args["gpu_memory_utilization"] is not None else 0.92
    kv = m["total_gib"] * share - m["weights_gib"] - m.get("other_gib", 0.0)
    if args["kv_cache_memory_bytes"] is not None:
        kv = _bytes(args["kv_cache_memory_bytes"]) / (1 << 30)
    if kv <= 0:
        raise _failed("ValueError: No available memory for the cache blocks. Try increasing "
                      "`gpu_memory_utilization` when initializing the engine.")  # fmt: skip
    scale = 0.5 if str(args["kv_cache_dtype"] or "auto").startswith("fp8") else 1.0
    per_token = m["kv_mib_per_1k"] / 1024 / 1000 * scale
    blocks = args["num_gpu_blocks_override"] or int(kv / per_token) // block
    if blocks * block < context:
        need = context * per_token
        raise _failed(
            f"ValueError: To serve at least one request with the model's max seq len ({context}), ({need:.2f} GiB KV "
            f"cache is needed, which is larger than the available KV cache memory ({kv:.2f} GiB). Based on the "
            f"available memory, the estimated maximum model length is {blocks * block}. Try increasing "
            "`gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
        )
    depth = int(spec["num_speculative_tokens"]) if spec else 0
    seqs = min(seqs, args["max_num_active_seqs"] or seqs)
    return Plan(args, spec, depth, context, blocks, block, seqs, batch, args["enable_prefix_caching"] is not False, kv)


def _spec(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        spec = json.loads(text)
    except ValueError:
        spec = None
    if not isinstance(spec, dict):
        why = f"argument --speculative-config/-sc: Value {text} cannot be converted to <function loads>."
        raise BadStartError(["usage: vllm serve [model_tag] [options]", f"{PROG}: error: {why}"], 2)
    tokens = spec.get("num_speculative_tokens")
    if not isinstance(tokens, int) or tokens < 1:
        raise BadStartError([
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig",
            "num_speculative_tokens",
            f"  Input should be greater than 0 [type=greater_than, input_value={tokens}, input_type=int]",
        ])  # fmt: skip
    if spec.get("method") not in METHODS and "model" not in spec:
        raise _invalid("SpeculativeConfig", f"Value error, Unknown speculative method: {spec.get('method')}")
    return spec


def _bytes(text: str) -> float:
    unit = text[-1:]
    return float(text[:-1]) * UNITS[unit] if unit in UNITS else float(text)


def _invalid(what: str, why: str) -> BadStartError:
    return BadStartError([
        "Traceback (most recent call last):",
        f"pydantic_core._pydantic_core.ValidationError: 1 validation error for {what}",
        f"  {why} [type=value_error, input_value=ArgsKwargs(()), input_type=ArgsKwargs]",
        "    For further information visit https://errors.pydantic.dev/2.12/v/value_error",
    ])  # fmt: skip


def _failed(why: str) -> BadStartError:
    return BadStartError([
        "(EngineCore pid=4711) ERROR 12-01 10:00:07 [core.py:1100] EngineCore failed to start.",
        "(EngineCore pid=4711) ERROR 12-01 10:00:07 [core.py:1100] Traceback (most recent call last):",
        f"(EngineCore pid=4711) ERROR 12-01 10:00:07 [core.py:1100] {why}",
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    ])  # fmt: skip
