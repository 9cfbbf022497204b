"""The exact command line of `ninfer-serve`: artifact first, `--flag value` only, refusals instead of failed starts.

Out-of-range values are an error of the server, never a clamp, so they are refused here with the same rule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from probes.engines._ninfer_knobs import BY_FLAG, CACHE_OPTIONS, KNOBS
from probes.recipe import Dial, Knob, Recipe, Refused

DEPTHS: dict[str, tuple[int, int]] = {"mtp": (1, 5), "dflash": (1, 15), "dflash2": (1, 15)}
SPECULATION = ("--spec", "--draft-tokens", "--lm-head-draft")
"""Depth 0 is none of these three; `--draft-tokens 0` is refused by the server."""
CHUNK = 128


def dial_range(dial: Dial) -> tuple[int, int]:
    """Legal non-zero depths, inclusive. Raises `Refused` on a kind that the server does not know."""
    if dial.kind not in DEPTHS:
        raise Refused(f"dial.kind {dial.kind!r}: ninfer's --spec takes {', '.join(DEPTHS)}")
    return DEPTHS[dial.kind]


def command(recipe: Recipe, settings: Mapping[str, Any], depth: int | None, port: int) -> list[str]:
    """The argv, binary first. `depth` None: no dial, speculation is what the fixed flags say."""
    options = _fixed(recipe, turned=depth is not None) | _from_settings(recipe, settings)
    if depth is not None:
        options = _depth(recipe.dial, options, depth)
    _check(options)
    argv = [recipe.binary, recipe.model, "--host", recipe.host, "--port", str(port)]
    for option, value in options.items():
        argv += _words(option, value)
    return argv


def _fixed(recipe: Recipe, *, turned: bool) -> dict[str, Any]:
    """The preset's fixed flags, checked for what others own and for the server's ranges."""
    found: dict[str, Any] = {}
    for option, value in recipe.flags.items():
        if "=" in option:
            raise Refused(f"flags: {option}: ninfer takes `--flag value` only, it answers `unknown argument: {option}`")
        if option in {"--host", "--port"}:
            raise Refused(f"flags: {option} is set by `{option[2:]}:` of the preset; take it out")
        if turned and option in {"--spec", "--draft-tokens"}:
            raise Refused(f"flags: {option} is set by the dial; take it out")
        if isinstance(value, (list, tuple)):
            raise Refused(f"flags: {option} is given once on ninfer, not {len(value)} times")
        found[option] = legal(BY_FLAG[option], value, option) if option in BY_FLAG else value
    return found


def _from_settings(recipe: Recipe, settings: Mapping[str, Any]) -> dict[str, Any]:
    known = {knob.name: knob for knob in (*KNOBS, *recipe.knobs)}
    found: dict[str, Any] = {}
    for name, value in {**recipe.settings, **settings}.items():
        if name not in known:
            raise Refused(f"no knob {name!r} on ninfer; there are {', '.join(sorted(known))}")
        knob = known[name]
        if value is not None and knob.flag:
            found[knob.flag] = legal(knob, value, f"{name} ({knob.flag})")
    return found


def _depth(dial: Dial, options: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """The options with this depth's speculation; at 0 without any flag of speculation."""
    low, high = dial_range(dial)
    if depth == 0:
        return {name: value for name, value in options.items() if name not in SPECULATION and name not in dial.flags}
    if not low <= depth <= high:
        near = 0 if depth < 0 else high
        raise Refused(
            f"depth {depth}: --spec {dial.kind} requires --draft-tokens in [{low},{high}], 0 is no speculation; "
            f"nearest {near}"
        )
    spec = {"--spec": dial.kind, "--draft-tokens": depth}
    if own := [name for name in spec if name in dial.flags]:
        raise Refused(f"dial.flags: {own[0]} is what the dial sets; take it out")
    extra = {
        name: legal(BY_FLAG[name], value, name) if name in BY_FLAG else value for name, value in dial.flags.items()
    }
    return {**options, **spec, **{name: value for name, value in extra.items() if name not in spec}}


def legal(knob: Knob, value: Any, where: str) -> Any:
    """`value` as the server takes it, or a refusal with its rule, the legal range and the nearest legal value."""
    why = f": {knob.rule}" if knob.rule else ""
    if knob.flag == "--kv-capacity" and value == "auto":
        return value
    if knob.type == "bool":
        if not isinstance(value, bool):
            raise Refused(f"{where} is {value!r}, but it is true or false{why}")
        return value
    if knob.type == "choice":
        if value not in knob.choices:
            raise Refused(f"{where} is {value!r}{why}; legal: {', '.join(map(str, knob.choices))}")
        return value
    if knob.type == "text":
        return str(value)
    return _number(knob, value, where, why)


def _number(knob: Knob, value: Any, where: str, why: str) -> int | float:
    try:
        figure = float(value)
        whole = not isinstance(value, bool) and math.isfinite(figure) and (knob.type != "int" or figure == int(figure))
    except (TypeError, ValueError, OverflowError):
        whole = False
    if not whole:
        raise Refused(f"{where} is {value!r}, but it is {'a whole' if knob.type == 'int' else 'a'} number{why}")
    near = figure if knob.low is None else max(figure, knob.low)
    near = near if knob.high is None else min(near, knob.high)
    if knob.flag == "--prefill-chunk":
        near = max(CHUNK, CHUNK * round(near / CHUNK))
    if near != figure:
        low = "" if knob.low is None else f"{knob.low:g}"
        high = "" if knob.high is None else f"{knob.high:g}"
        span = "a multiple of 128" if knob.flag == "--prefill-chunk" else f"{low}..{high}"
        raise Refused(f"{where} is {value}{why}; legal: {span}, nearest {near:.10g}")
    return int(figure) if knob.type == "int" else figure


def _check(options: Mapping[str, Any]) -> None:
    """Rules between options."""
    context, pool = options.get("--max-context", 8192), options.get("--kv-capacity")
    if isinstance(pool, int) and pool < context:
        raise Refused(
            f"--kv-capacity {pool}: --kv-capacity must be at least --max-context ({context}); nearest {context}"
        )
    if options.get("--no-prefix-reuse") is True and (both := [name for name in CACHE_OPTIONS if name in options]):
        raise Refused(
            f"--no-prefix-reuse cannot be combined with context-cache capacity options: drop it or {', '.join(both)}"
        )
    kind = options.get("--spec", "none")
    if kind == "none":
        for name in SPECULATION[1:]:
            if options.get(name) is not None and options[name] is not False:
                kinds = "|".join(DEPTHS)
                raise Refused(f"{name}: --draft-tokens and --lm-head-draft require --spec {kinds}; take it out")
        return
    if kind not in DEPTHS:
        raise Refused(f"--spec {kind}: invalid speculative backend; legal: none, {', '.join(DEPTHS)}")
    low, high = DEPTHS[kind]
    tokens = options.get("--draft-tokens")
    if not isinstance(tokens, int) or isinstance(tokens, bool) or not low <= tokens <= high:
        near = high if isinstance(tokens, int) and tokens > high else low
        raise Refused(
            f"--draft-tokens {tokens}: --spec {kind} requires --draft-tokens in [{low},{high}]; nearest {near}"
        )


def _words(option: str, value: Any) -> list[str]:
    if value is True:
        return [option]
    if value is False or value is None:
        return []
    return [option, str(value)]
