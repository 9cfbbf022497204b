"""The simulated engine without a process: what it draws, charges and admits, and how it refuses to start."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.load import prompts
from probes.recipe import Refused
from probes.sim import draft, tables
from probes.sim.__main__ import build, noise_of
from probes.sim.draft import Drafts, Noise
from probes.sim.front import BadStartError, Chat, Front, World
from probes.sim.process import Fault
from probes.sim.wire import Answer, Asked


def world(name: str, **more: Any) -> tuple[World, list[str]]:
    lines: list[str] = []
    table = tables.load(name)
    memory = more.pop("memory", {})
    table = dataclasses.replace(table, memory={**table.memory, **memory})
    log = lambda _at, text: lines.append(text)  # noqa: E731
    return World(table, Noise(), "1", 0, log, 1.7e9, more.get("fault", ""), draft.known_prompts()), lines


def ask(front: Front, text: str, **body: Any) -> Chat | Answer:
    whole = {"model": getattr(front, "model", "m"), "messages": [{"role": "user", "content": text}], "stream": True}
    chat = front.chat(Asked("POST", "/v1/chat/completions", {}, json.dumps({**whole, **body}).encode()))
    if isinstance(chat, Chat):
        front.core.submit(chat.ask, front.core.at)
    return chat


def served(front: Front, text: str, tokens: int) -> Chat:
    chat = ask(front, text, max_tokens=tokens)
    assert isinstance(chat, Chat)
    front.core.advance(front.core.at + 10_000)
    return chat


@pytest.mark.parametrize("name", tables.names())
def test_shipped_tables_load_and_cost_more_with_more_rows(name: str) -> None:
    table = tables.load(name)
    assert table.step_s(3, 4, 1000) > table.step_s(3, 1, 1000) > 0
    assert table.step_s(3, 1, 60_000) > table.step_s(3, 1, 100)
    for kind in table.survival:
        for depth in range(1, 9):
            curve = table.curve(kind, depth)
            assert len(curve) == depth
            assert curve == sorted(curve, reverse=True)


def test_a_broken_table_is_refused_with_its_place(tmp_path: Any) -> None:
    path = tmp_path / "t.yaml"
    text = (tables.FOLDER / "vllm-8b.yaml").read_text(encoding="utf-8")
    path.write_text(text.replace("1: [", "1: [0.1, ", 1), encoding="utf-8")
    with pytest.raises(Refused, match=r"survival\.code\.1"):
        tables.load(str(path))


@given(st.floats(0, 5e5))
def test_curves_pass_through_their_points_and_stay_positive(x: float) -> None:
    table = tables.load("ninfer-5090")
    assert tables.along(table.prefill_tps, x) > 0
    assert tables.along(table.step_ms, 3) == pytest.approx(15.886)


@pytest.mark.parametrize("kind", ["code", "story", "translation", "structured"])
@pytest.mark.parametrize("depth", [1, 3, 4, 5])
def test_accepted_drafts_have_the_published_mean(kind: str, depth: int) -> None:
    table = tables.load("ninfer-5090")
    drafts = Drafts(table, kind, depth, "hash", Noise(), "1")
    mean = sum(drafts.next(100) for _ in range(400)) / 400
    assert mean == pytest.approx(sum(table.curve(kind, depth)), abs=0.02)


def test_depths_reproduce_the_published_speeds(golden: Any) -> None:
    import yaml

    published = yaml.safe_load((golden / "ninfer_depth.yaml").read_text())["per_category"]
    for kind, speeds in published["tok_s"].items():
        for depth, speed in zip(published["depths"], speeds, strict=True):
            spec = f"--spec mtp --draft-tokens {depth}"
            front = build("ninfer", f"m --max-context 8192 {spec}".split(), world("ninfer-5090")[0])
            text = prompts.load()[kind][0].text
            made = served(front, text, 400).ask
            rate = (made.made - 1) / ((made.ended or 0) - (made.first or 0))
            assert rate == pytest.approx(speed, rel=0.025), (kind, depth)


def test_categories_come_from_our_prompts_or_their_words() -> None:
    known = draft.known_prompts()
    for kind, many in prompts.load().items():
        assert {draft.category(p.text, known) for p in many} == {kind}
    assert draft.category("Übersetze das ins Englische", known) == "translation"
    assert draft.category("hm", known) == "other"


def test_ninfer_reserves_whole_outputs_and_counts_pages_exactly() -> None:
    front = build("ninfer", ["m", "--max-context", "224000", "--kv-capacity", "224000", "--max-concurrency", "3"],
                  world("ninfer-5090")[0])  # fmt: skip
    first = ask(front, "x" * 180, max_tokens=200_000)
    assert isinstance(first, Chat)
    front.core.advance(front.core.at + 1)
    assert first.ask in front.core.running
    pages = math.ceil((first.ask.prompt + 200_000 - 1) / 64)
    assert front.claim(first.ask) == pages  # type: ignore[attr-defined]
    second = ask(front, "y" * 180, max_tokens=30_000)
    front.core.advance(front.core.at + 1)
    assert isinstance(second, Chat)
    assert second.ask in front.core.queue


def test_ninfer_refuses_the_17th_waiting_and_expires_after_thirty_seconds() -> None:
    front = build("ninfer", ["m", "--max-concurrency", "1"], world("ninfer-5090")[0])
    chats = [ask(front, f"{n} go", max_tokens=8000) for n in range(18)]
    front.core.advance(front.core.at + 29)
    outcomes = [c.ask.outcome for c in chats if isinstance(c, Chat)]
    assert outcomes.count("overloaded") == 1
    assert outcomes[-1] == "overloaded"
    assert isinstance(chats[17], Chat)
    assert front.failed(chats[17])[0].status == 429
    front.core.advance(front.core.at + 2)
    late = [c for c in chats if isinstance(c, Chat) and c.ask.outcome == "queue_timeout"]
    assert len(late) == 16
    assert front.failed(late[0])[0].status == 503


def test_ninfer_rejects_in_silence() -> None:
    it, lines = world("ninfer-5090")
    front = build("ninfer", ["m"], it)
    long = [{"type": "function", "function": {"name": "n" * 65}}]
    for refused in (ask(front, "a", model="other"), ask(front, "a", tools=long)):
        assert isinstance(refused, Answer)
        assert refused.status in {400, 404}
    assert lines == []


def test_vllm_puts_requests_back_without_a_word_and_finishes_them_all() -> None:
    it, lines = world("vllm-8b")
    front = build(
        "vllm", ["serve", "m", "--max-model-len", "2048", "--num-gpu-blocks-override", "140", "--max-num-seqs", "8"], it
    )
    chats = [ask(front, f"{n} go", max_tokens=900, ignore_eos=True) for n in range(6)]
    front.core.advance(front.core.at + 1000)
    assert all(isinstance(c, Chat) and c.ask.made == 900 for c in chats)
    text = str(front.get(Asked("GET", "/metrics", {}, b"")).body)
    put_back = sum(c.ask.put_back for c in chats if isinstance(c, Chat))
    assert put_back > 0
    assert f'vllm:num_preemptions_total{{engine="0",model_name="m"}} {float(put_back)}' in text
    assert not any("preempt" in line.lower() for line in lines)


def test_sglang_state_slots_set_the_lanes_and_the_prefix_cache_costs_five() -> None:
    base = "--model-path m --speculative-algorithm DSPARK --speculative-dspark-block-size 3 --mem-fraction-static 0.92"
    off = build("sglang", [*base.split(), "--disable-radix-cache"], world("sglang-k3")[0])
    assert off.plan_.lanes == 48  # type: ignore[attr-defined]
    on = build("sglang", [*base.split(), "--max-mamba-cache-size", "40"], world("sglang-k3")[0])
    assert on.plan_.lanes == 8  # type: ignore[attr-defined]
    lines = [line for _, line in on.boot()]
    assert any("capped to 8 by the mamba state cache (max_mamba_cache_size=40, 5 state slots" in x for x in lines)
    assert any("reset to 48" in x for x in lines)


def test_sglang_dies_of_a_full_chunk_where_the_campaign_did() -> None:
    def dies(fraction: str) -> list[str]:
        argv = f"--model-path m --disable-radix-cache --mem-fraction-static {fraction}".split()
        front = build("sglang", argv, world("sglang-k3")[0])
        list(front.boot())
        broken: list[str] = []
        front.core.broke = broken.append
        for n in range(4):
            ask(front, f"{n}".ljust(70_000, "x"), max_tokens=8)
        front.core.advance(front.core.at + 30)
        return broken

    assert dies("0.94")
    assert dies("0.93") == []


def test_a_full_shared_pool_ends_every_running_request_of_llamacpp() -> None:
    it, lines = world("llamacpp-8b")
    front = build("llamacpp", ["-m", "m", "-c", "1024", "-np", "4", "-kvu", "-lv", "4"], it)
    chats = [ask(front, f"{n} go", max_tokens=900, ignore_eos=True) for n in range(4)]
    front.core.advance(front.core.at + 60)
    assert {c.ask.outcome for c in chats if isinstance(c, Chat)} == {"exhausted"}
    assert any("failed to find free space in the KV cache" in line for line in lines)


BAD = [
    ("ninfer", "m --spec mtp --draft-tokens 6", 1, "--spec mtp requires --draft-tokens in [1,5]"),
    ("ninfer", "m --port=8080", 1, "unknown argument: --port=8080"),
    ("ninfer", "m --kv-capacity 10", 1, "--kv-capacity must be at least --max-context"),
    ("ninfer", "m --max-concurrency nine", 1, "invalid max-concurrency: nine"),
    ("sglang", "--model-path m --no-such", 2, "unrecognized arguments: --no-such"),
    ("sglang", "--model-path m --speculative-algorithm DSPARK --speculative-dspark-block-size 0", 1, "positive, got 0"),
    ("sglang", "--model-path m --mem-fraction-static 0.5", 1, "Please try to increase --mem-fraction-static"),
    (
        "vllm",
        "serve m --max-num-batched-tokens 8 --max-num-seqs 16",
        1,
        "must be greater than or equal to max_num_seqs",
    ),
    ("vllm", 'serve m --speculative-config {"method":"ngram","num_speculative_tokens":0}', 1, "greater than 0"),
    ("vllm", "serve m --num-gpu-blocks-override 10", 1, "To serve at least one request"),
    ("llamacpp", "-m m --no-such-flag", 1, "error: invalid argument: --no-such-flag"),
    ("llamacpp", "-m m --draft-max 4", 1, "the argument has been removed"),
]


@pytest.mark.parametrize(("dialect", "argv", "code", "words"), BAD)
def test_a_bad_start_ends_as_the_real_one(dialect: str, argv: str, code: int, words: str) -> None:
    name = {"ninfer": "ninfer-5090", "sglang": "sglang-k3", "vllm": "vllm-8b", "llamacpp": "llamacpp-8b"}[dialect]
    with pytest.raises(BadStartError) as found:
        list(build(dialect, argv.split(), world(name)[0]).boot())
    assert found.value.code == code
    assert any(words in line for line in found.value.lines), found.value.lines


@pytest.mark.parametrize(("dialect", "argv", "name"), [
    ("ninfer", "m", "ninfer-5090"), ("sglang", "--model-path m", "sglang-k3"), ("vllm", "serve m", "vllm-8b"),
    ("llamacpp", "-m m", "llamacpp-8b"),
])  # fmt: skip
def test_our_readers_explain_a_start_that_lacks_memory(dialect: str, argv: str, name: str) -> None:
    from probes import engines

    lines: list[str] = []
    front = build(dialect, argv.split(), world(name, fault="oom-boot")[0])
    with pytest.raises(BadStartError) as found:
        lines.extend(line for _, line in front.boot())
    reason, _ = engines.engine(dialect).failure([*lines, *found.value.lines], found.value.code)
    assert reason
    assert "out of memory" in reason.lower() or "memory" in reason.lower()


def test_noise_is_seeded_drifts_and_dips() -> None:
    noise = Noise(restart=0.02, drift=-0.003, thermal_every_s=60, thermal_s=5)
    assert noise.pace("1", 3) == noise.pace("1", 3) != noise.pace("1", 4)
    still = Noise(drift=-0.003)
    assert still.pace("1", 10) == pytest.approx(math.exp(0.03))
    assert (noise.heat(10), noise.heat(57)) == (1.0, 1.15)
    assert noise_of(tables.load("ninfer-5090"), ["content=0.2"]).content == 0.2
    with pytest.raises(Refused, match="NAME=VALUE"):
        noise_of(tables.load("ninfer-5090"), ["colour=1"])


def test_faults_are_named_and_counted() -> None:
    assert Fault.of("torn@3") == Fault("torn", 3)
    assert Fault.of("") == Fault()
    with pytest.raises(ValueError, match="crash"):
        Fault.of("flood")
