"""The simulated engine as a process: HTTP, streams, simulated stamps, signals, exit codes and faults on request."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from probes import reading
from probes.load.facts import Stream
from probes.load.simtime import in_its_time, speed_of
from probes.load.sse import events
from probes.load.wire import Reply
from probes.recipe import SIMULATED
from probes.server import free_port
from probes.sim import tables

ROOT = Path(__file__).resolve().parent.parent.parent
ARGV = {
    "ninfer": ["m.ninfer", "--max-concurrency", "2", "--spec", "mtp", "--draft-tokens", "3"],
    "sglang": ["serve", "--model-path", "m", "--enable-metrics", "--max-running-requests", "4"],
    "vllm": ["serve", "m", "--max-model-len", "4096"],
    "llamacpp": ["-m", "m", "-c", "4096", "-np", "2", "--metrics", "-lv", "4"],
}
Start = Callable[..., tuple[subprocess.Popen[str], str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a simulated engine and wait until it answers; all of them are ended afterwards."""
    running: list[subprocess.Popen[str]] = []

    def go(dialect: str, *own: str) -> tuple[Any, str]:
        port = free_port()
        words = [sys.executable, "-m", "probes.sim", "--dialect", dialect, "--speed", "200", *own, "--"]
        words += [*ARGV[dialect], "--port", str(port)]
        log = (tmp_path / f"{len(running)}.log").open("w", encoding="utf-8")
        process = subprocess.Popen(words, stderr=log, stdout=log, text=True, cwd=ROOT,
                                   env={**os.environ, "PYTHONPATH": str(ROOT)})  # fmt: skip
        process.log = Path(log.name)  # type: ignore[attr-defined]
        log.close()
        running.append(process)
        url = f"http://127.0.0.1:{port}"
        while process.poll() is None:
            try:
                if httpx.get(f"{url}/health", timeout=1.0, trust_env=False).status_code == 200:
                    break
            except httpx.HTTPError:
                continue
        return process, url

    yield go
    for process in running:
        process.kill()
        process.wait()


def chat(url: str, model: str, tokens: int = 60, **more: Any) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": "Write a story"}], "max_tokens": tokens,
            "stream": True, "stream_options": {"include_usage": True}, **more}  # fmt: skip
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=30.0, trust_env=False)


@pytest.mark.parametrize("dialect", sorted(ARGV))
def test_every_dialect_serves_streams_and_ends_in_order(start: Start, dialect: str) -> None:
    process, url = start(dialect)
    assert process.poll() is None, process.log.read_text()  # type: ignore[attr-defined]
    model = httpx.get(f"{url}/v1/models", trust_env=False).json()["data"][0]["id"]
    reply = chat(url, model)
    assert reply.headers["x-simulated-speed"] == "200"
    stream = Stream()
    for stamp, data in events([(0.0, reply.content)]):
        stream.add(stamp, data)
    assert stream.done
    assert stream.error is None
    assert stream.final["usage"]["completion_tokens"] == 60
    assert len("".join(stream.text).split()) == 60
    whole = chat(url, model, stream=False, stream_options=None).json()
    assert whole["choices"][0]["message"]["content"].split() == "".join(stream.text).split()
    assert httpx.get(f"{url}/nothing", trust_env=False).status_code == 404
    assert httpx.get(f"{url}/metrics", trust_env=False).status_code == (404 if dialect == "ninfer" else 200)
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0


@pytest.mark.parametrize("dialect", sorted(ARGV))
def test_a_log_of_a_simulated_server_says_so_to_whoever_reads_it(start: Start, dialect: str) -> None:
    process, url = start(dialect)
    chat(url, httpx.get(f"{url}/v1/models", trust_env=False).json()["data"][0]["id"])
    log: Path = process.log  # type: ignore[attr-defined]
    assert log.read_text().startswith(f"{SIMULATED}{dialect} on ")
    found = reading.read(log)
    assert found.engine == dialect
    assert found.records
    assert any("a simulated engine wrote this" in w.text for w in found.warnings)


def test_figures_do_not_depend_on_the_speed_of_time(start: Start) -> None:
    found = []
    for speed in ("100", "400"):
        _, url = start("ninfer", "--speed", speed)
        reply = chat(url, tables.load("ninfer-5090").model, 200)
        parts = in_its_time(Reply(10.0, status=200, headers=dict(reply.headers), parts=[(11.0, reply.content)]),
                            float(speed)).parts  # fmt: skip
        stream = Stream()
        for stamp, data in events(parts):
            stream.add(stamp, data)
        found.append([s - 10.0 * float(speed) for s in stream.stamps])
    assert found[0] == pytest.approx(found[1], abs=2e-6)
    assert 0.03 < found[0][0] < 0.2
    assert found[0][-1] > 1.0


def test_stamps_of_a_real_engine_are_left_alone() -> None:
    assert speed_of(Reply(1.0, headers={"server": "x"})) is None
    assert speed_of(Reply(1.0, headers={"x-simulated-speed": "soon"})) is None


def test_a_taken_port_and_a_bad_flag_end_the_start(start: Start) -> None:
    _, url = start("llamacpp")
    port = url.rpartition(":")[2]
    words = [sys.executable, "-m", "probes.sim", "--dialect", "llamacpp", "--", "-m", "m", "--port", port]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=30, check=False)
    assert done.returncode == 1
    assert "couldn't bind HTTP server socket" in done.stderr
    bad = subprocess.run(
        [*words[:5], "--", "--no-such"], capture_output=True, text=True, cwd=ROOT, timeout=30, check=False
    )
    assert (bad.returncode, bad.stderr) == (1, "error: invalid argument: --no-such\n")


@pytest.mark.parametrize(("fault", "code"), [("crash@1", -6), ("oom@1", 1)])
def test_faults_end_the_process_as_asked(start: Start, fault: str, code: int) -> None:
    process, url = start("ninfer", "--fault", fault)
    with pytest.raises(httpx.HTTPError):
        chat(url, tables.load("ninfer-5090").model, 4000)
    assert process.wait(10) == code
    assert "CUDA error" in process.log.read_text()  # type: ignore[attr-defined]


def test_a_torn_stream_has_no_end_mark(start: Start) -> None:
    _, url = start("vllm", "--fault", "torn@2")
    assert chat(url, "m").text.rstrip().endswith("data: [DONE]")
    with pytest.raises(httpx.HTTPError):
        chat(url, "m")


def test_a_hang_answers_health_and_nothing_else(start: Start) -> None:
    _, url = start("sglang", "--fault", "hang@1")
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{url}/v1/chat/completions", timeout=1.0, trust_env=False,
                   json={"messages": [{"role": "user", "content": "go"}], "max_tokens": 4000})  # fmt: skip
    assert httpx.get(f"{url}/health", trust_env=False).status_code == 200


def test_own_options_are_checked_in_one_line() -> None:
    for words, says in (
        (["--dialect", "ninfer", "--speed", "0"], "want 0.01 to 10000"),
        (["--dialect", "ninfer", "--table", "vllm-8b"], "made for vllm"),
        (["--dialect", "ninfer", "--fault", "flood"], "crash, hang"),
    ):
        done = subprocess.run([sys.executable, "-m", "probes.sim", *words, "--", "m"], capture_output=True, text=True,
                              cwd=ROOT, timeout=30, check=False)  # fmt: skip
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert says in done.stderr


def test_the_request_body_survives_as_json(start: Start) -> None:
    _, url = start("llamacpp")
    broken = httpx.post(f"{url}/v1/chat/completions", content=b"{", trust_env=False)
    assert (broken.status_code, json.loads(broken.text)["error"]["type"]) == (500, "server_error")
    long = "x" * 40_000
    reply = httpx.post(f"{url}/v1/chat/completions", trust_env=False,
                       json={"messages": [{"role": "user", "content": long}]})  # fmt: skip
    assert reply.json()["error"]["type"] == "exceed_context_size_error"
