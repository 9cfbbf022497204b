from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.masking import mask, masked, text


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["s", "--api-key", "k", "-c", "1"], ("s", "--api-key", "***", "-c", "1")),
        (["s", "--api-key=k"], ("s", "--api-key=***")),
        (["s", "--hf-token", "k"], ("s", "--hf-token", "***")),
        (["s", "-hft", "k"], ("s", "-hft", "***")),
        (["s", "--api-key", "-k"], ("s", "--api-key", "***")),
        (["s", "--return-tokens-as-token-ids", "--port", "1"], ("s", "--return-tokens-as-token-ids", "--port", "1")),
        (["s", "--max-tokens", "5"], ("s", "--max-tokens", "5")),
        (["docker", "--env", "HF_TOKEN=k", "i"], ("docker", "--env", "HF_TOKEN=***", "i")),
        (["s", "--model-url", "https://me:k@host/m.gguf"], ("s", "--model-url", "https://me:***@host/m.gguf")),
        (["curl", "-H", "Authorization: Bearer k"], ("curl", "-H", "Authorization: ***")),
        (["s", "--extra", '{"api_key": "k", "n": 1}'], ("s", "--extra", '{"api_key": "***", "n": 1}')),
        (["s", "--extra", "{'api_key': ['k', 'j'], 'n': 1}"], ("s", "--extra", "{'api_key': \"***\", 'n': 1}")),
    ],
)
def test_secrets_are_masked(argv: list[str], shown: tuple[str, ...]) -> None:
    assert mask(argv) == shown


@pytest.mark.parametrize("word", ["hf_" + "a1B2" * 9, "sk-" + "proj-a1B2" * 4])
def test_a_key_is_known_by_its_form(word: str) -> None:
    assert text(f"x {word} y") == "x *** y"


@pytest.mark.parametrize("word", ["/data/hf_models_of_the_house/x", "max_tokens=5", "tokenizer=auto", "sk-short"])
def test_what_only_looks_like_a_key_stays(word: str) -> None:
    assert text(word) == word


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ({"--api-key": "k"}, {"--api-key": "***"}),
        ({"--api-key": 123456}, {"--api-key": "***"}),
        ({"--api-key": ["k", 5]}, {"--api-key": ["***", "***"]}),
        ({"--use-token": True, "--max-tokens": 5}, {"--use-token": True, "--max-tokens": 5}),
        ({"args": ["--env", "HF_TOKEN=k"]}, {"args": ["--env", "HF_TOKEN=***"]}),
        ({"a": {"api_key": "k", "b": [{"password": 7}]}}, {"a": {"api_key": "***", "b": [{"password": "***"}]}}),
        ({"--env": "HF_TOKEN=k"}, {"--env": "HF_TOKEN=***"}),
    ],
)  # fmt: skip
def test_what_is_stored_holds_no_secret(values: dict[str, Any], shown: dict[str, Any]) -> None:
    assert masked(values) == shown


@given(st.text(max_size=30), st.text(max_size=30))
def test_masking_takes_any_words(name: str, value: str) -> None:
    assert len(mask([name, value])) == 2
    assert set(masked({name: value})) == {name}


@given(st.text(alphabet="abcdefgXYZ019_.+/=~-", min_size=8, max_size=40))
def test_no_value_of_a_key_is_shown(value: str) -> None:
    if value.startswith("--"):
        return
    assert value not in " ".join(mask(["server", "--api-key", value, "-c", "1"]))
    assert value not in str(masked({"--api-key": value, "extra": {"hf_token": [value]}}))
