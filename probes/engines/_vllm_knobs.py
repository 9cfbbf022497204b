"""What may be turned on a vLLM server: every flag a tuner touches, with vLLM's own rule. A table, no behaviour."""

from __future__ import annotations

from probes.recipe import Knob

SPEC = "--speculative-config"
"""The one JSON that all of speculation is told by. Knobs of its keys are spelled in vLLM's dotted form."""

SERVER: tuple[Knob, ...] = (
    Knob(
        "gpu_memory", "--gpu-memory-utilization", "float", None, low=0.01, high=1.0, changes=("memory",),
        rule="a fraction of the GPU's total memory, above 0 and at most 1",
        also="the KV pool takes what weights, activations and graphs leave of it",
        help="How much of the GPU vLLM may fill. Too high: it fails at start. Too low: no room for the pool.",
    ),
    Knob(
        "kv_bytes", "--kv-cache-memory-bytes", "text", None, changes=("memory",),
        rule="bytes, or a number with k/m/g (decimal) or K/M/G (binary), e.g. 8G",
        also="overrides --gpu-memory-utilization and skips profiling: an out-of-memory is then yours",
        help="The KV pool's size by hand: equal for every depth, so depths compare fairly.",
    ),
    Knob(
        "kv_blocks", "--num-gpu-blocks-override", "int", None, low=1, changes=("memory",),
        rule="a whole number of blocks", also="the pool no longer follows from memory: a test aid",
    ),
    Knob(
        "ctx", "--max-model-len", "int", None, low=1, changes=("memory",),
        rule="at most what the model was made for; one such request must fit the KV pool",
        help="The longest request, prompt and answer together.",
    ),
    Knob(
        "lanes", "--max-num-seqs", "int", None, low=1, changes=("speed", "memory"),
        rule="1 or more, and at most --max-num-batched-tokens",
        also="sampler and CUDA graph memory grow with it, so the pool shrinks",
        help="Requests that run at once. More wait. The default depends on the GPU.",
    ),
    Knob(
        "active_lanes", "--max-num-active-seqs", "int", None, low=1, changes=("speed",),
        rule="1 or more, and at most --max-num-seqs (vLLM 0.31 and newer)",
        help="Admits fewer than --max-num-seqs, without changing memory.",
    ),
    Knob(
        "batch_tokens", "--max-num-batched-tokens", "int", None, low=1, changes=("speed", "memory"),
        rule="1 or more, and at least --max-num-seqs; without chunked prefill at least --max-model-len",
        also="drafts count too: at depth K at most this / (1 + K) requests decode in one step",
        help="Tokens that one scheduler step may take, prompts and drafts together.",
    ),
    Knob(
        "prefix_cache", "--enable-prefix-caching", "bool", None, changes=("speed",),
        also="repeated prompts then skip prefill: time to first token is no longer comparable",
    ),
    Knob("chunked_prefill", "--enable-chunked-prefill", "bool", None, changes=("speed", "policy")),
    Knob(
        "kv_dtype", "--kv-cache-dtype", "choice", None,
        choices=("auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp8_ds_mla", "nvfp4"),
        changes=("memory", "numerics"), rule="float16 and bfloat16 must be the model's own type",
        also="fp8 about doubles the pool and changes outputs",
    ),
    Knob("block_size", "--block-size", "int", None, low=1, changes=("memory",), rule="tokens of one KV block, above 0"),
    Knob(
        "eager", "--enforce-eager", "bool", False, changes=("speed", "memory"),
        also="no compile, no CUDA graphs: boots a minute sooner, steps are slower",
    ),
    Knob(
        "graph_max", "--max-cudagraph-capture-size", "int", None, low=0, changes=("speed", "memory"),
        rule="tokens in the largest captured step; sizes are multiples of 1 + depth",
    ),
    Knob(
        "watermark", "--watermark", "float", None, low=0.0, high=0.99, changes=("policy",),
        rule="a share of the pool, at least 0 and below 1",
        help="Pool share kept free at admission: against admitting too much and preempting it again.",
    ),
    Knob("policy", "--scheduling-policy", "choice", None, choices=("fcfs", "priority"), changes=("policy",)),
    Knob("async_scheduling", "--async-scheduling", "bool", None, changes=("speed", "policy")),
    Knob(
        "stream_interval", "--stream-interval", "int", None, low=1, changes=("policy",),
        rule="tokens a chunk, 1 or more",
    ),
    Knob(
        "queue_max", "--max-num-queued-reqs", "int", None, low=1, changes=("policy",),
        rule="1 or more; beyond it requests get HTTP 503 (vLLM 0.30 and newer)",
    ),
    Knob("tp", "--tensor-parallel-size", "int", None, low=1, changes=("placement", "numerics"), rule="GPUs, 1 or more"),
    Knob("dp", "--data-parallel-size", "int", None, low=1, changes=("placement",), rule="engines, 1 or more"),
    Knob("dtype", "--dtype", "choice", None, choices=("auto", "half", "float16", "bfloat16", "float", "float32"),
         changes=("memory", "numerics")),
    Knob("quantization", "--quantization", "text", None, changes=("memory", "numerics")),
    Knob(
        "step_log", "--enable-logging-iteration-details", "bool", None, changes=("logging",),
        also="one log line a scheduler step (vLLM 0.14 and newer)",
    ),
    Knob(
        "request_times", "--enable-per-request-metrics", "bool", None, changes=("logging",),
        rule="vLLM 0.26 and newer", help="Each reply then tells queue time, time to first token and time per token.",
    ),
)  # fmt: skip

DRAFT: tuple[Knob, ...] = (
    Knob(
        "request_drafts", "--per-request-spec-decode-metrics", "choice", None, choices=("summary", "detailed"),
        changes=("logging",), rule="vLLM 0.30 and newer; left out at depth 0, where the server would refuse it",
        help="Each reply then tells its own drafts: acceptance by category without guessing.",
    ),
    Knob("draft_model", f"{SPEC}.model", "text", None, changes=("speed", "memory")),
    Knob(
        "draft_tp", f"{SPEC}.draft_tensor_parallel_size", "int", None, low=1, changes=("placement",),
        rule="1, or the target's --tensor-parallel-size",
    ),
    Knob(
        "lookup_min", f"{SPEC}.prompt_lookup_min", "int", None, low=1, rule="1 or more, at most prompt_lookup_max",
        help="ngram: shortest run of tokens looked up in the text so far.",
    ),
    Knob(
        "lookup_max", f"{SPEC}.prompt_lookup_max", "int", None, low=1, rule="1 or more, at least prompt_lookup_min",
        help="ngram: longest run of tokens looked up in the text so far.",
    ),
    Knob(
        "draft_sampling", f"{SPEC}.draft_sample_method", "choice", None, choices=("greedy", "probabilistic"),
        changes=("speed", "memory"), rule="vLLM 0.24 and newer",
    ),
    Knob(
        "verify", f"{SPEC}.rejection_sample_method", "choice", None,
        choices=("standard", "block", "synthetic", "fly"), changes=("speed", "numerics"),
        rule="fly needs a depth of 2 or more; fly and synthetic do not keep the model's own distribution",
    ),
    Knob(
        "synthetic_len", f"{SPEC}.synthetic_acceptance_length", "float", None, low=1.0, changes=("numerics",),
        rule="between 1 and depth + 1, only with rejection_sample_method synthetic",
        help="A server whose acceptance you dictate: to try the console, not to serve.",
    ),
    Knob("draft_eager", f"{SPEC}.enforce_eager", "bool", None, changes=("speed", "memory")),
)  # fmt: skip

VERSION = Knob(
    "version", "", "text", None, changes=("policy",), rule="as `vllm --version` prints it, e.g. 0.20.2",
    help="Tell it, and flags that this version lacks are refused before a start instead of after 20 seconds.",
)  # fmt: skip

KNOBS: tuple[Knob, ...] = (*SERVER, *DRAFT, VERSION)

SINCE: dict[str, tuple[int, int]] = {
    "--max-num-active-seqs": (0, 31),
    "--max-num-queued-reqs": (0, 30),
    "--max-num-queued-tokens": (0, 30),
    "--per-request-spec-decode-metrics": (0, 30),
    "--enable-per-request-metrics": (0, 26),
    "--enable-logging-iteration-details": (0, 14),
    f"{SPEC}.draft_sample_method": (0, 24),
    SPEC: (0, 8),
}
"""Option -> first minor version that has it (the first one seen, for those whose exact birth is not known)."""
