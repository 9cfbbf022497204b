"""Two runs side by side, prompt by prompt: ratios per depth and category over the prompts that both measured.

Ratios are B over A, geometric over prompts. They carry no interval: two runs are one block each, and what differs
between two starts of a machine cannot be told from what was changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import fmean
from typing import Any

from probes.events import RequestDone
from probes.stats.cells import usable
from probes.stats.metrics import decode

Key = tuple[int | None, str]


@dataclass(frozen=True, slots=True)
class Pair:
    """One cell of both runs. `n`: prompts measured in both; `restarts`: starts each side's figures come from."""

    depth: int | None
    category: str
    n: int
    only_a: int
    only_b: int
    restarts: tuple[int, int]
    speed: tuple[float | None, float | None]
    """Tokens per second, geometric mean over the prompts of both."""
    speed_ratio: float | None
    tpot_ratio: float | None
    ttft_ratio: float | None
    accept_rate: tuple[float | None, float | None]
    """Accepted over drafted, summed over the prompts of both."""
    same_text: int | None
    """Prompts whose texts are equal in both runs; None where texts were not hashed."""


def pairs(a: Sequence[RequestDone], b: Sequence[RequestDone]) -> list[Pair]:
    """Every cell that both runs measured, by depth and category."""
    left, right = _by_cell(a), _by_cell(b)
    return [_pair(key, left[key], right[key]) for key in sorted(left.keys() & right.keys(), key=_order)]


def alone(a: Sequence[RequestDone], b: Sequence[RequestDone]) -> tuple[list[Key], list[Key]]:
    """Cells that only the first, and only the second run measured."""
    left, right = _by_cell(a), _by_cell(b)
    return sorted(left.keys() - right.keys(), key=_order), sorted(right.keys() - left.keys(), key=_order)


def _order(key: Key) -> tuple[int, str]:
    return (-1 if key[0] is None else key[0], key[1])


def _by_cell(requests: Sequence[RequestDone]) -> dict[Key, dict[str, list[RequestDone]]]:
    """Cell -> prompt hash -> usable requests with a speed."""
    found: dict[Key, dict[str, list[RequestDone]]] = {}
    for r in requests:
        if usable(r) and decode(r) is not None:
            found.setdefault((r.depth, r.category), {}).setdefault(r.prompt_hash, []).append(r)
    return found


def _pair(key: Key, left: dict[str, list[RequestDone]], right: dict[str, list[RequestDone]]) -> Pair:
    both = sorted(left.keys() & right.keys())
    sides = [[side[p] for p in both] for side in (left, right)]
    flat = [[r for rows in side for r in rows] for side in sides]
    speeds = [_mean_log(side, _tps) for side in sides]
    texts = [(left[p][0].text_hash, right[p][0].text_hash) for p in both]
    known = [(x, y) for x, y in texts if x and y]
    return Pair(
        depth=key[0],
        category=key[1],
        n=len(both),
        only_a=len(left.keys() - right.keys()),
        only_b=len(right.keys() - left.keys()),
        restarts=(len({r.restart for r in flat[0]}), len({r.restart for r in flat[1]})),
        speed=(_exp(speeds[0]), _exp(speeds[1])),
        speed_ratio=_ratio(left, right, both, _tps),
        tpot_ratio=_inverse(_ratio(left, right, both, _tps)),
        ttft_ratio=_ratio(left, right, both, lambda r: r.ttft_ms),
        accept_rate=(_rate(flat[0]), _rate(flat[1])),
        same_text=sum(x == y for x, y in known) if known else None,
    )


def _tps(r: RequestDone) -> float | None:
    found = decode(r)
    return found.tps if found else None


def _mean_log(rows: Sequence[Sequence[RequestDone]], read: Callable[[RequestDone], float | None]) -> float | None:
    """Mean over prompts of the mean log over a prompt's repeats; None when any prompt has no figure."""
    found = []
    for repeats in rows:
        values = [v for r in repeats if (v := read(r)) is not None and v > 0]
        if not values:
            return None
        found.append(fmean(log(v) for v in values))
    return fmean(found) if found else None


def _ratio(
    left: dict[str, list[RequestDone]],
    right: dict[str, list[RequestDone]],
    both: Sequence[str],
    read: Callable[[RequestDone], float | None],
) -> float | None:
    a, b = (_mean_log([side[p] for p in both], read) for side in (left, right))
    return None if a is None or b is None else exp(b - a)


def _inverse(value: float | None) -> float | None:
    return None if value is None else 1 / value


def _exp(value: float | None) -> float | None:
    return None if value is None else exp(value)


def _rate(rows: Sequence[RequestDone]) -> float | None:
    known: list[Any] = [r for r in rows if r.drafted is not None and r.accepted is not None]
    drafted = sum(r.drafted for r in known)
    return sum(r.accepted for r in known) / drafted if drafted else None
