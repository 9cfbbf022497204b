"""ninfer's KV pool: what its capacity line means, which figures are forced by arithmetic, and checks of them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from probes.engines._ninfer_text import BYTES, COUNT, Clipped, clauses, count, size
from probes.events import Capacity

PAGE_TOKENS = 64
"""Tokens of one page of the main KV pool, in every version known."""

_KV = re.compile(rf"KV ({COUNT}) tokens(?:, ([\w.-]+))?(?:, (explicit|auto))?")
_PAGES = re.compile(rf"pages ({COUNT})/({COUNT})")
_RUNTIME = re.compile(rf"runtime ({BYTES})")
_FREE = re.compile(rf"free ({BYTES})")


@dataclass(frozen=True, slots=True)
class Pool:
    """The figures of one `capacity | …` line. `pages` is the whole pool; `worst` what all lanes could ever fill."""

    tokens: int
    dtype: str | None = None
    mode: str | None = None
    pages: int | None = None
    worst: int | None = None
    runtime_bytes: int | None = None
    free_bytes: int | None = None


def read(text: str) -> Pool:
    """The pool of a `capacity | …` line. Raises `Clipped` when a clause is torn or the line ends too early."""
    parts = clauses(text)[1:]
    found = {"KV": _KV, "pages": _PAGES, "runtime": _RUNTIME, "free": _FREE}
    matches: dict[str, re.Match[str]] = {}
    for part in parts:
        label = part.split(" ", 1)[0]
        if label in found:
            match = found[label].fullmatch(part)
            if match is None:
                raise Clipped
            matches[label] = match
        elif part is parts[-1] and any(name.startswith(part) for name in found):
            raise Clipped
    if "KV" not in matches or len(parts) < 2 or parts[-1].startswith("pages "):
        raise Clipped
    kv, pages, runtime, free = (matches.get(label) for label in found)
    return Pool(
        tokens=count(kv[1]) if kv else 0,
        dtype=kv[2] if kv else None,
        mode=kv[3] if kv else None,
        pages=count(pages[1]) if pages else None,
        worst=count(pages[2]) if pages else None,
        runtime_bytes=size(runtime[1]) if runtime else None,
        free_bytes=size(free[1]) if free else None,
    )


def problems(pool: Pool, lanes: int | None) -> list[str]:
    """Identities that fail, each in a sentence. All hold on a sound build, so a failure means a misread or new build.

    tokens = 64 x pages; worst case = lanes x pages of one longest request; the pool holds at least one such request
    and one page a lane; an automatic pool never exceeds the worst case.
    """
    found: list[str] = []
    a, b = pool.pages, pool.worst
    if a is None or b is None:
        return found
    if pool.tokens != a * PAGE_TOKENS:
        found.append(
            f"{pool.tokens:,} tokens are not {a:,} pages of {PAGE_TOKENS}: another page size or a misread line"
        )
    if pool.mode == "auto" and a > b:
        found.append(f"an automatic pool of {a:,} pages is larger than the worst case of {b:,}")
    if pool.mode == "explicit" and a > b:
        found.append(f"the pool of {a:,} pages is larger than all lanes can fill ({b:,}): the rest is never used")
    if lanes:
        if b % lanes:
            found.append(f"the worst case of {b:,} pages is not a multiple of {lanes} lanes")
        elif a < b // lanes:
            found.append(f"the pool of {a:,} pages cannot hold one longest request of {b // lanes:,}")
        if a < lanes:
            found.append(f"{a:,} pages are fewer than {lanes} lanes")
    return found


def capacity(pool: Pool | None, lanes: int | None, cached: int | None, *, reserving: bool | None) -> Capacity:
    """What one start can hold, with the sentences that keep its figures from being misread."""
    if pool is None:
        return Capacity(lanes=lanes, per="server", reserving=reserving) if lanes else Capacity()
    each = pool.worst // lanes if pool.worst and lanes and pool.worst % lanes == 0 else None
    return Capacity(
        kv_pool_tokens=pool.tokens,
        pages=pool.pages,
        page_tokens=PAGE_TOKENS if pool.pages and pool.tokens == pool.pages * PAGE_TOKENS else None,
        worst_case_pages=pool.worst,
        max_context=each * PAGE_TOKENS if each else None,
        lanes=lanes,
        free_bytes=pool.free_bytes,
        per="server",
        reserving=reserving,
        explain=tuple(explain(pool, lanes, cached, reserving=reserving)),
    )


_ADMISSION = {
    True: "A request starts only when pages for its prompt and all the output it may ask for are free, and keeps them "
    "to its end: a larger max_tokens makes others wait.",
    False: "Nothing is promised at admission: when the pages run out, a running request is paused and goes on later.",
    None: "This build may not hold a request's whole output in advance, so waiting has to be judged by behaviour.",
}


def pausing(capacity: Capacity, line: int) -> Capacity:
    """The same once line `line` showed that this build pauses requests instead of promising pages to them."""
    if capacity.reserving is False:
        return capacity
    said = tuple(_ADMISSION[False] if text in _ADMISSION.values() else text for text in capacity.explain)
    return replace(capacity, reserving=False, explain=said, lines={**capacity.lines, "reserving": line})


def explain(pool: Pool, lanes: int | None, cached: int | None, *, reserving: bool | None) -> list[str]:
    """The capacity in plain words, one sentence each."""
    said = {"explicit": "size set by --kv-capacity", "auto": "size chosen by the engine"}.get(pool.mode or "", "")
    kind = ", ".join(word for word in (pool.dtype and f"type {pool.dtype}", said) if word)
    told = [f"The KV pool holds {pool.tokens:,} tokens" + (f" ({kind})." if kind else ".")]
    a, b = pool.pages, pool.worst
    if a and b:
        told[0] = told[0].removesuffix(".") + f": {a:,} pages of {PAGE_TOKENS} tokens, the whole pool, none used yet."
        told.append(_worst(b, lanes))
        told.append(_share(a, b, lanes))
    if lanes:
        extra = f"; {cached} more device states keep finished prompts and run nothing" if cached else ""
        told.append(f"At most {lanes} request{'s run' if lanes > 1 else ' runs'} at once (lanes){extra}.")
    else:
        told.append("The log does not say how many requests may run at once (--max-concurrency).")
    told.append(_ADMISSION[reserving])
    if pool.runtime_bytes:
        gib = pool.runtime_bytes / 2**30
        told.append(f"The {gib:.2f} GiB of runtime are states, KV, workspace and graphs together, not KV alone.")
    if pool.free_bytes is not None:
        told.append(f"{pool.free_bytes / 2**30:.2f} GiB of GPU memory were left free after the start.")
    return told


def _worst(b: int, lanes: int | None) -> str:
    if lanes and b % lanes == 0:
        each = b // lanes
        return (
            f"{b:,} pages are {lanes} lane{'s' * (lanes > 1)} x {each:,} pages of one request of the longest context "
            f"(up to {each * PAGE_TOKENS:,} tokens): the most the engine would ever take, not pages in use."
        )
    return f"{b:,} pages are what all lanes together could ever fill: a worst case, not pages in use."


def _share(a: int, b: int, lanes: int | None) -> str:
    if lanes and a * lanes == b:
        return (
            f"{a:,}/{b:,} = 1/{lanes} is forced, because --max-context equals --kv-capacity: no quota for a lane; one "
            "request may take the whole pool."
            if lanes > 1
            else f"{a:,}/{b:,}: the pool covers the worst case of its only lane."
        )
    return f"The pool covers {a / b:.1%} of that worst case; it is shared, so one request may take more than its part."
