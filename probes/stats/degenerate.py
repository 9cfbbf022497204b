"""Is an output a loop? A model that repeats itself drafts perfectly and so looks fast. Plain Python, linear in length.

Two signals are needed, or one far out: the share of repeated 8-grams and the longest stretch that repeats with some
period up to 16 tokens. Good prose with 29.5 % repeated 8-grams and no run is clean; a phrase loop has token run 1 and
is caught by its period only.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache

__all__ = ["degenerate", "degenerate_text", "longest_run", "ngram_repeat"]

REP_AND, RUN_AND, REP_FAR, RUN_FAR = 0.20, 8, 0.80, 64
PERIODS = 16
SHORTEST = 32
"""Below this many words a share of repeated 8-grams means nothing."""


def ngram_repeat(tokens: Sequence[Hashable], n: int = 8) -> float:
    """Share 0..1 of n-grams that occurred before; 0 for a text shorter than `n`."""
    total = len(tokens) - n + 1
    return 1.0 - len({tuple(tokens[i : i + n]) for i in range(total)}) / total if total > 0 else 0.0


def longest_run(tokens: Sequence[Hashable], max_period: int = PERIODS) -> int:
    """Most repeats in a row of any stretch of at most `max_period` tokens; 1 when nothing repeats."""
    best = 1
    for period in range(1, max_period + 1):
        same = 0
        for i in range(period, len(tokens)):
            same = same + 1 if tokens[i] == tokens[i - period] else 0
            best = max(best, same // period + 1)
    return best


def degenerate(rep8: float, run: int) -> bool:
    """Whether the two signals together, or one alone far out, say that the output is a loop."""
    return (rep8 >= REP_AND and run >= RUN_AND) or rep8 >= REP_FAR or run >= RUN_FAR


@lru_cache(maxsize=4096)
def degenerate_text(text: str) -> bool:
    """The same on a text's words; short and empty texts are never called degenerate."""
    words = text.split()
    return len(words) >= SHORTEST and degenerate(ngram_repeat(words), longest_run(words))
