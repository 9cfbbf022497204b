from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import httpx
import pytest

from probes.events import ServerChanged
from probes.recipe import Limits, Refused
from probes.server import Server, Start, ask, free_port, pick_port, port_owner

FAKE = Path(__file__).parent / "fakes" / "server.py"
Told = list[ServerChanged]


def explain(lines: Sequence[str], code: int | None) -> tuple[str | None, str | None]:
    found = next((line for line in lines if line.startswith("error:")), None)
    return found, f"exit {code}" if found else None


def start_of(*words: str, port: int | None = None, restart: int = 1) -> Start:
    port = port or free_port()
    return Start(restart, (sys.executable, str(FAKE), "--port", str(port), *words), {}, "127.0.0.1", port, "/health", 2)


def play(log: Path, story: Callable[[Server, Told], Awaitable[None]], **limits: float) -> Told:
    """A story with a server, told by its events; the server is stopped at its end."""
    told: Told = []

    async def whole() -> None:
        server = Server(log, Limits(**{"boot_s": 30.0, "stop_s": 3.0} | limits), told.append, explain)
        try:
            await story(server, told)
        finally:
            await server.stop()

    asyncio.run(whole())
    return told


def test_a_start_that_is_given_up_is_no_failure(tmp_path: Path) -> None:
    async def story(server: Server, told: Told) -> None:
        starting = asyncio.create_task(server.start(start_of("--unready")))
        while server.pid is None or port_owner("127.0.0.1", server.now.port if server.now else 0) is None:
            await asyncio.sleep(0)
        await server.stop()
        assert await starting is False
        assert await server.start(start_of())

    states = [e.state for e in play(tmp_path / "server.log", story)]
    assert "failed" not in states
    assert states.count("stopped") == 2
    after = states[states.index("draining") :]
    assert after[:3] == ["draining", "stopped", "starting"]


@pytest.mark.parametrize("status", [401, 404])
def test_a_server_whose_log_says_ready_need_not_have_the_path(tmp_path: Path, status: int) -> None:
    async def story(server: Server, told: Told) -> None:
        start = start_of("--status", str(status))
        starting = asyncio.create_task(server.start(start))
        while port_owner("127.0.0.1", start.port) is None or "GET" not in server.log.read_text():
            await asyncio.sleep(0)
        assert server.state in {"starting", "loading"}, "the answer alone proves nothing"
        server.ready_line = 1
        assert await starting

    assert "ready" in [e.state for e in play(tmp_path / "server.log", story)]


def test_a_server_that_is_ready_elsewhere_is_told_as_that(tmp_path: Path) -> None:
    async def story(server: Server, told: Told) -> None:
        starting = asyncio.create_task(server.start(start_of("--unready")))
        while server.pid is None:
            await asyncio.sleep(0)
        server.ready_line = 41
        assert await starting is False

    failed = next(e for e in play(tmp_path / "server.log", story, boot_s=0.5) if e.state == "failed")
    assert failed.reason is not None
    assert failed.reason.startswith("line 41 of its log says that it is ready, and http://127.0.0.1:")
    assert failed.reason.endswith("/health does not answer")
    assert failed.hint == "do the preset's flags move its host, port or paths?"


def test_starts_answers_and_stops(tmp_path: Path) -> None:
    async def story(server: Server, told: Told) -> None:
        start = start_of()
        assert await server.start(start)
        assert (await ask(start.url, ["/health", "/other"])) == {"/health": {}, "/other": {}}
        assert port_owner("127.0.0.1", start.port) is not None

    told = play(tmp_path / "server.log", story)
    states = [e.state for e in told]
    assert states[0] == "starting"
    assert states[-3:] == ["ready", "draining", "stopped"]
    ready = told[states.index("ready")]
    assert ready.boot_s is not None
    assert ready.boot_s > 0
    assert ready.depth == 2
    port = int(str(ready.url).rpartition(":")[2])
    assert port_owner("127.0.0.1", port) is None
    assert (tmp_path / "server.log").read_text().startswith("# draftdial restart 1 · ")


def test_a_refused_flag_says_the_first_line_not_the_last(tmp_path: Path) -> None:
    async def story(server: Server, told: Told) -> None:
        assert not await server.start(start_of("--refuse", "depth 6 is not 1 to 5"))

    # The lines are given by whoever tails the log; here the log is read at the moment of the failure.
    log = tmp_path / "server.log"
    told: Told = []

    def sink(event: ServerChanged) -> None:
        told.append(event)

    async def whole() -> None:
        def reason(_: Sequence[str], code: int | None) -> tuple[str | None, str | None]:
            return explain(log.read_text().splitlines(), code)

        server = Server(log, Limits(boot_s=30, stop_s=3), sink, reason)
        await story(server, told)

    asyncio.run(whole())
    assert told[-1].state == "failed"
    assert told[-1].reason == "error: depth 6 is not 1 to 5"
    assert told[-1].exit_code == 1


def test_a_taken_port_is_refused_by_its_owners_name(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        async def story(server: Server, told: Told) -> None:
            assert not await server.start(start_of(port=port))

        told = play(tmp_path / "server.log", story)
        assert f"port {port} is taken by" in str(told[0].reason)
        assert "pid" in str(told[0].reason)
        with pytest.raises(Refused, match="is taken by"):
            pick_port("127.0.0.1", port)
    assert pick_port("127.0.0.1", port) == port


def test_a_missing_binary_is_named(tmp_path: Path) -> None:
    async def story(server: Server, told: Told) -> None:
        assert not await server.start(Start(1, ("/no/such/llama-server",), {}, "127.0.0.1", free_port(), "/health"))

    told = play(tmp_path / "server.log", story)
    assert told[-1].reason == "/no/such/llama-server: No such file or directory"


def test_a_server_that_is_never_ready_is_ended(tmp_path: Path) -> None:
    async def story(server: Server, told: Told) -> None:
        assert not await server.start(start_of("--unready"))

    told = play(tmp_path / "server.log", story, boot_s=1.0)
    failed = [e for e in told if e.state == "failed"]
    assert "not ready after 1 s" in str(failed[0].reason)
    assert "loading" in [e.state for e in told]


def test_what_a_server_says_while_it_is_ended_is_not_told_as_its_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM prints `KeyboardInterrupt: terminated` then, which says nothing of why it was slow."""

    async def story(server: Server, told: Told) -> None:
        end = server._end

        async def ended() -> None:
            await end()
            server.progress = "KeyboardInterrupt: terminated"

        monkeypatch.setattr(server, "_end", ended)
        starting = asyncio.create_task(server.start(start_of("--unready")))
        while server.pid is None:
            await asyncio.sleep(0)
        server.progress = "Loading weights: 40 %"
        assert not await starting

    told = play(tmp_path / "server.log", story, boot_s=1.0)
    (reason,) = [str(e.reason) for e in told if e.state == "failed"]
    assert reason == "not ready after 1 s; last line: Loading weights: 40 %"


def test_a_server_may_be_ended_from_two_sides_at_once(tmp_path: Path) -> None:
    """Ctrl-C gives a start up, and the end of the plan stops the server: the second to wait found no guard any more."""

    async def story(server: Server, told: Told) -> None:
        starting = asyncio.create_task(server.start(start_of("--unready", "--ignore-term")))
        while server.pid is None:
            await asyncio.sleep(0)
        await asyncio.gather(server.stop(), server.stop(), server.stop())
        assert await starting is False

    told = play(tmp_path / "server.log", story, stop_s=0.3)
    assert told[-1].state == "stopped"


def test_a_reply_without_end_holds_nobody_up(tmp_path: Path) -> None:
    async def story(server: Server, told: Told) -> None:
        start = start_of("--endless")
        assert await server.start(start)
        assert await server.look(start.url, "/health")
        assert await ask(start.url, ["/other"]) == {"/other": {}}, "its beginning is read"

    play(tmp_path / "server.log", story)


def test_a_tree_too_deep_to_read_is_text(tmp_path: Path) -> None:
    async def story(server: Server, told: Told) -> None:
        start = start_of()
        assert await server.start(start)
        assert str((await ask(start.url, ["/deep"]))["/deep"]).startswith("[[[[")

    play(tmp_path / "server.log", story)


def test_an_unexplained_end_tells_its_code_and_last_line(tmp_path: Path) -> None:
    async def story(server: Server, told: Told) -> None:
        server.progress = ""
        assert not await server.start(start_of("--last-word", "giving up"))

    told = play(tmp_path / "server.log", story)
    assert told[-1].reason == "it ended before it was ready (with exit code 7); last line: none"
    assert told[-1].hint == f"{tmp_path}/server.log has all that it said"


def test_a_death_is_waited_for_by_whoever_saw_a_stream_break(tmp_path: Path) -> None:
    async def story(server: Server, told: Told) -> None:
        start = start_of()
        assert await server.start(start)
        assert not await server.ended(0.0)
        async with httpx.AsyncClient(trust_env=False) as http:
            with contextlib.suppress(httpx.HTTPError):
                await http.get(start.url + "/die")
        assert await server.ended(10.0)
        assert told[-1].state == "failed"

    play(tmp_path / "server.log", story)


def test_a_server_that_ignores_the_first_signal_is_gone_all_the_same(tmp_path: Path) -> None:
    async def story(server: Server, told: Told) -> None:
        assert await server.start(start_of("--ignore-term"))

    told = play(tmp_path / "server.log", story, stop_s=0.3)
    assert told[-1].state == "stopped"
    assert told[-1].exit_code == -9


def test_a_crash_while_ready_is_told_with_its_signal(tmp_path: Path) -> None:
    async def story(server: Server, told: Told) -> None:
        start = start_of()
        assert await server.start(start)
        async with httpx.AsyncClient(trust_env=False) as http:
            with contextlib.suppress(httpx.HTTPError):
                await http.get(start.url + "/die")
        while told[-1].state != "failed":
            await asyncio.sleep(0.01)
        assert await server.start(start_of(restart=2)), "a crashed server can be started again"

    told = play(tmp_path / "server.log", story)
    failed = next(e for e in told if e.state == "failed")
    assert failed.signal == "SIGKILL"
    assert failed.exit_code == -9
