"""Why ninfer refused a request or did not start, and the cure in words. Pure; reads text that is already cleaned."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from probes.engines._ninfer_text import lines
from probes.engines._unwrap import unwrap
from probes.events import Kind

_OWN_GRAMMAR = "the request's own schema, grammar or choice is the cause, not the server"
CODES: dict[str, tuple[str, str]] = {
    "server overloaded": (
        "overloaded",
        "the queue is full (--max-pending-requests): send fewer at once or raise it; back off before a retry",
    ),
    "request queue timeout": (
        "queue_timeout",
        (
            "it waited longer than --pending-timeout-ms (30 s) to be admitted; the server is alive. Ask for fewer "
            "output tokens if the KV pool is promised away, or raise the timeout; never score it as a wrong answer"
        ),
    ),
    "service unavailable": ("error", "the engine has failed as a whole: read the lines above and restart it"),
    "context length exceeded": ("rejected", "the prompt alone is longer than --max-context"),
    "model not found": ("rejected", "the request's model must equal the server's --model-id letter by letter"),
    "invalid api key": ("rejected", "the server was started with --api-key"),
    "request too large": ("rejected", "the body is over --max-request-mib"),
    "vision disabled": ("rejected", "the server was started without --vision"),
    "client disconnected": ("disconnected", "the client hung up, perhaps by its own timeout: nothing broke here"),
    "internal error": ("error", ""),
    "upstream error": ("error", ""),
    "unavailable": ("error", "the engine has failed as a whole: read the lines above and restart it"),
    "overload": ("overloaded", "the queue is full: send fewer at once"),
    "timeout": ("queue_timeout", "it waited too long to be admitted; the server is alive"),
    "client input": ("rejected", ""),
    **dict.fromkeys(
        (
            "invalid json schema", "unsupported json schema", "unsatisfiable json schema", "invalid grammar",
            "invalid choice", "invalid regex", "constraint dead end",
        ),
        ("rejected", _OWN_GRAMMAR),
    ),
}  # fmt: skip


_TEXTS = {
    "inference request queue is full": "server overloaded",
    "inference request expired": "request queue timeout",
    "inference engine is unavailable": "service unavailable",
}


def code_of(message: str) -> str | None:
    """The code (with blanks) that belongs to an engine's message, where the record tells the message alone."""
    return next((code for text, code in _TEXTS.items() if text in message), None)


def hint(code: str) -> str:
    """What to do about a request's error code (with blanks, as the log prints it); empty when nothing is known."""
    return CODES.get(code, ("", ""))[1]


_PROTOCOLS = (
    "openai-chat", "openai-responses", "anthropic", "openai-input-tokens", "anthropic-count-tokens", "decide",
)  # fmt: skip


def cut_code(text: str) -> bool:
    """Whether a line's last words are the beginning of a code or protocol that goes on."""
    return any(known.startswith(text) and known != text for known in (*CODES, *_PROTOCOLS)) and text not in CODES


def outcome(code: str, status: int | None, *, refused: bool) -> tuple[Kind, str]:
    """Whether a failed request was turned away (`reject`) or something broke (`error`), and its outcome's name.

    429/529 means that the queue was full, 503/504 with `request queue timeout` that it waited too long: neither is a
    dead server.
    """
    name = CODES.get(code, ("", ""))[0]
    if not name:
        name = "overloaded" if status in {429, 529} else "rejected" if refused or (status or 500) < 500 else "error"
    return ("error" if name == "error" else "reject"), name


@dataclass(frozen=True, slots=True)
class Cause:
    """A start's failure as recognised from one message: `kind` as in a record, the reason, the cure."""

    kind: Kind
    reason: str
    hint: str = ""
    clues: dict[str, int] = field(default_factory=dict)


_OOM = re.compile(
    r"out of memory|cudaErrorMemoryAllocation|memory allocation failed|ERROR_OUT_OF_MEMORY"
    r"|requires [\d,]+ bytes, but only [\d,]+ bytes are available",
    re.IGNORECASE,
)
_PINNED = re.compile(r"cudaMallocHost|cudaHost(?:Alloc|Register)")
ABORTED = re.compile(r"\S+:\d+:? CUDA_CHECK\(.*\) failed: ")
"""How the process says, past its logger, that a CUDA call failed; it aborts right after."""
_RANGE = re.compile(r"--spec (\w+) requires --draft-tokens in \[(\d+),(\d+)\]")
_CURES: tuple[tuple[str, str], ...] = (
    (
        "--draft-tokens and --lm-head-draft require --spec",
        "leave out --draft-tokens and --lm-head-draft together with --spec: that is draft depth 0",
    ),
    (r"CUDA_CHECK\(", "a CUDA call failed and the process aborted: look at the driver's log (dmesg, Xid)"),
    (r"unknown argument: --[\w-]+=", "write `--flag value`: ninfer does not take `--flag=value`"),
    ("unknown argument", "this build does not know that flag; its --help lists what it takes"),
    (
        "(?:cannot|failed to) bind",
        "the port is taken, often by a server that still stops: choose another, or wait until that process is gone",
    ),
    ("--kv-capacity must be at least --max-context", "raise --kv-capacity or lower --max-context"),
    ("artifact path is required", "the .ninfer artifact must be the first argument, before any flag"),
    ("requires compute capability", "these kernels need another GPU generation"),
    ("is not supported by this target", "this model has no such draft head: use --spec mtp, or depth 0"),
    ("cannot be combined with --vision", "drop --vision or use --spec mtp"),
    (
        "cannot be combined with context-cache capacity",
        "drop --no-prefix-reuse or the prefix cache's options (--device-state-slots, --host-kv-mib …)",
    ),
    ("max_context exceeds", "lower --max-context to what the model was made for"),
    ("request JSONL log", "the folder of --request-log-jsonl must exist and be writable"),
    ("(?i:no such file|not found|cannot open|failed to open)", "check the path of the .ninfer artifact"),
    ("(?i:invalid CUDA device|no CUDA-capable device)", "check --device and the driver"),
)


def out_of_memory(text: str) -> bool:
    """Whether a message speaks of device memory running out."""
    return bool(_OOM.search(text))


def cause(message: str, phase: str | None = None) -> Cause:
    """What a fatal message means. `phase` is what the engine was doing, as it names it."""
    reason = f"{message} (while {phase})" if phase and phase not in message else message
    if _PINNED.search(message) or (phase or "").startswith("pinning host"):
        cure = "the host can't pin that much memory: lower --host-kv-mib (newer builds: --host-context-mib)"
        return Cause("oom", reason, cure)
    if out_of_memory(message):
        weights = "bytes are available" not in message and (phase is None or "weight" in phase)
        cure = (
            "the weights do not fit beside what else is on the GPU: end other processes there, or take a smaller "
            "artifact; a smaller KV pool does not help at this point"
            if weights
            else "lower --kv-capacity or --max-context, run fewer lanes (--max-concurrency), or take a smaller "
            "--kv-dtype (int8, nvfp4)"
        )
        return Cause("oom", reason, cure)
    if found := _RANGE.search(message):
        low, high = int(found[2]), int(found[3])
        cure = f"draft depth with --spec {found[1]} is {low}..{high}, or 0 (no speculation flags at all)"
        return Cause("error", reason, cure, {"legal_low": low, "legal_high": high})
    return Cause("error", reason, next((text for pattern, text in _CURES if re.search(pattern, message)), ""))


_ARGUMENT = re.compile(
    r"--[\w-]+ |unknown argument|invalid [\w-]+: |artifact path is required|max_context exceeds|request JSONL log|"
    r"failed to open request|.* needs a value$"
)


def argument_error(text: str) -> bool:
    """Whether a line without stamp is a complaint about the command line (usage text follows it)."""
    return bool(_ARGUMENT.match(text))


_SIGNALS = {2: "SIGINT", 9: "SIGKILL", 15: "SIGTERM"}


def failure(log: Sequence[str], exit_code: int | None) -> tuple[str | None, str | None]:
    """Reason and cure of a failed start, from its log lines; see `Engine.failure`.

    After a bad flag the reason is the first line and usage text follows, so the first complaint counts, not the last.
    """
    phase: str | None = None
    last_error: str | None = None
    for raw in log:
        for piece in unwrap(raw):
            for line in lines(piece):
                text = line.text.removeprefix("error: ")
                if line.form == "S" and (argument_error(text) or line.level == "ERROR" or text.startswith("failed to")):
                    found = cause(text)
                    return found.reason, found.hint or None
                if line.text.startswith("startup failed"):
                    parts = line.text.split(" | ")
                    phase = parts[1] if len(parts) > 1 else None
                    last_error = line.text
                elif line.level == "FATAL" or line.text.startswith("cannot bind"):
                    found = cause(line.text.split(" | ")[-1], phase)
                    return found.reason, found.hint or None
                elif line.level == "ERROR":
                    last_error = last_error or line.text
    if last_error is not None:
        found = cause(last_error, phase)
        return found.reason, found.hint or None
    return _by_exit_code(exit_code)


def _by_exit_code(exit_code: int | None) -> tuple[str | None, str | None]:
    if exit_code is None or exit_code >= 0:
        return None, None
    name = _SIGNALS.get(-exit_code, f"signal {-exit_code}")
    if exit_code == -9:
        return f"killed by {name} while starting", "often the system ran out of memory: look at the kernel's log"
    if exit_code in {-2, -15}:
        return f"stopped by {name} while still loading", "nothing is wrong with the flags: start it again"
    return f"crashed with {name} while starting", None
