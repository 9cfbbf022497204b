from __future__ import annotations

import asyncio
from typing import Any

import pytest

from probes.identify import checked, engine_at, simulated_at, told
from probes.recipe import Refused


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080"),
        ("localhost:30000", "http://localhost:30000"),
        ("https://gpu.example", "https://gpu.example"),
        ("https://gpu.example/", "https://gpu.example"),
        ("10.0.0.2:8000/v1/chat/completions/", "http://10.0.0.2:8000"),
        ("http://[::1]:8", "http://[::1]:8"),
    ],
)
def test_urls(url: str, found: str) -> None:
    assert checked(url) == found


@pytest.mark.parametrize(
    "url",
    ["ftp://x", "http://", "http://x:port", "http://user:secret@x:1", "http://x:99999", "http://x:1/proxy/llm"],
)
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(Refused) as caught:
        checked(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("replies", "engine"),
    [
        ({"/v1/models": {"data": [{"id": "m", "owned_by": "llamacpp"}]}}, "llamacpp"),
        ({"/v1/models": {"data": [{"id": "m", "owned_by": "vllm"}]}}, "vllm"),
        ({"/v1/models": {"data": [{"id": "m", "owned_by": "sglang"}]}}, "sglang"),
        ({"/props": {"total_slots": 4}}, "llamacpp"),
        ({"/server_info": {"max_total_num_tokens": 5}}, "sglang"),
        ({"/health": {"status": "ok"}}, None),
        ({"/v1/models": [1, 2], "/props": "x"}, None),
        ({}, None),
    ],
)
def test_what_gives_an_engine_away(replies: dict[str, Any], engine: str | None) -> None:
    assert told(replies) == engine


@pytest.mark.parametrize(
    ("header", "speed"), [("X-Simulated-Speed: 20\r\n", 20.0), ("", None), ("X-Simulated-Speed: x\r\n", None)]
)
def test_a_simulated_server_says_so_in_every_reply(header: str, speed: float | None) -> None:
    async def run() -> float | None:
        async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(f"HTTP/1.1 200 OK\r\n{header}Content-Length: 0\r\n\r\n".encode())
            writer.close()

        server = await asyncio.start_server(reply, "127.0.0.1", 0)
        async with server:
            return await simulated_at(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")

    assert asyncio.run(run()) == speed


def test_nothing_that_answers_says_nothing() -> None:
    assert asyncio.run(simulated_at("http://127.0.0.1:9")) is None


def test_an_engine_that_its_replies_contradict_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    replies: dict[str, Any] = {"/v1/models": {"data": [{"id": "m", "owned_by": "ninfer"}]}}

    async def ask(_url: str, _paths: object, _headers: object = None) -> dict[str, Any]:
        return replies

    monkeypatch.setattr("probes.identify.ask", ask)
    assert asyncio.run(engine_at("http://x:1", "ninfer")) == "ninfer"
    with pytest.raises(Refused, match="answers as ninfer, not as vllm"):
        asyncio.run(engine_at("http://x:1", "vllm"))
    replies["/v1/models"] = {"data": [{"id": "m", "owned_by": "a proxy"}]}
    assert asyncio.run(engine_at("http://x:1", "vllm")) == "vllm"
