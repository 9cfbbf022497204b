"""What one request, or a pool of them, says about speed: token time, accept length, step time, conversions and checks.

Plain Python over plain numbers. Nothing here guesses: what the source does not say is `None`, and a value that rests on
an assumption says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from probes.events import RequestDone

__all__ = [
    "Decode", "accept_len", "accept_len_from_rate", "accept_rate", "accept_rate_from_len", "achieved_concurrency",
    "check_counters", "check_drafts", "check_histogram", "check_step_routes", "decode", "per_request_tps",
    "pool_len", "pool_step_ms", "pool_tpot_ms", "predicted_throughput", "sglang_rate_true", "step_ms", "steps",
    "tpot_ms", "whole_rounds",
]  # fmt: skip

TOLERANCE = 0.03
"""Two routes to one quantity may differ by this share before it is worth a word."""


@dataclass(frozen=True, slots=True)
class Decode:
    """The decode phase of one request: `tokens` came in `ms` after the first chunk; counters are of the whole decode.

    `exact` is False when the number of tokens in the first chunk is not known and one was assumed.
    """

    tokens: float
    ms: float
    exact: bool
    decode_tokens: int | None = None
    accepted: int | None = None
    drafted: int | None = None
    counted_steps: int | None = None

    @property
    def tps(self) -> float:
        """Tokens per second after the first chunk."""
        return 1000.0 * self.tokens / self.ms

    @property
    def steps(self) -> float | None:
        """Verify steps: as counted, else decode tokens that were not accepted drafts."""
        return steps(self.decode_tokens, self.accepted, self.counted_steps)


def decode(request: RequestDone) -> Decode | None:
    """The decode phase of a request, or None when it cannot be timed (fewer than two tokens, no usage, no stamps).

    With the size of the first chunk unknown, the server's own token time is preferred to an assumption.
    """
    total = request.completion_tokens
    if total is None or total < 2:
        return None
    counters = {
        "decode_tokens": total - 1,
        "accepted": request.accepted,
        "drafted": request.drafted,
        "counted_steps": request.steps or whole_rounds(request),
    }
    if request.first is not None and request.last is not None and request.last > request.first:
        after = total - (request.first_tokens if request.first_tokens is not None else 1)
        if request.first_tokens is not None or request.server_tpot_ms is None:
            if after < 1:
                return None
            ms = 1000.0 * (request.last - request.first)
            return Decode(after, ms, exact=request.first_tokens is not None, **counters)
    token, exact = request.server_tpot_ms, True
    if not token and request.tpot_ms:
        token, exact = request.tpot_ms, request.tpot_exact
    if not token and request.decode_tps:
        token = 1000.0 / request.decode_tps
    return Decode(total - 1, token * (total - 1), exact=exact, **counters) if token else None


def whole_rounds(request: RequestDone) -> int | None:
    """Verify steps of an engine that drafts exactly `depth` tokens in each, from its counters alone; else None.

    n = 1 + R + A - t for n tokens, R rounds, A accepted drafts and t of them, up to the depth, cut off in the last
    round. Taking R for n - 1 - A would leave t rounds out; D drafted tokens give R = D / depth where that fits.
    """
    drafted, accepted, depth, total = request.drafted, request.accepted, request.depth, request.completion_tokens
    if not drafted or accepted is None or not depth or total is None or drafted % depth:
        return None
    rounds = drafted // depth
    return rounds if 0 <= rounds - (total - 1 - accepted) <= depth else None


def tpot_ms(first: float, last: float, completion_tokens: int, first_tokens: int | None) -> float | None:
    """Milliseconds per output token after the first chunk; stamps in seconds. None for fewer than two tokens."""
    after = completion_tokens - (1 if first_tokens is None else first_tokens)
    return 1000.0 * (last - first) / after if after >= 1 else None


def accept_rate(accepted: float | None, drafted: float | None) -> float | None:
    """Accepted drafts over drafted ones, 0..1; None when nothing was drafted or the source does not say."""
    return accepted / drafted if accepted is not None and drafted else None


def steps(decode_tokens: float | None, accepted: float | None, counted: float | None = None) -> float | None:
    """Verify steps: `counted` when the engine counts them, else decode tokens minus accepted drafts."""
    if counted:
        return counted
    if decode_tokens is None or accepted is None or decode_tokens - accepted <= 0:
        return None
    return decode_tokens - accepted


def accept_len(accepted: float | None, n_steps: float | None) -> float | None:
    """Tokens committed per verify step, the bonus token included: 1 + accepted / steps."""
    return 1.0 + accepted / n_steps if accepted is not None and n_steps else None


def step_ms(length: float, token_ms: float) -> float:
    """Time of one step of a batch whose rows share it: accept length x TPOT (identity)."""
    return length * token_ms


def per_request_tps(osl: float, ttft_s: float, tpot_s: float) -> float:
    """Output tokens per second that one user sees, the wait for the first included: OSL / (TTFT + (OSL-1) TPOT)."""
    return osl / (ttft_s + (osl - 1) * tpot_s)


def achieved_concurrency(e2e_s: Iterable[float], wall_s: float) -> float:
    """Mean requests in flight over `wall_s` seconds: sum of latencies / wall time (Little's law)."""
    if wall_s <= 0:
        raise ValueError(f"wall time must be positive, got {wall_s}")
    return sum(e2e_s) / wall_s


def predicted_throughput(tokens_per_step: float, one_step_ms: float) -> float:
    """Tokens per second of a full batch: tokens committed per step / step time."""
    return 1000.0 * tokens_per_step / one_step_ms


def accept_len_from_rate(rate: float, depth: int) -> float:
    """Accept length when every step drafts `depth` tokens: 1 + depth x rate."""
    return 1.0 + depth * rate


def accept_rate_from_len(length: float, depth: int) -> float:
    """Accept rate when every step drafts `depth` tokens: (length - 1) / depth."""
    return (length - 1.0) / depth


def sglang_rate_true(rate_old: float, depth: int) -> float:
    """Strict accept rate from SGLang's older (accepted + 1) / (drafted + 1), which reads high."""
    return (rate_old * (depth + 1) - 1.0) / depth


def pool_tpot_ms(parts: Sequence[Decode]) -> float | None:
    """Milliseconds per token of a pool: summed time over summed tokens, never a mean of ratios."""
    tokens = sum(p.tokens for p in parts)
    return sum(p.ms for p in parts) / tokens if tokens else None


def pool_len(parts: Sequence[Decode]) -> float | None:
    """Accept length of a pool, from the requests whose counters are known."""
    known = [(p.accepted, s) for p in parts if p.accepted is not None and (s := p.steps) is not None]
    return accept_len(sum(a for a, _ in known), sum(s for _, s in known)) if known else None


def pool_step_ms(parts: Sequence[Decode], *, plain: bool = False) -> float | None:
    """Step time of a pool: accept length x TPOT; `plain` decoding commits one token a step."""
    token, length = pool_tpot_ms(parts), 1.0 if plain else pool_len(parts)
    return None if token is None or length is None else step_ms(length, token)


# ---------------------------------------------------------------------------------------- checks that always run


def check_counters(accepted: float | None, drafted: float | None) -> str | None:
    """Check (a): no engine accepts more drafts than it made. A sentence when broken, else None."""
    if accepted is not None and drafted is not None and accepted > drafted:
        return f"accepted {accepted:g} of {drafted:g} drafted: these counters are not of the same thing"
    return None


def check_drafts(drafted: float, depth: int, n_steps: float) -> str | None:
    """Check (b): with a fixed depth, drafted / depth is the number of steps; else the drafts vary in length."""
    by_depth = drafted / depth
    if abs(by_depth - n_steps) / n_steps >= TOLERANCE:
        return (
            f"drafts vary in length ({drafted:g} drafted, {n_steps:g} steps of depth {depth}): counted steps are used"
        )
    return None


def check_step_routes(length: float, token_ms: float, other_ms: float, tolerance: float = TOLERANCE) -> str | None:
    """Check (c): accept length x TPOT against the step time by another route (decode time / steps, burst gaps)."""
    product = step_ms(length, token_ms)
    if abs(product - other_ms) / other_ms > tolerance:
        return f"accept length x TPOT says {product:.2f} ms a step, the other route {other_ms:.2f} ms"
    return None


def check_histogram(histogram: Sequence[int], n_steps: int, accepted: int) -> str | None:
    """Check (d): a histogram of accepted drafts per step sums to the steps, and weighted by size to the accepted."""
    total, weighted = sum(histogram), sum(i * h for i, h in enumerate(histogram))
    if total != n_steps or weighted != accepted:
        return f"histogram holds {total} steps and {weighted} accepted, counters say {n_steps} and {accepted}"
    return None
