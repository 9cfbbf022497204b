"""SGLang: what its flags mean, how its log, replies and counters read, versions 0.3 to 0.5.23. Pure; starts nothing.

Extras in records beside the canonical fields are named where they are made: `_sglang_boot` (flags, caps and sizes of a
start: `max_running_requests`, `chunked_prefill_size`, `schedule_conservativeness`, `speculative_*`, `num_draft_tokens`,
`delayer`, `capped_by`, `requested_lanes`, `cap_to` …) and `_sglang_log` (batch lines, retractions, troubles).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from probes.engines import _sglang_facts as facts
from probes.engines import _sglang_flags as flags
from probes.engines._sglang_knobs import KNOBS
from probes.engines._sglang_log import Reader
from probes.events import Capacity, FlagsInForce, Record
from probes.recipe import Dial, Knob, Recipe

_SURE = (
    "Decode batch, #running-req", "Decode batch. #running-req", "Prefill batch, #new-seq", "Prefill batch. #new-seq",
    "server_args=ServerArgs(", "max_total_num_tokens=", "The server is fired up and ready to roll", "#retracted_reqs:",
    "sglang/srt/", "sglang.launch_server", "by the mamba state cache", "SGLangEngine", "Memory pool end. avail mem=",
    "under --mem-fraction-static", "alloc_req_slots", "Mamba Cache is allocated",
)  # fmt: skip
_LIKELY = (
    "KV Cache is allocated", "Load weight end.", "Load weight begin.", "mem-fraction-static", "Capture cuda graph",
    "Scheduler hit an exception", "max_running_requests", "Decode batch [", "Prefill batch [",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SGLang:
    """The engine `sglang`."""

    name: str = "sglang"
    title: str = "SGLang"
    reserving: bool | None = None
    """Admission sets an estimate of further output aside, the whole of it only where outputs ignore their end mark."""
    report_s: float = 3.0
    drafted_steps: bool = False
    """Its counter of verify steps takes in every request and step."""
    rejects_long: bool = True
    """HTTP 400, unless it was told to cut prompts."""
    knobs: tuple[Knob, ...] = KNOBS

    def reader(self) -> Reader:
        """A fresh reader."""
        return Reader()

    def sniff(self, lines: Sequence[str]) -> float:
        """How surely these lines are SGLang's: 0..1."""
        sure = sum(1 for line in lines if any(mark in line for mark in _SURE))
        likely = sum(1 for line in lines if any(mark in line for mark in _LIKELY))
        if sure:
            return 0.99 if sure > 1 else 0.9
        return min(0.8, 0.5 + 0.1 * likely) if likely else 0.0

    def command(self, recipe: Recipe, settings: Mapping[str, Any], depth: int | None, port: int) -> list[str]:
        """The argv, binary first; depth 0 leaves all of speculation out. Raises `Refused`."""
        return flags.command(recipe, settings, depth, port)

    def environment(self, recipe: Recipe, settings: Mapping[str, Any], depth: int | None) -> Mapping[str, str]:
        """The preset's variables and stamps with milliseconds. Raises `Refused` for variables that fake acceptance."""
        del settings, depth
        return flags.environment(recipe)

    def dial_range(self, dial: Dial) -> tuple[int, int] | None:
        """No algorithm has an upper bound of its own: None. Raises `Refused` for one that has no depth."""
        flags.kind_of(dial)
        return None

    def ready_path(self) -> str:
        """503 from the listening port on until the server is ready."""
        return "/health"

    def failure(self, lines: Sequence[str], exit_code: int | None) -> tuple[str | None, str | None]:
        """Reason and cure of a failed start."""
        return facts.failure(lines, exit_code)

    def metrics(self, text: str) -> Mapping[str, Any]:
        """`/metrics` as canonical fields and `total_*` counters."""
        return facts.metrics(text)

    def state_paths(self) -> Sequence[str]:
        """Where a running server tells its resolved flags and effective limits."""
        return facts.STATE_PATHS

    def announced(self, replies: Mapping[str, Any]) -> Capacity:
        """What the replies tell of capacity."""
        return facts.announced(replies)

    def in_force(
        self,
        recipe: Recipe,
        settings: Mapping[str, Any],
        depth: int | None,
        replies: Mapping[str, Any],
        records: Sequence[Record],
    ) -> FlagsInForce:
        """Flags asked against flags in force."""
        return facts.in_force(recipe, settings, depth, replies, records)

    def prefix_cache(self, argv: Sequence[str]) -> str | None:
        """The radix cache is on unless switched off."""
        return None if "--disable-radix-cache" in argv else "disable_radix_cache"

    def request(self, body: dict[str, Any], recipe: Recipe, depth: int | None) -> dict[str, Any]:
        """The chat body with what reports drafts and tokens a chunk."""
        del depth
        return facts.request(body, recipe)

    def step_drafts(self, recipe: Recipe, depth: int | None) -> int | None:
        """The verify window less the bonus token: 0.5.11 tells the drafts of a chat reply nowhere."""
        return flags.step_drafts(recipe, depth)

    def reply(self, final: Mapping[str, Any]) -> Mapping[str, Any]:
        """Facts of a finished request."""
        return facts.reply(final)


ENGINE = SGLang()
