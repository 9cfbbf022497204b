from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from probes import guard

GUARD = Path(guard.__file__)


class Guarded:
    """A guard with a server under it, and what it told."""

    def __init__(self, log: Path, argv: list[str]) -> None:
        self.log = log
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(GUARD), "--log", str(log), "--header", "# head", "--", *argv],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def told(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        found = json.loads(self.process.stdout.readline())
        assert isinstance(found, dict)
        return found

    def say(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word.encode() + b"\n")
        self.process.stdin.flush()

    def wait_for(self, text: str) -> None:
        """Until the server has printed this."""
        with subprocess.Popen(
            ["tail", "-n", "+1", "-F", str(self.log)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as tail:
            assert tail.stdout is not None
            for line in tail.stdout:
                if text.encode() in line:
                    break
            tail.kill()


@pytest.fixture
def guarded() -> Iterator[list[Guarded]]:
    made: list[Guarded] = []
    yield made
    for one in made:
        for pipe in (one.process.stdin, one.process.stdout):
            assert pipe is not None
            pipe.close()
        one.process.wait(10)


def start(made: list[Guarded], tmp_path: Path, script: str) -> Guarded:
    one = Guarded(tmp_path / "server.log", ["sh", "-c", script])
    made.append(one)
    return one


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def test_exit_code_and_header_and_output(tmp_path: Path, guarded: list[Guarded]) -> None:
    one = start(guarded, tmp_path, "echo out; echo err >&2; exit 7")
    assert set(one.told()) == {"pid"}
    assert one.told() == {"exit": 7}
    assert one.told() == {"gone": True, "killed": []}
    assert (tmp_path / "server.log").read_text() == "# head\nout\nerr\n"


def test_header_starts_a_line_of_its_own_after_a_torn_log(tmp_path: Path, guarded: list[Guarded]) -> None:
    (tmp_path / "server.log").write_text("torn")
    one = start(guarded, tmp_path, "true")
    assert [one.told(), one.told(), one.told()][1] == {"exit": 0}
    assert (tmp_path / "server.log").read_text() == "torn\n# head\n"


def test_a_header_is_one_line_whatever_is_in_it(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    os.close(guard.open_log(str(log), "# head 'a\n# draftdial restart 9 \u2028 b'"))
    assert log.read_text() == "# head 'a # draftdial restart 9   b'\n"


def test_a_log_that_cannot_be_written_is_told(tmp_path: Path, guarded: list[Guarded]) -> None:
    one = Guarded(tmp_path / "none" / "server.log", ["true"])
    guarded.append(one)
    assert one.told() == {"error": f"{tmp_path}/none/server.log: No such file or directory"}


def test_a_program_that_is_not_there(tmp_path: Path, guarded: list[Guarded]) -> None:
    one = Guarded(tmp_path / "server.log", ["/no/such/program"])
    guarded.append(one)
    assert "No such file" in one.told()["error"]


def test_term_reaches_the_server(tmp_path: Path, guarded: list[Guarded]) -> None:
    one = start(guarded, tmp_path, "trap 'exit 3' TERM; echo up; while :; do sleep 0.05; done")
    one.told()
    one.wait_for("up")
    one.say("term")
    assert one.told() == {"exit": 3}


def test_a_server_that_ignores_term_is_killed_when_the_console_goes(tmp_path: Path, guarded: list[Guarded]) -> None:
    one = start(guarded, tmp_path, "trap '' TERM; setsid sleep 600 & echo child $!; sleep 600")
    pid = one.told()["pid"]
    one.wait_for("child")
    child = int((tmp_path / "server.log").read_text().split("child ")[1].split()[0])
    assert one.process.stdin is not None
    one.process.stdin.close()
    assert one.told() == {"exit": -signal.SIGKILL}
    assert child in one.told()["killed"]
    one.process.wait(5)
    assert gone(pid)
    assert gone(child)


def test_a_console_that_went_while_the_guard_was_starting_gets_no_server(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    reader, writer = os.pipe()
    os.close(writer)
    words = [sys.executable, "-I", "-S", str(GUARD), "--log", str(log), "--header", "# head", "--", "true"]
    assert subprocess.run(words, stdin=reader, capture_output=True, timeout=20, check=False).stdout == b""
    os.close(reader)
    assert not log.exists()


def test_a_killed_guard_takes_the_server_with_it(tmp_path: Path, guarded: list[Guarded]) -> None:
    one = start(guarded, tmp_path, "echo up; exec sleep 600")
    pid = one.told()["pid"]
    one.wait_for("up")
    watch = os.pidfd_open(pid)
    one.process.kill()
    import select

    assert select.select([watch], [], [], 5)[0], "the server outlived its guard"
    os.close(watch)


def test_released_server_stays(tmp_path: Path, guarded: list[Guarded]) -> None:
    one = start(guarded, tmp_path, "trap 'exit 0' USR1; echo up; while :; do sleep 0.05; done")
    pid = one.told()["pid"]
    one.wait_for("up")
    one.say("release")
    assert one.process.stdin is not None
    one.process.stdin.close()
    assert one.process.stdout is not None
    assert not gone(pid)
    os.kill(pid, signal.SIGUSR1)
    assert one.told() == {"exit": 0}


def test_signals_are_not_ignored_in_the_server(tmp_path: Path, guarded: list[Guarded]) -> None:
    one = start(guarded, tmp_path, "grep SigIgn /proc/self/status")
    one.told()
    assert one.told() == {"exit": 0}
    ignored = int((tmp_path / "server.log").read_text().split("SigIgn:")[1], 16)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        assert not ignored >> (number - 1) & 1
