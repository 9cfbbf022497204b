"""What vLLM's errors mean: reason and cure for each message worth a name. Text in, words out; keeps no state.

The last error of a failed start is never the cause (`Engine core initialization failed. See root cause above`), and
too much memory asked and too little have opposite cures: that is why each message has its own entry here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from probes.engines._ground import DEVICE_OOM, death, find
from probes.events import Kind

GIB = 2**30
_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": GIB}


@dataclass(frozen=True, slots=True)
class Trouble:
    """A named failure. `cause` is a fixed word; `consequence`: only tells that something else failed, further up."""

    kind: Kind
    reason: str
    hint: str = ""
    cause: str = "exception"
    consequence: bool = False
    extras: Mapping[str, Any] = field(default_factory=dict)


WHY_ABOVE = "the cause stands above this line in the log"
_LOWER = "lower --gpu-memory-utilization, --max-num-seqs or --max-num-batched-tokens, or free the GPU"
_RAISE = "raise --gpu-memory-utilization (not lower it), lower --max-model-len, or use a smaller or quantised model"
_GPU = "no usable GPU was found: check the driver and CUDA_VISIBLE_DEVICES"
_MODEL = "model not found: check the name or the folder's path"
_PORT = "another process listens on this port: choose another --port, or stop it"
_CODE = "the model brings its own code: --trust-remote-code runs it, if you trust it"
_SILENT = (
    "a process of the engine ended without a word: often it was killed for want of host memory (the kernel's log "
    "tells), or a native library crashed"
)
_MULTIPLE = "choose a value that is a multiple, as the message says"
_KNOWN: tuple[tuple[str, Kind, str, str], ...] = (
    # text, kind, cause, cure; the reason is the message itself
    (
        "No available memory for the cache blocks",
        "error",
        "fraction_too_low",
        f"weights and activations leave no room for KV: {_RAISE}",
    ),
    (
        "warming up sampler with",
        "oom",
        "fraction_too_high",
        "the slot cap is too high for the memory: lower --max-num-seqs or --gpu-memory-utilization",
    ),
    ("Error in memory profiling", "error", "memory_busy", "another process freed memory meanwhile: start again"),
    (
        "is greater than the derived max_model_len",
        "error",
        "bad_flag",
        "lower --max-model-len to what the model was made for, as the message says",
    ),
    (
        "num_speculative_tokens was provided but without speculative model",
        "error",
        "bad_flag",
        "give method and depth in one JSON: --speculative-config '{…}' and dotted --speculative-config.x do not mix",
    ),
    (
        "per-request-spec-decode-metrics",
        "error",
        "bad_flag",
        "leave --per-request-spec-decode-metrics out when nothing is speculated (depth 0)",
    ),
    ("Arctic Inference is required", "error", "missing_package", "install arctic-inference beside vLLM for suffix"),
    (
        "must be greater than or equal to max_num_seqs",
        "error",
        "bad_flag",
        "raise --max-num-batched-tokens to at least --max-num-seqs, or lower the latter",
    ),
    ("must be divisible by", "error", "bad_flag", _MULTIPLE),
    ("ddress already in use", "error", "port_in_use", _PORT),
    ("ort is already in use", "error", "port_in_use", _PORT),
    (
        "larger than the number of available GPUs",
        "error",
        "bad_flag",
        "lower --tensor-parallel-size or --pipeline-parallel-size, or show the server more GPUs",
    ),
    ("Failed to infer device type", "error", "no_gpu", _GPU),
    ("No CUDA GPUs are available", "error", "no_gpu", _GPU),
    ("libcuda.so", "error", "no_gpu", "the NVIDIA driver library is missing: install it, or pass the GPU in"),
    ("only supported on GPUs with compute", "error", "bad_flag", "this GPU is too old for that type: --dtype half"),
    (
        "Cannot access gated repo",
        "error",
        "model_not_found",
        "the model needs an accepted licence and a token in the environment",
    ),
    ("is not a valid model identifier", "error", "model_not_found", _MODEL),
    ("Repo id must be in the form", "error", "model_not_found", _MODEL),
    ("Invalid repository ID or local directory", "error", "model_not_found", _MODEL),
    ("does not appear to have a file named", "error", "model_not_found", f"not a complete model folder; {_MODEL}"),
    ("Can't load the configuration of", "error", "model_not_found", _MODEL),
    ("Repository Not Found", "error", "model_not_found", f"{_MODEL}, or log in if it is private"),
    ("LocalEntryNotFoundError", "error", "model_not_found", "it is not in the local cache and downloads are off"),
    ("couldn't connect to", "error", "model_not_found", "the model hub cannot be reached: use a local folder"),
    ("trust_remote_code=True", "error", "bad_flag", _CODE),
    ("contains custom code", "error", "bad_flag", _CODE),
    ("maximum context length is", "reject", "too_long", "shorten the prompt or max_tokens, or raise --max-model-len"),
    ("longer than the maximum model length", "reject", "too_long", "shorten the prompt, or raise --max-model-len"),
    ("No space left on device", "error", "disk_full", "a disk or shared memory is full: free it, or give more"),
    ("illegal memory access", "crash", "kernel", "a kernel crashed: update vLLM or the driver, or try --enforce-eager"),
    ("NCCL error", "crash", "ranks", "communication between GPUs failed: do all ranks live? NCCL_DEBUG=INFO says more"),
    (
        "RPC call to ",
        "crash",
        "hang",
        "a worker did not answer in time: look for a rank that failed or still compiles",
    ),
    (
        "has no vLLM implementation",
        "error",
        "unsupported_model",
        "this version does not know that model: a newer one may",
    ),
)

_SAID = re.compile(r"([^\[]{1,400}) \[type=")
_FIELD = re.compile(r"([A-Za-z_][\w.-]{0,80})$")
_FREE = re.compile(
    r"Free memory on device(?: \S{1,20})? \((\d[\d.]*)/(\d[\d.]*) GiB\) on startup is less than desired GPU memory "
    r"utilization \((\d[\d.]*), (\d[\d.]*) GiB\)",
    re.ASCII,
)
_LEN = re.compile(
    r"max seq len \((\d+)\).{0,80}?(\d[\d.]*) GiB KV cache is needed.{0,120}?available KV cache memory "
    r"\((-?\d[\d.]*) GiB\)",
    re.ASCII,
)
_LEN_ADVICE = re.compile(r"estimated maximum model length is (\d+)", re.ASCII)
_LEN_V0 = re.compile(
    r"max seq len \((\d+)\) is larger than the maximum number of tokens that can be stored in KV cache \((\d+)\)"
)
_OOM_WANT = re.compile(r"Tried to allocate (\d[\d.]*) ([KMG]iB)", re.ASCII)
_OOM_HAVE = re.compile(
    r"GPU (\d+) has a total capacity of (\d[\d.]*) ([KMG]iB) of which (\d[\d.]*) ([KMG]iB) is free", re.ASCII
)
_CONSEQUENCES = (
    "Engine core initialization failed",
    "EngineCore failed to start",
    "EngineCore encountered an issue",
    "Engine process failed to start",
    "AsyncLLM output_handler failed",
    "EngineDeadError",
    "AsyncEngineDeadError",
    "WorkerProc initialization failed",
    "WorkerProc failed to start",
    "WorkerProc hit an exception",
    "Worker proc",
    "cancelled",
)
_BEHIND = re.compile(r"[^'\"]{0,120}?(?<![\w.])(?=(?:[a-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception)(?:: |$))")
USAGE = re.compile(r"(?:^|\s)(?:vllm|api_server\.py|main\.py|cli\.py)(?: \w+)?: error: (.{1,400})", re.ASCII)
EXCEPTION = re.compile(
    r"(?:[A-Za-z_]\w{0,60}\.){0,8}"
    r"([A-Z]\w{0,60}(?:Error|Exception|Interrupt|Exit|NotFound|Failure|Timeout))(?:: (.*)|$)"
)


def diagnose(message: str) -> Trouble | None:
    """The named failure in a message, None when it is none that is known here."""
    found = _free(message) or _too_long(message) or _oom(message)
    if found is not None:
        return found
    for text, kind, cause, hint in _KNOWN:
        if text in message:
            return Trouble(kind, clean(message), hint, cause)
    if "died unexpectedly" in message:
        # The client watches the core once it is up, the core its workers from the start.
        cause = "died" if "Engine core proc" in message else "killed"
        return Trouble("crash", clean(message), _SILENT, cause, consequence=True)
    for text in _CONSEQUENCES:
        if text in message:
            return Trouble("error", clean(message), WHY_ABOVE, "consequence", consequence=True)
    if "terminating server process" in message or "Engine background task failed" in message:
        why = "the engine died while serving: the cause stands near this line, if the log has it"
        return Trouble("crash", clean(message), why, "died", consequence=True)
    if "encountered a fatal error" in message:
        why = "the engine died while serving: the cause stands in the trace below"
        return Trouble("crash", clean(message), why, "died", consequence=True)
    usage = USAGE.search(message)
    if usage:
        return Trouble("error", usage[1], "this vLLM does not take that: see `vllm serve --help`", "bad_flag")
    below = find(message)
    return None if below is None else Trouble(below.kind, clean(message), below.hint, below.cause)


def ended(message: str) -> Trouble | None:
    """A raw line that tells of a process's end; where something has failed before, it is a consequence of that."""
    below = death(message)
    if below is None:
        return None
    return Trouble(below.kind, clean(message), below.hint, below.cause, consequence=True)


def tail(message: str) -> str:
    """A raw line from its exception on: a prefix that nobody took off may stand before it, quotes may not."""
    found = _BEHIND.match(message)
    return message[found.end() :] if found else message


def exception(message: str) -> Trouble | None:
    """Any exception's last line, e.g. `ValueError: …`: named if known, else in its own words."""
    found = EXCEPTION.match(message)
    if found is None:
        return None
    known = diagnose(message)
    if known is not None:
        return known
    if found[1] in {"KeyboardInterrupt", "SystemExit", "CancelledError", "GeneratorExit"}:
        return None
    return Trouble("error", clean(message))


def clean(message: str) -> str:
    """One line of at most 300 characters, without the exception's module path and pydantic's tail."""
    text = " ".join(message.split())
    found = EXCEPTION.match(text)
    if found and found[2]:
        text = f"{found[1]}: {found[2]}" if found[1] not in {"ValueError", "RuntimeError"} else found[2]
    text = text.split(" [type=", 1)[0]
    return text if len(text) <= 300 else text[:299] + "…"


def pydantic(lines: list[str]) -> Trouble:
    """A validation block's lines below `N validation errors for X`, as one reason: `field: what is wrong; …`."""
    parts: list[str] = []
    name = ""
    for line in lines:
        if "For further information" in line:
            name = ""
        elif (found := _SAID.search(line)) is not None:
            said = found[1].partition("  ")[2].strip() or found[1].strip()  # indented by two, whatever stands before
            said = said.removeprefix("Value error, ").removeprefix("Assertion failed, ")
            parts.append(f"{name}: {said}" if name else said)
        elif (field := _FIELD.search(line)) is not None:
            name = field[1]
    reason = "; ".join(parts) or "a flag's value was refused"
    known = diagnose(reason)
    hint = known.hint if known else _flag_hint(reason)
    return Trouble("error", reason if len(reason) <= 300 else reason[:299] + "…", hint, "bad_flag")


def _flag_hint(reason: str) -> str:
    if reason.startswith("num_speculative_tokens") and "greater than 0" in reason:
        return "depth 0 means no speculative config at all, not num_speculative_tokens 0"
    return "the value is outside what vLLM takes: change that flag"


def _free(message: str) -> Trouble | None:
    found = _FREE.search(message) if "Free memory on device" in message else None
    if found is None:
        return None
    free, total, share, wanted = (float(found[i].rstrip(".")) for i in range(1, 5))
    return Trouble(
        "oom",
        f"only {free:g} of {total:g} GiB are free at start, --gpu-memory-utilization {share:g} wants {wanted:g} GiB",
        "another process (often the server just stopped) holds memory: wait and start again, or lower "
        "--gpu-memory-utilization",
        "memory_busy",
        extras={"free_bytes": int(free * GIB), "total_bytes": int(total * GIB), "wanted_bytes": int(wanted * GIB)},
    )


def _too_long(message: str) -> Trouble | None:
    if "max seq len" not in message:
        return None
    found = _LEN.search(message)
    if found is None:
        old = _LEN_V0.search(message)
        if old is None:
            return None
        return Trouble(
            "error",
            f"one request of --max-model-len {old[1]} does not fit the KV pool of {old[2]} tokens",
            f"--max-model-len {old[2]} or less, or {_RAISE}",
            "fraction_too_low",
            extras={"max_model_len": int(old[1]), "fitting_model_len": int(old[2])},
        )
    extras: dict[str, Any] = {"max_model_len": int(found[1])}
    advice = _LEN_ADVICE.search(message)
    first = _RAISE
    if advice:
        extras["fitting_model_len"] = int(advice[1])
        first = f"--max-model-len {advice[1]} would fit; or raise --gpu-memory-utilization (not lower it)"
    return Trouble(
        "error",
        f"one request of --max-model-len {found[1]} needs {found[2]} GiB of KV, {found[3]} GiB are there",
        first,
        "fraction_too_low",
        extras=extras,
    )


def _oom(message: str) -> Trouble | None:
    if DEVICE_OOM.search(message) is None or "warming up sampler with" in message:
        return None
    extras: dict[str, Any] = {}
    want, have = _OOM_WANT.search(message), _OOM_HAVE.search(message)
    reason = "the GPU ran out of memory"
    if want:
        extras["tried_bytes"] = int(float(want[1].rstrip(".")) * _UNITS[want[2]])
        reason += f" asking for {want[1]} {want[2]}"
    if have:
        extras["gpu"] = int(have[1])
        extras["total_bytes"] = int(float(have[2].rstrip(".")) * _UNITS[have[3]])
        extras["free_bytes"] = int(float(have[4].rstrip(".")) * _UNITS[have[5]])
        reason += f" with {have[4]} {have[5]} free"
    return Trouble("oom", reason, _LOWER, "fraction_too_high", extras=extras)
