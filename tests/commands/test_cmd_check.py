from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Call = Callable[..., Result]
Write = Callable[..., str]

SECRET = "not-to-be-seen"


@pytest.fixture
def preset(tmp_path: Path) -> Write:
    """Writes a preset whose files exist, with lines over it; its path."""
    program = tmp_path / "server"
    program.write_text("#!/bin/sh\necho version 1.2\n")
    program.chmod(0o755)
    (tmp_path / "m.gguf").write_bytes(b"m")

    def write(engine: str, dial: str, *more: str) -> str:
        path = tmp_path / "mine.yaml"
        head = f"engine: {engine}\nbinary: {program}\nmodel: {tmp_path}/m.gguf\ndial: {dial}\n"
        path.write_text(head + "\n".join(more) + "\n")
        return str(path)

    return write


NGRAM = {
    "vllm": "{kind: ngram, values: 0-4}",
    "sglang": "{kind: NGRAM, values: 0-4}",
    "ninfer": "{kind: mtp, values: 0-5}",
    "llamacpp": "{kind: ngram-mod, values: 0-4}",
}


@pytest.mark.parametrize("engine", NGRAM)
def test_no_secret_is_shown(engine: str, preset: Write, call: Call) -> None:
    secrets = f"env: {{HF_TOKEN: {SECRET}, OTHER: {SECRET}}}", f"flags: {{--api-key: {SECRET}}}"
    path = preset(engine, NGRAM[engine], *secrets)
    for words in (("check", path), ("check", path, "--json")):
        found = call(*words)
        assert found.exit_code == 0, found.output
        assert SECRET not in found.output
        assert "HF_TOKEN" in found.stdout
    assert json.loads(found.stdout)["env"]["HF_TOKEN"] == "(set)"


def test_the_launchers_words_are_part_of_the_command(preset: Write, call: Call) -> None:
    secret = f"  args: [--env, HF_TOKEN={SECRET}, --gpus, all]"
    path = preset("vllm", NGRAM["vllm"], "launcher: docker", "launcher_options:", "  image: vllm/vllm-openai", secret)
    Path(path).write_text(Path(path).read_text().replace("binary: /", "binary: /only/there/"))
    found = json.loads(call("check", path, "--json").stdout)
    assert found["argv"][:2] == ["docker", "run"]
    assert "HF_TOKEN=***" in found["argv"]
    assert not [text for text in found["problems"] if "/only/there" in text]


def test_a_server_that_others_reach_is_said_to_be_so(preset: Write, call: Call) -> None:
    found = call("check", preset("llamacpp", NGRAM["llamacpp"], "host: 0.0.0.0"))
    assert found.exit_code == 0
    assert (
        "warning        host 0.0.0.0: whoever reaches any address of this machine can use this server" in found.stdout
    )
    assert "warning" not in call("check", preset("llamacpp", NGRAM["llamacpp"])).stdout


def test_an_address_that_is_not_here_is_one_line(preset: Write, call: Call) -> None:
    for port in ("auto", "18080"):
        found = call("check", preset("llamacpp", NGRAM["llamacpp"], "host: 192.0.2.7", f"port: {port}"))
        assert found.exit_code == 2
        assert found.stderr.startswith("draftdial: host 192.0.2.7: this machine can't listen there")
        assert found.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("m.gguf", "none.gguf", "none.gguf: no such file"),
        ("m.gguf", "none", "/none: no such file"),
        ("/server", "/", "a folder, not a program"),
        ("/server", "/m.gguf", "may not be executed"),
        ("/server", "/none", "no such program"),
        ("dial:", "workload: {prompts_file: /none.yaml}\ndial:", "/none.yaml: No such file or directory"),
        ("dial:", "workload: {prompts_per_category: 64}\ndial:", "prompts_per_category 64: code has 1 to"),
    ],
)
def test_what_is_missing_is_a_problem(old: str, new: str, problem: str, preset: Write, call: Call) -> None:
    path = Path(preset("llamacpp", NGRAM["llamacpp"]))
    path.write_text(path.read_text().replace(old, new, 1))
    found = call("check", str(path))
    assert found.exit_code == 2
    assert problem in found.stdout


def test_a_taken_port_is_a_problem(preset: Write, call: Call) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = call("check", preset("llamacpp", NGRAM["llamacpp"], f"port: {port}"))
    assert found.exit_code == 2
    assert f"problem        port {port} is taken by" in found.stdout


def test_every_depth_of_the_dial_is_checked(preset: Write, call: Call) -> None:
    draft = "{kind: EAGLE3, values: 0-4, flags: {--speculative-draft-model-path: d, --speculative-eagle-topk: 4}}"
    found = call("check", preset("sglang", draft), "--set", "depth=0")
    assert found.exit_code == 2
    assert "mine.yaml:4: --speculative-eagle-topk is 4: a tree needs" in found.stderr


def test_the_command_is_the_one_that_would_run(preset: Write, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(preset("llamacpp", NGRAM["llamacpp"]))
    monkeypatch.setenv("PATH", str(path.parent))
    path.write_text(path.read_text().replace(f"binary: {path.parent}/server", "binary: server"))
    found = json.loads(call("check", str(path), "--json").stdout)
    assert found["argv"][0] == f"{path.parent}/server", "a running one is shown by its path, and is no other program"
    simulated = json.loads(call("check", "sim-llamacpp", "--json").stdout)
    assert simulated["argv"][1:3] == ["-m", "probes.sim"]


def test_gpus_are_told(call: Call, preset: Write) -> None:
    assert "GPU            simulated: none is used" in call("check", "sim-vllm").stdout
    assert "\nGPU            " in call("check", preset("llamacpp", NGRAM["llamacpp"])).stdout
