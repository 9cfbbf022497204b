"""What may be turned on a llama-server and the exact command line that does it: knobs, depth flags, refusals.

Values are refused, never clamped, with the server's own rule; nothing here starts or asks anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from probes.engines._llamacpp_knobs import ALIASES, KNOBS, NEGATED
from probes.recipe import Dial, Knob, Recipe, Refused

DRAFT_KINDS = ("draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark")
NGRAM_SIZED = ("ngram-simple", "ngram-map-k", "ngram-map-k4v")
KINDS = (*DRAFT_KINDS, *NGRAM_SIZED, "ngram-mod", "ngram-cache", "draft-max")
NEEDS_DRAFT_MODEL = frozenset({"draft-simple", "draft-eagle3", "draft-dflash", "draft-max"})
DRAFT_MODEL = ("--spec-draft-model", "-md", "--model-draft")
MODEL_FLAGS = frozenset({"--model", "--hf-repo", "--model-url", "--docker-repo"})
REMOVED = frozenset({"--draft", "--draft-n", "--draft-max", "--draft-min", "--draft-n-min", "--spec-ngram-size-n",
                     "--spec-ngram-size-m", "--spec-ngram-min-hits"})  # fmt: skip
SIZE_N_DEFAULT = 12
NGRAM_MAX = 1024
CACHE_DEPTH = 8
"""`ngram-cache` drafts 8 tokens; that is built in."""


def canonical(option: str) -> str:
    """The long spelling of an option, e.g. `--ctx-size` for `-c`; an unknown one stays as it is."""
    return ALIASES.get(option, option)


def main_kind(dial: Dial) -> str:
    """The speculator that the dial turns: the first one where several are stacked with commas."""
    return dial.kind.split(",", 1)[0].strip()


def dial_range(dial: Dial) -> tuple[int, int] | None:
    """Legal non-zero depths, inclusive; 0 is always legal and means `--spec-type none`.

    `draft-*` has no upper bound of its own (the server checks only that it isn't negative): None.
    """
    kind = main_kind(dial)
    if kind not in KINDS:
        raise Refused(f"dial: {kind!r} is no kind of speculation of llama-server; there are {', '.join(KINDS)}")
    if kind == "ngram-simple":
        return _size_n(kind, dial.flags, {}), NGRAM_MAX
    if kind in NGRAM_SIZED or kind == "ngram-mod":
        return 1, NGRAM_MAX
    if kind == "ngram-cache":
        return CACHE_DEPTH, CACHE_DEPTH
    return None


def command(recipe: Recipe, settings: Mapping[str, Any], depth: int | None, port: int) -> list[str]:
    """The exact argv, binary first. `depth` None: no dial, speculation is what the fixed flags say."""
    options = _fixed(recipe, turned=depth is not None)
    chosen = _from_settings(recipe, settings, spec=depth != 0)
    replaced = {canonical(option) for option in chosen}
    options = {option: value for option, value in options.items() if canonical(option) not in replaced} | chosen
    if depth is not None:
        options.update(_depth(recipe.dial, options, depth))
    _check(options)
    argv = [recipe.binary]
    if not MODEL_FLAGS & {canonical(option) for option in options}:
        argv += ["-m", recipe.model]
    argv += ["--host", recipe.host, "--port", str(port)]
    spoken = {canonical(option) for option in options}
    for option, value in options.items():
        argv += _words(option, value)
    # Capacity, context and speculation are only told at verbosity 4, counters only with --metrics, and without a
    # short ping a stream that nobody reads holds a stop for 30 s.
    if not spoken & {"--verbosity", "--verbose"}:
        argv += ["-lv", "4"]
    if "--metrics" not in spoken:
        argv.append("--metrics")
    if "--sse-ping-interval" not in spoken:
        argv += ["--sse-ping-interval", "1"]
    return argv


def flags_of(argv: Iterable[str]) -> dict[str, Any]:
    """Options of an argv by their long spelling, bare ones as True; the last of a repeated option wins."""
    found: dict[str, Any] = {}
    option = None
    for word in argv:
        if word.startswith("-") and not _number(word):
            option = canonical(word)
            found[option] = True
        elif option is not None:
            found[option] = word
            option = None
    return found


def _number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _fixed(recipe: Recipe, *, turned: bool) -> dict[str, Any]:
    """The preset's fixed flags, checked for what others own."""
    owned = {"--port": "`port:` of the preset", "--host": "`host:` of the preset"}
    if turned:
        owned |= {
            "--spec-type": "the dial (`dial.kind`)",
            "--spec-draft-n-max": "the dial",
            "--spec-default": "the dial",
        }
    for option in recipe.flags:
        name = canonical(option)
        if name in owned:
            raise Refused(f"flags: {option} is set by {owned[name]}; take it out")
        if name in REMOVED and main_kind(recipe.dial) != "draft-max":
            raise Refused(f"flags: llama-server has removed {option}; the depth is the dial's, by --spec-draft-n-max")
        if turned and name == "--spec-draft-model":
            raise Refused(
                f"flags: {option} belongs in `dial.flags`: llama-server loads that model even with --spec-type none, "
                "and depth 0 must run without it"
            )
    return dict(recipe.flags)


def _from_settings(recipe: Recipe, settings: Mapping[str, Any], *, spec: bool) -> dict[str, Any]:
    """Options for the knobs that are set, each checked; a knob replaces a fixed flag of any spelling."""
    known: dict[str, Knob] = {knob.name: knob for knob in (*KNOBS, *recipe.knobs)}
    found: dict[str, Any] = {}
    for name, value in {**recipe.settings, **settings}.items():
        if name not in known:
            raise Refused(f"no knob {name!r} on llama.cpp; there are {', '.join(sorted(known))}")
        knob = known[name]
        if value is None or not knob.flag:
            continue
        if not spec and canonical(knob.flag).startswith("--spec-"):
            continue
        found[knob.flag] = _legal(knob, value)
    return found


def _legal(knob: Knob, value: Any) -> Any:
    """`value` as the knob takes it, or a refusal with the legal range and the nearest legal value."""
    where = f"{knob.name} ({knob.flag})"
    why = f": {knob.rule}" if knob.rule else ""
    if knob.type == "bool":
        if not isinstance(value, bool):
            raise Refused(f"{where} is {value!r}, but it is true or false{why}")
        return value
    if knob.type == "choice":
        if value not in knob.choices:
            raise Refused(f"{where} is {value!r}; legal: {', '.join(map(str, knob.choices))}{why}")
        return value
    if knob.type == "text":
        return str(value)
    number_type = int if knob.type == "int" else float
    if isinstance(value, bool) or not isinstance(value, (int, float)) or number_type(value) != value:
        raise Refused(f"{where} is {value!r}, but it is {'a whole' if knob.type == 'int' else 'a'} number{why}")
    nearest = max(value, knob.low) if knob.low is not None else value
    nearest = min(nearest, knob.high) if knob.high is not None else nearest
    if nearest != value:
        low = "" if knob.low is None else f"{knob.low:g}"
        high = "" if knob.high is None else f"{knob.high:g}"
        raise Refused(f"{where} is {value}; legal {low}..{high}, nearest {nearest:g}{why}")
    return value


def _size_n(kind: str, *sources: Mapping[str, Any]) -> int:
    for source in sources:
        for option, value in source.items():
            if option == f"--spec-{kind}-size-n":
                return int(value)
    return SIZE_N_DEFAULT


def _depth(dial: Dial, options: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """The flags that a depth takes. 0 is `--spec-type none`: with n-max 0 the server aborts at its first request."""
    kind = main_kind(dial)
    legal = dial_range(dial)
    if depth == 0:
        return {} if kind == "draft-max" else {"--spec-type": "none"}
    if depth < 0:
        raise Refused(f"depth {depth}: llama-server takes 1 or more, 0 is no speculation; nearest 0")
    found: dict[str, Any] = {} if kind == "draft-max" else {"--spec-type": dial.kind}
    found.update(dial.flags)
    names = {canonical(option) for option in (*dial.flags, *options)}
    if kind in NEEDS_DRAFT_MODEL and "--spec-draft-model" not in names:
        raise Refused(f"dial.flags: {kind} needs a draft model (-md FILE); llama-server crashes or runs without drafts")
    if kind == "ngram-simple":
        size_n = _size_n(kind, options, dial.flags)
        if depth < size_n:
            raise Refused(
                f"depth {depth}: ngram-simple drafts only if size-m >= size-n, and --spec-ngram-simple-size-n is "
                f"{size_n}; legal {size_n}..{NGRAM_MAX} or 0, nearest {size_n}"
            )
    if legal is not None and not legal[0] <= depth <= legal[1]:
        near = min(max(depth, legal[0]), legal[1])
        raise Refused(f"depth {depth}: {kind} takes {legal[0]}..{legal[1]} or 0 for none; nearest {near}")
    if kind in NGRAM_SIZED:
        found[f"--spec-{kind}-size-m"] = depth
    elif kind == "ngram-mod":
        found["--spec-ngram-mod-n-max"] = depth
    elif kind == "draft-max":
        found["--draft-max"] = depth
    elif kind in DRAFT_KINDS:
        found["--spec-draft-n-max"] = depth
    return found


def _check(options: Mapping[str, Any]) -> None:
    """Rules between options that the server would otherwise resolve in silence or by failing."""
    by_name = {canonical(option): value for option, value in options.items()}
    batch, ubatch = by_name.get("--batch-size", 2048), by_name.get("--ubatch-size", 512)
    if isinstance(batch, int) and isinstance(ubatch, int) and ubatch > batch:
        raise Refused(
            f"-ub {ubatch} is larger than -b {batch}: llama-server would silently use {batch}; nearest {batch}"
        )
    kv_type = by_name.get("--cache-type-v", "f16")
    if kv_type not in {"f32", "f16", "bf16"} and by_name.get("--flash-attn") in {"off", False}:
        raise Refused(f"-ctv {kv_type} needs flash attention (V cache quantization requires it): use -fa on or auto")


def _words(option: str, value: Any) -> list[str]:
    if value is True:
        return [option]
    if value is False:
        negative = NEGATED.get(canonical(option))
        return [negative] if negative else []
    if isinstance(value, (list, tuple)):
        return [word for each in value for word in _words(option, each)]
    return [option, str(value)]
