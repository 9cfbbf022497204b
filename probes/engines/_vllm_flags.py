"""The exact command line of a vLLM server at a depth: one JSON for all of speculation, none at all at depth 0.

Values are refused, never clamped, with vLLM's own rule; nothing here starts or asks anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from probes.engines._vllm_knobs import KNOBS, SINCE, SPEC
from probes.recipe import Dial, Knob, Recipe, Refused

NEEDS_MODEL = frozenset({"draft_model", "eagle", "eagle3", "dflash", "dspark"})
METHODS = ("ngram", "ngram_gpu", "suffix", "mtp", *sorted(NEEDS_MODEL), "medusa", "mlp_speculator", "custom_class")
"""Methods of 0.6 to 0.33; model-specific `*_mtp` spellings are taken too."""
GONE = {"medusa": (0, 33), "mlp_speculator": (0, 33)}
BORN = {"dspark": (0, 26), "custom_class": (0, 24)}
SPELLINGS = {
    "-sc": SPEC, "--device-memory-utilization": "--gpu-memory-utilization", "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size", "-dp": "--data-parallel-size", "-q": "--quantization",
}  # fmt: skip
_SHORTCUTS = frozenset({"--spec-method", "--spec-model", "--spec-tokens"})
_OWNED = {
    "--model": "`model:` of the preset",
    "--host": "`host:` of the preset",
    "--port": "`port:` of the preset",
}
_VERSION = re.compile(r"v?(\d{1,3})\.(\d{1,3})(?:[.\d+a-z]{0,40})$", re.ASCII)
_SIZE = re.compile(r"\d+(?:\.\d+)?[kmgtKMGT]?$", re.ASCII)


def canonical(option: str) -> str:
    """The long spelling with dashes; a dotted speculation key keeps its underscores."""
    head, dot, key = option.partition(".")
    head = SPELLINGS.get(head, head if not head.startswith("--") else "--" + head[2:].replace("_", "-"))
    return head + dot + key.replace("-", "_")


def dial_range(dial: Dial) -> tuple[int, int] | None:
    """None: vLLM takes any depth above 0. An MTP depth must be a multiple of the model's own n_predict, if larger."""
    method(dial)
    return None


def method(dial: Dial) -> str:
    """The method that the dial turns, checked against those there are."""
    if dial.kind in METHODS or dial.kind.endswith("_mtp"):
        return dial.kind
    raise Refused(f"dial: {dial.kind!r} is no speculation method of vLLM; there are {', '.join(METHODS)}")


def command(recipe: Recipe, settings: Mapping[str, Any], depth: int | None, port: int) -> list[str]:
    """The argv, binary first. `depth` None: the preset has no dial, speculation is what its fixed flags say."""
    wanted = {**recipe.settings, **settings}
    version = told_version(wanted)
    options = _fixed(recipe, turned=depth is not None)
    spec: dict[str, Any] | None = None
    if depth is not None:
        spec = _speculation(recipe, depth, options)
    for name, value in wanted.items():
        knob = _knob(recipe, name)
        if value is None or not knob.flag:
            continue
        option = canonical(knob.flag)
        checked = legal(knob, value)
        if option.startswith(SPEC + "."):
            if spec is not None:
                spec[option.removeprefix(SPEC + ".")] = checked
        elif option != "--per-request-spec-decode-metrics" or depth != 0:
            options.pop(_twin(option), None)
            options[option] = checked
    _check(options, version)
    argv = [*_launch(recipe.binary), "serve", recipe.model, "--host", recipe.host, "--port", str(port)]
    for option, value in options.items():
        argv += words(option, value)
    if spec is not None and depth:
        _check_spec(spec, depth, version)
        argv += [SPEC, json.dumps(spec, ensure_ascii=False)]
    return argv


def _twin(option: str) -> str:
    """`--no-X` for `--X` and the other way round: setting one takes the other away."""
    return f"--{option[5:]}" if option.startswith("--no-") else f"--no-{option.removeprefix('--')}"


def _launch(binary: str) -> list[str]:
    """`vllm`, or a Python that has vLLM without its console script."""
    if re.fullmatch(r"python(?:3(?:\.\d+)?)?", PurePath(binary).name):
        return [binary, "-m", "vllm.entrypoints.cli.main"]
    return [binary]


def told_version(settings: Mapping[str, Any]) -> tuple[int, int] | None:
    """The version that the preset says is installed, as (major, minor); None: not told."""
    text = settings.get("version")
    if text is None:
        return None
    found = _VERSION.match(str(text))
    if found is None:
        raise Refused(f"version: {text!r} is no version; as `vllm --version` prints it, e.g. 0.20.2")
    return int(found[1]), int(found[2])


def _fixed(recipe: Recipe, *, turned: bool) -> dict[str, Any]:
    """The preset's fixed flags by canonical spelling, checked for what others own."""
    found: dict[str, Any] = {}
    for option, value in recipe.flags.items():
        name = canonical(option)
        if name in _OWNED:
            raise Refused(f"flags: {option} is set by {_OWNED[name]}; take it out")
        if turned and (name.partition(".")[0] == SPEC or name in _SHORTCUTS):
            raise Refused(
                f"flags: {option} is set by the dial: method as `dial.kind`, other keys as {SPEC}.KEY in `dial.flags`"
            )
        if turned and name == "--per-request-spec-decode-metrics":
            raise Refused(f"flags: {option} belongs in `dial.flags`: at depth 0 the server refuses to start with it")
        if name in found:
            raise Refused(f"flags: {option} is given twice in different spellings")
        found[name] = value
    return found


def _speculation(recipe: Recipe, depth: int, options: dict[str, Any]) -> dict[str, Any]:
    """The speculative config at a depth; options of `dial.flags` that are no keys of it go to `options`."""
    dial = recipe.dial
    if depth != 0 and depth not in dial.values:
        nearest = min(dial.values, key=lambda v: (abs(v - depth), v))
        raise Refused(f"depth {depth} is not on the dial: {', '.join(map(str, dial.values))}; nearest is {nearest}")
    spec: dict[str, Any] = {"method": method(dial), "num_speculative_tokens": depth}
    for option, value in dial.flags.items():
        name = canonical(option)
        if name in _SHORTCUTS:
            raise Refused(f"dial: {option} and the config exclude each other; write {SPEC}.KEY")
        if name == SPEC:
            _once(spec, _keys(option, value))
        elif name.startswith(SPEC + "."):
            _once(spec, {name.removeprefix(SPEC + "."): value})
        elif depth:
            options[name] = value
    if spec["num_speculative_tokens"] != depth or spec["method"] != dial.kind:
        raise Refused(f"dial: {SPEC} in `dial.flags` must leave method and num_speculative_tokens to the dial")
    return spec


def _once(spec: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add keys; vLLM takes one JSON or dotted keys, and which of two values counts is for nobody to guess."""
    for key, value in more.items():
        if spec.get(key, value) != value and key not in {"method", "num_speculative_tokens"}:
            raise Refused(f"dial: {SPEC}.{key} is given as {spec[key]!r} and as {value!r} in `dial.flags`; give one")
        spec[key] = value


def _keys(option: str, value: Any) -> dict[str, Any]:
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError) as problem:
        raise Refused(f"dial: {option} is no JSON: {problem}") from problem
    if not isinstance(found, dict):
        raise Refused(f"dial: {option} must be a JSON object")
    return {str(k).replace("-", "_"): v for k, v in found.items()}


def _knob(recipe: Recipe, name: str) -> Knob:
    for knob in (*recipe.knobs, *KNOBS):
        if knob.name == name:
            return knob
    raise Refused(f"no knob {name!r} on vLLM; there are {', '.join(sorted(k.name for k in KNOBS))}")


def legal(knob: Knob, value: Any) -> Any:
    """The value in the knob's type; raises `Refused` with vLLM's rule and the nearest legal value."""
    what = f"{knob.name} ({knob.flag})"
    rule = f"; vLLM's rule: {knob.rule}" if knob.rule else ""
    if knob.type == "bool":
        if isinstance(value, bool) or str(value).lower() in {"true", "false", "on", "off"}:
            return value if isinstance(value, bool) else str(value).lower() in {"true", "on"}
        raise Refused(f"{what}: {value!r} is neither true nor false{rule}")
    if knob.type == "choice":
        if value in knob.choices:
            return value
        raise Refused(f"{what}: {value!r} is none of {', '.join(map(str, knob.choices))}{rule}")
    if knob.type in {"int", "float"}:
        return _number(knob, value, what, rule)
    if knob.name == "kv_bytes" and not _SIZE.match(str(value)):
        raise Refused(f"{what}: {value!r} is no size{rule}")
    return value


def _number(knob: Knob, value: Any, what: str, rule: str) -> int | float:
    try:
        number = float(value) if not isinstance(value, bool) else float("nan")
    except (TypeError, ValueError):
        number = float("nan")
    whole = knob.type == "int"
    if number != number or (whole and not number.is_integer()):  # noqa: PLR0124  (NaN is the only such number)
        raise Refused(f"{what}: {value!r} is no {'whole ' if whole else ''}number{rule}")
    low, high = knob.low, knob.high
    if (low is not None and number < low) or (high is not None and number > high):
        near = low if low is not None and number < low else high
        shown = int(near) if whole and near is not None else near
        span = f"from {low:g}" if high is None else f"up to {high:g}" if low is None else f"{low:g} to {high:g}"
        raise Refused(f"{what}: {value} is outside {span}; nearest is {shown}{rule}")
    return int(number) if whole else number


def size(value: Any) -> int | None:
    """A whole number as vLLM reads it: `32k` is 32,000 and `32K` is 32,768; None when it is none."""
    text = str(value)
    if text.isdecimal():
        return int(text)
    scale = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
    if text[:-1].isdecimal() and text[-1:] in scale:
        return int(text[:-1]) * scale[text[-1]]
    return None


def _check(options: Mapping[str, Any], version: tuple[int, int] | None) -> None:
    """Rules between options, and options that the told version does not have."""
    seqs, batch, active, length = (
        size(options.get(name))
        for name in ("--max-num-seqs", "--max-num-batched-tokens", "--max-num-active-seqs", "--max-model-len")
    )
    if seqs and batch and batch < seqs:
        raise Refused(
            f"--max-num-batched-tokens ({batch}) must be greater than or equal to --max-num-seqs ({seqs}); "
            f"nearest: --max-num-seqs {batch}"
        )
    if active and seqs and active > seqs:
        raise Refused(f"--max-num-active-seqs ({active}) may not exceed --max-num-seqs ({seqs}); nearest is {seqs}")
    chunked = options.get("--enable-chunked-prefill") is not False and "--no-enable-chunked-prefill" not in options
    if not chunked and batch and length and batch < length:
        raise Refused(
            f"without chunked prefill --max-num-batched-tokens ({batch}) must be at least --max-model-len ({length})"
        )
    if version is not None:
        for option in options:
            _since(option, version)


def _since(option: str, version: tuple[int, int]) -> None:
    first = SINCE.get(option)
    if first is not None and version < first:
        raise Refused(f"{option} needs vLLM {first[0]}.{first[1]} or newer; the preset says {version[0]}.{version[1]}")


def _check_spec(spec: Mapping[str, Any], depth: int, version: tuple[int, int] | None) -> None:
    """Rules inside the speculative config."""
    name = spec["method"]
    if name in NEEDS_MODEL and not spec.get("model"):
        raise Refused(f"dial: method {name} needs a draft model: {SPEC}.model in `dial.flags`")
    low, high = spec.get("prompt_lookup_min"), spec.get("prompt_lookup_max")
    if isinstance(low, int) and isinstance(high, int) and low > high:
        raise Refused(f"prompt_lookup_min ({low}) may not exceed prompt_lookup_max ({high}); nearest is {high}")
    how, length = spec.get("rejection_sample_method"), spec.get("synthetic_acceptance_length")
    if how == "fly" and depth < 2:
        raise Refused("rejection_sample_method fly needs a depth of 2 or more; nearest is 2")
    if length is not None and how != "synthetic":
        raise Refused("synthetic_acceptance_length is only taken with rejection_sample_method synthetic")
    if isinstance(length, int | float) and not 1 <= length <= depth + 1:
        raise Refused(f"synthetic_acceptance_length {length} is outside 1 to {depth + 1} (depth + 1)")
    if version is not None:
        if name in GONE and version >= GONE[name]:
            raise Refused(f"dial: vLLM {GONE[name][0]}.{GONE[name][1]} removed method {name}")
        if name in BORN and version < BORN[name]:
            raise Refused(f"dial: method {name} needs vLLM {BORN[name][0]}.{BORN[name][1]} or newer")
        for option in (SPEC, *(f"{SPEC}.{key}" for key in spec)):
            _since(option, version)


def words(option: str, value: Any) -> list[str]:
    """One option as command line words: a bare flag for true, its `--no-` twin for false, once for each of a list."""
    if value is True:
        return [option]
    if value is False:
        return [] if option == "--enforce-eager" else [f"--no-{option.removeprefix('--')}"]
    if isinstance(value, list | tuple):
        return [word for one in value for word in words(option, one)]
    return [option, f"{value:g}" if isinstance(value, float) else str(value)]
