"""Reads vLLM's log, 0.5 to 0.33, V0 and V1, Python and Rust front end, plain or JSON: see `Reader`.

Engine-specific extras in records' fields, beside the canonical names:
boot: `version model lanes max_num_batched_tokens max_num_scheduled_tokens max_model_len chunked_prefill prefix_caching
draft_depth spec_algorithm draft_model draft_schedule rejection_sample_method tp pp dp gpu_memory_utilization
kv_cache_memory_bytes kv_cache_dtype enforce_eager args` (a later boot record of a start has the earlier ones' too);
capacity: `kv_pool_tokens pages max_model_len full_length_requests` (a ratio); pool: `kv_bytes`;
weights: `weights_bytes load_s`;
throughput: `prefix_hit_rate external_hit_rate mm_hit_rate deferred swapped cpu_kv_usage preempted corrupted engines`;
spec: `accepted_tps drafted_tps`, V0: `cumulative total_accepted total_drafted total_emitted draft_depth`;
prefill/decode (iteration lines): `iteration scheduled_tokens step_ms dummy kv_usage`;
preempt (V0 only): `preempted`; oom: `tried_bytes free_bytes total_bytes wanted_bytes gpu`; error: `fitting_model_len`;
reject: `status`; reject, preempt, oom, crash, error, exit: `reason`, and `hint` where a cure is known;
oom, crash, error: `cause`, one of `fraction_too_low fraction_too_high memory_busy bad_flag port_in_use model_not_found
no_gpu disk_full host_memory missing_package unsupported_model too_long workspace_too_small kernel ranks hang native
killed exception consequence died`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from probes.engines import _vllm_stats as stats
from probes.engines._ranks import Merger
from probes.engines._unwrap import plain
from probes.engines._vllm_args import is_args, mask
from probes.engines._vllm_boot import Start
from probes.engines._vllm_failures import Failure, Failures
from probes.engines._vllm_text import Piece, pieces
from probes.events import Capacity, Kind, Rank, Record, Warn

_KEPT_PIDS = 64

_REJECT = re.compile(r'"(POST) (/[^ "]{1,200}) HTTP/1\.[01]" (4\d\d|5\d\d)', re.ASCII)
_V0_PREEMPT = re.compile(r"is preempted by PreemptionMode\.(\w+)", re.ASCII)
_V0_TOTAL = re.compile(r"total_num_cumulative_preemption=(\d+)", re.ASCII)
_ENGINE = re.compile(r"(?:Engine \d{1,5}|\d{1,5} Engines Aggregated): $", re.ASCII).search
_STOPS = ("shutdown triggered", "Shutdown initiated", "trigger received", "Gracefully stopping http server")
_ALWAYS = ("KV cache size: ", "Maximum concurrency", "broadcast block")
"""What counts after the server got ready too: other engines of it, and a stall."""
_REJECTED = {
    "503": "too many requests queued (--max-num-queued-reqs or -tokens), or the engine is dead",
    "429": "too many requests",
    "404": "no such model or path",
    "400": "the request was refused: too long, or a value out of range",
}


def _speaks(text: str) -> bool:
    """Whether a line may say something at any time; a miss must cost next to nothing."""
    return (
        "HTTP/1." in text
        or "Avg p" in text
        or "metrics: " in text
        or "Iteration(" in text
        or "rror" in text
        or "terminating" in text
        or "ERROR" in text
        or "xcept" in text
        or 'File "' in text
        or "hut" in text
        or " args: " in text
        or "Initializing a" in text
        or "startup complete" in text
        or "KV cache size" in text
        or "aximum c" in text
        or "preempted" in text
        or "Killed" in text
        or "core dumped" in text
        or "Segfault" in text
        or "Watchdog" in text
        or "broadcast block" in text
    )


def _boots(text: str) -> bool:
    """Whether a line may say something while the server starts."""
    return (
        "KV " in text
        or "max" in text
        or "took " in text
        or "abled" in text
        or "peculative" in text
        or " blocks: " in text
        or "ready to accept" in text
        or "padding" in text
        or "incomplete stats" in text
        or "Overriding" in text
        or "version " in text
    )


def _lead(message: str, label: str, piece: Piece) -> str | None:
    """The message from its label on, with `Engine 003: ` before it; None when the label is inside something quoted.

    Behind vLLM's own header a message starts with its label. Under a foreign header it may stand further in, but
    never behind a quote: what clients and models wrote is quoted.
    """
    if piece.known and message.startswith(label):
        return message
    where = message.find(label)
    if where < 0:
        return None
    before = message[:where]
    if "'" in before or '"' in before or where > 200:
        return None
    named = _ENGINE(before)
    start = named.start() if named else where
    return message[start:] if not piece.known or not message[:start].strip() else None


def _spec_dialect(message: str, fields: Mapping[str, Any], before: str | None) -> str | None:
    """The family that a `SpecDecoding metrics` line belongs to."""
    if before == "Rust front end":
        return before
    if "Avg Draft" in message:
        return "0.10.2+"
    if "accept_len" not in fields:
        return before
    return "0.9-0.10.1" if f"Mean acceptance length: {fields['accept_len']:.2f}" in message else "0.8"


class Reader:
    """The reader of one log, line by line; satisfies `LogReader`. Never raises; keeps a bounded state."""

    def __init__(self) -> None:
        self._start = Start()
        self._seen_start = False
        self._ready = False
        self._stopping = False
        self._dialect: str | None = None
        self._clipped = 0
        self._clipped_line = 0
        self._remarks: list[Warn] = []
        self._engine_of: dict[str, Rank | None] = {}
        self._merger = Merger(smallest=("kv_bytes", "free_bytes"))
        self._failures = Failures()
        self._last_size = ("", "")

    # ------------------------------------------------------------------------------------------------ the protocol

    def feed(self, line: int, text: str) -> Sequence[Record]:
        """Take one line; most lines say nothing and leave at once."""
        if not (self._failures.open or _speaks(text) or (not self._ready and _boots(text))):
            due = self._merger.deadline
            return () if due is None or line < due else self._merger.due(line)
        if "HTTP/1." in text and not self._failures.open:
            end = text.find('" 2', text.find("HTTP/1."))
            if end > 0 and len(text) - end < 20 and "] " not in text:
                return ()
        out: list[Record] = []
        try:
            for piece in pieces(text):
                out.extend(self._take(line, piece))
        except (OverflowError, ValueError):  # a number of hundreds of digits: the line is damaged
            out.extend(self._clip(line))
        return out

    def close(self) -> Sequence[Record]:
        """What is still held: an unfinished validation block, a failure whose cause never came, ranks' copies."""
        out: list[Record] = []
        out.extend(self._told(self._failures.close()))
        out.extend(self._merger.flush())
        return out

    @property
    def dialect(self) -> str | None:
        """Version and front end as far as the lines tell, e.g. `0.20.2`, `V0`, `0.10.2+`, `Rust front end`."""
        return self._start.version or self._dialect

    @property
    def capacity(self) -> Capacity:
        """Of the last start in the log so far."""
        return self._start.capacity()

    @property
    def warnings(self) -> Sequence[Warn]:
        """Of the last start, and about lines that were clipped or contradict themselves."""
        found = [*self._start.warnings, *self._remarks]
        if self._clipped:
            lines = "line was" if self._clipped == 1 else "lines were"
            found.append(Warn(self._clipped_line, f"{self._clipped} {lines} clipped and left out, the first is this"))
        return sorted(found, key=lambda w: w.line)

    # ------------------------------------------------------------------------------------------------ one record

    def _take(self, line: int, piece: Piece) -> Sequence[Record]:
        message = piece.message
        if self._failures.open:
            if self._failures.continues(line, piece):
                return ()
            return [*self._told(self._failures.end_block()), *self._take(line, piece)]
        if "Avg p" in message and (found := _lead(message, "Avg prompt t", piece)) is not None:
            return self._throughput(line, piece, found)
        if "metrics: " in message:
            for lead in ("SpecDecoding metrics: ", "Speculative metrics: "):
                if (found := _lead(message, lead, piece)) is not None:
                    return self._spec(line, piece, found)
        if "Iteration(" in message and (found := _lead(message, "Iteration(", piece)) is not None:
            return self._step(line, piece, found)
        return self._event(line, piece)

    def _record(
        self,
        line: int,
        kind: Kind,
        fields: Mapping[str, Any],
        piece: Piece,
        rank: Rank | None = None,
        key: str | None = None,
    ) -> Sequence[Record]:
        """Send a record out, through the merger: TP, PP and EP ranks' copies of one event become one record."""
        rank = rank if rank is not None else piece.rank
        text = plain(piece.message.strip())
        made = Record(line=line, kind=kind, fields=fields, at=piece.at, rank=rank, text=text)
        shared = key if rank and rank.keys() - {"DP"} else None
        return self._merger.add(made, None if shared is None else (shared, rank.get("DP") if rank else None))

    def _clip(self, line: int) -> Sequence[Record]:
        self._clipped += 1
        self._clipped_line = self._clipped_line or line
        return ()

    # ------------------------------------------------------------------------------------------------ running

    def _throughput(self, line: int, piece: Piece, message: str) -> Sequence[Record]:
        fields = stats.throughput(message)
        if fields is None:
            return self._clip(line)
        rank = stats.engine_rank(message)
        if len(self._engine_of) >= _KEPT_PIDS and piece.pid not in self._engine_of:
            self._engine_of.clear()
        self._engine_of[piece.pid] = rank
        if self._dialect is None or self._dialect == "V1":
            rust = "tput: " in message
            self._dialect = "Rust front end" if rust else "V0" if "Pending: " in message else "V1"
        return [*self._merger.flush(), *self._record(line, "throughput", fields, piece, rank)]

    def _spec(self, line: int, piece: Piece, message: str) -> Sequence[Record]:
        if message.startswith("Speculative"):
            fields, remark = stats.old_spec(message), None
            if fields is not None:
                self._dialect = "V0" if "cumulative" in fields else "0.8.2"
        else:
            version = self._start.version
            fields, remark = stats.spec(message, False if version is not None and version.startswith("0.8.") else None)
            if fields is not None:
                self._dialect = _spec_dialect(message, fields, self._dialect)
        if fields is None:
            return self._clip(line)
        if remark and len(self._remarks) < 20:
            self._remarks.append(Warn(line, remark))
        return self._record(line, "spec", fields, piece, self._engine_of.get(piece.pid))

    def _step(self, line: int, piece: Piece, message: str) -> Sequence[Record]:
        fields = stats.step(message)
        if fields is None:
            return self._clip(line)
        if not fields["batch"] and not fields["new_seqs"]:
            return ()
        kind: Kind = "decode" if fields["batch"] else "prefill"
        return self._record(line, kind, fields, piece, stats.engine_rank(message))

    # ------------------------------------------------------------------------------------------------ starts and ends

    def _event(self, line: int, piece: Piece) -> Sequence[Record]:
        message = piece.message.strip()
        if "preempted by PreemptionMode" in message:
            return self._preempt(line, piece)
        if "HTTP/1." in message:
            return self._rejected(line, piece)
        if message.endswith("Application startup complete.") or message.startswith("OpenAI server is ready to accept"):
            if self._ready:
                return ()
            self._ready = True
            self._stopping = False
            self._failures.forget_consequence()
            return [*self._merger.flush(), *self._record(line, "ready", {}, piece)]
        if any(s in message for s in _STOPS) or (message.endswith("Shutting down") and "INFO:" in message):
            if self._stopping:
                return ()
            why = "the server stopped after a failure" if self._failures.any else "the server was asked to stop"
            out = [*self._told(self._failures.close())]
            self._stopping, self._ready = True, False
            return [*out, *self._record(line, "exit", {"reason": why}, piece)]
        failed = self._failures.take(line, piece)
        if failed is not None:
            return self._told(failed)
        return self._booting(line, piece, message)

    def _booting(self, line: int, piece: Piece, message: str) -> Sequence[Record]:
        out: list[Record] = []
        echoed = is_args(message)
        if echoed or message.startswith("Initializing a"):
            # Several API servers of one start echo the same; a restart loop does too, but only after trouble.
            untouched = not (self._ready or self._stopping or self._failures.any or self._start.configured)
            if echoed and message == self._start.echo and untouched:
                return ()
            if self._ready or self._stopping or self._failures.any or (echoed and self._seen_start):
                out.extend(self._new_start())
            self._seen_start = True
        elif self._ready and not any(still in message for still in _ALWAYS):
            return ()
        found = self._start.take(line, piece)
        if found is None:
            return out
        kind, fields = found
        if kind in {"weights", "pool"} and self._repeats(piece, message):
            return out
        shown = piece._replace(message=mask(piece.message)) if kind == "boot" else piece
        out.extend(self._record(line, kind, fields, shown, key=kind if kind in {"weights", "pool"} else None))
        return out

    def _repeats(self, piece: Piece, message: str) -> bool:
        """Whether another process without a rank's name (V0 workers) has just said the very same."""
        before, self._last_size = self._last_size, (message, piece.pid)
        return before[0] == message and before[1] != piece.pid and piece.rank is None

    def _new_start(self) -> Sequence[Record]:
        out = [*self._merger.flush(), *self._told(self._failures.close())]
        self._start, self._failures = Start(), Failures()
        self._ready = self._stopping = False
        return out

    def _preempt(self, line: int, piece: Piece) -> Sequence[Record]:
        mode, total = _V0_PREEMPT.search(piece.message), _V0_TOTAL.search(piece.message)
        fields: dict[str, Any] = {
            "reason": "the KV pool was full: a running request was put back"
            + (f" ({mode[1].lower()})" if mode else ""),
            "hint": "fewer running requests (--max-num-seqs), or a larger pool; raising the slot cap makes it worse",
        }
        if total:
            fields["preempted"] = int(total[1])
        self._dialect = self._dialect or "V0"
        return self._record(line, "preempt", fields, piece)

    def _rejected(self, line: int, piece: Piece) -> Sequence[Record]:
        found = _REJECT.search(piece.message)
        if found is None or not found[2].startswith(("/v1/", "/generate", "/inference")):
            return ()
        status = found[3]
        fields = {"status": int(status), "reason": f"HTTP {status}: {_REJECTED.get(status, 'the request failed')}"}
        return self._record(line, "reject", fields, piece)

    def _told(self, failures: Sequence[Failure]) -> Sequence[Record]:
        """Failures as records; none once the server was asked to stop: what breaks then is no news."""
        if self._stopping:
            return ()
        return [r for f in failures for r in self._record(f.line, f.kind, f.fields, f.piece, key=f.key)]
