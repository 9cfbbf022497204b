"""The command line of a simulated SGLang 0.5.2x, by argparse as the real one, and what follows from it for capacity."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from probes.sim.front import BadStartError
from probes.sim.tables import Table

PROG = "launch_server.py"
ALGORITHMS = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM", "DFLASH", "DSPARK")
SPEC_LANES = 48
"""Requests that run at most when speculation is on and no limit was given."""
DELAY_FROM = 8
"""Lanes from which the DFLASH family waits until a few slots are free before it lets prompts in."""
INTS = (
    "tp-size", "dp-size", "pp-size", "max-running-requests", "max-queued-requests", "max-total-tokens",
    "chunked-prefill-size", "max-prefill-tokens", "context-length", "page-size", "cuda-graph-max-bs-decode",
    "cuda-graph-max-bs", "num-continuous-decode-steps", "min-free-slots-delay", "prefill-delayer-max-delay-passes",
    "max-mamba-cache-size", "decode-log-interval", "speculative-num-steps", "speculative-eagle-topk",
    "speculative-num-draft-tokens", "speculative-dspark-block-size", "speculative-dflash-block-size",
    "speculative-draft-window-size", "random-seed",
)  # fmt: skip
FLOATS = (
    "mem-fraction-static", "schedule-conservativeness", "mamba-full-memory-ratio", "swa-full-tokens-ratio",
    "speculative-accept-threshold-single", "speculative-accept-threshold-acc",
)  # fmt: skip
TEXTS = (
    "host", "served-model-name", "schedule-policy", "kv-cache-dtype", "mamba-ssm-dtype", "mamba-radix-cache-strategy",
    "speculative-algorithm", "speculative-draft-attention-backend", "attention-backend", "sampling-backend",
    "grammar-backend", "dtype", "quantization", "log-level", "retraction-policy", "api-key", "reasoning-parser",
    "tool-call-parser", "moe-runner-backend",
)  # fmt: skip
SWITCHES = (
    "trust-remote-code", "disable-radix-cache", "disable-overlap-schedule", "enable-mixed-chunk",
    "enable-prefill-delayer", "enable-metrics", "enable-linear-replayssm-spec", "enable-unified-memory",
    "speculative-use-rejection-sampling", "speculative-use-block-verification", "disable-cuda-graph",
    "log-requests", "enable-dp-attention", "enable-dp-lm-head", "skip-server-warmup",
)  # fmt: skip


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        """Usage and reason, code 2."""
        raise BadStartError([*self.format_usage().splitlines(), f"{self.prog}: error: {message}"], 2)


def parser() -> argparse.ArgumentParser:
    """The options that a tuner meets."""
    made = _Parser(prog=PROG, add_help=False, usage=f"{PROG} [-h] --model-path MODEL_PATH [options]")
    made.add_argument("--model-path", "--model", required=True)
    made.add_argument("--port", type=int, default=30000)
    made.add_argument("--speculative-draft-model-path", "--speculative-draft-model")
    short = {"tp-size": ("--tensor-parallel-size", "--tp"), "dp-size": ("--data-parallel-size", "--dp"),
             "pp-size": ("--pipeline-parallel-size", "--pp"),
             "speculative-algorithm": ("--speculative-algo",)}  # fmt: skip
    for names, kind in ((INTS, int), (FLOATS, float), (TEXTS, str)):
        for name in names:
            made.add_argument(f"--{name}", *short.get(name, ()), type=kind)
    for name in SWITCHES:
        made.add_argument(f"--{name}", action="store_true")
    return made


@dataclass(frozen=True, slots=True)
class Plan:
    """What a command line comes to on a machine: pools and limits of one rank."""

    args: Mapping[str, Any]
    algorithm: str | None
    depth: int
    kv_tokens: int
    lanes: int
    asked_lanes: int | None
    reset: bool
    states: int | None
    states_each: int
    held_each: int
    capped: bool
    chunk: int
    free_gb: float
    delay: int
    """Free slots below which nothing is let in (0 or 1: none)."""
    radix: bool
    context: int
    kv_gb: float
    state_gb: float


def parse(argv: list[str], table: Table) -> Plan:
    """The plan. Raises `BadStartError` with the real program's words."""
    words = [w for w in argv if w not in {"serve", "-m", "sglang.launch_server"}]
    args = vars(parser().parse_args(words))
    if args["schedule_conservativeness"] is not None and args["schedule_conservativeness"] < 0:
        raise _error("AssertionError: schedule_conservativeness must be non-negative")
    depth, algorithm = _depth(args)
    m = table.memory
    hybrid = bool(m.get("hybrid"))
    context = args["context_length"] or int(m.get("context", 131072))
    fraction = args["mem_fraction_static"] if args["mem_fraction_static"] is not None else 0.88
    budget = m["total_gb"] * fraction - m["weights_gb"] - m.get("other_gb", 0.0)
    if budget <= 1:
        raise _error("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
                     f"Current value: mem_fraction_static={fraction}")  # fmt: skip
    asked = args["max_running_requests"]
    reset = asked is None and depth > 0
    want = SPEC_LANES if reset else asked if asked is not None else 2048
    radix = not args["disable_radix_cache"]
    each = 1 if not radix else 3 if args["mamba_radix_cache_strategy"] == "no_buffer" else 5
    states, capped, state_gb = None, False, 0.0
    if hybrid:
        p = m["state_gb"] * (0.5 if args["mamba_ssm_dtype"] in {"bfloat16", "float16"} else 1.0)
        window = depth + 1 if depth else 0
        ratio = args["mamba_full_memory_ratio"] or 0.9
        states = args["max_mamba_cache_size"]
        if states is None:
            auto = int((budget * ratio / (1 + ratio) - p * (1 + window)) / (p * (1 + window / each)))
            states = min(want, auto) if not radix and depth else auto
        lanes = max(0, min(want, states // each))
        capped = lanes < want and (asked is not None or depth > 0)
        state_gb = p * (states + 1 + (lanes + 1) * window)
    else:
        lanes = want
    kv_gb = budget - state_gb
    scale = 0.5 if str(args["kv_cache_dtype"] or "auto").startswith("fp8") else 1.0
    tokens = int(kv_gb / (m["kv_gb_per_1k"] * scale) * 1000)
    if args["max_total_tokens"] is not None:
        tokens = min(tokens, args["max_total_tokens"])
    if tokens < 64 or lanes < 1:
        raise _error("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
                     f"Current value: mem_fraction_static={fraction}")  # fmt: skip
    lanes = min(lanes, max(1, tokens // 2))
    free = m["total_gb"] * (1 - fraction) - m.get("graphs_gb", 1.0)
    if free <= 0:
        raise _error("Capture cuda graph failed: CUDA out of memory. Tried to allocate 512.00 MiB.")
    return Plan(
        args=args, algorithm=algorithm, depth=depth, kv_tokens=tokens, lanes=lanes, asked_lanes=asked, reset=reset,
        states=states, states_each=each, held_each=max(1, each - 1) if each > 1 else 1, capped=capped,
        chunk=_chunk(args, context, big=m["total_gb"] > 160), free_gb=free,
        delay=_delay(args, algorithm, lanes), radix=radix, context=context, kv_gb=kv_gb, state_gb=state_gb,
    )  # fmt: skip


def _chunk(args: Mapping[str, Any], context: int, *, big: bool) -> int:
    """Tokens of prompts that a step computes; -1 switches pieces off, so that a step takes any prompt whole."""
    given = args["chunked_prefill_size"]
    if given is not None and given < 0:
        return int(context)
    return int(given) if given else 16384 if big else 8192


def _delay(args: Mapping[str, Any], algorithm: str | None, lanes: int) -> int:
    given = args["min_free_slots_delay"]
    if given is not None:
        return int(given)
    if algorithm not in {"DSPARK", "DFLASH"} or lanes < DELAY_FROM:
        return 0
    return min(4, max(2, (lanes + 5) // 6))


def _depth(args: Mapping[str, Any]) -> tuple[int, str | None]:
    if args["speculative_algorithm"] is None:
        return 0, None
    name = str(args["speculative_algorithm"]).upper()
    if name not in ALGORITHMS:
        raise _error(f"ValueError: Unknown speculative algorithm name: {name}")
    steps, window = args["speculative_num_steps"], args["speculative_num_draft_tokens"]
    if name == "DSPARK":
        block = args["speculative_dspark_block_size"]
        block = 7 if block is None else block
        if block <= 0:
            raise _error(f"ValueError: DSpark requires --speculative-dspark-block-size to be positive, got {block}.")
        if window is not None and window != block + 1:
            raise _error("ValueError: DSpark speculative_num_draft_tokens must equal gamma + 1")
        return block, name
    if name == "DFLASH":
        return (args["speculative_dflash_block_size"] or 16) - 1, name
    if name == "NGRAM":
        return (window or 12) - 1, name
    if steps is None:
        if window is not None or args["speculative_eagle_topk"] is not None:
            raise _error("AssertionError")
        return 3, name
    return int(steps), name


def _error(last: str) -> BadStartError:
    """A semantic error: a traceback before any stamped line, code 1."""
    return BadStartError(
        [
            "Traceback (most recent call last):",
            '  File "<site>/sglang/launch_server.py", line 58, in <module>',
            "    server_args = prepare_server_args(sys.argv[1:])",
            last,
        ]
    )
