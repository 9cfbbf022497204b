"""Failures below the engines (torch, CUDA, NCCL, the system): both readers that stand on them know them."""
# ruff: noqa: E501  (log lines stand as they are printed)

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from probes import engines
from probes.engines import _ground
from probes.events import Record
from probes.reading import read

SGLANG = "[2026-04-01 10:00:00] server_args=ServerArgs(model_path='m')"
VLLM = "(APIServer pid=1) INFO 04-01 10:00:00 [utils.py:1] non-default args: {'model': 'm'}"
READY = "(APIServer pid=1) INFO:     Application startup complete."


def troubles(engine: str, lines: Sequence[str]) -> list[Record]:
    boot = SGLANG if engine == "sglang" else VLLM
    return [r for r in engines.parse(engine, [boot, *lines]) if r.kind not in {"boot", "ready"}]


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
@pytest.mark.parametrize(
    ("line", "kind", "cause"),
    [
        ("RuntimeError: CUDA error: out of memory", "oom", "fraction_too_high"),
        ("RuntimeError: CUDA Error: out of memory at /src/allocator.cpp:139", "oom", "fraction_too_high"),
        ("RuntimeError: Triton Error [CUDA]: out of memory", "oom", "fraction_too_high"),
        ("RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB", "oom", "fraction_too_high"),
        ("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB", "oom", "fraction_too_high"),
        ("JaxRuntimeError: RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm", "oom", "fraction_too_high"),
        ("ray.exceptions.OutOfMemoryError: Task was killed, the node is running low on memory", "error", "host_memory"),
        ("RuntimeError: unable to mmap 8 bytes from file </dev/shm/x>: Cannot allocate memory (12)", "error", "host_memory"),
        ("DistNetworkError: The server socket has failed to bind to [::]:2950 (errno: 98 - Address already in use)", "error", "port_in_use"),
        ("RuntimeError: The NVIDIA driver on your system is too old (found version 12020).", "error", "no_gpu"),
        ("ValueError: The checkpoint has model type `x` but Transformers does not recognize this architecture", "error", "unsupported_model"),
        ("ValueError: Model architectures ['XForCausalLM'] are not supported for now.", "error", "unsupported_model"),
        ("ImportError: libx.so.12: cannot open shared object file: No such file or directory", "error", "missing_package"),
        ("OSError: [Errno 28] No space left on device", "error", "disk_full"),
        ("RuntimeError: Failed to allocate memory for batch_prefill_tmp_v with size 3 in AlignedAllocator", "error", "workspace_too_small"),
        ("RuntimeError: [/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.1.1]:1234", "error", "ranks"),
        ("[rank3]:[E1 x.cpp:6] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12)", "crash", "ranks"),
        ("!!!!!!! Segfault encountered !!!!!!!", "crash", "native"),
        ("Fatal Python error: Segmentation fault", "crash", "native"),
        ("Bus error (core dumped)", "crash", "native"),
        ("Killed", "exit", "killed"),
        ("run.sh: line 3:  4711 Killed                  python -m server", "exit", "killed"),
    ],
)  # fmt: skip
def test_a_failure_below_is_named_with_its_cure(engine: str, line: str, kind: str, cause: str) -> None:
    (record,) = troubles(engine, [line])
    assert (record.kind, record.fields["cause"]) == (kind, cause)
    assert record.fields["hint"]


def test_a_harmless_note_of_a_missing_module_is_none() -> None:
    note = "[2026-04-01 10:00:01] Ignore import error when loading a model: No module named 'terratorch'"
    assert troubles("sglang", [note]) == []
    warning = "(EngineCore pid=9) WARNING 04-01 10:00:01 [x.py:1] Failed to import: No module named 'vllm._C'"
    assert troubles("vllm", [warning]) == []
    assert _ground.death("the process was Killed by hand") is None


@pytest.mark.parametrize(
    ("line", "kind", "cause"),
    [
        ("ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes.", "error", "memory_busy"),
        ("ValueError: Not enough host memory available. Requesting 300.00 GB but only have 120.00 GB free.", "error", "host_memory"),
        ("RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9", "exit", "killed"),
        ("RuntimeError: Rank 0 scheduler died during initialization (exit code: 1).", "exit", "child_failed"),
        ("[2026-04-01 10:00:09 TP0] Decode transfer failed for request rank=0 decode_req.req.rid='a' with", "error", "transfer_failed"),
    ],
)  # fmt: skip
def test_sglangs_own(line: str, kind: str, cause: str) -> None:
    (record,) = troubles("sglang", [line])
    assert (record.kind, record.fields["cause"]) == (kind, cause)


def test_vllms_own() -> None:
    head = "(EngineCore pid=9) ERROR 04-01 10:00:01 [core.py:7] "
    (short,) = troubles("vllm", [(f"{head}ValueError: To serve at least one request with the model's max seq len (4096), "
                        "2.5 GiB KV cache is needed, which is larger than the available KV cache memory (1.39 GiB).")])  # fmt: skip
    assert (short.fields["cause"], short.fields["max_model_len"]) == ("fraction_too_low", 4096)
    (hang,) = troubles("vllm", [f"{head}TimeoutError: RPC call to sample_tokens timed out."])
    assert (hang.kind, hang.fields["cause"]) == ("crash", "hang")


def test_what_the_shell_says_of_a_dead_vllm_comes_after_its_cause() -> None:
    head = "(EngineCore pid=9) ERROR 04-01 10:00:01 [core.py:7] "
    died = [f"{head}Worker proc VllmWorker-1 died unexpectedly, shutting down executor.", "Killed"]
    assert [r.fields["cause"] for r in troubles("vllm", died)] == ["killed"]
    known = [f"{head}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", *died]
    assert [r.fields["cause"] for r in troubles("vllm", known)] == ["fraction_too_high"]


def rank(number: int, text: str) -> str:
    return f"(Worker_TP{number} pid={number}) ERROR 04-01 10:00:01 [multiproc_executor.py:9] {text}"


def test_an_engine_that_dies_while_it_serves_is_a_crash_whatever_its_cause(tmp_path: Path) -> None:
    """The ranks print the same traceback one after the other, each twice; the engine's own word comes at the end."""
    filler = [f'  File "/x.py", line {i}, in f' for i in range(70)]
    traces = [
        rank(n, text) for n in range(4) for text in (*filler, "ValueError: odd", *filler, "ValueError: odd", "WorkerProc hit an exception.")
    ]  # fmt: skip
    dead = "(EngineCore pid=9) ERROR 04-01 10:00:01 [core.py:7] EngineCore encountered a fatal error."
    again = [rank(0, t) for t in ("WorkerProc hit an exception.", *filler, "ValueError: odd")] * 4
    lines = [VLLM, READY, *traces, dead, dead, *again]
    found = [r for r in engines.parse("vllm", lines) if r.kind in {"error", "crash"}]
    assert [(r.kind, r.fields["cause"]) for r in found] == [("error", "exception"), ("crash", "died")]
    log = tmp_path / "a.log"
    log.write_text("\n".join(lines))
    assert read(log).story.starts[-1].ended == "crashed"


def test_troubles_that_differ_by_a_requests_name_are_one_kind(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    failed = "[2026-04-01 10:00:09 TP0] Prefill transfer failed for request rank=0 req.rid='{}' req.bootstrap_room=1"
    log.write_text("\n".join([SGLANG, *(failed.format(f"{i}f3ab9c1d2e") for i in range(5))]))
    (trouble,) = read(log).story.troubles
    assert (trouble.count, trouble.first, trouble.last) == (5, 2, 6)


CORE = "(EngineCore pid=9) ERROR 04-01 10:00:01 [{file}:7] "
API = "(APIServer pid=1) ERROR 04-01 10:00:01 [{file}:7] "


def test_a_core_that_vanishes_is_a_crash_also_when_the_server_stops_at_once() -> None:
    api = API.format(file="core_client.py")
    lines = [
        READY, f"{api}Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.",
        f"{api}AsyncLLM output_handler failed.", "(APIServer pid=1) INFO:     Shutting down",
    ]  # fmt: skip
    crash, stop = troubles("vllm", lines)
    assert (crash.kind, crash.line) == ("crash", 3)
    assert "without a word" in crash.fields["hint"]
    assert (stop.kind, stop.fields["reason"]) == ("exit", "the server stopped after a failure")


def test_what_is_dumped_before_a_crash_is_not_read_as_its_cause() -> None:
    """The dump holds the whole configuration: words in it, e.g. of a flag, are no complaint about it."""
    dump = CORE.format(file="dump_input.py")
    config = f"{dump}Dumping input data for V1 LLM engine (v0.11.0) with config: model='m', trust_remote_code=False"
    dead = f"{CORE.format(file='core.py')}EngineCore encountered a fatal error."
    (crash,) = troubles("vllm", [READY, config, f"{dump}Dumping scheduler output for model execution: x", dead,
                                 f"{CORE.format(file='core.py')}RuntimeError: PassManager::run failed"])  # fmt: skip
    assert (crash.kind, crash.fields["reason"]) == ("crash", "PassManager::run failed")
    asked = f"{CORE.format(file='core.py')}ValueError: m contains custom code which must be executed. Please pass the argument"
    assert troubles("vllm", [f"{asked} `trust_remote_code=True` to allow it."])[0].fields["cause"] == "bad_flag"


def test_a_request_that_is_too_long_is_no_failure_of_the_server() -> None:
    api = API.format(file="serving_chat.py")
    long = f"{api}ValueError: This model's maximum context length is 2048 tokens. However, you requested 5418 tokens."
    refused, stop = troubles("vllm", [READY, long, "(APIServer pid=1) INFO:     Shutting down"])
    assert (refused.kind, refused.fields["cause"]) == ("reject", "too_long")
    assert stop.fields["reason"] == "the server was asked to stop"
