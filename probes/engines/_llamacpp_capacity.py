"""What a start of llama-server can hold, in tokens and in words, from what its boot lines said.

Slots times context is a pool only where every slot has its own share; one pool for all slots is seen by each in full.
"""

from __future__ import annotations

from typing import Any

from probes.engines._llamacpp_boot import MIB, Context, Start
from probes.events import Capacity, Warn


def capacity(start: Start) -> Capacity:
    """Of one start; fields that the log doesn't tell stay None. Per server: llama.cpp has no data-parallel ranks."""
    found: dict[str, Any] = {}
    lines: dict[str, int] = {}
    explain: list[str] = []
    _slots(start, found, lines)
    _pool(start, found, lines, explain)
    _bytes(start, found, lines, explain)
    if not found:
        return Capacity()
    return Capacity(**found, per="server", reserving=False, lines=lines, explain=tuple(explain))


def _slots(start: Start, found: dict[str, Any], lines: dict[str, int]) -> None:
    if start.slots is not None:
        found["lanes"], lines["lanes"] = start.slots, start.slots_line
    elif start.old_slots:
        found["lanes"], lines["lanes"] = len(start.old_slots), max(start.old_slots.values())
    if start.slot_context is not None:
        found["max_context"], lines["max_context"] = start.slot_context, start.slot_context_line
    batch = start.target.settings.get("n_batch") if start.target else None
    if batch:
        found["batch_tokens"], lines["batch_tokens"] = batch


def unified(start: Start) -> bool | None:
    """Whether all slots share one pool (None: the log doesn't say)."""
    if start.unified is not None:
        return start.unified
    context = start.target
    if context and "kv_unified" in context.settings:
        return bool(context.settings["kv_unified"][0])
    return start.auto_slots[1] if start.auto_slots else None


def cells(context: Context | None) -> tuple[int, int] | None:
    """Tokens that the full-attention cache holds (cells are per stream), and the line."""
    if context is None:
        return None
    full = [cache for cache in context.caches if not cache.window]
    if full:
        return full[0].cells * full[0].streams, full[0].line
    return context.old_cells


def _pool(start: Start, found: dict[str, Any], lines: dict[str, int], explain: list[str]) -> None:
    lanes, each, shared = found.get("lanes"), start.slot_context, unified(start)
    held = cells(start.target)
    total = start.target.settings.get("n_ctx") if start.target else None
    size = held or total
    pool: tuple[int, int] | None = None
    if shared and each is not None:
        # A slot's context may have been capped below the pool that all of them share.
        pool = size or start.uncapped or (each, start.slot_context_line)
        most = "all of it" if each >= pool[0] else f"up to {each:,} of it"
        explain.append(
            f"{lanes or 'The'} slots share one pool of {pool[0]:,} tokens (kv_unified): each may use {most}, so the "
            f"{each:,} of a slot is a cap and not a share. Nothing is promised at admission: when the pool fills up, "
            "every running request ends with HTTP 500."
        )
    elif shared is False and each is not None and lanes is not None:
        pool = lanes * each, start.slot_context_line
        explain.append(
            f"The pool is {lanes} × {each:,} = {pool[0]:,} tokens: each slot has {each:,} of its own and can't borrow. "
            f"A request may hold at most {each:,} tokens, prompt and output together."
        )
    elif shared is None and size is not None and lanes and each and size[0] == lanes * each:
        pool = size
        explain.append(f"The cache holds {lanes} × {each:,} = {lanes * each:,} tokens: a slot takes at most {each:,}.")
    elif lanes == 1 and each:
        pool = size or (each, start.slot_context_line)
        explain.append(f"One slot has the whole pool of {pool[0]:,} tokens; a request may hold {each:,} of them.")
    elif shared is None and held is not None:
        pool = held
        explain.append(f"The cache holds {held[0]:,} tokens.")
    elif shared is None and start.slot_context is not None and _owned_slots(start) and lanes is not None and each:
        pool = lanes * each, start.slot_context_line
        explain.append(f"The pool is {lanes} × {each:,} = {pool[0]:,} tokens, an equal share for each slot.")
    elif held is not None:
        pool = held
        ways = "one pool for all slots (kv_unified)" if shared else "in equal shares, one for each slot"
        rest = "" if lanes else "; how many slots there are is not in this log"
        explain.append(f"The cache holds {held[0]:,} tokens, {ways}{rest}.")
    elif total is not None and lanes is None:
        pool = total
        explain.append(f"The context holds {total[0]:,} tokens in all; how many slots share it is not in this log.")
    elif each is not None:
        slots = f"{lanes} slots of {each:,} tokens" if lanes else f"A slot holds up to {each:,} tokens"
        explain.append(f"{slots}: whether they share a pool or own one each is not in this log.")
    if pool:
        found["kv_pool_tokens"], lines["kv_pool_tokens"] = pool


def _owned_slots(start: Start) -> bool:
    """Before one pool for all slots existed, the log said `n_ctx_slot` of each slot without any word on sharing."""
    return start.slots is not None and start.slot_share and not start.auto_slots


def _bytes(start: Start, found: dict[str, Any], lines: dict[str, int], explain: list[str]) -> None:
    context = start.target
    if start.weights:
        found["weights_bytes"], lines["weights_bytes"] = start.weights, start.weights_line
    if context is None:
        return
    full = [cache for cache in context.caches if not cache.window]
    windows = [cache for cache in context.caches if cache.window]
    if told := _told(context):
        found["kv_bytes"], lines["kv_bytes"] = told
    if full and full[0].streams > 1:
        explain.append(
            f"`{full[0].cells:,} cells` is one stream's share; {full[0].streams} streams hold "
            f"{full[0].cells * full[0].streams:,} tokens in {full[0].size / MIB:,.0f} MiB."
        )
    if windows:
        explain.append(
            f"The sliding-window layers have a cache of their own ({windows[0].cells:,} cells, "
            f"{windows[0].size / MIB:,.0f} MiB): bytes, but no further capacity."
        )
    if context.recurrent:
        found["state_slots"], lines["state_slots"] = context.recurrent[0], context.recurrent[2]
        found["state_bytes"], lines["state_bytes"] = context.recurrent[1], context.recurrent[2]
        explain.append(f"Recurrent state is kept for {context.recurrent[0]} sequences: these cells are not tokens.")
    drafts = start.contexts[1:]
    other = sum(each.working for each in start.contexts) + start.draft_weights
    kept = sum(told[0] for each in drafts if (told := _told(each)))
    other += kept
    if other:
        found["other_bytes"] = other
        lines["other_bytes"] = drafts[-1].line if drafts else context.line
    if drafts:
        explain.append(f"The draft has its own weights and cache ({kept / MIB:,.0f} MiB of KV): memory, not capacity.")


def _told(context: Context) -> tuple[int, int] | None:
    """Bytes of a context's caches as its own lines add them up, and the line."""
    if context.caches:
        return sum(cache.size for cache in context.caches), context.caches[-1].line
    return context.total


def identities(start: Start) -> list[Warn]:
    """Warnings about sizes that contradict each other."""
    found: list[Warn] = []
    context = start.target
    held = cells(context)
    lanes = start.slots
    # What one slot would have had is told where its context was capped.
    share = start.uncapped[0] if start.uncapped else start.slot_context
    if held and share and lanes and start.unified is False and held[0] != lanes * share:
        found.append(Warn(held[1], f"the cache holds {held[0]:,} tokens, but {lanes} slots of {share:,} "
                                   f"are {lanes * share:,}"))  # fmt: skip
    if context:
        told, line = _told(context) or (0, context.line)
        # Printed with two decimals a device and a sum: half a hundredth of a MiB each.
        if told and context.buffers and abs(told - context.buffers) > 0.01 * MIB * 32:
            found.append(Warn(line, f"KV buffers of all devices add up to {context.buffers / MIB:,.2f} MiB, but the "
                                    f"cache says {told / MIB:,.2f} MiB"))  # fmt: skip
    found.extend(Warn(line, f"the server says: {text}") for line, text in dict.fromkeys(start.resets))
    return found


def speculation(start: Start) -> list[Warn]:
    """Warnings about speculation that was asked for and isn't there, or can't ever draft."""
    found: list[Warn] = []
    if start.draft_loaded and start.no_speculators:
        found.append(Warn(start.no_speculators, "a draft model is loaded, but no --spec-type was given: it takes "
                                                "memory and there is no speculation"))  # fmt: skip
    for name, known in start.speculators.items():
        size_n, size_m = known.get("size_n"), known.get("size_m")
        if name == "ngram-simple" and size_n is not None and size_m is not None and size_m < size_n:
            found.append(Warn(known["line"], f"ngram-simple can never draft: size_m {size_m} is below size_n {size_n}"))
        if known.get("n_max") == 0:
            found.append(Warn(known["line"], f"{name} with n_max 0 aborts at the first request: depth 0 is "
                                             "--spec-type none"))  # fmt: skip
    return found
