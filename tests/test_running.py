from __future__ import annotations

import pytest

from probes.running import changes, options

OLD = ["llama-server", "-m", "a.gguf", "--port", "1", "-c", "2048", "--metrics"]


def test_options() -> None:
    assert options(["s", "pos", "-c", "-5", "--a=b=c", "--x", "1", "2"]) == {
        "": ("s", "pos"), "-c": ("-5",), "--a": ("b=c",), "--x": ("1", "2"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("new", "told"),
    [
        (["llama-server", "-c", "2048", "--metrics", "-m", "a.gguf", "--port", "2"], []),
        ([*OLD[:-1], "-np", "2"], ["--metrics goes (it is set)", "-np comes: 2"]),
        (["llama-server", "-m", "b.gguf", *OLD[3:]], ["-m: a.gguf → b.gguf"]),
        (["vllm", *OLD[1:]], ["program and positional words: llama-server → vllm"]),
    ],
)
def test_changes(new: list[str], told: list[str]) -> None:
    assert changes(OLD, new) == told
