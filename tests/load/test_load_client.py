"""A whole job against small servers on this machine: order, warm-up, outcomes, keep-alive, retries, cancelling."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
import uvloop

from probes.events import RequestDone, RequestSent
from probes.load.client import Run
from probes.load.jobs import Order, build, carry_out

OK = (
    b'data: {"id":"s","choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
    b'data: {"id":"s","choices":[{"delta":{"content":"hi"},"finish_reason":null}]}\n\n'
    b'data: {"id":"s","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\ndata: [DONE]\n\n'
)
Script = Callable[[dict[str, Any], asyncio.StreamWriter], Awaitable[bool]]
"""Answers one request, from its body; whether to keep the connection."""


def chunked(body: bytes, status: str = "200 OK", kind: str = "text/event-stream") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    return head + b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n"


async def good(_: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
    writer.write(chunked(OK))
    return True


class Server:
    """Plays a script, and keeps what it saw."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.seen: list[str] = []
        self.heads: list[str] = []
        self.connections = 0
        self.busy = self.most = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = int(head.lower().partition("content-length:")[2].partition("\r")[0] or 0)
                body = json.loads(await reader.readexactly(length))
                self.heads.append(head)
                self.seen.append(body["name"])
                self.busy += 1
                self.most = max(self.most, self.busy)
                try:
                    keep = await self.script(body, writer)
                    await writer.drain()
                finally:
                    self.busy -= 1
                if not keep:
                    break
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def order(url: str, names: list[str], **more: Any) -> Order:
    requests = [
        {"id": name, "prompt_id": name, "body": {"name": name, "max_tokens": 4}, "warmup": name.startswith("warm")}
        for name in names
    ]
    return msgspec.convert({"url": url, "requests": requests, **more}, Order)


def play(script: Script, names: list[str], **more: Any) -> tuple[Server, list[RequestDone], list[RequestSent]]:
    """Run a job against a script; its records and ledger entries in order."""
    server = Server(script)
    facts: list[RequestSent | RequestDone] = []

    async def main() -> None:
        listener = await asyncio.start_server(server.handle, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        await asyncio.wait_for(carry_out(build(order(url, names, **more)), facts.append, []), 30)
        listener.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    done = [fact for fact in facts if isinstance(fact, RequestDone)]
    return server, done, [fact for fact in facts if isinstance(fact, RequestSent)]


def test_one_connection_carries_requests_in_order_and_warmups_first() -> None:
    server, done, sent = play(good, ["a", "warm-1", "b", "c"])
    assert server.seen == ["warm-1", "a", "b", "c"]
    assert [one.id for one in done] == [one.id for one in sent] == server.seen
    assert [one.warmup for one in done] == [True, False, False, False]
    assert {one.outcome for one in done} == {"ok"}
    assert server.connections == 1
    for one, entry in zip(done, sent, strict=True):
        assert entry.sent == one.sent
        assert one.first is not None
        assert one.done is not None
        assert one.sent <= one.first <= one.done


def test_concurrency_is_what_was_asked() -> None:
    together = asyncio.Barrier(3)

    async def meet(body: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        await together.wait()
        return await good(body, writer)

    server, done, _ = play(meet, [str(n) for n in range(9)], concurrency=3)
    assert (server.most, server.connections, len(done)) == (3, 3, 9)


def test_a_server_that_closes_though_it_promised_not_to_costs_no_request() -> None:
    async def close(body: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        await good(body, writer)
        return False

    server, done, _ = play(close, ["a", "b", "c"])
    assert server.seen == ["a", "b", "c"]
    assert [one.outcome for one in done] == ["ok"] * 3


def test_a_body_without_a_length_ends_with_its_connection() -> None:
    async def old(_: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + OK)
        return False

    assert [one.outcome for one in play(old, ["a", "b"])[1]] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        (chunked(OK), "ok"),
        (chunked(OK.replace(b"data: [DONE]", b":")), "aborted"),
        (chunked(b'data: {"error":{"message":"boom"}}\n\n'), "aborted"),
        (chunked(b"{}", "404 Not Found", "application/json"), "rejected"),
        (chunked(b"{}", "429 Too Many Requests", "application/json"), "overloaded"),
        (chunked(b'{"error":"queue timeout"}', "503 Unavailable", "application/json"), "queue_timeout"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + chunked(OK), "ok"),
        (chunked(OK)[:120], "disconnected"),
        (b"", "disconnected"),
        (b"\x00\x01 this is no HTTP\r\n\r\n", "disconnected"),
    ],
)
def test_outcomes(answer: bytes, want: str) -> None:
    async def reply(_: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        writer.write(answer)
        return False

    _, done, _ = play(reply, ["a", "b"])
    assert [one.outcome for one in done] == [want, want]
    assert all((one.error is None) == (want == "ok") for one in done)


def test_nobody_listens() -> None:
    facts: list[RequestSent | RequestDone] = []

    async def main() -> None:
        listener = await asyncio.start_server(lambda _, w: w.close(), "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        listener.close()
        await listener.wait_closed()
        job = build(order(f"http://127.0.0.1:{port}", ["a", "b", "c"], concurrency=2))
        await asyncio.wait_for(carry_out(job, facts.append, []), 30)

    asyncio.run(main())
    done = [fact for fact in facts if isinstance(fact, RequestDone)]
    assert sorted(one.id for one in done) == ["a", "b", "c"]
    assert {one.outcome for one in done} == {"disconnected"}


def test_a_request_over_its_time_is_cut_and_the_next_one_goes_on() -> None:
    async def slow(body: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        if body["name"] == "a":
            writer.write(chunked(OK)[:200])
            await writer.wait_closed()
            return False
        return await good(body, writer)

    _, done, _ = play(slow, ["a", "b"], timeout_s=0.2)
    assert [(one.id, one.outcome) for one in done] == [("a", "timeout"), ("b", "ok")]
    assert done[0].tpot_ms is None


def test_what_the_server_had_no_room_for_is_sent_again_under_another_id() -> None:
    tries: dict[str, int] = {}

    async def full(body: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        tries[body["name"]] = tries.get(body["name"], 0) + 1
        if body["name"] == "a" and tries["a"] < 2:
            writer.write(chunked(b"{}", "429 Too Many Requests", "application/json"))
            return True
        return await good(body, writer)

    _, done, _ = play(full, ["a", "b"], retries=2)
    assert [(one.id, one.outcome) for one in done] == [("a", "overloaded"), ("b", "ok"), ("a~2", "ok")]
    assert {one.prompt_id for one in done} == {"a", "b"}


def test_cancelling_closes_streams_at_once_and_sends_no_more() -> None:
    facts: list[RequestSent | RequestDone] = []

    async def main() -> Server:
        under_way = asyncio.Event()

        async def stall(_: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
            writer.write(chunked(OK)[:200])
            await writer.drain()
            if len(server.seen) == 2:
                under_way.set()
            await writer.wait_closed()
            return False

        server = Server(stall)
        listener = await asyncio.start_server(server.handle, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        running: list[Run] = []
        job = build(order(url, ["a", "b", "c", "d"], concurrency=2))
        task = asyncio.create_task(carry_out(job, facts.append, running))
        await under_way.wait()
        running[0].cancel()
        assert await asyncio.wait_for(task, 5) is None
        listener.close()
        return server

    server = asyncio.run(main())
    done = [fact for fact in facts if isinstance(fact, RequestDone)]
    assert server.seen == ["a", "b"]
    assert [(one.id, one.outcome, one.error) for one in done] == [
        ("a", "aborted", "cancelled by the client"),
        ("b", "aborted", "cancelled by the client"),
    ]


def test_a_record_that_cannot_be_kept_ends_the_job() -> None:
    async def main() -> None:
        server = Server(good)
        listener = await asyncio.start_server(server.handle, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"

        def full(fact: RequestSent | RequestDone) -> None:
            if isinstance(fact, RequestDone):
                raise OSError(28, "No space left on device")

        with pytest.raises(OSError, match="No space"):
            await asyncio.wait_for(carry_out(build(order(url, ["a", "b"])), full, []), 10)
        listener.close()

    asyncio.run(main())


def test_the_request_on_the_wire() -> None:
    server, _, _ = play(good, ["a b\n"])
    assert server.heads[0].startswith("POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:")
    assert "\r\nX-Request-Id: a_b_\r\n" in server.heads[0]
