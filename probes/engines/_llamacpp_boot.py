"""One start of a llama-server as its log tells it: model, contexts, caches, slots, speculators.

Keeps the target's cache apart from the draft's and the window's, so that a capacity is never their sum. No decisions
about load; what the numbers amount to is in `_llamacpp_capacity`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from probes.engines._llamacpp_lines import Line
from probes.events import Kind

MIB = 1 << 20
Said = tuple[Kind, dict[str, Any]]
Phase = Literal["booting", "ready", "failed", "exited"]


@dataclass(slots=True)
class Cache:
    """One attention cache: `cells` are per stream."""

    line: int
    cells: int
    streams: int
    size: int
    window: bool


@dataclass(slots=True)
class Context:
    """One llama_context: the target's, or the draft's."""

    line: int
    caches: list[Cache] = field(default_factory=list)
    settings: dict[str, tuple[int, int]] = field(default_factory=dict)
    """n_ctx, n_batch, …: value and line. kv_unified is 0 or 1."""
    buffers: int = 0
    """KV bytes summed over devices."""
    total: tuple[int, int] | None = None
    """KV bytes as told in one sum by older builds, and the line."""
    old_cells: tuple[int, int] | None = None
    recurrent: tuple[int, int, int] | None = None
    """Sequences, bytes, line."""
    working: int = 0
    """Compute and output buffers, bytes."""


@dataclass(slots=True)
class Start:
    """A start of the server, as far as told."""

    line: int
    phase: Phase = "booting"
    model: str | None = None
    version: str | None = None
    contexts: list[Context] = field(default_factory=list)
    target_done: bool = False
    """The target's context is complete: what follows belongs to a draft."""
    drafting: bool = False
    """A draft model is being loaded."""
    draft_loaded: int = 0
    weights: int = 0
    weights_line: int = 0
    draft_weights: int = 0
    window_next: bool = False
    slots: int | None = None
    slots_line: int = 0
    slot_context: int | None = None
    slot_context_line: int = 0
    uncapped: tuple[int, int] | None = None
    """What a slot's context would be if the server hadn't capped it, and the line that says so."""
    slot_share: bool = False
    """The slot's context was told as `n_ctx_slot` of a new slot, which in those builds is its share of the whole."""
    unified: bool | None = None
    old_slots: dict[int, int] = field(default_factory=dict)
    auto_slots: tuple[int, bool] | None = None
    speculators: dict[str, dict[str, Any]] = field(default_factory=dict)
    no_speculators: int = 0
    resets: list[tuple[int, str]] = field(default_factory=list)
    """Lines that say a setting was changed by the server."""

    @property
    def target(self) -> Context | None:
        """The target model's context: the first one of the last load before any draft."""
        return self.contexts[0] if self.contexts else None


_BUILD = re.compile(r"\bbuild:? ?(\d{1,15}) \((\w+)\) with|\bversion: (\d{1,15}) \((\w+)\)")
_SLOTS = re.compile(
    r"initializing(?: slots)?, n_slots = (\d{1,15})(?:, n_ctx_slot = (\d{1,15}), kv_unified = '(true|false)')?\s*$"
)
_NEW_SLOT = re.compile(r"new slot,? n_ctx(?:_slot)? = (\d{1,15})\s*(?:$|\sslot )")
_CAPPED = re.compile(
    r"capping per-slot context \((\d{1,15})\) to "
    r"|the slot context \((\d{1,15})\) exceeds the training context of the model \(\d{1,15}\) - capping"
)
_OLD_SLOT = re.compile(r"\b(?:id_slot|slot_id)=(\d{1,15})\b")
_OLD_SHARE = re.compile(r"\bn_ctx_slot=(\d{1,15})\b")
_OLD_SLOTS = re.compile(r"\bn_slots=(\d{1,15})\b")
_OLD_BUILD = re.compile(r"\bbuild=(\d{1,15}) commit=\"?(\w+)")
_OLDEST_SLOT = re.compile(r"-> Slot (\d{1,15}) - max context: (\d{1,15})\s*$")
_AUTO = re.compile(r"n_parallel is set to auto, using n_parallel = (\d{1,15}) and kv_unified = (true|false)")
_CACHE = re.compile(
    r"size =\s*(\d{1,12}(?:\.\d{1,6})?) MiB \(\s*(\d{1,15}) cells,\s*\d+ layers,\s*(\d{1,15})(?:/\s*(\d{1,15}))? seqs\)"
)
_BUFFER = re.compile(
    r" *(\S{1,80}) +(?:(KV|RS|model|compute|output|input) +)?buffer size += +(\d{1,12}(?:\.\d{1,6})?) MiB"
)
_SELF_SIZE = re.compile(r"KV self size\s*=\s*(\d{1,12}(?:\.\d{1,6})?) MiB")
_RECURRENT = re.compile(r"size =\s*(\d{1,12}(?:\.\d{1,6})?) MiB \(\s*(\d{1,15}) cells,\s*\d+ layers,\s*(\d{1,15}) seqs")
_SETTING = re.compile(
    r"(n_ctx|n_ctx_seq|n_ctx_per_seq|n_batch|n_ubatch|n_seq_max|kv_unified)\s*=\s*(\d{1,15}|true|false)\s*$"
)
_OLD_SIZE = re.compile(r"(?:kv_size|n_ctx) = (\d{1,15}), ")
_MODEL = re.compile(r"loading model '([^']*)'")
_IMPLEMENTATION = re.compile(r"adding speculative implementation '([\w.-]+)'")
_PARAMETER = re.compile(
    r"\b(n_max|n_min|p_min|size_n|size_m|size_key|size_value|min_hits|n_match|n_draft)\s*=\s*(\d{1,9}(?:\.\d{1,9})?)"
)
_DEPTHS = ("n_max", "size_m", "size_value", "n_draft")
_CHANGED = re.compile(
    r"not supported|will be disabled|disabling|capping|rounding down|to avoid assertion|clamping to"
    r"|failed to fit params|context size reduced|ignor(?:ed|ing)|forc(?:ed|ing) "
    r"|possible training|no effect|falling back|overrid"
)


def begins(line: Line) -> bool:
    """Whether this is one of the first lines that a start writes."""
    text = line.message
    return (
        text.startswith(("loading model '", "device_info", "system_info", "initializing ...", "binding port", "build "))
        or "common_params_print_info" in text
        or "threads for HTTP server" in text
        or line.label in {"build", "system_info"}
    )


def read(start: Start, line: Line) -> Iterator[Said]:
    """Take one boot line in; what it says as (kind, fields)."""
    label = line.label
    if label.startswith("llama_kv_cache"):
        yield from _cache(start, line)
    elif label.startswith(("llama_context", "llama_new_context", "llama_init_from")):
        yield from _context(start, line)
    elif label in {"load_tensors", "llm_load_tensors", "sched_reserve", "graph_reserve", "llama_build_graph"}:
        yield from _buffers(start, line)
    elif label.startswith("llama_memory_recurrent"):
        yield from _recurrent(start, line)
    elif label.startswith(("spec", "common_specu")):
        yield from _speculator(start, line)
    else:
        yield from _server(start, line)


def _server(start: Start, line: Line) -> Iterator[Said]:
    text = line.message
    if "n_slots" in text:
        found = _SLOTS.match(text)
        if found:
            start.slots, start.slots_line = int(found[1]), line.number
            if found[2]:
                start.slot_context, start.slot_context_line = int(found[2]), line.number
                start.unified = found[3] == "true"
            start.target_done = True
            yield "capacity", _slot_fields(start)
    elif "capping" in text and (capped := _CAPPED.search(text)):
        start.uncapped = int(capped[1] or capped[2]), line.number
        start.resets.append((line.number, text.strip()[:300]))
    elif line.pairs and text.startswith("initializing slots"):
        found = _OLD_SLOTS.search(line.pairs)
        if found:
            start.slots, start.slots_line = int(found[1]), line.number
            yield "capacity", _slot_fields(start)
    elif line.pairs and text.startswith("build info"):
        found = _OLD_BUILD.search(line.pairs)
        if found:
            start.version = f"b{found[1]} ({found[2]})"
            yield "boot", {"version": start.version}
    elif "new slot" in text or text.startswith("-> Slot "):
        yield from _new_slot(start, line)
    elif "n_parallel is set to auto" in text:
        found = _AUTO.match(text)
        if found:
            start.auto_slots = int(found[1]), found[2] == "true"
            yield "boot", {"lanes": int(found[1]), "kv_unified": found[2] == "true"}
    elif text.startswith("loading model '"):
        found = _MODEL.match(text)
        if found:
            start.model = found[1]
            version = {"version": start.version} if start.version else {}
            yield "boot", {"model": found[1], **version}
    elif text.startswith("loading draft model"):
        _draft(start, line)
    elif "warming up the model" in text:
        start.target_done = True
    elif "build" in text or line.label in {"build", "version"}:
        found = _BUILD.search(line.body)
        if found:
            number, commit = (found[1], found[2]) if found[1] else (found[3], found[4])
            # Builds outside the project's own release count as 0 or 1: only the commit says which they are.
            start.version = f"b{number} ({commit})" if int(number) > 1 else f"commit {commit}"
            yield "boot", {"version": start.version}
    elif (line.level == "W" or "_fit" in line.label) and _CHANGED.search(text):
        start.resets.append((line.number, text.strip()[:300]))


def _slot_fields(start: Start) -> dict[str, Any]:
    fields: dict[str, Any] = {"lanes": start.slots}
    if start.slot_context is not None:
        fields |= {"ctx_slot": start.slot_context, "kv_unified": start.unified}
    batch = start.target.settings.get("n_batch") if start.target else None
    if batch:
        fields["n_batch"] = batch[0]
    return fields


def _new_slot(start: Start, line: Line) -> Iterator[Said]:
    oldest = _OLDEST_SLOT.match(line.message)
    found = _NEW_SLOT.search(line.message)
    slot = re.search(r"id\s+(\d{1,15}) \|", line.message)
    if found and slot:
        number, tokens = int(slot[1]), int(found[1])
    elif oldest:
        number, tokens = int(oldest[1]), int(oldest[2])
    else:
        old, share = _OLD_SLOT.search(line.pairs), _OLD_SHARE.search(line.pairs)
        if not old or not share:
            return
        number, tokens = int(old[1]), int(share[1])
    start.old_slots[number] = line.number
    start.slot_share = "n_ctx_slot" in line.body
    if start.slot_context is None:
        start.slot_context, start.slot_context_line = tokens, line.number
    yield from ()


def _here(start: Start, line: Line) -> Context:
    if not start.contexts:
        start.contexts.append(Context(line.number))
    return start.contexts[-1]


def _context(start: Start, line: Line) -> Iterator[Said]:
    text = line.message
    if text.startswith("constructing"):
        start.contexts.append(Context(line.number))
        return
    if "buffer size" in text:
        yield from _buffers(start, line)
        return
    found = _SETTING.match(text)
    if found:
        here = _here(start, line)
        # Builds before mid-2025 open a context without saying so: its sizes start again with n_seq_max or n_ctx.
        if found[1] in here.settings and found[1] in {"n_seq_max", "n_ctx"} and (here.caches or here.buffers):
            here = Context(line.number)
            start.contexts.append(here)
        value = int(found[2]) if found[2].isdigit() else int(found[2] == "true")
        here.settings[found[1]] = value, line.number
        return
    found = _SELF_SIZE.search(text)
    if found:
        size = round(float(found[1]) * MIB)
        _here(start, line).total = size, line.number
        yield "pool", {"kv_bytes": size}


def _buffers(start: Start, line: Line) -> Iterator[Said]:
    if line.message.startswith("loading model tensors") and not start.target_done and not start.drafting:
        start.contexts.clear()  # a first load only to measure memory: what it built is gone
        start.weights = 0
    found = _BUFFER.match(line.message)
    if not found:
        return
    size = round(float(found[3]) * MIB)
    if found[2] == "model" or (found[2] is None and line.label == "llm_load_tensors"):
        if start.drafting:
            start.draft_weights += size
        else:
            start.weights += size
            start.weights_line = line.number
        yield "weights", {"device": found[1], "weights_bytes": size, "draft": start.drafting}
    elif found[2] in {"compute", "output", "input"}:
        _here(start, line).working += size


def _cache(start: Start, line: Line) -> Iterator[Said]:
    text = line.message
    if text.startswith("creating"):
        start.window_next = "non-SWA" not in text
        return
    here = _here(start, line)
    found = _CACHE.match(text)
    if found:
        size = round(float(found[1]) * MIB)
        # `seqs a/b` is sequences/streams; builds before that printed one number and kept one stream.
        cache = Cache(line.number, int(found[2]), int(found[4] or 1), size, start.window_next)
        start.window_next = False
        if cache.cells:
            here.caches.append(cache)
        draft = start.drafting or len(start.contexts) > 1
        yield "pool", {"cells": cache.cells, "streams": cache.streams, "kv_bytes": size, "window": cache.window,
                       "draft": draft}  # fmt: skip
        return
    found = _BUFFER.match(text)
    if found:
        here.buffers += round(float(found[3]) * MIB)
        return
    found = _OLD_SIZE.search(text)
    if found and here.old_cells is None:
        here.old_cells = int(found[1]), line.number


def _recurrent(start: Start, line: Line) -> Iterator[Said]:
    found = _RECURRENT.search(line.message)
    if found:
        size = round(float(found[1]) * MIB)
        _here(start, line).recurrent = int(found[2]), size, line.number
        yield "pool", {"state_slots": int(found[2]), "state_bytes": size}


def _draft(start: Start, line: Line) -> None:
    start.drafting = start.target_done = True
    start.draft_loaded = line.number


def _speculator(start: Start, line: Line) -> Iterator[Said]:
    text = line.message
    if line.level == "W":
        start.resets.append((line.number, text.strip()[:300]))
    elif text.startswith(("loading draft model", "creating MTP draft context")):
        _draft(start, line)
    elif text.startswith("adding speculative implementation"):
        found = _IMPLEMENTATION.match(text)
        if found:
            start.speculators[found[1]] = {"line": line.number}
            yield "boot", {"spec_type": found[1]}
    elif text.startswith("no implementations specified"):
        start.no_speculators = line.number
    elif text.startswith("- ") and start.speculators:
        name = next(reversed(start.speculators))
        known = start.speculators[name]
        for key, value in _PARAMETER.findall(text):
            known.setdefault(key, float(value) if "." in value else int(value))
        depth = next((known[key] for key in _DEPTHS if key in known), None)
        if depth is not None and "depth" not in known:
            known["depth"] = depth
            yield "boot", {"spec_type": name, **{k: v for k, v in known.items() if k != "line"}}
