"""ninfer's pool line: explained as what it is, and held to the arithmetic that must hold of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from probes.engines._ninfer_log import Reader


def read(lines: list[str]) -> Reader:
    reader = Reader()
    for number, text in enumerate(lines, 1):
        reader.feed(number, text)
    return reader


def test_a_pool_of_the_seed(golden: Path) -> None:
    facts = yaml.safe_load((golden / "ninfer_capacity.yaml").read_text())
    reader = read(["2026-09-14 10:02:12.346  INFO  " + facts["capacity_line"]])
    first = facts["configs"][0]
    assert reader.capacity.kv_pool_tokens == first["kv_tokens"]
    assert [reader.capacity.pages, reader.capacity.worst_case_pages] == first["pages"]
    assert reader.capacity.page_tokens == facts["page_tokens"]
    assert reader.capacity.lanes is None
    assert "not pages in use" in " ".join(reader.capacity.explain)


def stamped(*messages: str) -> list[str]:
    return [f"2026-09-14 10:02:{n:02}.346  INFO  {text}" for n, text in enumerate(messages)]


POOL = "capacity | KV 224,000 tokens, int8, explicit | pages 3,500/10,500 | runtime 8.64 GiB | free 3.26 GiB"
STATES = "context cache | 3 active + 2 cached device states | host 8 states, 8.00 GiB KV | private 6"


def test_explains_the_ratio_as_arithmetic_and_not_as_a_quota() -> None:
    reader = read(stamped("starting engine", POOL, STATES))
    told = " ".join(reader.capacity.explain)
    assert "1/3 is forced" in told
    assert "one request may take the whole pool" in told
    assert "At most 3 requests run at once (lanes); 2 more device states" in told
    assert "max_tokens makes others wait" in told
    assert (reader.capacity.max_context, reader.capacity.reserving) == (224_000, True)
    assert reader.capacity.lines == {
        "kv_pool_tokens": 2, "pages": 2, "page_tokens": 2, "worst_case_pages": 2, "free_bytes": 2,
        "max_context": 3, "lanes": 3, "reserving": 3,
    }  # fmt: skip
    assert reader.warnings == ()


def test_a_newer_build_is_not_said_to_reserve() -> None:
    reader = read(stamped("starting engine", POOL, STATES.replace("context", "prefix").replace("cached", "snapshot")))
    assert (reader.dialect, reader.capacity.reserving, reader.capacity.lanes) == ("N", None, 3)


@pytest.mark.parametrize(
    ("pool", "states", "said"),
    [
        ("KV 224,064 tokens, int8, explicit | pages 3,500/10,500", "3 active", "are not 3,500 pages of 64"),
        ("KV 224,000 tokens, int8, explicit | pages 3,500/10,501", "3 active", "not a multiple of 3 lanes"),
        ("KV 64,000 tokens, int8, auto | pages 1,000/900", "3 active", "larger than the worst case"),
        ("KV 64,000 tokens, int8, explicit | pages 1,000/900", "3 active", "the rest is never used"),
        (
            "KV 64,000 tokens, int8, explicit | pages 1,000/6,000",
            "3 active",
            "cannot hold one longest request of 2,000",
        ),
        ("KV 128 tokens, int8, explicit | pages 2/3", "3 active", "2 pages are fewer than 3 lanes"),
    ],
)
def test_warns_of_an_identity_that_fails(pool: str, states: str, said: str) -> None:
    reader = read(
        stamped(
            "starting engine",
            f"capacity | {pool} | free 1.00 GiB",
            f"context cache | {states} + 3 cached device states",
        )
    )
    assert [w.line for w in reader.warnings if said in w.text] == [2]
