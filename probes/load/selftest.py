"""The client measured against a server whose times are known, so that its own error stands beside its results."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from probes.events import RequestDone, RequestSent
from probes.load.ask import ask
from probes.load.facts import median
from probes.load.jobs import Order, build, carry_out
from probes.load.plan import chat_body, entry
from probes.load.prompts import WARMUP
from probes.load.stub import Truth

TTFT_MS = 20.0
TPOT_MS = 20.0
ROOT = str(Path(__file__).resolve().parent.parent.parent)


@dataclass(frozen=True, slots=True)
class Bias:
    """The client's error at one concurrency; `n` requests. Positive: the client reads too long.

    `ttft_*_ms`: client's TTFT less the time from the stub's receipt to its write of the first token. `late_p50_ms`,
    `late_p90_ms`: arrival stamp less that write. `tpot_rel`: median relative error of TPOT. `cpu_us`: the client's
    CPU a token (everything: sending, stamping, reading, records).
    """

    concurrency: int
    burst: int
    n: int
    ttft_p50_ms: float
    ttft_p90_ms: float
    late_p50_ms: float
    late_p90_ms: float
    tpot_rel: float
    tpot_worst_rel: float
    cpu_us: float

    def sentence(self) -> str:
        """In words."""
        return (
            f"own error at {self.concurrency} streams: TTFT {self.ttft_p50_ms:+.2f} ms (p50) {self.ttft_p90_ms:+.2f} ms"
            f" (p90), TPOT {self.tpot_rel:+.3%}, {self.cpu_us:.0f} µs of CPU a token (n={self.n}, against a stub)"
        )


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed; 0.0 for no value."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


@contextlib.asynccontextmanager
async def stub() -> AsyncIterator[str]:
    """A stub in its own process; its address."""
    path = os.pathsep.join(part for part in (ROOT, os.environ.get("PYTHONPATH")) if part)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "probes.load.stub", "0",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    try:
        if process.stdout is None or process.stdin is None:
            raise RuntimeError("both are pipes")
        port = int(await process.stdout.readline())
        yield f"http://127.0.0.1:{port}"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def bias(url: str, concurrency: int, n: int, max_tokens: int, burst: int = 1, *, counts: bool = True) -> Bias:
    """Send `n` requests to the stub at `url` and compare."""
    stub_part = {"ttft_ms": TTFT_MS, "tpot_ms": TPOT_MS, "burst": burst, "counts": counts}
    body = {**chat_body(WARMUP, "stub", max_tokens, 0.0, None), "stub": stub_part}
    entries = [entry(str(place), WARMUP, body, {}) for place in range(n)]
    job = build(msgspec.convert({"url": url, "requests": entries, "concurrency": concurrency}, Order))
    records: list[RequestDone] = []

    def emit(fact: RequestSent | RequestDone) -> None:
        if isinstance(fact, RequestDone):
            records.append(fact)

    cpu_s = await carry_out(job, emit, []) or 0.0
    _, answer = await ask(url, "/truth", {})
    truths = msgspec.json.decode(answer, type=dict[str, Truth])
    return compare(records, truths, concurrency, burst, cpu_s)


def compare(
    records: Sequence[RequestDone], truths: dict[str, Truth], concurrency: int, burst: int, cpu_s: float
) -> Bias:
    """The client's records against what the stub really did."""
    ttft, late, tpot, tokens = [], [], [], 0
    for record in records:
        truth = truths.get(str(record.raw.get("id")))
        if truth is None or record.outcome != "ok" or record.first is None:
            continue
        tokens += truth.tokens
        ttft.append(((record.first - record.sent) - (truth.first - truth.received)) * 1000)
        late.append((record.first - truth.first) * 1000)
        after = truth.tokens - truth.first_tokens
        if record.tpot_ms is not None and after > 0 and truth.last > truth.first:
            true = (truth.last - truth.first) * 1000 / after
            tpot.append((record.tpot_ms - true) / true)
    return Bias(
        concurrency=concurrency, burst=burst, n=len(ttft),
        ttft_p50_ms=median(ttft) or 0.0, ttft_p90_ms=quantile(ttft, 0.9),
        late_p50_ms=median(late) or 0.0, late_p90_ms=quantile(late, 0.9),
        tpot_rel=median(tpot) or 0.0, tpot_worst_rel=max((abs(one) for one in tpot), default=0.0),
        cpu_us=cpu_s * 1e6 / tokens if tokens else 0.0,
    )  # fmt: skip
