from __future__ import annotations

from typing import Any

import pytest

from probes.identify import checked, told
from probes.recipe import Refused


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080"),
        ("localhost:30000", "http://localhost:30000"),
        ("https://gpu.example", "https://gpu.example"),
        ("http://[::1]:8", "http://[::1]:8"),
    ],
)
def test_urls(url: str, found: str) -> None:
    assert checked(url) == found


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://x:port", "http://user:secret@x:1", "http://x:99999"])
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(Refused) as caught:
        checked(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("replies", "engine"),
    [
        ({"/v1/models": {"data": [{"id": "m", "owned_by": "llamacpp"}]}}, "llamacpp"),
        ({"/v1/models": {"data": [{"id": "m", "owned_by": "vllm"}]}}, "vllm"),
        ({"/v1/models": {"data": [{"id": "m", "owned_by": "sglang"}]}}, "sglang"),
        ({"/props": {"total_slots": 4}}, "llamacpp"),
        ({"/server_info": {"max_total_num_tokens": 5}}, "sglang"),
        ({"/health": {"status": "ok"}}, None),
        ({"/v1/models": [1, 2], "/props": "x"}, None),
        ({}, None),
    ],
)
def test_what_gives_an_engine_away(replies: dict[str, Any], engine: str | None) -> None:
    assert told(replies) == engine
