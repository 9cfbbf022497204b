"""The client against the stub: its own error, and the comparison itself."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
import uvloop

from probes.events import RequestDone
from probes.load.selftest import Bias, bias, compare, stub
from probes.load.stub import Truth

RECORD = RequestDone(
    id="1", prompt_id="", prompt_hash="", category="", depth=None, restart=0, block=0, outcome="ok",
    sent=10.0, first=10.021, last=11.0, tpot_ms=10.1, raw={"id": "stub-1"},
)  # fmt: skip
TRUTH = Truth(received=10.0, first=10.02, last=11.02, tokens=101, first_tokens=1)


def test_errors_are_client_less_truth() -> None:
    found = compare([RECORD], {"stub-1": TRUTH}, 4, 1, 0.00202)
    assert (found.n, found.concurrency) == (1, 4)
    assert found.ttft_p50_ms == pytest.approx(1.0)
    assert found.late_p50_ms == pytest.approx(1.0)
    assert found.tpot_rel == pytest.approx(0.01)
    assert found.cpu_us == pytest.approx(20.0)
    assert "+1.00 ms" in found.sentence()


def test_failed_and_unknown_requests_are_left_out() -> None:
    records = [RECORD, replace(RECORD, outcome="aborted"), replace(RECORD, raw={"id": "other"})]
    assert compare(records, {"stub-1": TRUTH}, 1, 1, 0.0).n == 1
    assert compare([], {}, 1, 1, 0.0).n == 0


@pytest.mark.parametrize(("burst", "counts"), [(1, False), (4, True)])
def test_every_request_is_found_again_with_its_tokens(burst: int, counts: bool) -> None:
    async def main() -> Bias:
        async with stub() as url:
            return await bias(url, 4, 8, 12, burst, counts=counts)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(main())
    assert (found.n, found.burst) == (8, burst)
    # No timing is asserted: only that both sides speak of the same writes.
    assert abs(found.tpot_worst_rel) < 1
