"""What SGLang's troubles mean: from a line of an exception or a complaint to kind, cause, reason and cure.

The opposite cures are kept apart: weights that leave no room (fraction too low), memory gone while serving or capturing
(fraction too high), and pools that ran out, which are neither. This file reads single messages; joining a traceback's
lines is the reader's work.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from probes.engines import _ground
from probes.events import Kind

_LOWER = (
    "lower --mem-fraction-static (the static pools leave too little for activations and graphs), or a smaller "
    "--chunked-prefill-size, draft window or graph batch"
)
DRAFT_POOL = (
    "lower --mem-fraction-static, or set --max-total-tokens: the draft model gets a pool of its own for as many "
    "tokens, on top of what the fraction sets aside"
)
_RAISE = "raise --mem-fraction-static: the weights take the whole static budget (or use fewer or smaller weights)"
_ABOVE = "a consequence: the cause is an exception above"
_HALVES = (
    "keys and values did not get from the half that prefills to the one that decodes: look at the other half's log, "
    "and at the network between them"
)


class Trouble(NamedTuple):
    """What a message says. `cause` is a fixed word; `hint` the cure in words."""

    kind: Kind
    cause: str
    hint: str


_T = Trouble
_NEEDLES: Final[tuple[tuple[str, Trouble], ...]] = (
    ("try to increase --mem-fraction-static", _T("error", "fraction_too_low", _RAISE)),
    ("Loaded weights leave no GPU memory", _T("error", "fraction_too_low", _RAISE)),
    ("Not enough GPU memory for hybrid", _T("error", "fraction_too_low", f"{_RAISE}; or --mamba-ssm-dtype bfloat16")),
    (
        "state cache is too small to serve",
        _T("error", "state_too_small", "raise --max-mamba-cache-size or --mamba-full-memory-ratio, or halve the state "
           "with --mamba-ssm-dtype bfloat16 (changes outputs: gate it)"),
    ),
    ("Capture cuda graph failed: CUDA out of memory", _T("oom", "fraction_too_high", _LOWER)),
    ("Not enough space for mamba", _T("crash", "state_exhausted", "lower --max-running-requests, or raise "
     "--max-mamba-cache-size; state slots are not queued for, they run out")),
    ("alloc_req_slots runs out of memory", _T("crash", "slots_exhausted", "the table of running requests was full: "
     "lower --max-running-requests or upgrade")),
    ("Prefill out of memory", _T("crash", "pool_exhausted", "the KV pool had no room for a prompt and the scheduler "
     "died; this is no CUDA out-of-memory: more pool (raise --mem-fraction-static) or fewer requests")),
    ("Decode out of memory.", _T("crash", "pool_exhausted", "the KV pool had no room for the next token and the "
     "scheduler died; more pool (raise --mem-fraction-static) or fewer requests")),
    ("Out of memory even after retracting", _T("error", "pool_exhausted", "one request does not fit the KV pool alone: "
     "more pool, or a smaller max_tokens")),
    ("memory allocation failed with OOM on device", _T("oom", "fraction_too_high", _LOWER)),
    ("memory capacity is unbalanced", _T("error", "memory_busy", "another process holds memory on one of the GPUs: end "
     "it, or wait until a server that was just stopped has let go")),
    ("Not enough host memory", _T("error", "host_memory", "lower --hicache-ratio or --hicache-size: the host has less "
     "memory than that cache asks for")),
    ("host memory for hierarchical cache", _T("error", "host_memory", "lower --hicache-ratio or --hicache-size: the "
     "host has less memory than that cache asks for")),
    ("illegal memory access", _T("crash", "device_fault", "a fault in a kernel, unrelated to capacity: another "
     "attention backend or version")),
    ("address already in use", _T("error", "port_in_use", "another process listens on this port: choose another one")),
    ("Errno 98", _T("error", "port_in_use", "another process listens on this port: choose another one")),
    ("is not a valid model identifier", _T("error", "model_not_found", "check the model's path or name")),
    ("Repository Not Found", _T("error", "model_not_found", "check the model's path or name")),
    ("does not appear to have a file named config.json", _T("error", "model_not_found", "check the model's path")),
    ("Unknown speculative algorithm name", _T("error", "bad_flag", "name an algorithm that this version knows")),
    ("DSpark requires --speculative-dspark-block-size", _T("error", "bad_flag", "choose a block size of at least 1")),
    ("must equal gamma + 1", _T("error", "bad_flag", "leave --speculative-num-draft-tokens out: it is "
     "the block size + 1")),
    ("are not supported together", _T("error", "bad_flag", "leave one of the flags out")),
    ("combined with attention data parallelism are not supported", _T("error", "bad_flag", "use --dp-size or "
     "--attn-dp-size, not both")),
    ("could match --cuda-graph-max-bs-decode", _T("error", "bad_flag", "this version (0.5.20 or later) calls it "
     "--cuda-graph-max-bs-decode")),
    ("error: ambiguous option", _T("error", "bad_flag", "write the option's whole name as this version has it")),
    ("error: unrecognized arguments", _T("error", "bad_flag", "this version does not have that option")),
    ("error: argument ", _T("error", "bad_flag", "choose one of the values that the message lists")),
    ("atchdog timeout", _T("crash", "hang", "the scheduler stood still: look for the last batch before it")),
    ("Health check failed", _T("error", "hang", "the scheduler or detokenizer does not answer: look for an exception "
     "above")),
    ("memory leak detected", _T("error", "bookkeeping", "the pool's bookkeeping is off: restart, and upgrade")),
    ("pool memory leak", _T("error", "bookkeeping", "the pool's bookkeeping is off: restart, and upgrade")),
    ("retract_decode: aborted", _T("error", "pool_exhausted", "a request was given up for lack of KV pool: fewer "
     "requests, or a smaller max_tokens")),
    ("The request queue is full", _T("reject", "queue_full", "more than --max-queued-requests wait")),
    ("longer than the model's context length", _T("reject", "too_long", "shorten the prompt")),
    ("exceeds the model's maximum context length", _T("reject", "too_long", "shorten the prompt or max_tokens")),
    ("exceeds the maximum allowed length", _T("reject", "too_long", "the prompt does not fit the KV pool")),
    ("Prefill bootstrap failed", _T("error", "transfer_failed", _HALVES)),
    ("Prefill transfer failed", _T("error", "transfer_failed", _HALVES)),
    ("Decode handshake failed", _T("error", "transfer_failed", _HALVES)),
    ("Decode transfer failed", _T("error", "transfer_failed", _HALVES)),
    ("has no SGlang implementation", _T("error", "unsupported_model", "this version does not know that model: take a "
     "newer one")),
    ("died during initialization (exit code: -9)", _T("exit", "killed", "often the host ran out of memory: the "
     "kernel's log tells")),
    ("scheduler died during initialization", _T("exit", "child_failed", _ABOVE)),
    ("scheduler is dead", _T("exit", "child_failed", _ABOVE)),
    ("Initialization failed. Please see the error", _T("exit", "child_failed", _ABOVE)),
    ("SIGTERM received", _T("exit", "stopped", "")),
    ("SIGQUIT received", _T("exit", "child_failed", _ABOVE)),
    ("eceived sigquit from a child", _T("exit", "child_failed", _ABOVE)),
)  # fmt: skip
"""Most telling first: the first that is found in a message counts; failures below the engine come after them."""

_NAMED = re.compile(r"(?:[A-Za-z_]\w{0,40}\.){0,6}[A-Z]\w{0,60}(?:Error|Exception|Interrupt)(?:: |\Z)", re.ASCII)
_ARGPARSE = re.compile(r"\S{1,120}: error: ")

_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE = r"(\d{1,15}(?:\.\d{1,9})?) ?([KMGT]iB|B)(?![A-Za-z])"
_WANT = re.compile(r"Tried to allocate " + _SIZE)
_FREE = re.compile(r"of which " + _SIZE + r" is free")
_GPU = re.compile(r"GPU (\d{1,15}) has a total capacity of " + _SIZE)
_CPP = re.compile(
    r"on device (\d{1,15}) while trying to allocate (\d{1,15}) bytes \(free: (\d{1,15}), total: (\d{1,15})\)"
)
_CPP_NAMES = ("gpu", "want_bytes", "free_bytes", "total_bytes")
_TOKENS = re.compile(r"Try to allocate (\d{1,15}) tokens")
_LEFT = re.compile(r"Ava(?:il|li)able (?:(full|mamba) ?)?(?:tokens)?: (\d{1,15})")
_VIABLE = re.compile(r"minimum viable = (\d?\.\d{1,9})")


_CAUSES: Final = {"kernel": "device_fault"}
_HINTS: Final = (
    "rror", "emory", "ailed", "imeout", "SIG", "sigq", "length", "queue is full", "small", "Found", "identifier",
    "named", "requires", "gamma", "supported", "leak", "enough", "Errno", "in use", "aborted", "dead", "Segfault",
    "dumped", "Killed", "unbalanced", "implementation", "died",
)  # fmt: skip
"""Every needle holds one of these: a quick way to see that a line is none of them."""


def find(text: str) -> Trouble | None:
    """What is known about this message; None: nothing."""
    for hint in _HINTS:
        if hint in text:
            break
    else:
        return None
    for needle, trouble in _NEEDLES:
        if needle in text:
            return trouble
    if _ground.DEVICE_OOM.search(text) is not None:
        return Trouble("oom", "fraction_too_high", _LOWER)
    # Import errors and the like are told as harmless notes too: only an exception counts.
    found = _ground.death(text) or (_ground.find(text) if is_exception(text) else None)
    return None if found is None else Trouble(found.kind, _CAUSES.get(found.cause, found.cause), found.hint)


def is_exception(text: str) -> bool:
    """Whether an unindented line is the last line of a traceback: `torch.OutOfMemoryError: …`, `ValueError: …`."""
    return _NAMED.match(text) is not None or text.startswith("Exception: ")


def is_usage_error(text: str) -> bool:
    """Whether this is argparse's last line, `launch_server.py: error: …`."""
    return _ARGPARSE.match(text) is not None


def details(text: str) -> dict[str, Any]:
    """The numbers in a message: bytes wanted, free and in all, which GPU, tokens of a pool."""
    out: dict[str, Any] = {}
    readers: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], dict[str, Any]]], ...] = (
        (_WANT, lambda m: {"want_bytes": _bytes(m[1], m[2])}),
        (_FREE, lambda m: {"free_bytes": _bytes(m[1], m[2])}),
        (_GPU, lambda m: {"gpu": int(m[1]), "total_bytes": _bytes(m[2], m[3])}),
        (
            _CPP,
            lambda m: dict(zip(("gpu", "want_bytes", "free_bytes", "total_bytes"), map(int, m.groups()), strict=True)),
        ),
        (_TOKENS, lambda m: {"want_tokens": int(m[1])}),
        (_LEFT, lambda m: {"available_slots" if m[1] == "mamba" else "available_tokens": int(m[2])}),
        (_VIABLE, lambda m: {"minimum_fraction": float(m[1])}),
    )
    for pattern, read in readers:
        if (found := pattern.search(text)) is not None:
            out |= read(found)
    return out


def _bytes(amount: str, unit: str) -> int:
    return round(float(amount) * _UNITS[unit])


def exit_words(code: int | None) -> str | None:
    """An exit code in words; None when it says nothing (this engine kills its own tree: -9 also after a good stop)."""
    if code is None or code in (0, -9, -15):
        return None
    return f"ended by signal {-code}" if code < 0 else f"exit code {code}"
