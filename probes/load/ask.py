"""One GET over the load client's own wire: what a server calls its model, what the stub really did."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping

from probes.load.wire import Connection, Reply, connect, encode, target


async def ask(url: str, path: str, headers: Mapping[str, str], timeout_s: float = 10.0) -> tuple[int | None, bytes]:
    """The status and body of a GET. Raises `OSError` (a `TimeoutError` is one)."""
    where = target(url)
    answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def ended(_: Connection, reply: Reply) -> None:
        if not answer.done():
            answer.set_result(reply)

    connection = await connect(where, ended, ssl.create_default_context() if where.tls else None, timeout_s)
    connection.send(encode(where, None, headers, path))
    try:
        reply = await asyncio.wait_for(answer, timeout_s)
    finally:
        connection.close()
    return reply.status, b"".join(part for _, part in reply.parts)
