"""The stub with known times, alone: `python benchmarks/stub_server.py [PORT]` prints its port; stdin's end stops it.

A request chooses its times in its body: `"stub": {"ttft_ms": 20, "tpot_ms": 10, "burst": 4, "counts": true}`.
`GET /truth` tells, once, what really happened to each request by the `id` of its chunks, in `time.monotonic()` seconds.
"""

from __future__ import annotations

import asyncio
import sys

import uvloop

from probes.load.stub import serve

if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
