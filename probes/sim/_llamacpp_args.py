"""The command line of a simulated llama-server, by the real one's rules and with its words."""

from __future__ import annotations

from dataclasses import dataclass

from probes.sim.front import BadStartError
from probes.sim.tables import Table

STEP = 256
"""Cells that a context is rounded up to."""
VALUES: dict[str, str] = {
    "-m": "model", "--model": "model", "-a": "alias", "--alias": "alias", "--host": "host", "--port": "port",
    "-c": "ctx", "--ctx-size": "ctx", "-np": "parallel", "--parallel": "parallel", "-b": "batch",
    "--batch-size": "batch", "-ub": "ubatch", "--ubatch-size": "ubatch", "-lv": "verbosity",
    "--verbosity": "verbosity", "--spec-type": "spec", "--spec-draft-n-max": "depth",
    "--spec-ngram-simple-size-m": "size_m", "--spec-ngram-map-k-size-m": "size_m",
    "--spec-ngram-map-k4v-size-m": "size_m", "--spec-ngram-mod-n-max": "mod_max", "-md": "draft",
    "--model-draft": "draft", "--spec-draft-model": "draft", "-ctk": "ctk", "--cache-type-k": "ctk", "-ctv": "ctv",
    "--cache-type-v": "ctv", "-ngl": "ngl", "--gpu-layers": "ngl", "--n-gpu-layers": "ngl",
}  # fmt: skip
OTHERS = frozenset(
    {
        "-t", "--threads", "-tb", "--threads-batch", "--poll", "-ncmoe", "-sm", "-ts", "-mg", "-fa", "--flash-attn",
        "--fit", "--cache-ram", "--cache-reuse", "--ctx-checkpoints", "-sps", "--sse-ping-interval",
        "--spec-draft-p-min", "--spec-draft-n-min", "--spec-draft-ngl", "-ngld", "--spec-draft-threads",
        "--spec-draft-type-k", "--spec-draft-type-v", "--spec-ngram-simple-size-n", "--spec-ngram-map-k-size-n",
        "--spec-ngram-simple-min-hits", "--spec-ngram-mod-n-match", "--spec-ngram-mod-n-min", "--api-key", "--timeout",
        "--temp", "--seed", "-s", "--chat-template", "--reasoning-budget", "--kv-unified-per-slot",
    }
)  # fmt: skip
SWITCHES = frozenset(
    {
        "--metrics", "--slots", "--no-slots", "-kvu", "--kv-unified", "-no-kvu", "--no-kv-unified", "--offline",
        "--no-warmup", "--warmup", "--mlock", "--mmap", "--no-mmap", "--context-shift", "--no-context-shift", "-cb",
        "--cont-batching", "--no-cont-batching", "-v", "--verbose", "--jinja", "--no-jinja", "--swa-full",
        "--no-cache-prompt", "--spec-default", "--log-timestamps", "--no-log-timestamps",
    }
)  # fmt: skip
REMOVED = frozenset({"--draft", "--draft-n", "--draft-max", "--draft-min", "--draft-n-min"})
NUMBERS = ("port", "ctx", "parallel", "batch", "verbosity", "depth", "size_m", "mod_max")
SPECS = ("none", "draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "ngram-simple", "ngram-map-k",
         "ngram-map-k4v", "ngram-mod", "ngram-cache")  # fmt: skip
CACHES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")


@dataclass(frozen=True, slots=True)
class Options:
    """A command line that would start. `cells`: of the whole pool."""

    model: str
    alias: str
    host: str
    port: int
    slots: int
    auto: bool
    unified: bool
    per_slot: int
    cells: int
    batch: int
    verbosity: int
    spec: str
    depth: int
    metrics: bool
    cache: str


def parse(argv: list[str], table: Table) -> Options:
    """The options. Raises `BadStartError` with the real program's words."""
    found: dict[str, str] = {}
    flags: set[str] = set()
    words = iter(argv)
    for word in words:
        if word in REMOVED:
            raise BadStartError([(f'error while handling argument "{word}": the argument has been removed. use '
                                 "--spec-draft-n-max or --spec-ngram-mod-n-max")])  # fmt: skip
        if word in SWITCHES:
            flags.add(word)
        elif word in VALUES or word in OTHERS:
            value = next(words, None)
            if value is None:
                raise BadStartError([f'error while handling argument "{word}": expected value for argument'])
            found[VALUES.get(word, word)] = value
        else:
            raise BadStartError([f"error: invalid argument: {word}"])
    numbers: dict[str, int] = {name: _whole(name, found[name]) for name in NUMBERS if name in found}
    if (cache := found.get("ctk", "f16")) not in CACHES:
        raise BadStartError([f'error while handling argument "-ctk": Unsupported cache type: {cache}'])
    spec = found.get("spec", "none").split(",")[0]
    if spec not in SPECS:
        raise BadStartError([f'error while handling argument "--spec-type": unknown speculative type: {spec}'])
    auto = numbers.get("parallel", -1) < 1
    slots = 4 if auto else numbers["parallel"]
    unified = bool({"-kvu", "--kv-unified"} & flags) or (auto and not {"-no-kvu", "--no-kv-unified"} & flags)
    context = numbers.get("ctx", 0) or int(table.memory.get("context", 131072))
    if unified:
        per = cells = -(-context // STEP) * STEP
    else:
        per = -(-(context // slots) // STEP) * STEP
        cells = per * slots
    return Options(
        model=found.get("model", ""), alias=found.get("alias", ""), host=found.get("host", "127.0.0.1"),
        port=numbers.get("port", 8080), slots=slots, auto=auto, unified=unified, per_slot=per, cells=cells,
        batch=numbers.get("batch", 2048), verbosity=5 if flags & {"-v", "--verbose"} else numbers.get("verbosity", 3),
        spec=spec, depth=_depth(spec, numbers, found), metrics="--metrics" in flags, cache=cache,
    )  # fmt: skip


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        option = next(o for o, n in VALUES.items() if n == name)
        raise BadStartError([f'error while handling argument "{option}": stoi']) from None


def _depth(spec: str, numbers: dict[str, int], found: dict[str, str]) -> int:
    """Drafted tokens a step. A draft kind without a draft model comes up and drafts nothing."""
    if spec == "none":
        return 0
    if spec.startswith("draft"):
        return numbers.get("depth", 3) if spec == "draft-mtp" or "draft" in found else 0
    if spec == "ngram-mod":
        return numbers.get("mod_max", 64)
    return 8 if spec == "ngram-cache" else numbers.get("size_m", 48)
