"""`draftdial read` as a command: one JSON object, exit codes, following, and what it does not import."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from probes.commands.read import command, encoded

ROOT = Path(__file__).resolve().parent.parent


def lines(count: int, waiting: int = 2) -> str:
    return "".join(
        f"[2026-03-01 09:00:{i % 60:02d}] Decode batch, #running-req: 4, #token: 900, token usage: 0.10, "
        f"accept len: 2.50, cuda graph: True, gen throughput (token/s): {200 + i}.00, #queue-req: {waiting}\n"
        for i in range(count)
    )


def run(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(command, list(args))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def started(*args: str, **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "probes", "read", *args], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"}, **options,
    )  # fmt: skip


def test_json_is_one_object_in_the_form_of_the_contract(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text(lines(5))
    code, out, _ = run(str(path), "--json")
    found = json.loads(out)
    assert code == 0
    assert found["file"] == str(path)
    assert (found["engine"], found["lines"], len(found["records"])) == ("sglang", 5, 5)
    assert found["records"][0]["fields"]["running"] == 4
    assert found["records"][0]["at"] == "2026-03-01T09:00:00"
    assert {"kv_pool_tokens", "lanes", "explain", "free_bytes"} <= found["capacity"].keys()
    assert found["capacity"]["lanes"] is None
    assert found["ceiling"]["verdict"] == "unknown"
    assert found["ceiling"]["missing"] == ["the number of lanes"]
    assert {"line", "text"} == found["ceiling"]["evidence"][0].keys()
    assert found["timeline"][0]["shares"] in ({}, {"unknown": 5})
    assert isinstance(found["warnings"], list)


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_an_unknown_engine_is_no_error(tmp_path: Path, flags: tuple[str, ...]) -> None:
    path = tmp_path / "x.log"
    path.write_text("hello\nworld\n")
    code, out, _ = run(str(path), *flags)
    assert code == 0
    if flags:
        found = json.loads(out)
        assert (found["engine"], found["lines"], found["records"]) == (None, 2, [])
        assert found["ceiling"]["verdict"] == "unknown"
    else:
        assert "SGLang" in out
        assert "--engine" in out


def test_exit_2_only_for_usage_and_unreadable_files(tmp_path: Path) -> None:
    code, out, err = run(str(tmp_path / "absent.log"))
    assert (code, out) == (2, "")
    assert err.startswith("draftdial read: ")
    assert "no such file" in err
    assert err.count("\n") == 1
    code, out, _ = run(str(tmp_path), "--json")
    assert (code, out) == (2, "")
    assert run(str(tmp_path), "--engine", "tgi")[0] == 2
    assert run(str(tmp_path), "--engine", "vllm", "--follow")[0] == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_a_file_without_permission(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("x")
    path.chmod(0)
    code, _, err = run(str(path))
    assert code == 2
    assert "Permission denied" in err


def test_a_folder_gives_one_object_a_line(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(lines(3))
    (tmp_path / "b.log.gz").write_bytes(gzip.compress(lines(4).encode()))
    code, out, _ = run(str(tmp_path), "--json")
    assert code == 0
    found = [json.loads(text) for text in out.replace(",\n", ",").splitlines()]
    assert [(Path(f["file"]).name, len(f["records"])) for f in found] == [("a.log", 3), ("b.log.gz", 4)]
    code, out, _ = run(str(tmp_path))
    assert out.count("SGLang") == 2


def test_a_run_directory_means_its_server_log(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text(lines(3))
    (tmp_path / "other.log").write_text("x\n")
    _, out, _ = run(str(tmp_path), "--json")
    assert json.loads(out)["file"] == str(tmp_path / "server.log")


def test_a_run_is_known_by_its_name_where_no_file_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, here = tmp_path / "runs", tmp_path / "here"
    for folder in (runs / "2026-03-01-a", here):
        folder.mkdir(parents=True)
    (runs / "2026-03-01-a" / "server.log").write_text(lines(3))
    monkeypatch.setenv("DRAFTDIAL_RUNS", str(runs))
    monkeypatch.chdir(here)
    _, out, _ = run("2026-03-01-a", "--json")
    assert json.loads(out)["file"] == str(runs / "2026-03-01-a" / "server.log")
    assert run("2026-03-01-b")[0] == 2
    (here / "2026-03-01-a").write_text(lines(1))
    assert json.loads(run("2026-03-01-a", "--json")[1])["lines"] == 1


def test_what_no_report_says_is_no_zero(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    prefill = "Prefill batch, #new-seq: 1, #new-token: 896, #cached-token: 0, #queue-req: 81, "
    path.write_text("".join(f"[2026-03-01 09:00:{i:02d}] {prefill}\n" for i in range(4)))
    found = json.loads(run(str(path), "--json")[1])["timeline"]
    assert [(s["running"], s["waiting"]) for s in found] == [(None, 81)]
    assert "— running, up to 81 waiting" in run(str(path))[1]


def test_standard_input() -> None:
    result = CliRunner().invoke(command, ["-", "--json"], input=lines(3))
    assert json.loads(result.stdout)["lines"] == 3


def test_lone_surrogates_and_odd_values_still_are_json() -> None:
    assert json.loads(encoded({"text": "\ud800x"})) == {"text": "\ud800x"}
    assert json.loads(encoded({"value": float("nan")})) == {"value": None}
    assert json.loads(encoded({"value": {1, 2}}))["value"] in ([1, 2], "{1, 2}")
    assert json.loads(encoded({"path": Path("/x")})) == {"path": "/x"}


def test_what_it_does_not_import(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text(lines(3))
    code = (
        "import sys; from probes.commands.read import command; "
        f"command.main([{str(path)!r}, '--engine', 'sglang'], standalone_mode=False); "
        "bad = {'textual', 'httpx', 'numpy', 'scipy', 'rich', 'probes.engines.vllm'} & set(sys.modules); "
        "print('BAD', bad) if bad else print('GOOD')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "GOOD", done.stdout[-200:]


def test_a_reader_that_leaves_early_is_no_traceback(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text(lines(20000))
    with started(str(path), "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(100)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_following_prints_what_comes_and_ends_with_130(tmp_path: Path, flags: tuple[str, ...]) -> None:
    path = tmp_path / "x.log"
    path.write_text(lines(3))
    with started(str(path), "--follow", *flags) as process:
        watchdog = threading.Timer(60, process.kill)
        watchdog.start()
        assert process.stdout is not None
        seen = [process.stdout.readline()]
        with path.open("a") as more:
            more.write("[2026-03-01 09:05:00] KV cache pool is full. Retract requests. #retracted_reqs: 1, ")
            more.write("#new_token_ratio: 0.1000 -> 0.2000\n")
        while b"retract" not in seen[-1]:
            seen.append(process.stdout.readline())
            assert seen[-1], "it ended by itself"
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(60) == 130
        watchdog.cancel()
    if flags:
        objects = [json.loads(line) for line in (*seen, *rest.splitlines())]
        assert {o["kind"] for o in objects} == {"record", "ceiling", "result"}
        assert objects[-1]["lines"] == 4
    else:
        assert b"Ceiling" in rest
