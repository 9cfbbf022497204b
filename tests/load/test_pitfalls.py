"""What can be told of requests before they are sent, and what must not be claimed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes import engines
from probes.events import RequestDone
from probes.load.pitfalls import Pitfall, least_tokens, pitfalls


def entry(name: str = "code-1", text: str = "word " * 80, max_tokens: Any = 100, **body: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {
        "prompt_id": name,
        "prompt_hash": f"hash of {name}",
        "body": {"messages": messages, "max_tokens": max_tokens, **body},
    }


def done(name: str, tokens: int | None, restart: int = 1) -> RequestDone:
    return RequestDone(
        name, name, f"hash of {name}", "code", 0, restart, 0, "ok", sent=1.0, prompt_tokens=tokens
    )  # fmt: skip


def check(*entries: dict[str, Any], known: tuple[RequestDone, ...] = (), **more: Any) -> list[Pitfall]:
    about: dict[str, Any] = {"context": None, "rejects_long": True, "cache": None, "restart": 1, **more}
    return pitfalls(entries, known, **about)


def test_a_request_that_the_server_would_refuse_is_not_sent() -> None:
    known = (done("code-1", 97),)
    (found,) = check(entry(max_tokens=1200), known=known, context=1024)
    assert found == Pitfall(
        "code-1 has 97 tokens and asks for 1,200, the context is 1,024: the server would refuse it; "
        "lower max_tokens to 927",
        fatal=True,
    )
    assert check(entry(max_tokens=927), known=known, context=1024) == []


def test_where_the_server_cuts_instead_it_is_told_and_sent() -> None:
    (found,) = check(entry(max_tokens=1200), known=(done("code-1", 97),), context=1024, rejects_long=False)
    assert (found.fatal, found.text.partition(": ")[2]) == (False, "its output is cut after 927")


def test_a_prompt_that_alone_fills_the_context_is_never_sent() -> None:
    (found,) = check(entry(max_tokens=1), known=(done("code-1", 1030),), context=1024, rejects_long=False)
    assert found.fatal
    assert "the prompt alone does not fit" in found.text


def test_an_unknown_length_is_counted_from_below() -> None:
    long = entry(text="x" * 8000, max_tokens=100)
    assert check(long, context=1100) == []
    (found,) = check(long, entry("b", max_tokens=2000), context=1099)
    assert found.text.startswith("b has at least 50 tokens and asks for 2,000, the context is 1,099 (and 1 more): ")
    assert check(long) == [], "no context is known"


@pytest.mark.parametrize(
    ("name", "fine"),
    [("get_weather", True), ("a-B_9", True), ("x" * 64, True), ("x" * 65, False), ("get weather", False), ("é", False),
     ("", False), (None, False), ("a.b", False), ("a\n", False)],
)  # fmt: skip
def test_a_tools_name_is_checked_before_a_server_refuses_it_in_silence(name: Any, *, fine: bool) -> None:
    found = check(entry(tools=[{"type": "function", "function": {"name": name}}]))
    assert [p.fatal for p in found] == ([] if fine else [True])


@pytest.mark.parametrize("tools", [None, {}, "x", [None], [{"function": 3}], [{}]])
def test_odd_tools_raise_nothing(tools: Any) -> None:
    assert len(check(entry(tools=tools))) == (1 if isinstance(tools, list) else 0)


def test_a_prompt_that_this_start_has_seen_is_told_where_a_cache_is_on() -> None:
    known = (done("code-1", 97), done("code-2", 97, restart=2))
    (found,) = check(entry("code-1"), entry("code-2"), known=known, cache="no_prefix_reuse")
    assert not found.fatal
    assert found.text.startswith("1 of 2 prompts were sent to this start before")
    assert found.text.endswith("no_prefix_reuse turns it off")
    assert check(entry("code-1"), known=known) == []
    assert check(entry("code-1") | {"warmup": True}, known=known, cache="x") == []


@pytest.mark.parametrize(
    ("name", "on", "off"),
    [
        ("vllm", [], ["--no-enable-prefix-caching"]),
        ("sglang", ["--tp", "8"], ["--disable-radix-cache"]),
        ("ninfer", [], ["--no-prefix-reuse"]),
    ],
)
def test_each_engine_knows_its_prefix_cache(name: str, on: list[str], off: list[str]) -> None:
    engine = engines.engine(name)
    assert engine.prefix_cache(on)
    assert engine.prefix_cache([*on, *off]) is None
    assert engines.engine("llamacpp").prefix_cache([]) is None


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)
    )
)
def test_no_body_raises(anything: Any) -> None:
    assert least_tokens({"messages": anything}) >= 0
    odd = {
        "prompt_id": "p",
        "prompt_hash": "h",
        "body": {"messages": anything, "tools": anything, "max_tokens": anything},
    }
    check(odd, context=10)
