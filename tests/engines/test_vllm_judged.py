"""vLLM's logs read and judged as a whole: what it can hold, what bound it, and what is missing to say so."""

from __future__ import annotations

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
    capacity = read_lines(tmp_path, [line.format(n=n) for n in range(3)]).capacity
    assert (capacity.kv_pool_tokens, capacity.ranks) == (100_000, 3)
    assert "in each of 3 data-parallel engines" in capacity.explain[0]
