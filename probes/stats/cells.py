"""From load records to cells: one per depth and category, with what was excluded counted and the rest pooled.

Speed comes only from requests that ended well, were not warm-ups and did not degenerate; every outcome is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from probes.events import RequestDone
from probes.stats.degenerate import degenerate_text
from probes.stats.metrics import Decode, accept_rate, decode, pool_len, pool_step_ms, pool_tpot_ms

__all__ = ["Cell", "build", "usable"]


@dataclass(frozen=True, slots=True)
class Cell:
    """What was measured at one depth in one category. `timed` pairs each usable request with its decode phase."""

    depth: int
    category: str
    outcomes: dict[str, int]
    timed: tuple[tuple[RequestDone, Decode], ...]

    @property
    def n(self) -> int:
        """Independent units: distinct prompts. Repeats of one prompt carry timing noise only."""
        return len({r.prompt_hash or r.prompt_id for r, _ in self.timed})

    @property
    def parts(self) -> list[Decode]:
        """The decode phases."""
        return [d for _, d in self.timed]

    @property
    def speeds(self) -> list[float]:
        """Tokens per second, one value a request, in the order measured."""
        return [d.tps for _, d in self.timed]

    @property
    def mean_tps(self) -> float | None:
        """Mean over prompts of the mean over each prompt's repeats."""
        by_prompt: dict[str, list[float]] = {}
        for r, d in self.timed:
            by_prompt.setdefault(r.prompt_hash or r.prompt_id, []).append(d.tps)
        return fmean(fmean(v) for v in by_prompt.values()) if by_prompt else None

    @property
    def drafted(self) -> int | None:
        """Drafted tokens of the requests that say so."""
        return _total([d.drafted for d in self.parts])

    @property
    def accepted(self) -> int | None:
        """Accepted drafts of the requests that say so."""
        return _total([d.accepted for d in self.parts])

    @property
    def accept_rate(self) -> float | None:
        """Summed accepted over summed drafted; None at depth 0 and when nothing was drafted."""
        return accept_rate(self.accepted, self.drafted) if self.depth else None

    @property
    def gap_ms(self) -> float | None:
        """Step time by the gaps between bursts, pooled as time over gaps: steps differ, so a median would not do."""
        time, gaps = 0.0, 0.0
        for r, _ in self.timed:
            mean = r.raw.get("burst_mean_ms") or r.burst_gap_ms
            if mean and r.first is not None and r.last is not None and r.last > r.first:
                time += 1000.0 * (r.last - r.first)
                gaps += 1000.0 * (r.last - r.first) / mean
        return time / gaps if gaps else None

    @property
    def ttfts(self) -> list[float]:
        """Time to the first token in ms, one value a prompt: the median of its repeats."""
        by_prompt: dict[str, list[float]] = {}
        for r, _ in self.timed:
            if (value := _ttft(r)) is not None:
                by_prompt.setdefault(r.prompt_hash or r.prompt_id, []).append(value)
        return [median(values) for values in by_prompt.values()]

    @property
    def drafts_source(self) -> str | None:
        """Where the counts of drafts come from, if not from the replies: `/metrics`, `chunks`."""
        found = {source for r, _ in self.timed if (source := r.raw.get("drafts_source")) is not None}
        return ", ".join(sorted(map(str, found))) or None

    def shown(self) -> dict[str, Any]:
        """The cell as `result.json` has it, without its state."""
        plain = self.depth == 0
        ttfts = [t for r, _ in self.timed if (t := _ttft(r)) is not None]
        return {
            "depth": self.depth,
            "category": self.category,
            "n": self.n,
            "requests": len(self.timed),
            "drafted": None if plain else self.drafted,
            "accepted": None if plain else self.accepted,
            "accept_rate": _rounded(self.accept_rate, 6),
            "accept_len": None if plain or not self.drafted else _rounded(pool_len(self.parts), 6),
            "decode_tps": [round(s, 4) for s in self.speeds],
            "tpot_ms": _rounded(pool_tpot_ms(self.parts), 4),
            "ttft_ms": _rounded(median(ttfts), 4) if ttfts else None,
            "ttft_each_ms": [round(t, 4) for t in self.ttfts],
            "gap_ms": _rounded(self.gap_ms, 4),
            "step_ms": _rounded(pool_step_ms(self.parts, plain=plain or self.drafted == 0), 4),
            "approximate": any(not d.exact for d in self.parts),
            "drafts_source": self.drafts_source,
            "outcomes": self.outcomes,
        }


def usable(request: RequestDone) -> bool:
    """Whether a request may speak of speed: not a warm-up, ended well, output sound."""
    return not request.warmup and request.outcome == "ok" and not degenerate_text(request.text)


def build(requests: Sequence[RequestDone], depths: Sequence[int], categories: Sequence[str]) -> list[Cell]:
    """All cells of the grid, the empty ones too, depth by depth. Requests outside the grid are left out."""
    grid: dict[tuple[int, str], list[RequestDone]] = {(d, c): [] for d in depths for c in categories}
    for r in requests:
        if not r.warmup and r.depth is not None and (r.depth, r.category) in grid:
            grid[r.depth, r.category].append(r)
    return [_cell(d, c, rows) for (d, c), rows in grid.items()]


def _cell(depth: int, category: str, rows: list[RequestDone]) -> Cell:
    """One cell, from its requests in order of sending."""
    outcomes: Counter[str] = Counter()
    timed: list[tuple[RequestDone, Decode]] = []
    for r in sorted(rows, key=lambda r: r.sent):
        sound = usable(r)
        outcomes["degenerate" if r.outcome == "ok" and not sound else r.outcome] += 1
        if sound and (phase := decode(r)) is not None:
            timed.append((r, phase))
    return Cell(depth, category, dict(outcomes), tuple(timed))


def _total(values: Sequence[int | None]) -> int | None:
    """Sum of what is known; None when nothing is."""
    known = [v for v in values if v is not None]
    return sum(known) if known else None


def _ttft(r: RequestDone) -> float | None:
    """Time to the first token, from stamps when the record carries no figure."""
    if r.ttft_ms is not None:
        return r.ttft_ms
    return 1000.0 * (r.first - r.sent) if r.first is not None else None


def _rounded(value: float | None, digits: int) -> float | None:
    """Rounded, None kept."""
    return None if value is None else round(value, digits)
