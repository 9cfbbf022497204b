"""Drafts from the server's own counters: attributed to the one request that moved them, or to none."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from probes.engines import engine
from probes.events import RequestDone, RequestSent
from probes.load.counters import drafts, told
from probes.load.jobs import Order, build, carry_out

PAGE = """# TYPE vllm:request_success_total counter
vllm:request_success_total{{engine="0",finished_reason="stop"}} {done}.0
vllm:spec_decode_num_drafts_total{{engine="0"}} {steps}.0
vllm:spec_decode_num_draft_tokens_total{{engine="0"}} {drafted}.0
vllm:spec_decode_num_accepted_tokens_total{{engine="0"}} {accepted}.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="0"}} {first}.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="1"}} {second}.0
"""


def done(**more: Any) -> RequestDone:
    fields: dict[str, Any] = {"outcome": "ok", "completion_tokens": 11, **more}
    return RequestDone("r", "p", "h", "code", 2, 1, 0, sent=1.0, **fields)


class Server:
    """vLLM as far as this matters: every request adds its own share to the counters, a stranger may add more."""

    def __init__(self, shares: dict[str, tuple[int, int, int, int]], stranger: str = "") -> None:
        self.shares = shares
        self.stranger = stranger
        self.at = dict.fromkeys(("done", "steps", "drafted", "accepted", "first", "second"), 5)
        self.order: list[str] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                if head.startswith("GET"):
                    self.order.append("look")
                    page = PAGE.format(**self.at).encode() if head.startswith("GET /metrics ") else b""
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(page) + page)
                else:
                    length = int(head.lower().partition("content-length:")[2].partition("\r")[0])
                    self.answer(json.loads(await reader.readexactly(length))["name"], writer)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def answer(self, name: str, writer: asyncio.StreamWriter) -> None:
        self.order.append(name)
        self.at["done"] += 2 if name == self.stranger else 1
        for key, more in zip(("steps", "drafted", "first", "second"), self.shares[name], strict=True):
            self.at[key] += more
        self.at["accepted"] += self.shares[name][2] + self.shares[name][3]
        usage = {"prompt_tokens": 3, "completion_tokens": 11, "total_tokens": 14}
        events = ({"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}, {"choices": [], "usage": usage})
        body = b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in events) + b"data: [DONE]\n\n"
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % len(body) + body)


def play(server: Server, names: list[str], **more: Any) -> dict[str, RequestDone]:
    facts: list[RequestSent | RequestDone] = []

    async def main() -> None:
        listener = await asyncio.start_server(server.handle, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        requests = [{"id": n, "body": {"name": n}, "warmup": n.startswith("warm")} for n in names]
        order = msgspec.convert({"url": url, "engine": "vllm", "requests": requests, **more}, Order)
        await asyncio.wait_for(carry_out(build(order), facts.append, []), 30)
        listener.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    return {fact.id: fact for fact in facts if isinstance(fact, RequestDone)}


SHARES = {"warm": (1, 2, 1, 1), "a": (4, 8, 4, 2), "b": (3, 6, 0, 0)}


def test_each_request_gets_what_it_added() -> None:
    server = Server(SHARES)
    found = play(server, ["a", "b", "warm"])
    assert {n: (r.drafted, r.accepted) for n, r in found.items()} == {"warm": (2, 2), "a": (8, 6), "b": (6, 0)}
    # 11 tokens: one from the prompt, 6 accepted drafts, so 4 steps; all of them accepted the first, half the second.
    assert found["a"].per_position == (1.0, 0.5)
    assert found["a"].raw["drafts_source"] == "/metrics"
    assert server.order == ["look", "warm", "look", "look", "a", "look", "b", "look"]


def test_a_request_of_somebody_else_in_between_leaves_it_unsaid() -> None:
    found = play(Server(SHARES, stranger="a"), ["a", "b"])
    assert (found["a"].drafted, found["b"].drafted) == (None, 6)


def test_requests_that_overlap_are_not_looked_at() -> None:
    server = Server(SHARES)
    found = play(server, ["a", "b"], concurrency=2)
    assert "look" not in server.order
    assert {r.drafted for r in found.values()} == {None}


def test_other_engines_are_not_asked() -> None:
    server = Server(SHARES)
    play(server, ["a"], engine="llamacpp")
    assert server.order == ["a"]


def test_counters_of_a_server_without_speculation_say_nothing() -> None:
    page = 'vllm:request_success_total{finished_reason="stop"} 3.0\n'
    fields = engine("vllm").metrics(page)
    assert drafts(fields, {**fields, "total_requests": 4}) == {}


@pytest.mark.parametrize("record", [done(drafted=4, accepted=1), done(outcome="aborted")])
def test_a_reply_that_tells_itself_or_did_not_end_well_is_left_alone(record: RequestDone) -> None:
    assert told(record, {"drafted": 9, "accepted": 3, "positions": [3]}) is record


@given(st.lists(st.integers(0, 30), min_size=1, max_size=8), st.integers(0, 60), st.integers(2, 400))
def test_acceptance_by_position_never_rises_and_sums_to_accept_length(
    positions: list[int], wasted: int, tokens: int
) -> None:
    accepted = sum(positions)
    added = {"drafted": accepted + wasted, "accepted": accepted, "positions": positions}
    found = told(done(completion_tokens=tokens), added)
    assert (found.drafted, found.accepted) == (accepted + wasted, accepted)
    if found.per_position is None:
        return
    assert list(found.per_position) == sorted(found.per_position, reverse=True)
    assert sum(found.per_position) == pytest.approx(accepted / (tokens - 1 - accepted))
