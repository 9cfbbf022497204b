"""How a reading puts acceptance in words: over which steps, and weighed by what."""
# ruff: noqa: E501  (log lines stand as they are printed)

from __future__ import annotations

from pathlib import Path

import pytest

from probes.explain import screen
from probes.reading import read

VLLM = (
    "(APIServer pid=7) INFO 04-01 10:00:{second:02d} [metrics.py:100] SpecDecoding metrics: Mean acceptance length: "
    "{length:.2f}, Accepted throughput: 1.00 tokens/s, Drafted throughput: 1.00 tokens/s, Accepted: {accepted} tokens, "
    "Drafted: {drafted} tokens, Per-position acceptance rate: {positions}, Avg Draft acceptance rate: {rate:.1f}%"
)
SGLANG = (
    "[2026-04-01 10:00:{second:02d}] Decode batch, #running-req: 1, #token: 9, token usage: 0.10, accept len: 2.50, "
    "accept rate: 0.50, cuda graph: True, gen throughput (token/s): 10.00, #queue-req: 0"
)
LLAMA = (
    "slot print_timing: id  0 | task {task} | prompt eval time =     100.00 ms /    10 tokens (   10.00 ms per token,   100.00 tokens per second)\n"
    "slot print_timing: id  0 | task {task} |        eval time =    1000.00 ms /    40 tokens (   25.00 ms per token,    40.00 tokens per second)\n"
    "slot print_timing: id  0 | task {task} |       total time =    1100.00 ms /    50 tokens\n"
    "slot print_timing: id  0 | task {task} | draft acceptance = 0.50000 (   20 accepted /    40 generated), mean len = 3.00\n"
)  # fmt: skip


def spec(second: int, accepted: int, steps: int) -> str:
    shares = [accepted / steps / 2] * 2
    return VLLM.format(
        second=second, length=1 + accepted / steps, accepted=accepted, drafted=2 * steps,
        positions=", ".join(f"{s:.3f}" for s in shares), rate=100 * accepted / (2 * steps),
    )  # fmt: skip


def shown(tmp_path: Path, text: str) -> str:
    log = tmp_path / "a.log"
    log.write_text(text)
    return screen(read(log), 200)


def test_a_length_is_weighed_by_the_steps_it_is_a_mean_of(tmp_path: Path) -> None:
    """1,000 steps of 1.5 tokens and 10 of 3: 1.51 a step, which goes with the rate; a mean of means would say 2.25."""
    log = tmp_path / "a.log"
    log.write_text(f"{spec(1, 500, 1000)}\n{spec(11, 20, 10)}\n")
    overall = read(log).story.overall
    assert overall is not None
    assert overall.accept_len == pytest.approx(1 + 520 / 1010)
    assert overall.accept_rate == pytest.approx(520 / 2020)


def test_vllm_counts_only_steps_that_had_a_draft(tmp_path: Path) -> None:
    text = shown(tmp_path, f"{spec(1, 500, 1000)}\n")
    assert "1.50 tokens a step that had a draft, with the bonus token" in text
    assert "Steps without a draft" in text


def test_llamacpp_counts_only_steps_that_had_a_draft(tmp_path: Path) -> None:
    text = shown(tmp_path, "".join(LLAMA.format(task=i) for i in range(3)))
    assert "3.00 tokens a step that had a draft, with the bonus token" in text


def test_sglang_counts_every_step(tmp_path: Path) -> None:
    text = shown(tmp_path, "".join(SGLANG.format(second=i) + "\n" for i in range(3)))
    assert "2.50 tokens a step, with the bonus token" in text
    assert "Steps without a draft" not in text
