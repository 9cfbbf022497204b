"""What requests in flight hold, or may hold, of a pool that is promised at admission: arithmetic instead of pattern.

Entries come from a client's own stamps or from a log's start and done lines. Where a prompt's length is not known the
promise is a range. Pure; it must not decide anything.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from probes.events import Capacity

MOST = 4096
"""Requests in flight that are followed; beyond it the ledger says that it can't know."""


@dataclass(slots=True)
class Entry:
    """One request: its prompt and the most output it may ask for, in tokens (None: not said)."""

    max_tokens: int | None = None
    prompt_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """Pages promised to some requests: at least `low`, at most `high` (None: no bound is known)."""

    low: int
    high: int | None

    def __add__(self, other: Claim) -> Claim:
        """Both together."""
        high = None if self.high is None or other.high is None else self.high + other.high
        return Claim(self.low + other.low, high)


@dataclass(frozen=True, slots=True)
class Pool:
    """The pool in pages, tokens a page, and pages of one request of the longest context (None: not known)."""

    pages: int
    page_tokens: int
    longest_pages: int | None
    max_context: int | None

    @classmethod
    def of(cls, capacity: Capacity) -> Pool | None:
        """Of what the log announced; a pool told in tokens alone counts single tokens. None without a size."""
        page = capacity.page_tokens or 1
        pages = capacity.pages
        if pages is None or capacity.page_tokens is None:
            if capacity.kv_pool_tokens is None:
                return None
            pages = capacity.kv_pool_tokens // page
        longest = None
        if capacity.max_context is not None:
            longest = -(-capacity.max_context // page)
        elif capacity.worst_case_pages is not None and capacity.lanes:
            longest = capacity.worst_case_pages // capacity.lanes
        return cls(pages, page, longest, capacity.max_context)

    def claim(self, entry: Entry) -> Claim:
        """Pages of one request: ceil((prompt + output - 1) / page), output cut where the context ends."""
        prompt, output = entry.prompt_tokens, entry.max_tokens
        if output is None:
            low = 1 if prompt is None else self._pages(prompt)
            return Claim(low, self.longest_pages)
        if prompt is None:
            low = self._pages(output)
            if self.longest_pages is not None:
                low = min(low, self.longest_pages)
            return Claim(low, self.longest_pages)
        output = self.output(entry) or 0
        pages = self._pages(prompt + max(output, 1) - 1)
        if self.longest_pages is not None:
            pages = min(pages, max(self.longest_pages, self._pages(prompt)))
        return Claim(pages, pages)

    def output(self, entry: Entry) -> int | None:
        """Effective output: what the request asks for, cut where the context ends. None where it does not say."""
        if entry.max_tokens is None or self.max_context is None or entry.prompt_tokens is None:
            return entry.max_tokens
        return max(0, min(entry.max_tokens, self.max_context - entry.prompt_tokens + 1))

    def _pages(self, tokens: int) -> int:
        return max(1, -(-tokens // self.page_tokens))


Fit = Literal["too_much", "fits", "unsure"]
View = tuple[tuple[Entry, ...], tuple[Entry, ...]]
"""The requests that run, oldest first, and those that wait, next to be admitted first."""


@dataclass(slots=True)
class Ledger:
    """Requests in the order in which they came; admission is first come, first served."""

    flight: OrderedDict[str, Entry] = field(default_factory=OrderedDict)
    overflowed: bool = False

    def sent(self, name: str, max_tokens: int | None, prompt_tokens: int | None = None) -> None:
        """A request came."""
        if len(self.flight) >= MOST:
            self.overflowed = True
            return
        self.flight[name] = Entry(max_tokens, prompt_tokens)

    def done(self, name: str, prompt_tokens: int | None = None) -> None:
        """A request ended, was refused or given up. Its prompt's length may only be known now."""
        entry = self.flight.pop(name, None)
        if entry is not None and entry.prompt_tokens is None:
            entry.prompt_tokens = prompt_tokens

    def copy(self) -> Ledger:
        """The same requests in flight, to be followed apart from now on."""
        return Ledger(OrderedDict(self.flight), self.overflowed)

    def clear(self) -> None:
        """The server restarted: nothing is in flight."""
        self.flight.clear()
        self.overflowed = False

    def view(self, running: int, waiting: int) -> View | None:
        """Who runs and who waits now, if the ledger accounts for all of them; else None."""
        if self.overflowed or running < 1 or waiting < 1 or running + waiting > len(self.flight):
            return None
        entries = list(self.flight.values())
        return tuple(entries[:running]), tuple(entries[running : running + waiting])


def weigh(pool: Pool, view: View) -> tuple[Fit, Claim, Claim]:
    """Whether those who run and the next in line fit the pool together; what those who run hold; what the next needs.

    Within one page of the boundary nothing is said: `unsure`.
    """
    holds = Claim(0, 0)
    for entry in view[0]:
        holds += pool.claim(entry)
    needs = pool.claim(view[1][0])
    both = holds + needs
    edge = 1 if pool.page_tokens > 1 else 0
    if both.low > pool.pages + edge:
        return "too_much", holds, needs
    if both.high is not None and both.high <= pool.pages - edge:
        return "fits", holds, needs
    return "unsure", holds, needs


def smallest_fits(pool: Pool, view: View) -> bool:
    """Whether even the smallest of those who wait is known to fit beside those who run."""
    holds = sum(pool.claim(entry).low for entry in view[0])
    return any(holds + pool.claim(entry).low <= pool.pages for entry in view[1])


def contradicted(pool: Pool, views: Sequence[View]) -> bool:
    """Whether those who run hold more than the pool in some view: then this engine does not reserve after all."""
    return any(sum(pool.claim(entry).low for entry in view[0]) > pool.pages for view in views)
