"""Failures in a llama-server log, many lines each, told as one record: a full pool, a failed load, a crash.

A failure that the server gets over (an allocation retried) is a warning and no record.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from probes.engines import _llamacpp_trouble as trouble
from probes.engines._llamacpp_boot import Start
from probes.engines._llamacpp_capacity import unified
from probes.engines._llamacpp_lines import Line
from probes.engines._llamacpp_requests import record
from probes.events import Record, Warn

_POOL = (
    "failed to find free space in the KV cache", "failed to find a memory slot for batch",
    "failed to prepare attention ubatches", "failed to prepare attention base ubatches",
    "failed to prepare attention swa ubatches",
    "failed to decode, ret = 1", "failed to decode the batch, n_batch = 1, ret = 1",
    "Context size has been exceeded. off", "decode() failed: Context size",
    "failed to decode the batch: KV cache is full",
)  # fmt: skip
_ENDED = "Context size has been exceeded"
_GAVE_UP = "failed to decode the batch"
"""Builds up to 2025 say so, then end every request, those of 2023 the whole main loop."""
_PURGED = "purging slot "
"""An idle slot's cached prompt is dropped to make room."""
_ERROR = re.compile(r"task id = (\d{1,15}), error: (.*)")
_TOO_LONG = re.compile(
    r"(?:request \((\d{1,15}) tokens\) )?exceeds the available context size(?: \((\d{1,15}) tokens\))?"
)
_TOO_WIDE = re.compile(
    r"input (?:\((\d{1,15}) tokens\) )?is too large to process[.,] (?:please )?increase the physical batch size"
    r"(?: \(current batch size: (\d{1,15})\))?"
)
_OVER_CONTEXT = re.compile(
    r"input (?:\((\d{1,15}) tokens\) )?is larger than the max context size(?: \((\d{1,15}) tokens\))?"
)
_REJECTS = (
    (_TOO_LONG, "the prompt is longer than a slot: raise -c or lower -np"),
    (_OVER_CONTEXT, "the input is longer than a slot: raise -c or lower -np"),
    (_TOO_WIDE, "an input to embed or to rank must fit one physical batch: raise -ub, and -b with it"),
)
"""Requests that are turned away for their length: the first group is their tokens, the second the limit."""
_ASKED_WRONG = re.compile(r"[Ff]ailed to (?:parse grammar|initialize samplers)")
TASKS_MAX = 1024
WARNINGS_MAX = 200
_CAUSES = frozenset({"oom", "bind", "crash", "model"})
"""After one of these, a model that can't be loaded is a consequence."""
_BATCH = re.compile(r"\bn_batch = (\d{1,15})")


class Incidents:
    """What is going wrong now in one server. `open`: a record is held back until its incident is over."""

    def __init__(self) -> None:
        self.pool: tuple[Line, dict[str, Any]] | None = None
        self.memory: tuple[Line, str, str] | None = None
        self.family = ""
        self.swallowed = False
        self.warnings: list[Warn] = []

    @property
    def open(self) -> bool:
        """Whether something is held back."""
        return self.pool is not None or self.memory is not None

    def after(self, line: Line) -> Iterator[Record]:
        """Close what this line shows to be over."""
        text = line.message
        if self.pool is not None and not self._pool_goes_on(line):
            yield from self._close_pool()
        if self.memory is not None:
            if trouble.RETRIED.search(text):
                self._warn(self.memory[0], f"{self.memory[1]}: retried, so no failure of the server")
                self.memory = None
            elif "n_slots" in text or "model loaded" in text:
                self._warn(self.memory[0], f"{self.memory[1]}: the server came up all the same")
                self.memory = None

    def take(self, line: Line, start: Start) -> Iterator[Record]:
        """Records of a loud line; sets `swallowed` when the line belongs to an incident already told."""
        text = line.message
        self.swallowed = False
        if any(needle in text for needle in _POOL):
            self._pool(line, start)
            self.swallowed = True
            return
        if self.pool is not None and _PURGED in text:
            self.pool[1]["purged"] = self.pool[1].get("purged", 0) + 1
            self.swallowed = True
            return
        error = _ERROR.search(text)
        if error and "send_error" in line.label:
            if _ENDED in error[2]:
                self._pool(line, start)
                ended = self._open(line, start).setdefault("tasks", [])
                if len(ended) < TASKS_MAX:
                    ended.append(int(error[1]))
                self.swallowed = True
                return
            yield self._refused(line, int(error[1]), error[2], start)
            return
        found = trouble.recognise(text)
        if found is None:
            return
        kind, reason = found
        self.swallowed = True
        if kind.family == "oom":
            if self.memory is None and self.family != "oom":
                self.memory = line, reason, kind.hint
            return
        if self.memory is not None:
            yield from self._close_memory(start)
        if self.family == kind.family or (self.family in _CAUSES and kind.family == "model"):
            return
        if kind.fatal:
            start.phase = "failed"
        if kind.family != "exit":
            self.family = kind.family
        if kind.family == "draft":
            self._warn(line, reason)
        yield record(line, kind.kind, {"reason": reason, "hint": kind.hint, "fatal": kind.fatal})

    def close(self) -> Iterator[Record]:
        """The log has ended."""
        yield from self._close_pool()
        if self.memory is not None:
            yield from self._close_memory(None)

    def _pool_goes_on(self, line: Line) -> bool:
        """Whether this line still tells of the full pool: retries, then every running request being ended."""
        text = line.message
        if any(needle in text for needle in (*_POOL, _ENDED, _PURGED)) or line.label == "slot prompt_clear":
            return True
        if line.level == "D" and "init_batch" in line.label:
            return True
        ended = self.pool is not None and self.pool[1].get("failed")
        return bool(ended) and ("cancel task" in text or line.label == "slot release")

    def _open(self, line: Line, start: Start) -> dict[str, Any]:
        """Fields of the incident of the full pool under way, or of a new one."""
        if self.pool is None:
            told: dict[str, Any] = {"pool_exhausted": True, "reason": "the KV pool is full"}
            self.pool = line, told | {"hint": _hint(start), "retries": 0}
        return self.pool[1]

    def _pool(self, line: Line, start: Start) -> None:
        batch = _BATCH.search(line.message)
        fields = self._open(line, start)
        if batch:
            fields["retries"] += 1
            fields["n_batch"] = int(batch[1])
        if _ENDED in line.message or _GAVE_UP in line.message:
            fields["failed"] = True
            fields["reason"] = "the KV pool is full: every running request was ended"

    def _close_pool(self) -> Iterator[Record]:
        if self.pool is not None:
            line, fields = self.pool
            self.pool = None
            purged = fields.get("purged", 0)
            if purged >= fields["retries"] > 0 and not fields.get("failed"):
                # Every try that failed was followed by one with more room: only caches of idle slots were lost.
                many = f"{purged} idle slot{'' if purged == 1 else 's'}"
                self._warn(
                    line, f"the KV pool was full of what {many} had cached: dropped to make room, nothing failed"
                )
                return
            yield record(line, "error", fields)

    def _warn(self, line: Line, text: str) -> None:
        if len(self.warnings) < WARNINGS_MAX:
            self.warnings.append(Warn(line.number, text))

    def _close_memory(self, start: Start | None) -> Iterator[Record]:
        assert self.memory is not None  # noqa: S101  (callers look first)
        line, reason, hint = self.memory
        self.memory = None
        self.family = "oom"
        if start is not None:
            start.phase = "failed"
        yield record(line, "oom", {"reason": reason, "hint": hint})

    def _refused(self, line: Line, task: int, why: str, start: Start) -> Record:
        fields: dict[str, Any] = {"task": task, "reason": why.strip()[:300]}
        for pattern, hint in _REJECTS:
            if found := pattern.search(why):
                numbers = {"prompt_tokens": found[1], "limit_tokens": found[2]}
                return record(
                    line, "reject", fields | {"hint": hint} | {k: int(v) for k, v in numbers.items() if v is not None}
                )
        if _ASKED_WRONG.search(why):
            return record(line, "reject", fields | {"hint": "the request's own grammar, schema or sampler is wrong"})
        if "KV cache is full" in why:
            fields |= {"pool_exhausted": True, "hint": _hint(start)}
        elif "context shift is disabled" in why:
            fields["hint"] = (
                "the slot's context is full: raise -c, lower -np or max_tokens, or start with --context-shift"
            )
        elif "Compute error" in why:
            fields["hint"] = "the device could not compute the batch: the lines above say why, often too little memory"
        elif "Invalid input batch" in why:
            fields["hint"] = (
                "the cached part of the prompt and the rest don't join: try --no-cache-prompt or a newer build"
            )
        return record(line, "error", fields)


def _hint(start: Start) -> str:
    """What to do about a full pool."""
    return trouble.SHARED_HINT if unified(start) else trouble.POOL_HINT
