"""SGLang on several machines: a log of one part of the ranks, and a server split into prefill and decode."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from probes.engines import parse
from probes.engines.sglang import ENGINE
from probes.events import Capacity, Ceiling, Warn
from probes.explain import screen
from probes.reading import Reading, read

STAMP = "2026-04-01 10:00:"
LIMITS = "max_total_num_tokens={pool}, chunked_prefill_size={chunk}, max_prefill_tokens=16384, "
BATCH = "#running-req: {running}, #token: 9, token usage: {usage:.2f}"


def args(**flags: object) -> str:
    told = ", ".join(f"{name}={value!r}" for name, value in {"model_path": "m", **flags}.items())
    return f"[{STAMP}00] server_args=ServerArgs({told})"


def limits(rank: str, lanes: int, pool: int = 200_000, chunk: int = 4096) -> str:
    head = f"[{STAMP}05{rank}] {LIMITS.format(pool=pool, chunk=chunk)}"
    return f"{head}max_running_requests={lanes}, context_len=8192, available_gpu_mem=9.00 GB"


def reading(tmp_path: Path, lines: list[str]) -> Reading:
    log = tmp_path / "a.log"
    log.write_text("\n".join(lines) + "\n")
    return read(log)


def told(lines: list[str]) -> tuple[Capacity, list[Warn]]:
    reader = ENGINE.reader()
    for number, line in enumerate(lines, 1):
        reader.feed(number, line)
    return reader.capacity, list(reader.warnings)


@pytest.mark.parametrize(
    ("flags", "lanes", "ranks", "took"),
    [
        ({"dp_size": 8, "enable_dp_attention": True}, 4, 8, True),
        ({"dp_size": 8, "enable_dp_attention": True}, 3, 8, False),
        ({"dp_size": 1, "attn_dp_size": 8}, 4, 8, True),
        ({"dp_size": 8, "enable_dp_attention": False}, 32, 8, True),  # replicas: each has the whole of it
        ({"dp_size": 8, "enable_dp_attention": False}, 4, 8, False),
    ],
)
def test_one_machine_of_several_shows_only_its_own_ranks(
    flags: dict[str, object], lanes: int, ranks: int, took: bool
) -> None:
    lines = [args(max_running_requests=32, **flags), *(limits(f" DP{i} TP{4 * i}", lanes) for i in range(4))]
    capacity, warnings = told(lines)
    assert (capacity.lanes, capacity.ranks) == (lanes, ranks)
    assert any("did not take" in w.text for w in warnings) is not took
    assert any("as --max-running-requests asks" in text for text in capacity.explain) is took


def test_the_ranks_seen_share_the_cap_when_no_flags_are_in_the_log() -> None:
    capacity, warnings = told([limits(f" DP{i} TP{i}", 12) for i in range(4)])
    assert (capacity.lanes, capacity.ranks, warnings) == (12, 4, [])


def decode(second: int, *, running: int, usage: float, prealloc: int = 0, transfer: int = 0, queue: int = 0) -> str:
    return (
        f"[{STAMP}{second:02d} DP0 TP0] Decode batch, {BATCH.format(running=running, usage=usage)}, pre-allocated "
        f"usage: 0.10, #prealloc-req: {prealloc}, #transfer-req: {transfer}, #retracted-req: 0, cuda graph: True, "
        f"gen throughput (token/s): 30.00, #queue-req: {queue}, "
    )


def judged(tmp_path: Path, lines: list[str], lanes: int = 16, **flags: object) -> Ceiling:
    boot = [args(**flags), limits(" DP0 TP0", lanes)]
    return reading(tmp_path, [*boot, *lines]).ceiling


def test_requests_that_a_decoding_server_has_not_let_in_wait_for_its_pool(tmp_path: Path) -> None:
    """Three long requests fill the pool to 0.87; the next is held before the queue, which stays empty."""
    held = [decode(10 + i, running=1, transfer=2, usage=0.87, prealloc=1) for i in range(6)]
    found = judged(tmp_path, held)
    assert (found.verdict, found.confidence) == ("kv_pool", "medium")
    free = [decode(10 + i, running=1, transfer=2, usage=0.87) for i in range(6)]
    assert judged(tmp_path, free).verdict == "none"
    # With room for several more like those inside, it is not the pool.
    roomy = [decode(10 + i, running=9, usage=0.62, prealloc=1) for i in range(6)]
    found = judged(tmp_path, roomy, disaggregation_mode="decode")
    assert (found.verdict, found.missing) == ("unknown", ("the log of the server that computes the prompts",))


def test_the_log_keeps_the_queue_apart_from_what_waits_before_it() -> None:
    (record,) = parse("sglang", [decode(10, running=1, usage=0.87, prealloc=3, transfer=2)])
    assert (record.fields["waiting"], record.fields["prealloc_reqs"], record.fields["transfer_reqs"]) == (0, 3, 2)


def prefill(second: int, *, queue: int = 0, outside: str = "", tokens: int = 900) -> str:
    return (
        f"[{STAMP}{second:02d} DP0 TP0] Prefill batch, #new-seq: 1, #new-token: {tokens}, #cached-token: 0, token "
        f"usage: 0.01, #running-req: 0, #queue-req: {queue}, {outside}#inflight-req: 0, "
        "input throughput (token/s): 900.00, "
    )


@pytest.mark.parametrize("name", ["#prealloc-req", "#bootstrap-req"])
def test_a_prefill_server_whose_requests_wait_for_the_other_says_so(tmp_path: Path, name: str) -> None:
    held = [prefill(10 + i, outside=f"{name}: {i}, ") for i in range(9)]
    found = judged(tmp_path, held, disaggregation_mode="prefill")
    assert found.verdict == "unknown"
    assert "in 8 reports up to 8 requests waited for the server that decodes" in found.sentence
    assert found.missing == ("the log of the server that decodes",)
    assert [e.line for e in found.evidence] == [4, 5, 6, 7]


def test_one_lane_of_a_prefill_server_is_free_again_after_each_step(tmp_path: Path) -> None:
    """The step is full: a second lane would stay empty. A server that decodes too keeps the lane, so there it binds."""
    full = [prefill(10 + i, queue=2, tokens=4096) for i in range(6)]
    assert judged(tmp_path, full, lanes=1, disaggregation_mode="prefill").verdict == "prefill"
    assert judged(tmp_path, full, lanes=1, disaggregation_mode="null").verdict == "lanes"
    part = [prefill(10 + i, queue=2, tokens=500) for i in range(6)]
    assert judged(tmp_path, part, lanes=1, disaggregation_mode="prefill").verdict == "lanes"


def test_stretches_of_several_ranks_are_told_from_first_to_last(tmp_path: Path) -> None:
    def line(second: int, rank: int, queue: int) -> str:
        head = f"[{STAMP}{second:02d} DP{rank} TP{rank}] Decode batch, {BATCH.format(running=2, usage=0.1)}"
        return f"{head}, cuda graph: True, gen throughput (token/s): 30.00, #queue-req: {queue}"

    lines = [line(10 + i, 1, 0) for i in range(3)] + [line(20, 0, 0), line(21, 1, 0), line(22, 0, 1)]
    lines += [line(23 + i, 1, 0) for i in range(4)] + [line(30, 0, 0)]
    for part in reading(tmp_path, [args(), *lines]).timeline:
        assert part.first_at is not None
        assert part.last_at is not None
        assert part.first_at <= part.last_at


def test_a_server_that_served_was_ready_wherever_its_log_says_so(tmp_path: Path) -> None:
    stop = f"[{STAMP}30] SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
    report = (
        f"[{STAMP}10] Decode batch, {BATCH.format(running=1, usage=0.1)}, gen throughput (token/s): 9.00, #queue-req: 0"
    )
    assert "never ready" not in screen(reading(tmp_path, [args(), report, stop]), 200)
    assert "never ready" in screen(reading(tmp_path, [args(), stop]), 200)


def test_a_cap_that_follows_from_a_small_pool_says_so() -> None:
    assert "674 tokens // 2" in " ".join(told([args(), limits("", 337, pool=674)])[0].explain)
    assert "// 2" not in " ".join(told([args(), limits("", 256, pool=674)])[0].explain)


def test_what_requests_quote_is_not_the_servers_word(tmp_path: Path) -> None:
    """`--log-requests-format json` prints each request and its answer as an object, text and all."""
    report = decode(10, running=1, usage=0.1)
    full = f"[{STAMP}11 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 3, #new_token_ratio: 0.1 -> 0.2"
    for text in (report, full, f"see {report}"):
        quoted = json.dumps({"timestamp": "2026-04-01T10:00:01", "event": "request.finished", "out": {"text": text}})
        found = reading(tmp_path, [report, quoted, quoted[:-9], report])
        assert (found.story.reports, found.story.troubles) == (2, [])
    logged = json.dumps({"asctime": f"{STAMP}10", "levelname": "INFO", "message": report.partition("] ")[2]})
    assert reading(tmp_path, [report, logged]).story.reports == 2


def test_ranks_that_idle_beside_ranks_with_a_queue_are_told(tmp_path: Path) -> None:
    def line(second: int, rank: int, running: int, queue: int) -> str:
        head = f"[{STAMP}{second:02d} DP{rank} TP{rank}] Decode batch, {BATCH.format(running=running, usage=0.1)}"
        return f"{head}, cuda graph: True, gen throughput (token/s): 30.00, #queue-req: {queue}"

    def warned(idle: int, queue: int) -> list[str]:
        lines = [line(i, r, 8 if r == 0 else idle, 4 if r == 0 else queue) for i in range(10, 16) for r in (0, 1)]
        return [w.text for w in reading(tmp_path, [args(), *lines]).warnings if "unevenly" in w.text]

    assert warned(idle=2, queue=0) == [
        "requests are spread unevenly: DP0 had a queue most of the time, DP1 never, and ran fewer"
    ]
    assert warned(idle=8, queue=0) == []
    assert warned(idle=2, queue=1) == []


def test_a_flag_that_the_state_pool_overrules_is_told(tmp_path: Path) -> None:
    why = "(max_mamba_cache_size=47, 5 state slots per request)."
    cap = f"[{STAMP}05] max_running_requests is capped to 9 by the mamba state cache {why}"
    _, warnings = told([args(max_running_requests=32), cap, limits("", 9)])
    assert [w.text for w in warnings] == ["--max-running-requests 32 did not take: the state pool allows 9 a rank"]
    assert told([args(max_running_requests=9), cap, limits("", 9)])[1] == []


def test_a_start_whose_child_failed_crashed(tmp_path: Path) -> None:
    stop = f"[{STAMP}30] SIGQUIT received. signum=None, frame=None. It usually means one child failed."
    assert reading(tmp_path, [args(), stop]).story.starts[0].ended == "crashed"


def test_half_a_state_pool_may_be_all_of_it(tmp_path: Path) -> None:
    """Without its start the log tells neither the lanes nor how many state slots a request sets aside."""

    def rivals(usage: float) -> tuple[str, ...]:
        line = (
            "Decode batch, #running-req: 9, #full token: 90, full token usage: 0.22, mamba num: 36, mamba usage: "
            f"{usage:.2f}, cuda graph: True, gen throughput (token/s): 300.00, #queue-req: 7"
        )
        found = reading(tmp_path, [f"[{STAMP}{i}] {line}" for i in range(10, 16)]).ceiling
        assert found.verdict == "unknown"
        return found.rivals

    assert "state_pool" in rivals(0.77)
    assert "state_pool" not in rivals(0.2)
