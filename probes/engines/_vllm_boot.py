"""One start of a vLLM server as its log tells it: what it was told, the pool it got, what to know before believing it.

Keeps the facts of the last start only. `Maximum concurrency` is a ratio for full-length requests and never a cap.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from probes.engines import _vllm_args as args
from probes.engines._vllm_text import Piece
from probes.events import Capacity, Kind, Warn

BEYOND = 1 << 60
"""No memory has so many bytes: a damaged line."""
GIB = 2**30
Found = tuple[Kind, dict[str, Any]]

_POOL = re.compile(
    r"(?P<device>[A-Za-z][\w +-]{0,30}) KV cache size: (?P<tokens>\d[\d,]*) tokens"
    r"(?:, Maximum concurrency for (?P<length>\d[\d,]*) tokens per request: (?P<ratio>\d+(?:\.\d+)?)x)?$",
    re.ASCII,
)
_RATIO = re.compile(r"Maximum concurrency for (\d[\d,]*) tokens per request: (\d+(?:\.\d+)?)x$", re.ASCII)
_BLOCKS = re.compile(r"# \w{1,12} blocks: (\d+)(?:, # CPU blocks: (\d+))?$", re.ASCII)
_OVERRIDE = re.compile(r"Overriding num_gpu_blocks=(\d+) with num_gpu_blocks_override=(\d+)", re.ASCII)
_BYTES = (
    re.compile(r"Available KV cache memory: (-?\d+(?:\.\d+)?) GiB", re.ASCII),
    re.compile(r"reserved (\d+(?:\.\d+)?) GiB memory for KV Cache", re.ASCII),
    re.compile(r"reserved for KV Cache is (\d+(?:\.\d+)?) ?GiB", re.ASCII),  # V0 from 0.6.5
    re.compile(r"(?:Explicitly|Auto) set \((\d+(?:\.\d+)?)/\d+(?:\.\d+)?\) GiB for KV cache", re.ASCII),
)
_WEIGHTS = re.compile(
    r"(?:Model loading took|Loading model weights took) (\d+(?:\.\d+)?) Gi?B(?: memory)?"
    r"(?: and (\d+(?:\.\d+)?) seconds)?",
    re.ASCII,
)
_GRAPHS = re.compile(r"Graph capturing finished in \d+(?:\.\d+)? secs?, took (-?\d+(?:\.\d+)?) GiB", re.ASCII)
_CHUNK = re.compile(r"Chunked prefill is enabled with max_num_batched_tokens=(\d+)", re.ASCII)
_SCHEDULED = re.compile(r"max_num_scheduled_tokens is set to (\d+)", re.ASCII)
_MAX_LEN = re.compile(r"Using max model len (\d+)$", re.ASCII)
_AUTO_FIT = re.compile(r"Auto-fit max_model_len: reduced from (\d+) to (\d+)", re.ASCII)
_ACTIVE = re.compile(r"Overriding max_num_active_seqs from (\d+) to (\d+)", re.ASCII)
_VERSION = re.compile(r"(?:vLLM (?:API )?server version|█\s+version) v?(\d{1,3}\.\d{1,3}[\w.+-]{0,40})")
_NOTES: tuple[tuple[str, str], ...] = (
    (
        "Async scheduling",
        "with this speculation asynchronous scheduling is off: depth 0 against depth 1 compares two schedulers too",
    ),
    ("incomplete stats", "the periodic lines are off (more than one API server): silence is no idleness"),
    (
        "No available shared memory broadcast block",
        "a process waits for another for a minute or longer: one hangs, or still compiles",
    ),
    ("padding layers", "the pool wastes memory on padding layers"),
    ("Dynamic speculative decoding", "the depth by batch size did not take as asked"),
    (
        "multiple times of forward on same MTP layer",
        "the MTP layer is run again for every further draft token: later positions are accepted less",
    ),
    ("Development endpoints are enabled", "development endpoints are on: anyone who reaches the port can reset caches"),
)
"""What a message holds -> why it matters. The message itself is kept behind it."""


def _int(text: str) -> int:
    return int(text.replace(",", ""))


class Start:
    """Facts of one start, each with the log line it comes from."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self.extras: dict[str, Any] = {}
        self.lines: dict[str, int] = {}
        self.warnings: list[Warn] = []
        self.version: str | None = None
        self.configured = False
        self.echo: str | None = None
        self.asked_depth: Any = None
        self.swaps = False
        """Blocks for swapping are told: V0, which prints its preemptions."""
        self._ratio: tuple[int, float] | None = None
        self._pools: dict[int, int] = {}
        self._bytes: dict[str, int] = {}

    def _set(self, name: str, value: Any, line: int) -> None:
        if isinstance(value, int) and value > BEYOND:
            raise OverflowError(name)
        self.facts[name] = value
        self.lines[name] = line

    def _warn(self, line: int, text: str) -> None:
        if len(self.warnings) < 40 and all(w.text != text for w in self.warnings):
            self.warnings.append(Warn(line, text))

    def take(self, line: int, piece: Piece) -> Found | None:
        """Learn from a boot line; the record to make of it, None when it makes none or is no boot line."""
        message = piece.message.strip()
        if args.is_args(message):
            return self._echo(line, message)
        if message.startswith("Initializing a"):
            return self._config(line, message)
        if "version " in message and (told := _VERSION.search(message)) is not None:
            self.version = self.version or told[1]
            return None
        for needle, handler in _HANDLERS:
            if needle in message:
                found = handler(self, line, message, piece)
                if found is not None:
                    return found
        for needle, why in _NOTES:
            if needle in message and (needle != "Async scheduling" or "disabled" in message):
                self._warn(line, f"{why} ({message[:160]})")
        return None

    def _echo(self, line: int, message: str) -> Found:
        flags = args.args(message)
        self.echo = message
        self.version = None if self.configured else self.version
        found = args.facts(flags)
        self.extras = {"args": flags} | found
        self.asked_depth = found.get("draft_depth")
        for name, field in (
            ("lanes", "lanes"),
            ("max_num_batched_tokens", "batch_tokens"),
            ("kv_cache_memory_bytes", "kv_bytes"),
        ):
            if isinstance(found.get(name), int):
                self._set(field, found[name], line)
        if isinstance(found.get("max_model_len"), int) and found["max_model_len"] > 0:
            self._set("max_context", found["max_model_len"], line)
        if isinstance(found.get("dp"), int):
            self._set("ranks", found["dp"], line)
        if isinstance(found.get("block_size"), int):
            self._set("page_tokens", found["block_size"], line)
        self._note_speculation(line, found)
        return "boot", dict(self.extras)

    def _note_speculation(self, line: int, found: dict[str, Any]) -> None:
        if "draft_schedule" in found:
            self._warn(line, "the depth changes with the batch size: windows without drafts print no speculation line")
        if found.get("rejection_sample_method") in {"synthetic", "fly"}:
            method = found["rejection_sample_method"]
            self._warn(line, f"rejection_sample_method {method} does not keep the model's own distribution")

    def _config(self, line: int, message: str) -> Found | None:
        read = args.config(message)
        if read is None:
            return None
        told, found = read
        self.version = told or self.version
        self.configured = True
        if "draft_depth" in found:
            if self.asked_depth and found["draft_depth"] != self.asked_depth:
                self._warn(line, f"asked for draft depth {self.asked_depth}, in force is {found['draft_depth']}")
            self._set("draft_depth", found["draft_depth"], line)
        self.extras = {**self.extras, **found} | ({"version": self.version} if self.version else {})
        if isinstance(found.get("max_model_len"), int):
            self._set("max_context", found["max_model_len"], line)
        if isinstance(found.get("dp"), int):
            self._set("ranks", found["dp"], line)
        return "boot", dict(self.extras)

    def _pool(self, line: int, message: str, piece: Piece) -> Found | None:
        found = _POOL.match(message)
        if found is None:
            return None
        tokens = _int(found["tokens"])
        engine = (piece.rank or {}).get("DP", 0)
        if engine in self._pools:
            self._pools = {}
        self._pools[engine] = tokens
        self._ratio = None
        if self.facts.get("kv_pool_tokens") is None or len(self._pools) == 1 or tokens < self.facts["kv_pool_tokens"]:
            self._set("kv_pool_tokens", tokens, line)
        if len(set(self._pools.values())) > 1:
            self._warn(
                line, f"the engines' pools differ ({', '.join(map(str, self._pools.values()))}): the smallest is taken"
            )
        fields: dict[str, Any] = {"kv_pool_tokens": tokens}
        if found["ratio"]:
            fields |= self._take_ratio(line, _int(found["length"]), float(found["ratio"]), tokens)
        return "capacity", fields

    def _concurrency(self, line: int, message: str, _: Piece) -> Found | None:
        found = _RATIO.match(message)
        if found is None:
            return None
        return "capacity", self._take_ratio(line, _int(found[1]), float(found[2]), self.facts.get("kv_pool_tokens"))

    def _take_ratio(self, line: int, length: int, ratio: float, tokens: int | None) -> dict[str, Any]:
        self._ratio = (length, ratio)
        self._set("max_context", length, line)
        pages = self.facts.get("pages")
        if tokens is None and pages and "page_tokens" not in self.facts:
            size = ratio * length / pages
            if size >= 1 and abs(size - round(size)) <= max(0.01, 0.006 * length / pages):
                self._set("page_tokens", round(size), line)
                self._set("kv_pool_tokens", pages * round(size), self.lines["pages"])
        if tokens is not None and abs(tokens / length - ratio) > 0.006 + 1 / length:
            self._warn(
                line,
                f"{tokens} tokens / {length} is {tokens / length:.2f}, not the {ratio:.2f} printed: with a hybrid "
                "model the token figure depends on the length of the requests",
            )
        return {"full_length_requests": ratio, "max_model_len": length}

    def _blocks(self, line: int, message: str, _: Piece) -> Found | None:
        found = _BLOCKS.match(message)
        if found is None:
            return None
        self._set("pages", int(found[1]), line)
        size = self.facts.get("page_tokens")
        if size:
            self._set("kv_pool_tokens", int(found[1]) * size, line)
        fields: dict[str, Any] = {"pages": int(found[1])}
        if found[2]:
            fields["cpu_pages"] = int(found[2])
            self.swaps = True
        return "capacity", fields

    def _override(self, line: int, message: str, _: Piece) -> Found | None:
        found = _OVERRIDE.search(message)
        if found is None:
            return None
        before, pages = int(found[1]), int(found[2])
        if not before:
            return None  # a small pool, only while graphs are captured to see what they take; the real one follows
        self._warn(line, f"the pool is set by --num-gpu-blocks-override, not by memory ({message[:160]})")
        if self.facts.get("kv_bytes") and self.facts.get("pages") != pages:  # each worker may say it
            self._set("kv_bytes", self.facts["kv_bytes"] * pages // before, line)
        self._set("pages", pages, line)
        return None

    def _kv_bytes(self, line: int, message: str, piece: Piece) -> Found | None:
        for pattern in _BYTES:
            found = pattern.search(message)
            if found is not None:
                size = int(float(found[1]) * GIB)
                worker = str(piece.rank)
                if worker in self._bytes:
                    self._bytes = {}
                self._bytes[worker] = size
                if size > 0 and "kv_cache_memory_bytes" not in self.extras:
                    self._set("kv_bytes", min(s for s in self._bytes.values() if s > 0), line)
                return "pool", {"kv_bytes": size}
        return None

    def _weights(self, line: int, message: str, _: Piece) -> Found | None:
        found = _WEIGHTS.search(message)
        if found is None:
            return None
        size = int(float(found[1]) * GIB)
        if size >= self.facts.get("weights_bytes", 0):
            self._set("weights_bytes", size, line)
        fields: dict[str, Any] = {"weights_bytes": size}
        if found[2]:
            fields["load_s"] = float(found[2])
        return "weights", fields

    def _limits(self, line: int, message: str, _: Piece) -> Found | None:
        if (found := _CHUNK.search(message)) is not None:
            self._set("batch_tokens", int(found[1]), line)
            self.extras["max_num_batched_tokens"] = int(found[1])
            self.extras["chunked_prefill"] = True
        elif (found := _SCHEDULED.search(message)) is not None:
            self.extras["max_num_scheduled_tokens"] = int(found[1])
            if int(found[1]) < self.facts.get("batch_tokens", math.inf):
                self._set("batch_tokens", int(found[1]), line)
        elif (found := _MAX_LEN.search(message)) is not None:
            self._set("max_context", int(found[1]), line)
            self.extras["max_model_len"] = int(found[1])
        elif (found := _AUTO_FIT.search(message)) is not None:
            self._set("max_context", int(found[2]), line)
            self._warn(line, f"max_model_len was cut from {found[1]} to {found[2]} so that one request fits the pool")
        elif (found := _ACTIVE.search(message)) is not None:
            self._set("lanes", int(found[2]), line)
            self.extras["lanes"] = int(found[2])
            self._warn(line, f"the slot cap was changed from {found[1]} to {found[2]}")
        return None

    def _graphs(self, line: int, message: str, _: Piece) -> Found | None:
        found = _GRAPHS.search(message)
        if found is not None:
            self._set("other_bytes", max(0, int(float(found[1]) * GIB)), line)
        return None

    def capacity(self) -> Capacity:
        """What this start can hold, per engine: one whole tensor-parallel group, never summed over ranks."""
        known = {k: v for k, v in self.facts.items() if k != "draft_depth"}
        if len(self._pools) > 1:
            known.setdefault("ranks", len(self._pools))
        lines = {k: v for k, v in self.lines.items() if k in known}
        return Capacity(**known, per="engine", reserving=False if known else None, lines=lines, explain=self._explain())

    def _explain(self) -> tuple[str, ...]:
        facts, said = self.facts, []
        tokens, context = facts.get("kv_pool_tokens"), facts.get("max_context")
        dp = facts.get("ranks") or len(self._pools) or 1
        each = f" in each of {dp} data-parallel engines" if dp > 1 else ""
        if tokens is not None:
            said.append(f"The KV pool holds {tokens:,} tokens{each}, over all GPUs of an engine together; it is a cap.")
            told = self._ratio
            if told is not None and abs(tokens / told[0] - told[1]) > 0.006 + 1 / told[0]:
                said.append(
                    f"The engine counts {told[1]:.2f} requests of {told[0]:,} tokens, not {tokens:,} / {told[0]:,}: "
                    "layers of other kinds need less; a ratio, not a cap."
                )
            elif context:
                said.append(
                    f"{tokens:,} / {context:,} = {tokens / context:.2f} requests of full length; that is a ratio, "
                    "not a cap: shorter requests give more."
                )
            said.append("Blocks are taken as tokens come, nothing is reserved; a full pool preempts and recomputes.")
            if not self.swaps:
                said.append("Preemptions are not in this log (V1 prints none): ask vllm:num_preemptions_total.")
        if facts.get("lanes") is not None:
            said.append(f"At most {facts['lanes']:,} requests run at once{each} (max_num_seqs); it is a cap.")
        elif facts:
            said.append("The slot cap is not in the log: max_num_seqs was left at a default that depends on the GPU.")
        if facts.get("batch_tokens") is not None:
            said.append(f"One step takes at most {facts['batch_tokens']:,} tokens, prompts and drafts together.")
        if facts.get("draft_depth"):
            depth = facts["draft_depth"]
            said.append(f"Each running request takes up to {1 + depth} of a step's tokens: 1 and {depth} drafted.")
        if facts.get("kv_bytes") is not None:
            said.append(f"{facts['kv_bytes'] / GIB:.2f} GiB of KV on each GPU; bytes, not tokens.")
        return tuple(said)


_HANDLERS: tuple[tuple[str, Callable[[Start, int, str, Piece], Found | None]], ...] = (
    ("KV cache size: ", Start._pool),  # noqa: SLF001  (its own table)
    ("Maximum concurrency for ", Start._concurrency),  # noqa: SLF001
    (" blocks: ", Start._blocks),  # noqa: SLF001
    ("Overriding num_gpu_blocks", Start._override),  # noqa: SLF001
    ("KV ", Start._kv_bytes),  # noqa: SLF001
    ("took ", Start._weights),  # noqa: SLF001
    ("Graph capturing", Start._graphs),  # noqa: SLF001
    ("max", Start._limits),  # noqa: SLF001
)
