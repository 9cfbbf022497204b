"""The options of `ninfer-serve` that a tuner touches, with its own rules and what else they move. Data only."""

from __future__ import annotations

from probes.recipe import Knob

CACHE_OPTIONS = (
    "--device-state-slots", "--host-state-slots", "--host-kv-mib", "--max-private-continuations",
    "--max-shared-prefixes", "--max-long-anchors-per-continuation",
)  # fmt: skip
"""Sizes of the prefix cache: the server refuses them beside --no-prefix-reuse."""

KV_TYPES = ("bf16", "int8", "fp8", "nvfp4", "k8v4")
LEVELS = ("trace", "debug", "info", "warning", "warn", "error", "critical", "fatal", "off")

KNOBS: tuple[Knob, ...] = (
    Knob("max_context", "--max-context", "int", 8192, low=1, changes=("memory", "policy"),
         rule="--max-context must be positive; at most what the model was made for",
         also="without kv_capacity the pool is exactly this large; output beyond it is cut",
         help="tokens that one request may hold, prompt and output together"),
    Knob("kv_capacity", "--kv-capacity", "int", None, low=1, changes=("memory",),
         rule="--kv-capacity must be at least --max-context",
         also="default: max_context; `auto` (as a fixed flag) takes what the GPU has left",
         help="tokens of the KV pool that all lanes share, rounded up to pages of 64"),
    Knob("max_concurrency", "--max-concurrency", "int", 1, low=1, high=8, changes=("policy", "memory"),
         rule="--max-concurrency must be in [1,8]",
         also="each lane costs state memory, so an automatic KV pool shrinks",
         help="requests that run at once (lanes)"),
    Knob("max_pending", "--max-pending-requests", "int", 16, low=1, changes=("policy",),
         rule="--max-pending-requests must be positive", also="beyond lanes + this: HTTP 429 at once",
         help="requests that may wait"),
    Knob("pending_timeout_ms", "--pending-timeout-ms", "int", 30000, low=1, changes=("policy",),
         rule="--pending-timeout-ms must be positive",
         also="a request that waits longer ends in HTTP 503 `request_queue_timeout`, inside a stream without a word",
         help="how long a request may wait to be admitted"),
    Knob("prefill_chunk", "--prefill-chunk", "int", 1024, low=128, changes=("speed", "memory"),
         rule="--prefill-chunk must be a positive multiple of 128",
         also="only one request prefills at a time; larger steps hold running streams up for longer",
         help="prompt tokens computed in one step"),
    Knob("kv_dtype", "--kv-dtype", "choice", "bf16", choices=KV_TYPES, changes=("memory", "numerics", "speed"),
         rule="invalid kv-dtype", also="older builds know bf16 and int8 only", help="number format of the KV pool"),
    Knob("lm_head_draft", "--lm-head-draft", "bool", False, changes=("speed",),
         rule="--draft-tokens and --lm-head-draft require --spec", also="left out at depth 0, together with --spec",
         help="draft with a head made from the language-model head"),
    Knob("no_prefix_reuse", "--no-prefix-reuse", "bool", False, changes=("speed", "policy"),
         rule="--no-prefix-reuse cannot be combined with context-cache capacity options",
         also="the start-up lines then do not say how many lanes there are",
         help="compute every prompt afresh: repeated prompts no longer shrink the time to first token"),
    Knob("no_cuda_graph", "--no-cuda-graph", "bool", False, changes=("speed", "memory"),
         help="launch kernels one by one"),
    Knob("device_state_slots", "--device-state-slots", "int", None, low=0, changes=("memory", "speed"),
         also="default: max_concurrency; these are checkpoints of prompts, not lanes",
         help="recurrent states kept on the GPU for reuse"),
    Knob("host_state_slots", "--host-state-slots", "int", 8, low=0, changes=("memory",),
         help="recurrent states kept in main memory"),
    Knob("host_kv_mib", "--host-kv-mib", "int", 8192, low=0, changes=("memory",),
         help="MiB of main memory for KV of finished prompts"),
    Knob("max_private_continuations", "--max-private-continuations", "int", None, low=0, changes=("memory", "policy"),
         help="conversations whose end is kept for the next turn"),
    Knob("max_shared_prefixes", "--max-shared-prefixes", "int", None, low=0, changes=("memory", "policy"),
         help="prompt beginnings kept for everyone"),
    Knob("stats_interval_ms", "--log-stats-interval-ms", "int", 5000, low=0, changes=("logging",),
         also="0 turns the throughput lines off, and with them the reading of queues",
         help="time between two throughput lines"),
    Knob("log_level", "--log-level", "choice", "info", choices=LEVELS, changes=("logging",), rule="invalid log level",
         also="above info the lines that tell capacity and queues are missing", help="least severe line shown"),
    Knob("device", "--device", "int", 0, low=0, changes=("placement",), rule="invalid CUDA device id",
         help="GPU by number"),
    Knob("default_max_tokens", "--default-max-tokens", "int", 8192, low=1, changes=("policy",),
         rule="--default-max-tokens must be positive",
         also="a request without max_tokens reserves this much of the pool", help="output limit when none is asked"),
    Knob("no_thinking", "--no-thinking", "bool", False, changes=("numerics",), help="do not let the model think first"),
    Knob("greedy", "--greedy", "bool", False, changes=("numerics",), also="overrides the request's temperature",
         help="temperature 0 for every request"),
    Knob("temperature", "--temperature", "float", None, low=0, high=2, changes=("numerics", "speed"),
         rule="invalid temperature", also="acceptance of drafts falls as it rises", help="default temperature"),
    Knob("top_p", "--top-p", "float", None, low=0, high=1, changes=("numerics",), rule="invalid top-p",
         help="default top-p"),
    Knob("top_k", "--top-k", "int", None, low=0, high=20, changes=("numerics",), rule="top-k must be in [0,20]",
         help="default top-k"),
    Knob("presence_penalty", "--presence-penalty", "float", None, low=-2, high=2, changes=("numerics",),
         rule="invalid presence-penalty", help="default presence penalty"),
)  # fmt: skip

BY_FLAG: dict[str, Knob] = {knob.flag: knob for knob in KNOBS}
