"""The exact command line of an SGLang server for a preset, its settings and a draft depth; refusals before a start.

A depth is the number of drafted tokens in a step. The verify window D is one more (the bonus token): EAGLE and its kin
take steps = depth and D = depth + 1 with top-k 1, DSPARK its block size = depth, DFLASH its block size = D, NGRAM D.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from probes.engines._sglang_knobs import KNOBS
from probes.recipe import Dial, Knob, Recipe, Refused

STEPPED = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")
KINDS = (*STEPPED, "DSPARK", "DFLASH", "NGRAM")
NEEDS_DRAFT = frozenset({"EAGLE3", "STANDALONE", "DFLASH"})
ALGORITHM, STEPS, TOPK = "--speculative-algorithm", "--speculative-num-steps", "--speculative-eagle-topk"
WINDOW, GAMMA, BLOCK = (
    "--speculative-num-draft-tokens", "--speculative-dspark-block-size", "--speculative-dflash-block-size",
)  # fmt: skip
DRAFT = "--speculative-draft-model-path"
ALIASES = {
    "--model": "--model-path", "--speculative-draft-model": DRAFT, "--speculative-algo": ALGORITHM, "--tp-size": "--tp",
    "--tensor-parallel-size": "--tp", "--dp-size": "--dp", "--data-parallel-size": "--dp", "--pp-size": "--pp",
    "--pipeline-parallel-size": "--pp",
}  # fmt: skip
TREE_BACKENDS = ("flashinfer", "fa3", "triton")


def canonical(option: str) -> str:
    """One spelling for an option that has several."""
    return ALIASES.get(option, option)


def kind_of(dial: Dial) -> str:
    """The algorithm as the engine writes it; raises `Refused` for one that the dial can't turn."""
    kind = dial.kind.upper()
    if kind not in KINDS:
        raise Refused(
            f"dial: {dial.kind!r} is no speculation whose depth can be set on SGLang; there are {', '.join(KINDS)}"
        )
    return kind


def window_of(kind: str, depth: int, topk: int = 1, given: int | None = None) -> int:
    """The verify window D of a depth: tokens checked in one step, the bonus token included."""
    return given if topk > 1 and given is not None and kind in STEPPED else depth + 1


def command(recipe: Recipe, settings: Mapping[str, Any], depth: int | None, port: int) -> list[str]:
    """The exact argv, binary first. `depth` None: no dial, speculation is what the fixed flags say."""
    options = _fixed(recipe, turned=depth is not None)
    for option, value in _from_settings(recipe, settings, spec=depth != 0).items():
        options = {o: v for o, v in options.items() if canonical(o) != canonical(option)}
        options[option] = value
    if depth is not None:
        if depth < 0:
            raise Refused(f"depth is {depth}; legal: 0 (no speculation) or more drafted tokens, nearest 0")
        options = _depth(recipe.dial, options, depth) if depth else _without(options)
    spoken = {canonical(option): value for option, value in options.items()}
    _check(spoken)
    argv = [recipe.binary]
    if PurePath(recipe.binary).name.startswith("python"):
        argv += ["-m", "sglang.launch_server"]
    elif PurePath(recipe.binary).name == "sglang":
        argv.append("serve")
    argv += ["--model-path", recipe.model, "--host", recipe.host, "--port", str(port)]
    for option, value in options.items():
        argv += _words(option, value)
    if "--enable-metrics" not in spoken:
        argv.append("--enable-metrics")
    if "--decode-log-interval" not in spoken:
        argv += ["--decode-log-interval", "10"]
    return argv


def _words(option: str, value: Any) -> list[str]:
    if value is True:
        return [option]
    if value is False or value is None:
        return []
    if isinstance(value, (list, tuple)):
        return [option, *map(str, value)]
    return [option, str(value)]


def _without(options: Mapping[str, Any]) -> dict[str, Any]:
    """Depth 0: nothing that belongs to speculation is said."""
    return {option: value for option, value in options.items() if not option.startswith("--speculative-")}


def _fixed(recipe: Recipe, *, turned: bool) -> dict[str, Any]:
    """The preset's fixed flags, checked for what others own."""
    owned = {
        "--port": "`port:` of the preset", "--host": "`host:` of the preset", "--model-path": "`model:` of the preset",
    }  # fmt: skip
    if turned:
        owned |= dict.fromkeys((ALGORITHM, STEPS, GAMMA, BLOCK), "the dial")
        owned[WINDOW] = "the dial (with a tree, `dial.flags`)"
        owned["--speculative-adaptive"] = "nobody here: it would choose the depth itself"
    for option in recipe.flags:
        if (owner := owned.get(canonical(option))) is not None:
            raise Refused(f"flags: {option} is set by {owner}; take it out")
    return dict(recipe.flags)


def _from_settings(recipe: Recipe, settings: Mapping[str, Any], *, spec: bool) -> dict[str, Any]:
    """Options for the knobs that are set, each checked."""
    known = {knob.name: knob for knob in (*KNOBS, *recipe.knobs)}
    found: dict[str, Any] = {}
    for name, value in {**recipe.settings, **settings}.items():
        if name not in known:
            raise Refused(f"no knob {name!r} on SGLang; there are {', '.join(sorted(known))}")
        knob = known[name]
        if value is None or not knob.flag or (not spec and knob.flag.startswith("--speculative-")):
            continue
        found[knob.flag] = _legal(knob, value)
    return found


def _legal(knob: Knob, value: Any) -> Any:
    """`value` as the knob takes it, or a refusal with what is legal and what is nearest."""
    where, why = f"{knob.name} ({knob.flag})", f": {knob.rule}" if knob.rule else ""
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
    whole = knob.type == "int"
    if isinstance(value, bool) or not isinstance(value, (int, float)) or (whole and int(value) != value):
        raise Refused(f"{where} is {value!r}, but it is a {'whole ' if whole else ''}number{why}")
    nearest = value if knob.low is None else max(value, knob.low)
    nearest = nearest if knob.high is None else min(nearest, knob.high)
    if nearest != value:
        low, high = ("" if bound is None else f"{bound:g}" for bound in (knob.low, knob.high))
        raise Refused(f"{where} is {value}; legal {low}..{high}, nearest {nearest:g}{why}")
    return int(value) if whole else value


def _depth(dial: Dial, options: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """All options with those that make this depth."""
    kind = kind_of(dial)
    merged = {**dial.flags, **options}
    spoken = {canonical(option): value for option, value in merged.items()}
    for option in (ALGORITHM, STEPS, GAMMA, BLOCK):
        if option in spoken:
            raise Refused(f"dial.flags: {option} is what the dial sets; take it out")
    if kind in NEEDS_DRAFT and DRAFT not in spoken:
        raise Refused(f"dial.flags: {kind} needs {DRAFT}")
    given = _number(spoken.get(WINDOW))
    if kind in STEPPED:
        return {**merged, ALGORITHM: kind, **_stepped(spoken, depth, given)}
    if given is not None and given != depth + 1:
        raise Refused(f"{WINDOW} is {given} at depth {depth}; {kind} needs {depth + 1}, the depth and the bonus token")
    if kind == "NGRAM":
        return {**merged, ALGORITHM: kind, WINDOW: depth + 1}
    if kind == "DFLASH":
        draft_window = _number(spoken.get("--speculative-draft-window-size"))
        if draft_window is not None and draft_window < depth + 1:
            raise Refused(
                f"draft_window_size {draft_window} at depth {depth}; DFLASH needs its block size or more, {depth + 1}"
            )
        return {**merged, ALGORITHM: kind, BLOCK: depth + 1}
    return {**merged, ALGORITHM: kind, GAMMA: depth}


def _stepped(spoken: Mapping[str, Any], depth: int, given: int | None) -> dict[str, Any]:
    """Steps, top-k and window go together: one without the others is a bare assertion inside the engine."""
    topk = _number(spoken.get(TOPK)) or 1
    if topk == 1:
        if given is not None and given != depth + 1:
            raise Refused(f"{WINDOW} is {given} at depth {depth}; with top-k 1 the engine forces {depth + 1}")
        return {STEPS: depth, TOPK: 1, WINDOW: depth + 1}
    if given is None:
        raise Refused(f"{TOPK} is {topk}: a tree needs {WINDOW} in dial.flags; legal from {depth + 1}")
    if given <= depth:
        raise Refused(
            f"{WINDOW} is {given} at depth {depth}; the tree must hold one whole path, legal from {depth + 1}"
        )
    backend, page = spoken.get("--attention-backend"), _number(spoken.get("--page-size")) or 1
    if backend == "trtllm_mha" or (page > 1 and backend is not None and backend not in TREE_BACKENDS):
        raise Refused(
            f"{TOPK} is {topk}: with page size {page} trees work on {', '.join(TREE_BACKENDS)}, not {backend}"
        )
    return {STEPS: depth, TOPK: topk, WINDOW: given}


def step_drafts(recipe: Recipe, depth: int | None) -> int | None:
    """Drafts that each step verifies; None without speculation, or where the server sends several steps at once."""
    spoken = {canonical(option): value for option, value in {**recipe.dial.flags, **recipe.flags}.items()}
    if not depth or spoken.get("--stream-interval", 1) not in {1, "1"} or recipe.dial.kind.upper() not in KINDS:
        return None
    return window_of(kind_of(recipe.dial), depth, _number(spoken.get(TOPK)) or 1, _number(spoken.get(WINDOW))) - 1


def _number(value: Any) -> int | None:
    if isinstance(value, str) and value.lstrip("-").isdecimal():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _check(spoken: Mapping[str, Any]) -> None:
    """Rules of the engine that join several options; it finds most of them only after minutes of loading."""
    kind = str(spoken.get(ALGORITHM) or "").upper()
    page, chunk = _number(spoken.get("--page-size")), _number(spoken.get("--chunked-prefill-size"))
    if page and chunk and chunk > 0 and chunk % page:
        near = max(chunk // page, 1) * page
        raise Refused(f"chunked_prefill_size is {chunk}, no multiple of the page size {page}; nearest {near}")
    if "--cuda-graph-max-bs" in spoken and "--cuda-graph-max-bs-decode" in spoken:
        raise Refused(
            "--cuda-graph-max-bs (until 0.5.19) and --cuda-graph-max-bs-decode (from 0.5.14) are one option: give one"
        )
    ways, replicas = _number(spoken.get("--attn-dp-size")) or 1, _number(spoken.get("--dp")) or 1
    if ways > 1 and replicas > 1:
        raise Refused("--dp-size and --attn-dp-size are both above 1: the engine does not combine them")
    shared = ways > 1 or bool(spoken.get("--enable-dp-attention"))
    if shared and kind in {"STANDALONE", "NGRAM"}:
        raise Refused(f"{kind} does not work with attention data parallelism")
    if shared and kind == "DSPARK" and not spoken.get("--enable-dp-lm-head"):
        raise Refused("DSPARK with attention data parallelism needs --enable-dp-lm-head")
    if kind in {"DSPARK", "DFLASH"} and (_number(spoken.get("--pp")) or 1) > 1:
        raise Refused(f"{kind} needs pipeline size 1")
    if spoken.get("--mamba-radix-cache-strategy") == "no_buffer" and (page or 1) > 1:
        raise Refused(f"mamba_radix_cache_strategy no_buffer needs page size 1, not {page}")
    if spoken.get("--speculative-use-rejection-sampling") and kind:
        thresholds = (spoken.get(f"--speculative-accept-threshold-{t}", 1.0) for t in ("single", "acc"))
        if (
            kind not in {"EAGLE", "EAGLE3"}
            or (_number(spoken.get(TOPK)) or 1) > 1
            or any(str(t) not in {"1", "1.0"} for t in thresholds)
        ):
            raise Refused("use_rejection_sampling needs EAGLE or EAGLE3 with top-k 1 and both accept thresholds at 1.0")
    if (
        spoken.get("--speculative-use-block-verification")
        and kind
        and kind not in {"EAGLE", "EAGLE3", "DFLASH", "DSPARK"}
    ):
        raise Refused(f"use_block_verification needs EAGLE, EAGLE3, DFLASH or DSPARK, not {kind}")


def environment(recipe: Recipe) -> dict[str, str]:
    """What the preset says, and stamps with milliseconds (from 0.5.8; older servers ignore it)."""
    for name in ("SGLANG_SIMULATE_ACC_LEN", "SGLANG_TEST_RETRACT"):
        if str(recipe.env.get(name, "0")).strip().lower() not in {"", "0", "-1", "-1.0", "false"}:
            raise Refused(f"env: {name} makes the server fake what is to be measured; take it out")
    return {"SGLANG_LOG_MS": "1", **recipe.env}
