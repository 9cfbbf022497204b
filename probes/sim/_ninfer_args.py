"""The command line of a simulated `ninfer-serve`, by the real one's rules and with its words."""

from __future__ import annotations

from dataclasses import dataclass

USAGE = (
    "usage: ninfer-serve ARTIFACT.ninfer [options]",
    "  --host H                      listen address (default 127.0.0.1)",
    "  --port N                      1..65535 (default 8080)",
    "  --max-context N               tokens a request may hold (default 8192)",
    "  --kv-capacity N|auto          Main-KV pool in tokens (default --max-context)",
    "  --max-concurrency N           active requests, 1..8 (default 1)",
    "  --max-pending-requests N      waiting requests (default 16)",
    "  --pending-timeout-ms N        admission deadline (default 30000)",
    "  --prefill-chunk N             multiple of 128 (default 1024)",
    "  --kv-dtype T                  bf16 int8 fp8 nvfp4 k8v4 (default bf16)",
    "  --spec B                      none mtp dflash dflash2",
    "  --draft-tokens N              mtp 1..5, dflash 1..15",
    "  --lm-head-draft               draft from the language-model head",
    "  --request-log-jsonl PATH      append request records",
    "  --no-prefix-reuse             recompute every prompt",
)
SWITCHES = frozenset(
    {
        "--lm-head-draft", "--vision", "--no-cuda-graph", "--no-prefix-reuse", "--no-thinking", "--cors", "--greedy",
        "--preserve-thinking",
    }
)  # fmt: skip
POSITIVE = frozenset(
    {
        "--max-context", "--kv-capacity", "--max-pending-requests", "--pending-timeout-ms", "--default-max-tokens",
        "--response-store-max-records",
    }
)  # fmt: skip
CACHE = frozenset(
    {
        "--device-state-slots", "--host-state-slots", "--host-kv-mib", "--max-private-continuations",
        "--max-shared-prefixes", "--max-long-anchors-per-continuation",
    }
)  # fmt: skip
COUNTS = frozenset({"--port", "--max-concurrency", "--prefill-chunk", "--draft-tokens", "--device"})
SIZES = frozenset(
    {
        "--log-stats-interval-ms", "--max-request-mib", "--media-cache-mib", "--media-live-mib",
        "--response-store-max-mib", "--media-preprocess-threads", "--default-thinking-budget", "--seed",
    }
)  # fmt: skip
TEXTS = frozenset(
    {"--host", "--api-key", "--model-id", "--log-level", "--context-cost-presets", "--request-log-jsonl", "--kv-dtype",
     "--spec"}
)  # fmt: skip
SHARES = {"--temperature": (0, 2), "--top-p": (0, 1), "--min-p": (0, 1), "--top-k": (0, 20),
          "--presence-penalty": (-2, 2), "--frequency-penalty": (-2, 2)}  # fmt: skip
KV_TYPES = ("bf16", "int8", "fp8", "nvfp4", "k8v4")
LEVELS = ("trace", "debug", "info", "warning", "warn", "error", "critical", "fatal", "off")
SPECS = {"mtp": 5, "dflash": 15, "dflash2": 15}


@dataclass(frozen=True, slots=True)
class Options:
    """A command line that would start."""

    artifact: str
    host: str = "127.0.0.1"
    port: int = 8080
    api_key: str = ""
    model_id: str = ""
    max_context: int = 8192
    kv_capacity: int = 8192
    auto: bool = False
    explicit: bool = False
    lanes: int = 1
    pending: int = 16
    pending_ms: int = 30000
    chunk: int = 1024
    stats_ms: int = 5000
    kv_dtype: str = "bf16"
    spec: str = "none"
    depth: int = 0
    default_max_tokens: int = 8192
    no_reuse: bool = False
    state_slots: int | None = None
    host_states: int = 8
    host_kv_mib: int = 8192
    request_log: str = ""


def parse(argv: list[str]) -> Options:
    """The options. Raises ValueError with the message of the real program."""
    if not argv:
        raise ValueError("artifact path is required")
    values = _values(argv[1:])
    numbers = {name: _whole(name, text) for name, text in values.items() if name in COUNTS | SIZES | CACHE | POSITIVE
               and not (name == "--kv-capacity" and text == "auto")}  # fmt: skip
    _ranges(values, numbers)
    spec = values.get("--spec", "none")
    context = numbers.get("--max-context", 8192)
    pool = numbers.get("--kv-capacity", context)
    if pool < context and values.get("--kv-capacity") != "auto":
        raise ValueError("--kv-capacity must be at least --max-context")
    if "--no-prefix-reuse" in values and CACHE & values.keys():
        raise ValueError("--no-prefix-reuse cannot be combined with context-cache capacity options")
    depth = numbers.get("--draft-tokens", 0)
    if spec == "none":
        if "--draft-tokens" in values or "--lm-head-draft" in values:
            raise ValueError("--draft-tokens and --lm-head-draft require --spec mtp|dflash|dflash2")
    elif not 1 <= depth <= SPECS[spec]:
        raise ValueError(f"--spec {spec} requires --draft-tokens in [1,{SPECS[spec]}]")
    return Options(
        artifact=argv[0],
        host=values.get("--host", "127.0.0.1"),
        port=numbers.get("--port", 8080),
        api_key=values.get("--api-key", ""),
        model_id=values.get("--model-id", ""),
        max_context=context,
        kv_capacity=pool,
        auto=values.get("--kv-capacity") == "auto",
        explicit="--kv-capacity" in values,
        lanes=numbers.get("--max-concurrency", 1),
        pending=numbers.get("--max-pending-requests", 16),
        pending_ms=numbers.get("--pending-timeout-ms", 30000),
        chunk=numbers.get("--prefill-chunk", 1024),
        stats_ms=numbers.get("--log-stats-interval-ms", 5000),
        kv_dtype=values.get("--kv-dtype", "bf16"),
        spec=spec,
        depth=depth if spec != "none" else 0,
        default_max_tokens=numbers.get("--default-max-tokens", 8192),
        no_reuse="--no-prefix-reuse" in values,
        state_slots=numbers.get("--device-state-slots"),
        host_states=numbers.get("--host-state-slots", 8),
        host_kv_mib=numbers.get("--host-kv-mib", 8192),
        request_log=values.get("--request-log-jsonl", ""),
    )


def _values(words: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        if word in SWITCHES:
            found[word] = ""
        elif word in TEXTS or word in POSITIVE | CACHE | COUNTS | SIZES or word in SHARES:
            value = next(rest, None)
            if value is None:
                raise ValueError(f"{word} needs a value")
            found[word] = value
        else:
            raise ValueError(f"unknown argument: {word}")
    return found


def _whole(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"invalid {name[2:]}: {text}")
    return int(text)


def _ranges(values: dict[str, str], numbers: dict[str, int]) -> None:
    for name in POSITIVE & numbers.keys():
        if numbers[name] < 1:
            raise ValueError(f"{name} must be positive")
    if not 1 <= numbers.get("--port", 8080) <= 65535:
        raise ValueError("--port must be in [1,65535]")
    if not 1 <= numbers.get("--max-concurrency", 1) <= 8:
        raise ValueError("--max-concurrency must be in [1,8]")
    chunk = numbers.get("--prefill-chunk", 1024)
    if chunk < 1 or chunk % 128:
        raise ValueError("--prefill-chunk must be a positive multiple of 128")
    for name, legal, words in (
        ("--kv-dtype", KV_TYPES, "invalid kv-dtype"),
        ("--log-level", LEVELS, "invalid log level"),
        ("--spec", ("none", *SPECS), "invalid speculative backend"),
    ):
        if name in values and values[name] not in legal:
            raise ValueError(f"{words}: {values[name]}")
    for name, (low, high) in SHARES.items():
        if name in values:
            try:
                fits = low <= float(values[name]) <= high
            except ValueError:
                fits = False
            if not fits:
                raise ValueError(f"invalid {name[2:]}: {values[name]}")
