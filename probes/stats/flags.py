"""What a reader must know before believing a sweep: each guard takes cells and gives sentences, none when all is well.

A guard never changes a number. What it finds is shown beside the numbers and may keep a depth from winning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from probes.events import RequestDone
from probes.stats.cells import Cell
from probes.stats.metrics import achieved_concurrency, check_counters, pool_len, pool_tpot_ms

__all__ = ["GUARDS", "SPOILS", "THROTTLE_SHARE", "low_concurrency", "per_cell", "texts_differ", "throttled"]

TOO_GOOD = 0.95
CACHE_SHARE = 0.10
ROUTES = 0.05
SHORT_MS = 2.0
"""Bursts are told apart by a pause of 1 ms: steps shorter than twice that run together in them."""
STEPS = 0.03
ACHIEVED = 0.92
THROTTLE_SHARE = 0.05
FEWEST_DRAFTS = 50
"""Below this many drafted tokens a high accept rate is chance."""


def accept_too_good(cell: Cell) -> str | None:
    """Acceptance of 95 % or more: on real text it is rare, on a loop or a planted answer it is the rule."""
    rate = cell.accept_rate
    if rate is None or rate < TOO_GOOD or (cell.drafted or 0) < FEWEST_DRAFTS:
        return None
    return f"{rate:.1%} of drafts accepted: too good for ordinary text, look at the output"


def degenerate(cell: Cell) -> str | None:
    """Outputs that were loops, and are therefore not in the speed."""
    count = cell.outcomes.get("degenerate", 0)
    return (
        f"{count} of {sum(cell.outcomes.values())} outputs were loops and are left out of the speed" if count else None
    )


def cache_hits(cell: Cell) -> str | None:
    """Prompts answered from the prefix cache: their time to first token says nothing about prefill."""
    pairs = [(r.cached_tokens, r.prompt_tokens) for r, _ in cell.timed if r.cached_tokens and r.prompt_tokens]
    hits = [c / p for c, p in pairs if c / p > CACHE_SHARE]
    return (
        f"{len(hits)} of {len(cell.timed)} prompts came up to {max(hits):.0%} from the prefix cache" if hits else None
    )


def counters_odd(cell: Cell) -> str | None:
    """More accepted than drafted: the counters do not belong together."""
    return check_counters(cell.accepted, cell.drafted)


def steps_disagree(cell: Cell) -> str | None:
    """Counted steps against decode tokens minus accepted: apart when some steps drafted nothing."""
    known = [
        (d.counted_steps, d.decode_tokens - d.accepted)
        for d in cell.parts
        if d.counted_steps and d.decode_tokens is not None and d.accepted is not None
    ]
    counted, implied = sum(c for c, _ in known), sum(i for _, i in known)
    if not counted or abs(implied - counted) / counted < STEPS:
        return None
    return f"{counted} steps counted, {implied} implied by the tokens: steps that draft nothing are not counted"


def step_routes_differ(cell: Cell) -> str | None:
    """Accept length x TPOT against the gaps between bursts, which need no counters."""
    gap = cell.gap_ms
    length, token = (1.0 if cell.depth == 0 else pool_len(cell.parts)), pool_tpot_ms(cell.parts)
    if gap is None or length is None or token is None:
        return None
    product = length * token
    if product < SHORT_MS or abs(product - gap) / gap <= ROUTES:
        return None
    return f"a step takes {product:.2f} ms by accept length x TPOT, {gap:.2f} ms by the gaps between bursts"


GUARDS = {
    "ACCEPT_TOO_GOOD": accept_too_good,
    "DEGENERATE": degenerate,
    "CACHE_HITS": cache_hits,
    "COUNTERS_ODD": counters_odd,
    "STEPS_DISAGREE": steps_disagree,
    "STEP_ROUTES_DIFFER": step_routes_differ,
}
SPOILS = frozenset({"ACCEPT_TOO_GOOD", "COUNTERS_ODD"})
"""Guards that make a cell's own numbers doubtful, beyond what was left out already."""


def per_cell(cells: Sequence[Cell]) -> dict[str, list[str]]:
    """Every per-cell guard over every cell: flag -> sentences that begin with where."""
    found: dict[str, list[str]] = {}
    for cell in cells:
        for flag, guard in GUARDS.items():
            if cell.outcomes and (text := guard(cell)):
                found.setdefault(flag, []).append(f"depth {cell.depth}, {cell.category}: {text}")
    return found


def low_concurrency(requests: Sequence[RequestDone], depths: Sequence[int], asked: int | None) -> list[str]:
    """Depths whose mean number in flight (Little) stayed under 92 % of what was asked for; one lane is exempt."""
    if asked is None or asked < 2:
        return []
    found = []
    for depth in depths:
        by_restart: dict[int, list[RequestDone]] = {}
        for r in requests:
            if r.depth == depth and not r.warmup and r.outcome == "ok" and r.done is not None:
                by_restart.setdefault(r.restart, []).append(r)
        spans = [_span(rows) for rows in by_restart.values()]
        wall = sum(w for _, w in spans)
        got = achieved_concurrency((busy for busy, _ in spans), wall) if wall > 0 else None
        if got is not None and got < ACHIEVED * asked:
            found.append(f"depth {depth}: {got:.2f} requests in flight on average, {asked} asked for")
    return found


def _span(rows: Sequence[RequestDone]) -> tuple[float, float]:
    """Busy seconds and wall seconds of one restart's requests."""
    ends = [(r.sent, r.done) for r in rows if r.done is not None]
    return sum(d - s for s, d in ends), max(d for _, d in ends) - min(s for s, _ in ends)


def throttled(shares: Mapping[int, float]) -> list[str]:
    """Depths that ran slowed by heat or power brake for more than 5 % of the time."""
    return [
        f"depth {d}: the GPU was slowed for {share:.0%} of the time, so it cannot win"
        for d, share in sorted(shares.items())
        if share > THROTTLE_SHARE
    ]


def texts_differ(cells: Sequence[Cell]) -> tuple[list[str], list[str]]:
    """Prompts whose greedy text differs between depths, and those that differ at one depth already.

    In exact arithmetic speculation does not change a greedy text. Kernels for another number of tokens a step may
    flip near-ties; a text that differs between repeats of one depth says that the server is not reproducible at all.
    """
    seen: dict[tuple[str, int | None], dict[int, set[str]]] = {}
    for cell in cells:
        for r, _ in cell.timed:
            mark = r.text_hash or r.text
            if mark:
                seen.setdefault((r.prompt_id, r.max_tokens), {}).setdefault(cell.depth, set()).add(mark)
    between, within = set(), set()
    for (prompt, _), by_depth in seen.items():
        if any(len(marks) > 1 for marks in by_depth.values()):
            within.add(prompt)
        elif len(set().union(*by_depth.values())) > 1:
            between.add(prompt)
    return sorted(between), sorted(within)
