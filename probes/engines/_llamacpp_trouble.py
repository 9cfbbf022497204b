"""What goes wrong in llama-server and how it says so: one table for the reader and for failed starts.

Each entry gives the kind of record, a reason in few words and a cure. Matching is on the message of a labelled line,
never on text that a model or a prompt wrote.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from probes.events import Kind


@dataclass(frozen=True, slots=True)
class Trouble:
    """One kind of failure. `family`: lines of one incident share it. `fatal`: the start or the server ends with it."""

    family: str
    kind: Kind
    pattern: re.Pattern[str]
    hint: str
    fatal: bool = True
    reason: str = ""
    """Few words; empty: the message itself is the reason. May hold `{0}` for the pattern's first group."""


def _entry(family: str, kind: Kind, pattern: str, hint: str, *, fatal: bool = True, reason: str = "") -> Trouble:
    return Trouble(family, kind, re.compile(pattern), hint, fatal, reason)


POOL_HINT = "the KV pool is full: raise -c, or lower -np, max_tokens or the length of prompts"
SHARED_HINT = (
    "the slots share one KV pool and it is full: raise -c, lower -np or max_tokens, or give each slot its own share "
    "with -no-kvu"
)
_PROJECTOR_HINT = "--mmproj must be the file made for this model; a kind that is unknown needs a newer build"
_MODEL_HINT = "check the path of -m / -md and that the file is a complete GGUF"
_MEMORY_HINT = "lower -c, -ub, -np or -ngl, use a quantised KV cache (-ctk/-ctv q8_0), or free the device's memory"

ARGUMENT = re.compile(
    r"error(?:: (?:invalid argument: (?P<flag>\S+)|unknown argument: (?P<old>\S+)|invalid parameter for argument: "
    r"(?P<param>\S+))| while (?:handling|parsing) (?:argument|environment variable) \"(?P<named>[^\"]+)\": (?P<why>.+))"
)
"""A refused argument: the reason is this line, the usage text after it is noise."""

TABLE: tuple[Trouble, ...] = (
    _entry("bind", "error", r"couldn't bind (?:HTTP )?(?:server )?socket",
           "the port is taken (or the socket can't be made): stop the other server or choose another port",
           reason="the server could not bind its address"),
    _entry("crash", "crash", r"GGML_ASSERT\(n_outputs_max <= cparams\.n_outputs_max\) failed",
           "--spec-draft-n-max 0 aborts at the first request: depth 0 is --spec-type none",
           reason="assertion n_outputs_max: draft depth 0 was given as --spec-draft-n-max 0"),
    _entry("crash", "crash", r"GGML_ASSERT\(", "an assertion of the server failed: report it with the lines around it"),
    _entry("oom", "oom", r"allocating [\d.]+ MiB on device \d+: \w+ failed: out of memory", _MEMORY_HINT),
    _entry("oom", "oom", r"CUDA error: out of memory|ErrorOutOfDeviceMemory|ErrorOutOfHostMemory"
           r"|CallbackErrorOutOfMemory|cudaMalloc failed: out of memory", _MEMORY_HINT),
    _entry("oom", "oom", r"failed to allocate (?:\w+ buffer of size|compute (?:pp )?buffers|buffer)|"
           r"unable to allocate \w+ buffer", _MEMORY_HINT,
           reason="memory for a buffer could not be allocated"),
    _entry("crash", "crash", r"(?:CUDA|ROCm|HIP|MUSA|SYCL) error(?:: | at )|vk::DeviceLostError|DeviceLost",
           "the device failed: look at the driver's log"),
    _entry("crash", "crash", r"Segmentation fault|terminate called after throwing|AMX is not ready to be used",
           "the server died; a build for another CPU does this too"),
    _entry("crash", "crash", r"unexpected error in llama server update_slots",
           "the server ends itself after a batch that it could not decode: the lines above say why",
           reason="the server gave up a batch and left its main loop"),
    _entry("draft", "error", r"the target and draft vocabs are not compatible|draft model vocab type must match|"
           r"draft model special tokens must match|draft model vocab must", fatal=False,
           hint="take a draft model with the target's own vocabulary",
           reason="the draft model's vocabulary does not match: the server runs without speculation"),
    _entry("draft", "error", r"failed to initialize speculative decoding context: (.+)", fatal=False,
           hint="the server comes up all the same, without speculation: give a draft model (-md) that fits the target",
           reason="no speculation: {0}"),
    _entry("model", "error", r"failed to create MTP context",
           "this model has no MTP head: use another kind of speculation", reason="the model has no MTP head"),
    _entry("model", "error", r"unknown projector type: ?(\S*)", _PROJECTOR_HINT, reason="unknown projector type {0}"),
    _entry("model", "error", r"failed to load multimodal model|[Ff]ailed to load CLIP model", _PROJECTOR_HINT,
           reason="the projector file can't be loaded"),
    _entry("model", "error", r"failed to open GGUF file '([^']*)'", _MODEL_HINT,
           reason="model file {0} can't be opened"),
    _entry("model", "error", r"data is not within the file bounds", "the file is cut short: fetch it again",
           reason="the model file is truncated or corrupt"),
    _entry("model", "error", r"unknown (?:model )?architecture: '([^']*)'", "this build is too old for the model",
           reason="unknown model architecture {0}"),
    _entry("model", "error", r"unknown pre-tokenizer type: '([^']*)'", "this build is too old for the model",
           reason="unknown pre-tokenizer {0}"),
    _entry("model", "error", r"V cache quantization requires flash_attn",
           "turn flash attention on (-fa on) or use -ctv f16",
           reason="a quantised V cache needs flash attention"),
    _entry("model", "error", r"error loading model|failed to load (?:draft )?model|failed to create (?:llama_)?context|"
           r"unable to load model", _MODEL_HINT),
    _entry("model", "error", r"cannot meet free memory targets?", _MEMORY_HINT, fatal=False),
    _entry("exit", "error", r"exiting due to (.+)", "see the first error above", reason="exiting due to {0}"),
)  # fmt: skip

RETRIED = re.compile(r"compute buffer allocation failed, retrying")
"""After it, an allocation that failed was no failure of the server."""

_PLACE = re.compile(r"^(?:srv|slot|cmn|spec)\s+\S+: ")
NEEDLES = (
    "couldn't bind", "GGML_ASSERT", "out of memory", "OutOf", "allocat", " error", "DeviceLost", "Segmentation",
    "terminate called", "exiting main",
    "AMX is not", "vocab", "ailed to ", "requires flash_attn", "unknown ", "exiting due", "unable to", "file bounds",
)  # fmt: skip
"""A line without any of these can't match the table."""


_CALM = ("failed to measure", "failed to fit params")


def recognise(message: str) -> tuple[Trouble, str] | None:
    """The entry that a message matches, and its reason in words (at most 300 characters)."""
    # Sizes are measured before loading; what fails then is told again when it really fails.
    # Where its own fitting gives up, the server goes on with what it was told.
    if not any(needle in message for needle in NEEDLES) or any(calm in message for calm in _CALM):
        return None
    for trouble in TABLE:
        found = trouble.pattern.search(message)
        if found:
            first = found[1] if trouble.pattern.groups else ""
            reason = trouble.reason.replace("{0}", (first or "").strip(" .")) or _PLACE.sub("", message.strip())
            return trouble, reason[:300]
    return None


def argument(message: str) -> tuple[str, str] | None:
    """Reason and cure of a refused argument, None if this line is none."""
    found = ARGUMENT.match(message)
    if found is None:
        return None
    why = found["why"] or ""
    if "has been removed" in why:
        return message.strip()[:300], f"this build has removed {found['named']}: {why.partition('removed.')[2].strip()}"
    if why:
        return message.strip()[:300], f"correct the value of {found['named']}: {why.strip()}"
    name = found["flag"] or found["old"] or found["param"] or ""
    return message.strip()[:300], f"this build does not know {name}: see llama-server --help"


_SIGNALS = {
    -4: ("illegal instruction (SIGILL)", "this build was compiled for another CPU (e.g. with AMX): use another build"),
    -6: ("the server aborted (SIGABRT)", "see the assertion or error above it in the log"),
    -9: ("killed (SIGKILL)", "the kernel's out-of-memory killer does this: lower -c or the model's size"),
    -11: ("segmentation fault (SIGSEGV)", "builds up to b10068 crash so when a draft kind has no draft model (-md)"),
    -15: ("terminated (SIGTERM) while loading", "someone stopped it before it was ready"),
}


def failure(messages: Sequence[str], exit_code: int | None) -> tuple[str | None, str | None]:
    """Reason and cure of a failed start: the first fatal line says why, later ones are consequences."""
    kept: tuple[str, str] | None = None
    pending: tuple[str, str] | None = None
    for message in messages:
        refused = argument(message)
        if refused:
            return refused
        if RETRIED.search(message):
            pending = None
            continue
        found = recognise(message)
        if found is None:
            continue
        trouble, reason = found
        if trouble.family == "oom" and pending is None:
            pending = (reason, trouble.hint)
        elif trouble.fatal and kept is None and trouble.family != "exit":
            kept = pending or (reason, trouble.hint)
        elif trouble.family == "exit" and kept is None and pending is None:
            kept = (reason, trouble.hint)
        if kept is None and trouble.family == "draft" and exit_code not in {0, None}:
            kept = (reason, trouble.hint)
    if pending is not None and (kept is None or pending[0] not in kept[0]):
        kept = pending
    if kept is not None:
        return kept
    if exit_code is not None and exit_code > 128:
        exit_code = 128 - exit_code
    return _SIGNALS.get(exit_code, (None, None)) if exit_code is not None else (None, None)
