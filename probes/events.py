"""Every fact there is: what a log said, what a server did, what a request took, what the memory was.

Facts are frozen and carry no behaviour beyond small derived ratios. `None` means that the source does not say; it is
never 0. Times named `*_ms` are milliseconds, `*_tps` tokens per second, sizes are bytes, usages and rates are 0..1,
`at` of an event is `time.time()` in seconds, client stamps are `time.monotonic()` in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal[
    "boot", "weights", "pool", "capacity", "ready", "prefill", "decode", "throughput", "spec", "request", "reject",
    "retract", "preempt", "oom", "crash", "exit", "error",
]  # fmt: skip
Rank = Mapping[str, int]
Verdict = Literal["kv_pool", "lanes", "state_pool", "prefill", "admission_delay", "client", "none", "unknown"]
Confidence = Literal["high", "medium", "low"]
State = Literal["stopped", "starting", "loading", "ready", "draining", "failed"]
Outcome = Literal[
    "ok", "rejected", "overloaded", "queue_timeout", "aborted", "timeout", "disconnected", "degenerate",
]  # fmt: skip

OUTCOMES: tuple[Outcome, ...] = (
    "ok", "rejected", "overloaded", "queue_timeout", "aborted", "timeout", "disconnected", "degenerate",
)  # fmt: skip
CATEGORIES: tuple[str, ...] = ("code", "story", "translation", "structured")


# ------------------------------------------------------------------------------------------------- what a log says


@dataclass(frozen=True, slots=True)
class Record:
    r"""One event that a server's log tells of, in canonical units.

    `line` is 1-based and lines end at `\n` only. `fields` holds only what the line says, under the names of
    `FIELDS`, plus engine-specific extras under other names. `at` is ISO 8601 as printed, with no zone invented.
    `ranks` lists every rank that printed this same event; `rank` is the one that `line` belongs to. `text` is the
    cleaned line (no escapes, no foreign prefix), cut at 500 characters: evidence to show, never to parse again.
    """

    line: int
    kind: Kind
    fields: Mapping[str, Any] = field(default_factory=dict)
    at: str | None = None
    rank: Rank | None = None
    ranks: tuple[Rank, ...] = ()
    text: str = ""


FIELDS: frozenset[str] = frozenset(
    {
        "running", "waiting", "decode_ready", "batch", "kv_used_tokens", "kv_usage", "swa_usage", "state_usage",
        "state_slots_used", "accept_len", "accept_rate", "accept_rate_printed", "drafted", "accepted", "per_position",
        "gen_tps", "prompt_tps", "new_seqs", "new_tokens", "cached_tokens", "pending_tokens", "graph", "ttft_ms",
        "tpot_ms", "queue_ms", "total_ms", "prompt_tokens", "output_tokens", "retracted",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a start of a server can hold, per rank unless `per` says otherwise; never summed over tensor parallelism.

    `lanes` is what the log calls its limit on running requests, never a ratio, a graph size or a quotient.
    `reserving`: whether the engine promises a request's whole output at admission (None: not known).
    `explain` puts it in words, one sentence each, with what is a cap and what an identity.
    """

    kv_pool_tokens: int | None = None
    pages: int | None = None
    page_tokens: int | None = None
    worst_case_pages: int | None = None
    max_context: int | None = None
    lanes: int | None = None
    state_slots: int | None = None
    state_slots_per_request: int | None = None
    batch_tokens: int | None = None
    """Tokens that one scheduler step may prefill (chunk or batch-token limit)."""
    kv_bytes: int | None = None
    weights_bytes: int | None = None
    state_bytes: int | None = None
    other_bytes: int | None = None
    free_bytes: int | None = None
    per: Literal["rank", "server", "engine"] = "rank"
    ranks: int | None = None
    """How many data-parallel ranks each have this much."""
    reserving: bool | None = None
    lines: Mapping[str, int] = field(default_factory=dict)
    """For each field above that is set: the log line it comes from."""
    explain: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """A log line that a claim rests on."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Warn:
    """Something a reader should know before believing a number; `line` 0 is about the whole."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Which limit held requests back, and how sure that is. A wrong verdict is worse than `unknown`.

    `until`: when the queue that it speaks of was last seen, as the log or else the local clock says (None: it is a
    verdict over all that was read, or holds now).
    """

    verdict: Verdict
    confidence: Confidence = "low"
    sentence: str = ""
    evidence: tuple[Evidence, ...] = ()
    missing: tuple[str, ...] = ()
    rivals: tuple[Verdict, ...] = ()
    experiment: str = ""
    advice: str = ""
    until: str | None = None


# ------------------------------------------------------------------------------------------------- what a run does


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run directory was opened: what is going to be turned, on what."""

    at: float
    run: str
    engine: str
    preset: str
    model: str
    dial: str
    depths: tuple[int, ...]
    categories: tuple[str, ...]
    simulated: bool = False
    attached: bool = False
    knobs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServerChanged:
    """The server's process went from one state to another, or reports progress within one."""

    at: float
    state: State
    restart: int
    depth: int | None = None
    pid: int | None = None
    url: str | None = None
    argv: tuple[str, ...] = ()
    elapsed_s: float | None = None
    last_line: str | None = None
    reason: str | None = None
    hint: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    boot_s: float | None = None


@dataclass(frozen=True, slots=True)
class LogLines:
    """New lines of the server's own log, raw: `first` is the number of the first. Clean them before showing."""

    first: int
    texts: tuple[str, ...]
    restart: int = 0


@dataclass(frozen=True, slots=True)
class LogRecords:
    """Records read from the live log, of the given restart, in order."""

    restart: int
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class CapacityRead:
    """The capacity that the running server announced."""

    restart: int
    capacity: Capacity
    warnings: tuple[Warn, ...] = ()


@dataclass(frozen=True, slots=True)
class FlagsInForce:
    """Flags asked against flags in force, read back from the engine and from its behaviour.

    `proven` is False when any asked value could not be confirmed or differs: such a point is `config_unverified`
    and cannot win.
    """

    restart: int
    depth: int | None
    asked: Mapping[str, Any]
    in_force: Mapping[str, Any]
    proven: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestSent:
    """The load process put a request on the wire: the ledger's entry."""

    id: str
    sent: float
    prompt_id: str
    category: str
    max_tokens: int
    restart: int
    prompt_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class RequestDone:
    """One request as the client saw it, with the server's own figures beside. All stamps are `time.monotonic()`.

    `first`/`last`: arrival of the first and last chunk with non-empty content. `first_tokens`: tokens in that first
    chunk (speculation can put several in it), None when it cannot be known. `tpot_ms` = (last - first) /
    (completion_tokens - first_tokens), see method: dividing by n - 1 reads low under speculation.
    `chunks` and `burst_gap_ms` (median gap between bursts, i.e. chunks more than 1 ms apart) give the second route to
    the step time. `drafted`/`accepted` exclude the bonus token.
    """

    id: str
    prompt_id: str
    prompt_hash: str
    category: str
    depth: int | None
    restart: int
    block: int
    outcome: Outcome
    sent: float
    first: float | None = None
    last: float | None = None
    done: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    first_tokens: int | None = None
    finish_reason: str | None = None
    max_tokens: int | None = None
    warmup: bool = False
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    tpot_exact: bool = False
    """Whether `first_tokens` is known, so that `tpot_ms` is exact and not "≈"."""
    server_ttft_ms: float | None = None
    server_tpot_ms: float | None = None
    decode_tps: float | None = None
    drafted: int | None = None
    accepted: int | None = None
    steps: int | None = None
    per_position: tuple[float, ...] | None = None
    """Unconditional acceptance by draft position (survival): non-increasing, sums to accept length - 1."""
    chunks: int | None = None
    burst_gap_ms: float | None = None
    status: int | None = None
    error: str | None = None
    text_hash: str | None = None
    text: str = ""
    raw: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at one moment. `index` is the driver's, `uuid` its own name; None: this GPU does not say."""

    index: int
    name: str
    uuid: str | None = None
    total: int | None = None
    used: int | None = None
    free: int | None = None
    ours: int | None = None
    """Bytes held by the server's process group."""
    others: tuple[tuple[int, str, int | None], ...] = ()
    """Foreign processes: pid, name, bytes."""
    utilisation: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    sm_clock_mhz: float | None = None
    throttle: tuple[str, ...] = ()
    """Named reasons that slow the GPU now; idle and application clocks are not throttling."""
    reserved: int | None = None
    """Bytes that the driver keeps for itself: in neither `used` nor `free`."""
    mem_clock_mhz: float | None = None
    problem: str | None = None
    """Why this GPU could not be read at this moment, in words; None: it could."""


@dataclass(frozen=True, slots=True)
class MemorySample:
    """Memory of the machine, the server and each GPU at one moment; `phase` is boot, idle, probe or load."""

    at: float
    restart: int
    gpus: tuple[GpuReading, ...] = ()
    host_total: int | None = None
    host_available: int | None = None
    server_rss: int | None = None
    phase: str = "idle"
    poll_us: float | None = None


@dataclass(frozen=True, slots=True)
class EngineSample:
    """What the server's own metrics said at one moment, under the canonical names of `FIELDS`."""

    at: float
    restart: int
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PlanProgress:
    """How far a measuring plan is. `step` says what it does now, in words."""

    at: float
    plan: str
    done: int
    total: int
    step: str
    seconds_left: float | None = None
    paused: bool = False
    finished: bool = False


@dataclass(frozen=True, slots=True)
class CeilingChanged:
    """The live diagnosis reached another conclusion, or the same with other evidence."""

    at: float
    restart: int
    ceiling: Ceiling


@dataclass(frozen=True, slots=True)
class Notice:
    """One clear line for the person: what happened and what to do. `level` is info, warning or error."""

    at: float
    level: Literal["info", "warning", "error"]
    text: str


@dataclass(frozen=True, slots=True)
class Judged:
    """A plan's result in the form of `result.json`, complete."""

    at: float
    result: Mapping[str, Any]


Event = (
    RunStarted
    | ServerChanged
    | LogLines
    | LogRecords
    | CapacityRead
    | FlagsInForce
    | RequestSent
    | RequestDone
    | MemorySample
    | EngineSample
    | PlanProgress
    | CeilingChanged
    | Notice
    | Judged
)
