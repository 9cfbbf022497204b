from __future__ import annotations

import dataclasses
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from probes import launch
from probes.launch import check
from probes.link import GUARD
from probes.recipe import Dial, Recipe, Refused

ARGV = ["vllm", "serve", "org/model name", "--port", "18000", "--speculative-config", '{"method": "ngram"}']


def recipe(launcher: str | None, options: Mapping[str, Any] | None = None) -> Recipe:
    return Recipe(
        "p",
        "vllm",
        "vllm",
        "m",
        Dial("ngram", (0, 1)),
        path="p.yaml",
        launcher=launcher,
        launcher_options=options or {},
    )


def test_without_a_launcher_nothing_changes() -> None:
    assert launch.launch(recipe(None), ARGV, {}, 18000, "n").argv == tuple(ARGV)


def test_docker() -> None:
    made = launch.launch(
        recipe("docker", {"image": "vllm/vllm:1", "args": ["--gpus", "all"]}),
        ARGV,
        {"HF_TOKEN": "s3cret"},
        18000,
        "dd-1",
    )
    assert made.argv == (
        "docker", "run", "--rm", "--name", "dd-1", "--network", "host", "--env", "HF_TOKEN",
        "--gpus", "all", "vllm/vllm:1", *ARGV,
    )  # fmt: skip
    assert made.cleanup == ("docker", "rm", "--force", "dd-1")
    assert not any("s3cret" in word for word in made.argv)


def test_ssh_quotes_each_word_for_the_remote_shell() -> None:
    made = launch.launch(recipe("ssh", {"host": "gpu1"}), ARGV, {"A": "1"}, 18000, "dd-1")
    assert made.argv[0] == "ssh"
    assert "127.0.0.1:18000:127.0.0.1:18000" in made.argv
    assert "SendEnv=A" in made.argv
    assert made.argv[-2] == "gpu1"
    assert shlex.split(made.argv[-1].partition("exec ")[2]) == ARGV


def test_srun() -> None:
    made = launch.launch(recipe("srun", {"args": ["--gres=gpu:1"], "reach": "node7"}), ARGV, {}, 18000, "dd-1")
    assert made.argv[:4] == ("srun", "--job-name=dd-1", "--unbuffered", "--gres=gpu:1")
    assert made.argv[4:] == tuple(ARGV)
    assert made.host == "node7"
    assert made.cleanup == ("scancel", "--name=dd-1")


@pytest.mark.parametrize(
    ("launcher", "options", "complaint"),
    [
        ("docker", {}, "docker needs launcher_options.image"),
        ("docker", {"image": "--privileged"}, "needs launcher_options.image"),
        ("docker", {"image": "i", "imgae": "x"}, "launcher_options.imgae: docker has image, args"),
        ("ssh", {"host": "-oProxyCommand=x"}, "ssh needs launcher_options.host"),
        ("srun", {"args": "--x"}, "must be a list of words"),
        (None, {"image": "i"}, "launcher_options without a launcher"),
    ],
)
def test_bad_options_get_one_line(launcher: str | None, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Refused, match=complaint):
        check(recipe(launcher, options))


@pytest.mark.parametrize("launcher", ["docker", "podman", "ssh", "srun"])
def test_a_stand_in_launcher_is_run_and_its_server_ended_when_the_console_goes(launcher: str, tmp_path: Path) -> None:
    """A stand-in for each program: it runs what it was given in a session of its own, as a daemon would."""
    options = {"docker": {"image": "img"}, "podman": {"image": "img"}, "ssh": {"host": "h"}, "srun": {}}[launcher]
    program = tmp_path / launcher
    calls = tmp_path / "calls.jsonl"
    program.write_text(
        f"#!{sys.executable}\nimport json, sys, os, signal, subprocess, time\n"
        f"open({str(calls)!r}, 'a').write(json.dumps(sys.argv[1:]) + chr(10))\n"
        "if sys.argv[1] == 'rm' or 'kill $(cat' in sys.argv[-1]: sys.exit(0)\n"
        "print('engine says hello', flush=True)\n"
        "while True: time.sleep(0.05)\n"
    )
    program.chmod(0o755)
    (tmp_path / "scancel").write_bytes(program.read_bytes().replace(b"if sys.argv[1] == 'rm'", b"if True"))
    (tmp_path / "scancel").chmod(0o755)
    made = launch.launch(recipe(launcher, options), ["server", "--port", "1"], {}, 1, "dd-x")
    log = tmp_path / "server.log"
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = [sys.executable, "-I", "-S", str(GUARD), "--log", str(log), "--header", "# h"]
    words += ["--cleanup", json.dumps(made.cleanup), "--", *made.argv]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, start_new_session=True
    ) as guard:  # fmt: skip
        assert guard.stdin is not None
        assert guard.stdout is not None
        assert "pid" in json.loads(guard.stdout.readline())
        with subprocess.Popen(
            ["tail", "-n", "+1", "-F", str(log)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as tail:
            assert tail.stdout is not None
            while b"hello" not in tail.stdout.readline():
                pass
            tail.kill()
        guard.stdin.close()
        rest = [json.loads(line) for line in guard.stdout]
        guard.wait(10)
    assert rest[-1]["gone"] is True
    said = [json.loads(line) for line in calls.read_text().splitlines()]
    assert said[0] == list(made.argv[1:])
    assert said[-1] == list(made.cleanup[1:])


@pytest.mark.parametrize(
    ("says", "code", "found"),
    [("3f" * 32, 0, "3f" * 32), ("", 0, None), ("Error: no such object", 1, None), ("no id", 0, None)],
)
def test_a_container_is_known_by_its_id(tmp_path: Path, says: str, code: int, found: str | None) -> None:
    program = tmp_path / "docker"
    program.write_text(
        f'#!/bin/sh\n[ "$1 $2 $3 $4" = "inspect --format {{{{.Id}}}} dd-1" ] && echo {says}\nexit {code}\n'
    )
    program.chmod(0o755)
    made = launch.Launch((str(program), "run"), container="dd-1")
    assert launch.container_id(made) == found
    assert launch.container_id(launch.Launch((str(program), "run"))) is None
    assert launch.container_id(launch.Launch((str(tmp_path / "none"),), container="dd-1")) is None


def test_a_recipe_with_a_launcher_is_not_looked_for_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from probes import models

    (tmp_path / "docker").write_text("#!/bin/sh\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    inside = dataclasses.replace(recipe("docker", {"image": "img"}), binary="/inside/vllm", model="/inside/model.gguf")
    assert models.resolve(inside).binary == "/inside/vllm"
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(Refused, match="'docker' is not on PATH"):
        models.resolve(inside)
