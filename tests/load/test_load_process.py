"""The load process from outside: the command line, jobs on stdin, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
LOAD = [sys.executable, "-m", "probes.load"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
PIPE = subprocess.PIPE


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a stub with known times."""
    with subprocess.Popen(
        [sys.executable, "-m", "probes.load.stub"], stdin=PIPE, stdout=PIPE, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.kill()


def run(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LOAD, *options], env={**ENVIRONMENT, **environment}, capture_output=True, text=True, timeout=60, check=False
    )


def job(url: str, *names: str, **more: Any) -> dict[str, Any]:
    body = {"max_tokens": 4, "stub": {"ttft_ms": 1, "tpot_ms": 1, **more.pop("stub", {})}}
    requests = [{"id": name, "prompt_id": name, "category": "code", "body": body} for name in names]
    return {"url": url, "requests": requests, "job": "j1", **more}


class Jobs:
    """A load process that takes jobs."""

    def __init__(self, *options: str) -> None:
        self.process = subprocess.Popen([*LOAD, "--jobs", "-", *options], stdin=PIPE, stdout=PIPE, env=ENVIRONMENT)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self.stdin.close()
        self.stdout.close()

    def tell(self, what: Any) -> None:
        self.stdin.write((what if isinstance(what, str) else json.dumps(what)).encode() + b"\n")
        self.stdin.flush()

    def hear(self) -> dict[str, Any]:
        found = json.loads(self.stdout.readline())
        assert isinstance(found, dict)
        return found

    def until_idle(self) -> list[dict[str, Any]]:
        found = [self.hear()]
        while found[-1]["kind"] != "idle":
            found.append(self.hear())
        return found


def test_alone_writes_one_object_a_request(url: str, tmp_path: Path) -> None:
    out = tmp_path / "load.jsonl"
    done = run("--url", url, "--concurrency", "3", "--n", "7", "--max-tokens", "5", "--out", str(out))
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(records) == 7
    assert len({record["id"] for record in records}) == 7
    for record in records:
        assert record["sent"] < record["first"] <= record["last"]
        assert (record["outcome"], record["completion_tokens"], record["max_tokens"]) == ("ok", 5, 5)
        assert len(record["prompt_hash"]) == 64
    assert "7 requests: 7 ok" in done.stderr
    assert done.stdout == ""


def test_alone_to_stdout_with_labels_and_more_requests_than_prompts(url: str) -> None:
    done = run(
        "--url", url, "--concurrency", "50", "--n", "12", "--max-tokens", "1", "--categories", "story",
        "--depth", "3", "--restart", "2", "--block", "1", "--warmup", "1",
    )  # fmt: skip
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [record["id"] for record in records if record["warmup"]] == ["warmup-1"]
    measured = [record for record in records if not record["warmup"]]
    assert {record["category"] for record in measured} == {"story"}
    assert {"story-1", "story-1.2", "story-10", "story-2.2"} <= {record["id"] for record in measured}
    assert {(record["depth"], record["restart"], record["block"]) for record in records} == {(3, 2, 1)}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "--url"),
        (("--url", "nonsense"), "http://"),
        (("--url", "http://h", "--categories", "poems"), "poems"),
        (("--url", "http://h", "--engine", "none-such", "--model", "m"), "no engine"),
        (("--url", "http://h", "--header-env", "X"), "HEADER=VARIABLE"),
        (("--url", "http://h", "--header-env", "X=NO_SUCH_VARIABLE"), "NO_SUCH_VARIABLE"),
        (("--url", "http://h", "--out", "/no/such/folder/f"), "No such file"),
    ],
)
def test_bad_options_end_with_2_and_one_line(options: tuple[str, ...], words: str) -> None:
    done = run(*options)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_server_that_is_not_there_ends_with_4_and_records(url: str) -> None:
    done = run("--url", "http://127.0.0.1:1", "--n", "2", "--model", "m")
    assert done.returncode == 4
    assert [json.loads(line)["outcome"] for line in done.stdout.splitlines()] == ["disconnected"] * 2


def test_a_secret_reaches_no_output(url: str, tmp_path: Path) -> None:
    out = tmp_path / "f"
    done = run(
        "--url",
        url,
        "--n",
        "1",
        "--max-tokens",
        "2",
        "--header-env",
        "Authorization=KEY",
        "--out",
        str(out),
        KEY="s3cret",
    )
    assert done.returncode == 0, done.stderr
    assert "s3cret" not in done.stdout + done.stderr + out.read_text()


def test_jobs_are_taken_one_after_the_other_by_one_process(url: str, tmp_path: Path) -> None:
    log = tmp_path / "load.jsonl"
    with Jobs("--log", str(log)) as load:
        load.tell(job(url, "a", "b", depth=2, restart=1))
        first = load.until_idle()
        load.tell(job(url, "c", job="j2", warmup=True))
        second = load.until_idle()
    assert [(fact["kind"], fact.get("id")) for fact in first] == [
        # The next request goes on the wire before the last one is read.
        ("sent", "a"), ("sent", "b"), ("done", "a"), ("done", "b"), ("idle", None),
    ]  # fmt: skip
    first[1], first[2] = first[2], first[1]
    assert first[-1]["job"] == "j1"
    assert first[-1]["cancelled"] is False
    assert (first[1]["depth"], first[1]["restart"], first[1]["warmup"]) == (2, 1, False)
    assert first[1]["text"] == " word" * 4
    assert second[1]["warmup"] is True
    logged = [json.loads(line) for line in log.read_text().splitlines()]
    assert logged == [fact for fact in first + second if fact["kind"] == "done"]


def test_a_record_is_in_the_log_before_it_is_printed(url: str, tmp_path: Path) -> None:
    log = tmp_path / "load.jsonl"
    with Jobs("--log", str(log)) as load:
        load.tell(job(url, "a", "b", "c"))
        while (fact := load.hear())["kind"] != "idle":
            if fact["kind"] == "done":
                assert fact["id"] in [json.loads(line)["id"] for line in log.read_text().splitlines()]


def test_cancel_ends_streams_and_waiting_jobs(url: str) -> None:
    with Jobs() as load:
        load.tell(job(url, "a", "b", stub={"ttft_ms": 60_000}))
        load.tell(job(url, "c", job="j2"))
        assert load.hear()["kind"] == "sent"
        load.tell({"cmd": "cancel"})
        facts = [*load.until_idle(), *load.until_idle()]
        load.tell(job(url, "d", job="j3"))
        after = load.until_idle()
    assert [(f["id"], f["outcome"]) for f in facts if f["kind"] == "done"] == [("a", "aborted")]
    assert {f["job"]: f["cancelled"] for f in facts if f["kind"] == "idle"} == {"j1": True, "j2": True}
    assert [f["outcome"] for f in after if f["kind"] == "done"] == ["ok"]


def test_nonsense_on_stdin_is_answered_and_survived(url: str) -> None:
    with Jobs() as load:
        for nonsense in ("{", "[]", '{"cmd":"dance"}', '{"url":1}', "\xff"):
            load.tell(nonsense)
            assert load.hear()["kind"] == "error"
        load.tell(job("nonsense", "a"))
        assert [fact["kind"] for fact in load.until_idle()] == ["error", "idle"]
        load.tell(job(url, "a"))
        assert load.until_idle()[1]["outcome"] == "ok"


def test_the_end_of_stdin_ends_it_while_it_is_still_being_imported(tmp_path: Path) -> None:
    (tmp_path / "uvloop.py").write_text("import threading\nprint('importing', flush=True)\nthreading.Event().wait()\n")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    with subprocess.Popen([*LOAD, "--jobs", "-"], stdin=PIPE, stdout=PIPE, env=environment, cwd=tmp_path) as process:
        try:
            assert process.stdout is not None
            assert process.stdin is not None
            assert process.stdout.readline() == b"importing\n"
            process.stdin.write(b"{}\n")  # a job that nobody waits for any more is no reason to stay
            process.stdin.close()
            assert process.wait(10) == 0
        finally:
            process.kill()


def test_the_end_of_stdin_ends_it_with_its_records(url: str, tmp_path: Path) -> None:
    log = tmp_path / "load.jsonl"
    with Jobs("--log", str(log)) as load:
        load.tell(job(url, "a", "b", stub={"ttft_ms": 60_000}, concurrency=2))
        assert {load.hear()["id"], load.hear()["id"]} == {"a", "b"}
        load.stdin.close()
        assert load.process.wait(10) == 0
    assert [json.loads(line)["outcome"] for line in log.read_text().splitlines()] == ["aborted"] * 2


def test_a_reader_that_stands_still_stops_nothing(url: str, tmp_path: Path) -> None:
    log = tmp_path / "load.jsonl"
    names = [f"n{place}" for place in range(300)]
    with Jobs("--log", str(log)) as load, subprocess.Popen(["tail", "-n", "+1", "-F", log], stdout=PIPE) as follow:
        # Far more than a pipe holds, and nobody reads what it prints: the log must fill all the same.
        load.tell(job(url, *names, concurrency=20))
        assert follow.stdout is not None
        logged = [json.loads(follow.stdout.readline())["id"] for _ in names]
        follow.kill()
        printed = [fact["id"] for fact in load.until_idle() if fact["kind"] == "done"]
    assert sorted(logged) == sorted(names)
    assert printed == logged
