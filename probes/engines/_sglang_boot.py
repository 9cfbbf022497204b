"""SGLang's start-up lines: what each tells, filed under the start it belongs to.

Extras of the records besides canonical fields: on `boot` the arguments under the engine's own names, `delayer` (a
prefill delay is switched on) and `num_draft_tokens`; on `capacity` `lanes`, `capped_by` (state, kv),
`requested_lanes`, `cap_to`, `state_slots`, `state_slots_per_request`, `default_lanes`, `num_draft_tokens`; on `weights`
and `pool` sizes in bytes (`free_bytes`, `weights_bytes`, `kv_bytes`, `state_bytes`, `graph_bytes`), `pool_tokens`,
`graph_max_batch`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from probes.engines._sglang_accept import Acceptance, Era
from probes.engines._sglang_lines import GIB, arguments
from probes.engines._sglang_start import Pool, RankFacts, Start
from probes.events import Kind, Rank


class Told(NamedTuple):
    """A start-up event: what kind of record it is, its fields, and what its copies on other ranks share."""

    kind: Kind
    fields: dict[str, Any]
    key: Hashable


class Line(NamedTuple):
    """One start-up message on its way: where it stands and what it belongs to."""

    number: int
    text: str
    rank: Rank | None
    start: Start
    accept: Acceptance
    era: Era

    @property
    def facts(self) -> RankFacts:
        """What is known of the rank that printed this."""
        return self.start.rank(self.rank)


_GB = r"(\d{1,12}\.\d{1,9}) ?GB"
_AVAIL = re.compile(r"avail mem=" + _GB)
_USED = re.compile(r"mem usage=" + _GB)
_TOKENS = re.compile(r"#tokens: (-?\d{1,15})(?=,)")
_SIZES = re.compile(r"\b(?:K|V|KV) size: " + _GB)
_STATE = re.compile(r"(\w+) size: " + _GB)
_SLOTS = re.compile(r"max_mamba_cache_size: (\d{1,15})(?=,)")
_SWA = re.compile(r"full size: (\d{1,15})")
_NAMED = re.compile(
    r"(max_total_num_tokens|chunked_prefill_size|max_prefill_tokens|max_running_requests)=(-?\d{1,15})(?=,)"
)
_CONTEXT = re.compile(r"context_len=(\d{1,15})(?=,|\s|\Z)")
_LEFT = re.compile(r"available_gpu_mem=" + _GB)
_RESET = re.compile(r"reset to (\d{1,15}) for speculative decoding")
CAP = re.compile(
    r"capped to (\d{1,9}) by the mamba state cache\s{1,40}"
    r"\(max_mamba_cache_size=(\d{1,9}), (\d{1,9}) state\s+slots\s+per\s+request\)"
)
_REDUCED = re.compile(r"reduced from the requested (\d{1,15}) to (\d{1,15}) ")
_PROFILED = re.compile(r"max_total_tokens=(\d{1,15}) is larger than the profiled value (-?\d{1,15})\.")
_WINDOW = re.compile(r"(?:verify_num_draft_tokens|num_draft_tokens)=(\d{1,15})(?=[,.\s]|\Z)")
_GAMMA = re.compile(r"\bgamma=(\d{1,15})(?=,)")
_BLOCK = re.compile(r"\bblock_size=(\d{1,15})(?=[,.\s]|\Z)")
_PER_REQUEST = re.compile(r"num_tokens_per_req=(\d{1,15})(?=,)")
_BATCHES = re.compile(r"\bbs ?=? ?\[([\d, .]{1,4000})\]")
_POST = re.compile(r"full_layer_tokens=(\d{1,15})(?=[,.\s])")
_DSV4 = re.compile(r"\bfull=(\d{1,15})(?=,)")


def _dp(rank: Rank | None) -> int | None:
    return rank.get("DP") if rank else None


def _gib(found: re.Match[str] | None) -> int | None:
    return round(float(found[1]) * GIB) if found else None


def server_args(line: Line) -> Told | None:
    """The flags of a start, as resolved before workers run: requested values, not what memory allows."""
    args = arguments(line.text)
    start = line.start
    start.args, start.args_line = args, line.number
    fields: dict[str, Any] = dict(args)
    if args.get("enable_prefill_delayer"):
        fields["delayer"] = True
    if args.get("speculative_algorithm"):
        line.accept.asked = True
        window = args.get("speculative_num_draft_tokens")
        if window is None and isinstance(args.get("speculative_dspark_block_size"), int):
            window = args["speculative_dspark_block_size"] + 1
        window = window if window is not None else args.get("speculative_dflash_block_size")
        if isinstance(window, int):
            line.accept.window = fields["num_draft_tokens"] = window
        steps = args.get("speculative_num_steps")
        line.accept.steps = steps if isinstance(steps, int) else None
        line.accept.adaptive = bool(args.get("speculative_adaptive"))
    if isinstance(args.get("disable_radix_cache"), bool):
        start.radix = not args["disable_radix_cache"]
    for name, version in (("speculative_dspark_block_size", "0.5.16"), ("attn_dp_size", "0.5.22")):
        if f" {name}=" in line.text:
            line.era.since(version)
    return Told("boot", fields, ("args", line.number))


def limits(line: Line) -> Told | None:
    """The line that ends sizing: `max_total_num_tokens=…`, effective values of one rank."""
    facts = line.facts
    fields: dict[str, Any] = {}
    for name, value in _NAMED.findall(line.text):
        facts.said[name] = (int(value), line.number)
        fields[name] = int(value)
    if (context := _CONTEXT.search(line.text)) is not None:
        facts.said["context_len"] = (int(context[1]), line.number)
        fields["context_len"] = int(context[1])
    left = _gib(_LEFT.search(line.text))
    if left is not None:
        facts.said["available_gpu_mem"] = (left, line.number)
        fields["free_bytes"] = left
        line.era.since("0.4.7")
    if not fields:
        return None
    if "max_running_requests" in fields:
        fields["lanes"] = fields["max_running_requests"]
    if "max_total_num_tokens" in fields:
        fields["pool_tokens"] = fields["max_total_num_tokens"]
    key = ("limits", _dp(line.rank), fields.get("pool_tokens"), fields.get("lanes"))
    return Told("capacity", fields, key)


def kv_pool(line: Line) -> Told | None:
    """A pool of keys and values: of the target model, a window of it, or the draft model."""
    found = _TOKENS.search(line.text)
    if found is None or "VA upper bound" in line.text:
        return None  # a reservation of addresses is no memory
    sizes = [round(float(s) * GIB) for s in _SIZES.findall(line.text)]
    size = sum(sizes)
    line.facts.groups[-1].append(Pool(int(found[1]), size, line.number))
    if "dtype: " in line.text:
        line.era.since("0.5.13")
    if (left := _gib(_AVAIL.search(line.text))) is not None:
        line.facts.avail = (left, line.number)
    fields: dict[str, Any] = {"pool_tokens": int(found[1])}
    if sizes:
        fields["kv_bytes"] = size
    return Told("pool", fields, ("kv", _dp(line.rank), int(found[1]), tuple(sizes)))


def state_pool(line: Line) -> Told | None:
    """The recurrent states of a hybrid model: slots, and the copies for drafted tokens."""
    facts = line.facts
    fields: dict[str, Any] = {}
    if (slots := _SLOTS.search(line.text)) is not None:
        facts.states = (int(slots[1]), line.number)
        fields["state_slots"] = int(slots[1])
    sizes = {name: float(size) for name, size in _STATE.findall(line.text)}
    if sizes:
        facts.draft_state = sum(v for n, v in sizes.items() if n.startswith("intermediate"))
        facts.base_state = sum(sizes.values()) - facts.draft_state
        total = round(sum(sizes.values()) * GIB)
        facts.state_bytes = (total, line.number)
        fields["state_bytes"] = total
    line.era.since("0.5.4")
    return Told("pool", fields, ("state", _dp(line.rank), tuple(sorted(sizes.items())), fields.get("state_slots")))


def window_pool(line: Line) -> Told | None:
    """Of a sliding-window model: which of its two pools holds whole contexts."""
    found = _SWA.search(line.text)
    if found is None:
        return None
    line.facts.full_tokens = (int(found[1]), line.number)
    return Told("pool", {"pool_tokens": int(found[1])}, ("swa", _dp(line.rank), found[1]))


def sized_later(line: Line) -> Told | None:
    """Pools that are sized after graphs are captured, or by layer kind: the number that holds whole contexts."""
    found = _POST.search(line.text) or _DSV4.search(line.text)
    if found is None:
        return None
    line.facts.full_tokens = (int(found[1]), line.number)
    line.facts.groups[0] = line.facts.groups[0] or [Pool(int(found[1]), 0, line.number)]
    return Told("pool", {"pool_tokens": int(found[1])}, ("post", _dp(line.rank), found[1]))


def memory(line: Line) -> Told | None:
    """Free memory at a step of the start: weights, pools, graphs."""
    facts, text = line.facts, line.text
    left, used = _gib(_AVAIL.search(text)), _gib(_USED.search(text))
    fields: dict[str, Any] = {} if left is None else {"free_bytes": left}
    if "Load weight begin" in text:
        return Told("weights", fields, ("begin", _dp(line.rank), len(facts.weights)))
    if "Load weight end" in text:
        if used is not None:
            facts.weights.append((used, line.number))
            fields["weights_bytes"] = used
        if "Load weight end. elapsed=" in text:
            line.era.since("0.5.10")
        elif "Load weight end. type=" in text:
            line.era.until("0.5.9")
        return Told("weights", fields, ("end", _dp(line.rank), len(facts.weights)))
    if left is not None:
        facts.avail = (left, line.number)
    if "Memory pool end" in text:
        if facts.groups[-1]:
            facts.groups.append([])
        return Told("pool", fields, ("pools", _dp(line.rank), len(facts.groups)))
    if "Capture" in text:
        return _graphs(line, fields, used)
    return None


def _graphs(line: Line, fields: dict[str, Any], used: int | None) -> Told | None:
    """Graph capture: the largest batch that runs in a graph, and what graphs take."""
    text = line.text
    if "CUDA graph begin. backend" in text or "CUDA graph end. elapsed" in text:
        line.era.since("0.5.14")
    if (batches := _BATCHES.search(text)) is not None and ("decode" in text or "verify" in text or " bs [" in text):
        sizes = [int(n) for n in re.findall(r"\d{1,9}", batches[1])]
        if sizes and "draft" not in text:
            line.start.graph_max = max(sizes)
            fields["graph_max_batch"] = max(sizes)
    if "target verify" in text and (window := _PER_REQUEST.search(text)) is not None:
        _set_window(line, int(window[1]))
    if " end." in text and used is not None:
        line.facts.graphs += used
        fields["graph_bytes"] = used
    if not fields.keys() & {"graph_bytes", "graph_max_batch"}:
        return None
    return Told(
        "pool", fields, ("graph", _dp(line.rank), re.split(r"elapsed|avail mem|mem usage", text, maxsplit=1)[0])
    )


def graph_sizes(line: Line) -> Told | None:
    """The list of captured batch sizes, in the older wording."""
    return _graphs(line, {}, None)


def _set_window(line: Line, window: int) -> None:
    if window > 1:
        line.accept.window = line.start.window = window


def reset(line: Line) -> Told | None:
    """A default for an unset flag, announced as a reset."""
    found = _RESET.search(line.text)
    if found is None:
        return None
    line.start.reset = (int(found[1]), line.number)
    line.era.since("0.5.4")
    return Told("capacity", {"default_lanes": int(found[1])}, ("reset", found[1]))


def capped(line: Line) -> Told | None:
    """The one line that says that the state pool sets the number of running requests."""
    line.era.since("0.5.17")
    found = CAP.search(line.text)
    if found is None:
        return None
    lanes, slots, each = int(found[1]), int(found[2]), int(found[3])
    line.start.capped = (lanes, slots, each, line.number)
    fields = {
        "cap_to": lanes, "capped_by": "state", "state_slots": slots, "state_slots_per_request": each, "lanes": lanes,
    }  # fmt: skip
    return Told("capacity", fields, ("capped", _dp(line.rank), lanes, slots, each))


def reduced(line: Line) -> Told | None:
    """A cap that memory set; 0.5.14 to 0.5.16 blame the KV pool also when the state pool did it."""
    found = _REDUCED.search(line.text)
    if found is None:
        return None
    line.era.since("0.5.14")
    line.start.reduced = (int(found[1]), int(found[2]), line.number)
    fields: dict[str, Any] = {"requested_lanes": int(found[1]), "cap_to": int(found[2]), "lanes": int(found[2])}
    if (by := line.start.capped_by()) is not None:
        fields["capped_by"] = by
    return Told("capacity", fields, ("reduced", _dp(line.rank), found[1], found[2]))


def profiled(line: Line) -> Told | None:
    """A flag for tokens that asked for more than there is."""
    found = _PROFILED.search(line.text)
    if found is None:
        return None
    line.start.profiled = (int(found[1]), int(found[2]), line.number)
    fields = {"requested_tokens": int(found[1]), "profiled_tokens": int(found[2])}
    return Told("capacity", fields, ("profiled", _dp(line.rank), found[1], found[2]))


def draft_runner(line: Line) -> Told | None:
    """The draft runner's own word on the verify window."""
    window = _WINDOW.search(line.text)
    gamma, block = _GAMMA.search(line.text), _BLOCK.search(line.text)
    if window is None and gamma is None and block is None:
        return None
    size = int(window[1]) if window else int(gamma[1]) + 1 if gamma else int(block[1]) if block else 0
    _set_window(line, size)
    line.era.since("0.5.14")
    return Told("capacity", {"num_draft_tokens": size}, ("window", _dp(line.rank), size))


def tree_cache(line: Line) -> None:
    """Whether there is a prefix cache."""
    line.start.radix = "impl=ChunkCache" not in line.text
    line.era.since("0.5.13")


READERS: tuple[tuple[str, Callable[[Line], Told | None]], ...] = (
    ("server_args=", server_args),
    ("max_total_num_tokens=", limits),
    ("KV Cache is allocated", kv_pool),
    ("KV cache allocated", kv_pool),
    ("Mamba Cache is allocated", state_pool),
    ("SWAKVPool mem usage", window_pool),
    ("Post-capture KV sizing", sized_later),
    ("DSV4 pool sizes", sized_later),
    ("avail mem=", memory),
    ("Load weight", memory),
    ("Capture cuda graph bs", graph_sizes),
    ("for speculative decoding", reset),
    ("is capped to", capped),
    ("was reduced from the requested", reduced),
    ("larger than the profiled value", profiled),
    ("draft runner", draft_runner),
)
"""What to look for in a message, and who reads it then; the first that fits counts."""

NOTES: tuple[str, ...] = (
    "gamma is not set", "Disable DSpark draft cuda graph", "num_draft_tokens is adjusted", "is overridden to",
    "Mixed chunked prefill is disabled", "back to greedy", "simulate_acc_len", "SIMULATE_ACC_LEN",
)  # fmt: skip
"""Sentences that tell of a flag that did not take, or of speed lost without an error: passed on as warnings."""
