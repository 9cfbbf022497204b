"""What a client may do to a simulated engine, without a process: odd bodies, methods, stop strings, clients that go."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from probes.sim import tables
from probes.sim.__main__ import build, main
from probes.sim.draft import Noise
from probes.sim.front import BadStartError, World
from probes.sim.process import Clock, Fault, Process
from probes.sim.wire import MAX_BODY, Answer, Asked, Client

ARGV = {
    "ninfer": "m.ninfer --max-context 8192 --max-concurrency 1",
    "sglang": "--model-path m --enable-metrics --max-running-requests 1",
    "vllm": "serve m --max-model-len 4096 --max-num-seqs 1",
    "llamacpp": "-m m -c 4096 -np 1 --metrics",
}
TABLES = {"ninfer": "ninfer-5090", "sglang": "sglang-k3", "vllm": "vllm-8b", "llamacpp": "llamacpp-8b"}


class Wire(asyncio.Transport):
    """Keeps what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.out = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.out += bytes(data)

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    @property
    def status(self) -> int:
        return int(self.out.split()[1])


def front_of(dialect: str) -> Any:
    world = World(tables.load(TABLES[dialect]), Noise(), "1", 0, lambda *_: None, 1.7e9)
    return build(dialect, ARGV[dialect].split(), world)


def body(front: Any, **more: Any) -> dict[str, Any]:
    return {"model": front.model, "messages": [{"role": "user", "content": "Write a story"}], "max_tokens": 40, **more}


def sent(front: Any, **more: Any) -> Any:
    """What becomes of a chat with this body: a refusal, or a chat that may run."""
    return front.chat(Asked("POST", "/v1/chat/completions", {}, json.dumps(body(front, **more)).encode()))


def talk(data: bytes, answer: Answer) -> Wire:
    """What is written back on a connection that sends these bytes."""
    client, wire = Client(lambda c, _: c.answer(answer), dict), Wire()
    client.connection_made(wire)
    client.data_received(data)
    return wire


@pytest.mark.parametrize("dialect", ["ninfer", "sglang", "vllm"])
@pytest.mark.parametrize("limit", [-1, 1.5, "many", True])
def test_an_output_limit_that_is_none_is_refused(dialect: str, limit: Any) -> None:
    reply = sent(front_of(dialect), max_tokens=limit)
    assert isinstance(reply, Answer)
    assert reply.status == 400
    assert "max_tokens must be at least" in json.dumps(reply.body)


@pytest.mark.parametrize("dialect", sorted(ARGV))
def test_one_reply_is_made_and_more_are_refused(dialect: str) -> None:
    front = front_of(dialect)
    assert not isinstance(sent(front, n=1), Answer)
    assert not isinstance(sent(front, max_tokens=None), Answer)
    reply = sent(front, n=2)
    assert isinstance(reply, Answer)
    assert reply.status == 400
    if dialect == "ninfer":
        assert reply.body["error"]["code"] == "n_not_supported"
        assert isinstance(sent(front, stop=list("abcde")), Answer)


@pytest.mark.parametrize("dialect", sorted(ARGV))
def test_a_path_that_is_read_takes_no_post_and_every_model_is_said_to_be_simulated(dialect: str) -> None:
    front = front_of(dialect)
    status = 405 if dialect in {"sglang", "vllm"} else 404
    assert front.get(Asked("POST", "/health", {}, b"")).status == status
    assert front.get(Asked("GET", "/v1/chat/completions", {}, b"")).status == status
    assert front.get(Asked("GET", "/v1/models", {}, b"")).body["data"][0]["simulated"] is True


def test_a_key_is_wanted_everywhere_but_at_health() -> None:
    world = World(tables.load("ninfer-5090"), Noise(), "1", 0, lambda *_: None, 1.7e9)
    front = build("ninfer", ["m.ninfer", "--api-key", "k"], world)
    assert front.get(Asked("GET", "/health", {}, b"")).status == 200
    assert front.get(Asked("GET", "/v1/models", {}, b"")).status == 401
    assert front.get(Asked("GET", "/v1/models", {"authorization": "Bearer k"}, b"")).status == 200


def test_a_nest_of_brackets_is_a_bad_body_and_not_the_end_of_the_connection() -> None:
    for dialect, status in (("ninfer", 400), ("vllm", 400), ("llamacpp", 500)):
        reply = front_of(dialect).chat(Asked("POST", "/v1/chat/completions", {}, b"[" * 200_000))
        assert isinstance(reply, Answer)
        assert reply.status == status


def test_head_has_a_length_and_no_body_and_the_next_request_is_heard() -> None:
    wire = talk(
        b"HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n" + b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", Answer(200, "up")
    )
    first, _, rest = wire.out.partition(b"\r\n\r\n")
    assert b"Content-Length: 2" in first
    assert rest.startswith(b"HTTP/1.1 200")
    assert rest.endswith(b"\r\n\r\nup")


def test_malformed_http_is_answered_before_the_connection_closes() -> None:
    wire = talk(b"nonsense\r\n\r\n", Answer(200, "up"))
    assert wire.status == 400
    assert wire.closed


def test_a_body_that_is_too_large_is_refused_and_not_cut() -> None:
    client, wire = Client(lambda c, _: c.answer(Answer(200, "up")), dict), Wire()
    client.connection_made(wire)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {MAX_BODY + 1}\r\n\r\n"
    client.data_received(head.encode())
    piece = b"x" * (1 << 22)
    for _ in range(MAX_BODY >> 22):
        client.data_received(piece)
    assert not wire.out
    client.data_received(b"x")
    assert wire.status == 413


def drive(dialect: str, acts: Any, **more: Any) -> tuple[Any, Wire]:
    """A chat on a process whose clock only this test moves; `acts(core, client)` does what it wants in the midst."""

    async def run() -> tuple[Any, Wire]:
        front = front_of(dialect)
        process = Process(front, Clock(0.01), Fault())
        front.core.at = process.boot_s = 1000.0
        client, wire = Client(process._handle, process._marks), Wire()
        client.connection_made(wire)
        text = json.dumps(body(front, stream=True, **more)).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(text)}\r\n\r\n"
        client.data_received(head.encode() + text)
        acts(front.core, client)
        return front.core, wire

    return asyncio.run(run())


@pytest.mark.parametrize("dialect", sorted(ARGV))
def test_a_client_that_goes_frees_its_lane(dialect: str) -> None:
    def go(core: Any, client: Client) -> None:
        core.advance(1000.5)
        assert len(core.running) == 1
        client.connection_lost(None)
        core.advance(1001.0)

    core, _ = drive(dialect, go, max_tokens=4000)
    assert not core.running
    assert not core.queue


@pytest.mark.parametrize("dialect", sorted(ARGV))
def test_a_reply_ends_before_its_stop_string(dialect: str) -> None:
    def texts(wire: Wire) -> tuple[str, str]:
        lines = [line[6:] for line in wire.out.decode().split("\n") if line.startswith("data: {")]
        choices = [c for line in lines for c in json.loads(line)["choices"]]
        said = "".join(c["delta"].get("content") or "" for c in choices)
        return said, [c["finish_reason"] for c in choices if c["finish_reason"]][-1]

    def on(core: Any, _client: Client) -> None:
        core.advance(1100.0)

    whole, finish = texts(drive(dialect, on)[1])
    assert (len(whole.split()), finish) == (40, "length")
    stop = whole.split()[20]
    said, finish = texts(drive(dialect, on, stop=["never said", f" {stop}"])[1])
    assert finish == "stop"
    assert said == whole.partition(f" {stop}")[0]


def test_prompts_that_are_not_cut_into_pieces_are_computed_whole() -> None:
    world = World(tables.load("sglang-k3"), Noise(), "1", 0, lambda *_: None, 1.7e9)
    whole: Any = build("sglang", ["--model-path", "m", "--chunked-prefill-size", "-1"], world)
    usual: Any = build("sglang", ["--model-path", "m"], world)
    assert whole.plan_.chunk == whole.plan_.context
    assert usual.plan_.chunk == 16384


@pytest.mark.parametrize("flag", ["--max-num-seqs", "--max-num-batched-tokens"])
@pytest.mark.parametrize("value", ["0", "-1"])
def test_a_server_that_could_run_nothing_does_not_start(flag: str, value: str) -> None:
    world = World(tables.load("vllm-8b"), Noise(), "1", 0, lambda *_: None, 1.7e9)
    with pytest.raises(BadStartError) as caught:
        build("vllm", ["serve", "m", flag, value], world)
    assert f"({value}) must be greater than or equal to 1" in "\n".join(caught.value.lines)


@pytest.mark.parametrize("words", [["--fault", "torn@0"], ["--fault", "crash@"], ["--noise", "request=nan"],
                                   ["--noise", "thermal_s=-4"], ["--speed", "fast"]])  # fmt: skip
def test_own_options_that_make_no_sense_are_refused_in_one_line(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--dialect", "ninfer", *words, "--", "m.ninfer"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("dialect", ["sglang", "vllm", "llamacpp"])
def test_a_port_that_is_none_ends_the_start_as_a_taken_one_does(dialect: str) -> None:
    async def run() -> int:
        front = front_of(dialect)
        front.port = 70_000
        return await Process(front, Clock(10_000), Fault()).serve()

    assert asyncio.run(run()) == 1
