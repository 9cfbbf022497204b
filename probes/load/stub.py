"""A server whose times are known: it streams tokens on a schedule and reports when it really wrote each one.

The client's own error is measured against it (`python -m probes.load --self-test`); it is no engine and no simulation.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from itertools import count
from time import monotonic
from typing import Any

import msgspec
import uvloop

from probes.load.wire import ANCILLARY_SIZE, READ_SIZE, SO_TIMESTAMPNS, arrival, wall_offset

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def framed(*events: bytes) -> bytes:
    """Events as one chunk of a chunked body."""
    body = b"".join(b"data: " + event + b"\n\n" for event in events)
    return f"{len(body):x}\r\n".encode() + body + b"\r\n"


class Truth(msgspec.Struct):
    """What really happened to one request, `time.monotonic()` seconds: stamps are taken just before each write."""

    received: float
    first: float = 0.0
    last: float = 0.0
    tokens: int = 0
    first_tokens: int = 0


class Answer:
    """One stream under way."""

    __slots__ = ("burst", "counts", "gap_s", "left", "name", "peer", "piece", "truth")

    def __init__(self, peer: Peer, name: str, body: dict[str, Any], truth: Truth) -> None:
        stub = body.get("stub") or {}
        self.peer, self.name, self.truth = peer, name, truth
        self.left = int(body.get("max_tokens") or 16)
        self.burst = max(1, int(stub.get("burst", 1)))
        self.gap_s = float(stub.get("tpot_ms", 10.0)) / 1000 * self.burst
        self.counts = bool(stub.get("counts", False))
        self.piece = self._event({"content": " word" * self.burst})

    def _event(self, delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
        return msgspec.json.encode(
            {
                "id": self.name, "object": "chat.completion.chunk", "created": 1, "model": "stub",
                "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}], **more,
            }
        )  # fmt: skip

    def open(self) -> None:
        """Headers and an empty role chunk, at once: no token yet."""
        self.peer.write(HEAD + framed(self._event({"role": "assistant", "content": ""})))

    def step(self) -> None:
        """Write the tokens of one step, then plan the next or end."""
        truth, size = self.truth, min(self.burst, self.left)
        self.left -= size
        truth.tokens += size
        if self.counts or size != self.burst:
            data = framed(self._event({"content": " word" * size}, timings={"predicted_n": truth.tokens}))
        else:
            data = framed(self.piece)
        now = monotonic()
        if not truth.first_tokens:
            truth.first_tokens, truth.first = size, now
        truth.last = now
        if not self.peer.write(data):
            return
        if self.left > 0:
            self.peer.loop.call_at(self.peer.loop.time() + self.gap_s, self.step)
            return
        usage = {"prompt_tokens": 8, "completion_tokens": truth.tokens, "total_tokens": 8 + truth.tokens}
        last = msgspec.json.encode({"id": self.name, "model": "stub", "choices": [], "usage": usage})
        self.peer.write(framed(self._event({}, "length"), last, b"[DONE]") + b"0\r\n\r\n")


class Peer:
    """One client connection, read and written without a transport so that stamps are the kernel's or just before it."""

    def __init__(self, sock: socket.socket, truths: dict[str, Truth], names: count[int]) -> None:
        self._truths = truths
        self._names = names
        self._rest = b""
        self._sock: socket.socket | None = sock
        self._offset = wall_offset()
        self.loop = asyncio.get_running_loop()
        self.loop.add_reader(sock.fileno(), self._readable)

    def _gone(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None:
            self.loop.remove_reader(sock.fileno())
            sock.close()

    def write(self, data: bytes) -> bool:
        """Write now; a client that doesn't read is cut off, as a partial write would spoil the times."""
        if self._sock is None:
            return False
        try:
            whole = self._sock.send(data) == len(data)
        except OSError:
            whole = False
        if not whole:
            self._gone()
        return whole

    def _readable(self) -> None:
        if self._sock is None:
            return
        try:
            data, ancillary, _, _ = self._sock.recvmsg(READ_SIZE, ANCILLARY_SIZE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if data:
            self._rest += data
            self._take(arrival(ancillary, self._offset))
        else:
            self._gone()

    def _take(self, now: float) -> None:
        """The next request, if it is whole."""
        head, mark, body = self._rest.partition(b"\r\n\r\n")
        if not mark:
            return
        length = 0
        for line in head.split(b"\r\n")[1:]:
            key, _, value = line.partition(b":")
            if key.lower() == b"content-length":
                length = int(value)
        if len(body) < length:
            return
        self._rest = body[length:]
        if head.startswith(b"GET /truth"):
            text = msgspec.json.encode(self._truths)
            self._truths.clear()
            self.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(text))
            self.write(text)
        elif not head.startswith(b"POST"):
            self.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        else:
            order = msgspec.json.decode(body[:length])
            name = f"stub-{next(self._names)}"
            truth = self._truths[name] = Truth(received=now)
            answer = Answer(self, name, order, truth)
            wait_s = float((order.get("stub") or {}).get("ttft_ms", 20.0)) / 1000
            self.loop.call_at(self.loop.time() + wait_s - (monotonic() - now), answer.step)
            answer.open()


async def serve(port: int) -> None:
    """Serve until stdin ends; says its port on stdout first."""
    loop = asyncio.get_running_loop()
    truths: dict[str, Truth] = {}
    names = count(1)
    listener = socket.create_server(("127.0.0.1", port), backlog=1024)
    listener.setblocking(False)

    def accept() -> None:
        with contextlib.suppress(OSError):
            sock, _ = listener.accept()
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            Peer(sock, truths, names)

    loop.add_reader(listener.fileno(), accept)
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    ended = asyncio.Event()

    def read() -> None:
        if not os.read(0, 4096):
            ended.set()

    loop.add_reader(0, read)
    await ended.wait()
    listener.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
