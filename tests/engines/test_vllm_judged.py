"""vLLM's logs read and judged as a whole: what it can hold, what bound it, and what is missing to say so."""

from __future__ import annotations

import json
from pathlib import Path

from probes.reading import Reading, read


def read_lines(tmp_path: Path, lines: list[str]) -> Reading:
    log = tmp_path / "a.log"
    log.write_text("\n".join(lines) + "\n")
    return read(log)


def test_what_is_missing_is_what_would_tell(tmp_path: Path) -> None:
    """Neither lanes nor pool can be it: the pool has room for any prompt, or for all that is ever set aside."""
    head = "(APIServer pid=7) INFO 04-01 10:00:"
    boot = [
        f"{head}00 [utils.py:1] non-default args: {{'model': 'm', 'max_num_seqs': 32, 'max_model_len': 4096}}",
        f"{head}01 [kv_cache_utils.py:1] GPU KV cache size: 100,000 tokens",
    ]
    report = (
        "[loggers.py:1] Engine 000: Avg prompt throughput: {prompt}.0 tokens/s, Avg generation throughput: 11.0 "
        "tokens/s, Running: 2 reqs, Waiting: 3 reqs, GPU KV cache usage: {usage}%, Prefix cache hit rate: 0.0%"
    )
    roomy = [f"{head}{i}0 {report.format(prompt=900 * (i % 2), usage='9.1')}" for i in range(1, 6)]
    found = read_lines(tmp_path, [*boot, *roomy]).ceiling
    assert (found.verdict, found.rivals) == ("unknown", ("prefill",))
    assert found.missing[0].startswith("how many prompt tokens each step takes")
    tight = [f"{head}{i}0 {report.format(prompt=900 * (i % 2), usage='97.0')}" for i in range(1, 4)]
    assert read_lines(tmp_path, [*boot, *tight]).ceiling.verdict == "kv_pool"


def test_engines_that_print_their_pools_are_counted(tmp_path: Path) -> None:
    line = "(EngineCore_DP{n} pid={n}) INFO 04-01 10:00:01 [kv_cache_utils.py:1] GPU KV cache size: 100,000 tokens"
    args = "(APIServer pid=1) INFO 04-01 10:00:00 [utils.py:1] non-default args: {'model': 'm', 'max_num_seqs': 32}"
    capacity = read_lines(tmp_path, [args, *(line.format(n=n) for n in range(3))]).capacity
    assert (capacity.kv_pool_tokens, capacity.ranks) == (100_000, 3)
    assert "in each of 3 data-parallel engines" in capacity.explain[0]
    assert any("At most 32 requests run at once in each of 3 data-parallel" in text for text in capacity.explain)


def test_the_pool_of_a_trial_capture_is_not_the_pool(tmp_path: Path) -> None:
    """Graphs are captured with a small pool first, to see what they take: that is no flag, and no capacity."""
    head = "(EngineCore pid=9) INFO 04-01 10:00:01 [kv_cache_utils.py:1] "
    lines = [
        f"{head}Overriding num_gpu_blocks=0 with num_gpu_blocks_override=512",
        f"{head}GPU KV cache size: 587,504 tokens",
    ]
    found = read_lines(tmp_path, lines)
    assert (found.capacity.pages, found.capacity.kv_pool_tokens, found.warnings) == (None, 587_504, ())
    lines[0] = f"{head}Overriding num_gpu_blocks=9000 with num_gpu_blocks_override=512"
    found = read_lines(tmp_path, lines)
    assert found.capacity.pages == 512
    assert "--num-gpu-blocks-override" in found.warnings[0].text


def test_few_long_prompts_that_let_ever_more_run_are_prefill(tmp_path: Path) -> None:
    """Tokens of a prompt count in the report in which it ends: one or two a report, or none in the first."""
    head = "(APIServer pid=7) INFO 04-01 10:0"
    report = (
        "[loggers.py:1] Engine 000: Avg prompt throughput: {tps}.0 tokens/s, Avg generation throughput: {gen}.0 "
        "tokens/s, Running: {run} reqs, Waiting: {wait} reqs, GPU KV cache usage: {usage}.0%"
    )
    ends = [0, 2, 1, 2, 1, 1, 2, 1]
    ran = [1 + sum(ends[: i + 1]) for i in range(len(ends))]

    def reports(rates: list[int], running: list[int]) -> list[str]:
        return [
            f"{head}{i // 6}:{i % 6}0 {report.format(tps=rate, gen=10, run=run, wait=20 - run, usage=run)}"
            for i, (rate, run) in enumerate(zip(rates, running, strict=True))
        ]

    climbing = read_lines(tmp_path, reports([2250 * n for n in ends], ran)).ceiling
    assert (climbing.verdict, climbing.confidence) == ("prefill", "medium")
    # The same number all the while may stand at a limit that the log does not tell.
    still = read_lines(tmp_path, reports([2250 * n for n in ends], [9] * len(ends))).ceiling
    assert still.verdict == "unknown"


def test_v0_tells_its_pool_in_bytes_and_blocks(tmp_path: Path) -> None:
    head = "INFO 02-07 11:21:08 "
    lines = [
        f"{head}worker.py:267] model weights take 30.71GiB; the rest of the memory reserved for KV Cache is 7.50GiB.",
        f"{head}executor_base.py:110] # CUDA blocks: 3820, # CPU blocks: 2048",
        f"{head}executor_base.py:115] Maximum concurrency for 32768 tokens per request: 1.87x",
    ]
    found = read_lines(tmp_path, lines).capacity
    assert (found.kv_bytes, found.pages, found.page_tokens, found.kv_pool_tokens) == (15 * 2**29, 3820, 16, 61_120)


def test_a_stall_between_processes_is_told_once(tmp_path: Path) -> None:
    head = "(EngineCore pid=9) INFO 04-01 10:0{}:01 [shm_broadcast.py:466] "
    line = "No available shared memory broadcast block found in 60 seconds. This happens when processes hang."
    boot = "(EngineCore pid=9) INFO 04-01 10:00:01 [kv_cache_utils.py:1] GPU KV cache size: 100,000 tokens"
    ready = "(APIServer pid=1) INFO:     Application startup complete."
    found = read_lines(tmp_path, [boot, ready, *(f"{head.format(i)}{line}" for i in range(1, 4))])
    (warning,) = found.warnings
    assert (warning.line, warning.text[:21]) == (3, "a process waits for a")


def test_what_requests_quote_is_not_the_servers_word(tmp_path: Path) -> None:
    report = (
        "INFO 04-01 10:00:00 [loggers.py:1] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation "
        "throughput: 9.0 tokens/s, Running: 9 reqs, Waiting: 50 reqs, GPU KV cache usage: 99.0%"
    )
    quoted = json.dumps({"event": "request", "prompt": f"why? {report}"})
    assert read_lines(tmp_path, [report, quoted, quoted[:-9], report]).story.reports == 2
    assert read_lines(tmp_path, [json.dumps({"log": f"{report}\n", "stream": "stderr"})] * 3).story.reports == 3
