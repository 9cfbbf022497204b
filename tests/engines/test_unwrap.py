"""The shared peeling of log lines: what is taken off, what must stay, and that it is safe on anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.engines._unwrap import plain, unwrap

SGLANG = "[2026-02-01 10:00:00 TP0] Decode batch, #running-req: 3, token usage: 0.43, #queue-req: 0,"
VLLM = "INFO 05-08 16:25:09 [loggers.py:271] Engine 000: Running: 1 reqs, GPU KV cache usage: 12.2%"
VLLM_OWN = f"(EngineCore_DP0 pid=270) {VLLM}"
NINFER = "2026-09-14 10:02:12.346  INFO  throughput | running 2 (decode-ready 2) | waiting 1"
LLAMA = "0.01.144.757 I slot print_timing: id  0 | task 0 | n_decoded =    140, tg =  13.64 t/s"
RECORDS = (SGLANG, VLLM, VLLM_OWN, NINFER, LLAMA)

CLEAN = [
    *RECORDS,
    "INFO 10-16 19:05:47 metrics.py:367] Avg prompt throughput: 1.0 tokens/s",
    "(APIServer pid=13026) INFO 05-08 16:25:09 [loggers.py:271] Engine 000",
    "(VllmWorker rank=0 pid=2961) ERROR 03-19 07:27:53 [multiproc_executor.py:375] torch.OutOfMemoryError",
    "(Worker_DP4_TP0_EP8 pid=1578) INFO 07-20 17:09:24 [x.py:130] y",
    "[2026-08-12 09:14:13.231] [info] [ninfer-serve] listening on http://127.0.0.1:8080",
    "ninfer-serve: req#3 done prompt=12",
    "prompt eval time =     900.22 ms /    30 tokens (   30.01 ms per token,    33.33 tokens per second)",
    "#running-req: 5, #token: 1938, token usage: 0.24, #queue-req: 0",
    "max_total_num_tokens=2086558, chunked_prefill_size=8192",
    '  File "/x/scheduler.py", line 2974, in run',
    '{"type":"log","time":10109,"level":"info","msg":"srv  llama_server: initializing ...\\n"}',
    '{"asctime": "2026-11-30 17:38:20,191", "levelname": "INFO", "processName": "EngineCore", "message": "x"}',
    '{"event":"request","id":3,"ttft_ms":12.5}',
    "2026-02-02 18:25:03,837 - INFO - autotuner.py:256 - flashinfer.jit: starts",
    "common_memory_breakdown_print: | memory breakdown [MiB] | total",
    "throughput | running 2 (decode-ready 2) | waiting 1 | batch 2.00",
    "2025-09-13 09:09:15 TP0] Decode batch. #running-req: 4",
]


@pytest.mark.parametrize("line", CLEAN)
def test_leaves_a_clean_line_alone(line: str) -> None:
    assert unwrap(line) == [line]


PREFIXES = [
    "vllm-1  | ",
    "server  | ",
    "svc_main.1.abc123@node-7    | ",
    "2026-11-30T12:00:00.123456789Z ",
    "2026-11-30T12:00:00.123456789Z stdout F ",
    "2026-11-30T12:00:00.123456789+01:00 stderr P ",
    "Nov 30 12:00:00 gpu-host python3[4242]: ",
    "Nov  3 12:00:00.123456 host docker/vllm[7]: ",
    "2026-11-30T12:00:00+0100 host prog[12]: ",
    "INFO 2025-11-19T20:16:36.096674521Z [resource.labels.containerName: x] ",
    "[53409] ",
    "[pod/vllm-0/vllm] ",
    "[1,0]<stderr>:",
    "(pid=123) ",
    "(RayWorkerWrapper pid=7, ip=10.0.0.1) ",
    "(SGLangEngine pid=41820) ",
    "(raylet, ip=10.0.0.1) ",
    "2026-11-30 12:00:00,123 ",
    "[2025-03-11 16:44:27] ",
    "2026-11-30 12:00:00.5 UTC ",
    "vllm-7d9f-x2x serving ",
    "\x1b[36m(RayWorkerWrapper pid=7)\x1b[0m ",
    "vllm-1  | 2026-11-30T12:00:00Z stdout F [53409] ",
]


@pytest.mark.parametrize("record", RECORDS)
@pytest.mark.parametrize("prefix", PREFIXES)
def test_takes_a_foreign_prefix_off(prefix: str, record: str) -> None:
    assert unwrap(prefix + record) == [record]


def test_keeps_the_indentation_behind_a_prefix() -> None:
    assert unwrap('vllm-1  |   File "x.py", line 3') == ['  File "x.py", line 3']
    assert unwrap("[53409]        eval time =   14323.78 ms") == ["       eval time =   14323.78 ms"]


@pytest.mark.parametrize("escape", ["\x1b", "\\u001b", "\\x1b", "\\033", "\\e", "^["])
def test_takes_colours_off_however_they_are_spelled(escape: str) -> None:
    line = f"{escape}[1;36m(EngineCore_DP0 pid=270){escape}[0m {escape}[32mINFO{escape}[0m 05-08 16:25:09 [x.py:1] y"
    assert unwrap(line) == ["(EngineCore_DP0 pid=270) INFO 05-08 16:25:09 [x.py:1] y"]


def test_takes_colours_off_whose_escape_character_was_lost() -> None:
    line = "[1;36m(VllmWorker rank=0 pid=2961)[0;0m ERROR 03-19 07:27:53 [executor.py:3] boom"
    assert unwrap(line) == ["(VllmWorker rank=0 pid=2961) ERROR 03-19 07:27:53 [executor.py:3] boom"]


@pytest.mark.parametrize("record", RECORDS)
@pytest.mark.parametrize("key", ["log", "message", "msg", "textPayload", "MESSAGE"])
def test_opens_a_collectors_json(key: str, record: str) -> None:
    assert unwrap(json.dumps({"ts": 1.5, key: record + "\n", "stream": "stderr"})) == [record]
    assert unwrap(json.dumps({"jsonPayload": {key: f"{record}\r\nmore"}})) == [record, "more"]


def test_opens_quotes_around_the_whole_line() -> None:
    assert unwrap(json.dumps(VLLM_OWN + "\n")) == [VLLM_OWN]
    assert unwrap(repr(SGLANG.encode())) == [SGLANG]
    assert unwrap('"a" and "b"') == ['a" and "b']


def test_splits_bars_from_records() -> None:
    bar = "Capturing batches (bs=2 avail_mem=9.28 GB):  50%|█████     | 1/2 [00:03<00:04,  7.40it/s]"
    assert unwrap(f"\r{bar}\r{bar}{SGLANG}") == [bar, bar, SGLANG]
    assert unwrap(f"  2% 1/64 [00:04<04:51,  4.62s/it]{SGLANG}") == ["  2% 1/64 [00:04<04:51,  4.62s/it]", SGLANG]
    assert unwrap(f"{SGLANG}\r") == [SGLANG]
    ascii_bar = "Loading shards: 100% Completed | 1/1 [00:00<00:00, 14.00it/s]"
    assert unwrap(ascii_bar + VLLM) == [ascii_bar, VLLM] or unwrap("\r" + ascii_bar + VLLM) == [ascii_bar, VLLM]


@pytest.mark.parametrize("line", ["", "  ", "\r", "\t\r\n", "vllm-1  | ", "2026-11-30T12:00:00Z stdout F", "\x1b[0m"])
def test_gives_nothing_for_nothing(line: str) -> None:
    assert unwrap(line) == []


def test_plain_is_safe_to_show() -> None:
    assert plain("a\tb\x07c\x1b[0m" + "x" * 900, 12) == "a bc[0mxxx"


FRAGMENTS = st.sampled_from(
    [
        *PREFIXES, *RECORDS, "\r", "\n", "\x1b[0m", "[0m", '"', "'", "{", "}", '{"log":"', "\\n", "\\u001b[1m", "100%|",
        "1/2 [00:01, 2it/s]", "[", "m", " ", "b'", "(pid=", "^[[", "[36m",
    ]
)  # fmt: skip
WILD = st.lists(FRAGMENTS | st.text(max_size=8), max_size=8).map("".join)


@given(st.text() | WILD)
def test_is_idempotent_on_anything(text: str) -> None:
    once = unwrap(text)
    assert all(p and not p.isspace() for p in once) or once == [text]
    assert [q for p in once for q in unwrap(p)] == once


@given(WILD, st.sampled_from(PREFIXES), st.sampled_from(RECORDS))
def test_json_holds_what_it_wraps(extra: str, prefix: str, record: str) -> None:
    inner = prefix + record + extra
    assert unwrap(json.dumps({"log": inner})) == unwrap(inner)


def test_long_hostile_lines_end() -> None:
    for unit in ("[53409] ", "(pid=1) ", "2026-11-30T12:00:00Z ", "a-a", "[36m", "{", '"', "9%1/", "vllm-1 | "):
        assert isinstance(unwrap(unit * 20_000), list)


def test_every_piece_of_the_corpus_is_printable_and_stable(corpus: Path) -> None:
    for path in sorted(corpus.glob("*/*.log")):
        for line in path.read_bytes().decode("utf-8", "replace").split("\n"):
            pieces = unwrap(line)
            assert [q for p in pieces for q in unwrap(p)] == pieces
            assert not any("\x1b" in p or "\r" in p for p in pieces), (path, line)


@pytest.mark.parametrize("record", RECORDS)
@pytest.mark.parametrize("prefix", ["> ", "> > ", "`", "[1701890011] "])
def test_takes_off_what_a_forum_or_a_clock_put_before_a_line(prefix: str, record: str) -> None:
    assert unwrap(prefix + record) == [record]


def test_takes_rays_remark_off_with_its_prefix_only() -> None:
    remark = " [repeated 6x across cluster]"
    longer = f"{remark} (Ray deduplicates logs by default. Set RAY_DEDUP_LOGS=0 to disable it.)"
    assert unwrap(f"(Rollout pid=7, ip=10.0.0.1) {SGLANG}{remark}") == [SGLANG]
    assert unwrap(f"(Rollout pid=7, ip=10.0.0.1) {VLLM}{longer}") == [VLLM]
    assert unwrap(SGLANG + remark) == [SGLANG + remark]


BARE = [
    "slot print_timing: id  0 | task 12 | prompt eval time =     742.26 ms /    56 tokens",
    "srv  update_slots: all slots are idle",
    "update_slots : failed to find free space in the KV cache, retrying with smaller n_batch = 64",
    "llama_context: n_ctx = 2048",
    "error: invalid argument: --drafts",
    "ninfer-serve: listening on http://127.0.0.1:8080 (model id: m, auth: disabled)",
    "statistics draft-mtp: #calls(b,g,a) = 1 20 18",
    "srv          init: initializing slots, n_slots = 2",
    "srv    operator(): operator(): cleaning up before exit...",
    "llm_load_tensors: offloaded 29/29 layers to GPU",
    "/src/ggml/ggml.c:3838: GGML_ASSERT(x) failed",
    "terminate called after throwing an instance of 'x'",
]
"""Records without a stamp of their own: what stands before them is somebody else's."""


@pytest.mark.parametrize("record", [*RECORDS, *BARE])
@pytest.mark.parametrize("prefix", ["    ", "0: ", "     7\t", "812:", "| ", "2026-11-30 12:00:00.250\t"])
def test_takes_line_numbers_and_margins_off(prefix: str, record: str) -> None:
    assert unwrap(prefix + record) == [record]


@pytest.mark.parametrize("record", BARE)
@pytest.mark.parametrize("prefix", ["2026-11-30 12:00:00,123 ", "[2025-03-11 16:44:27] ", "llm-7d9f-x2x serving "])
def test_takes_stamps_off_records_without_one(prefix: str, record: str) -> None:
    assert unwrap(prefix + record) == [record]


def test_json_that_a_server_of_2024_wrote_itself_stays_whole() -> None:
    own = '{"timestamp":1706432998,"level":"INFO","function":"main","line":2546,"message":"model loaded"}'
    assert unwrap(own) == [own]
    assert unwrap(f"2026-11-01T10:00:00.123456789Z {own}") == [own]
    other = '{"timestamp":"2026-11-01T10:00:00Z","level":"INFO","function":"main","message":"model loaded"}'
    assert unwrap(other) == ["model loaded"]
