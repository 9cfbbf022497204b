"""Neroued/ninfer: what its flags mean, how its logs and replies read. Pure; starts nothing.

Extras in records beside the canonical fields. weights: `weights_bytes`, `load_ms`; capacity: `kv_pool_tokens`, `pages`
(the whole pool), `worst_case_pages`, `kv_dtype`, `kv_mode`, `runtime_bytes`, `free_bytes`; pool: `lanes`,
`cached_states`, `prefix_cache`; ready: `url`, `model`, `auth`, `boot_ms`; throughput: `interval_ms`, `prefilling`,
`materializing` and other gauges by their label, `host_share`; request: `request_id`, `phase` (started, done, failed,
rejected, cancelled, undelivered), `max_tokens` (as asked), `finish`, `cache_path`, `spec_backend`; failed ones also
`status`, `code`, `outcome` (overloaded, queue_timeout, rejected, error), `reason`, `hint`. From the request log (JSONL)
also `rounds`, `fallback_steps`, `depth`, and at the start `max_context`, `max_concurrency`, `prefill_chunk`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from probes.engines import _ninfer_facts as facts
from probes.engines import _ninfer_flags as flags
from probes.engines import _ninfer_trouble as trouble
from probes.engines._ninfer_knobs import KNOBS
from probes.engines._ninfer_log import Reader, sniff
from probes.events import Capacity, FlagsInForce, Record
from probes.recipe import Dial, Knob, Recipe


@dataclass(frozen=True, slots=True)
class Ninfer:
    """The engine `ninfer`: logs of four formats (July to October 2026), flags of the September builds."""

    name: str = "ninfer"
    title: str = "ninfer"
    reserving: bool | None = None
    """Format L promises a request's whole output at admission; newer builds may pause requests instead."""
    report_s: float = 5.0
    drafted_steps: bool = False
    """A round drafts always."""
    rejects_long: bool = False
    """Effective output is what the context leaves."""
    knobs: tuple[Knob, ...] = KNOBS

    def reader(self) -> Reader:
        """A fresh reader."""
        return Reader()

    def sniff(self, lines: Sequence[str]) -> float:
        """How surely these lines are ninfer's: 0..1."""
        return sniff(lines)

    def command(self, recipe: Recipe, settings: Mapping[str, Any], depth: int | None, port: int) -> list[str]:
        """The argv, binary and artifact first; depth 0 leaves out every flag of speculation. Raises `Refused`."""
        return flags.command(recipe, settings, depth, port)

    def environment(self, recipe: Recipe, settings: Mapping[str, Any], depth: int | None) -> Mapping[str, str]:
        """What the preset says; the server reads no variables of its own."""
        del settings, depth
        return dict(recipe.env)

    def dial_range(self, dial: Dial) -> tuple[int, int] | None:
        """Mtp 1..5, dflash and dflash2 1..15; 0 is always legal."""
        return flags.dial_range(dial)

    def ready_path(self) -> str:
        """A connection succeeds as soon as the port is bound and then hangs while loading: ask with a short timeout."""
        return "/health"

    def failure(self, lines: Sequence[str], exit_code: int | None) -> tuple[str | None, str | None]:
        """Reason and cure of a failed start; the first complaint counts, usage text follows it."""
        return trouble.failure(lines, exit_code)

    def metrics(self, text: str) -> Mapping[str, Any]:
        """Nothing: this engine has no Prometheus endpoint, its log and request log say it all."""
        del text
        return {}

    def state_paths(self) -> Sequence[str]:
        """Where a running server tells its model and context length."""
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
        """On unless --no-prefix-reuse."""
        return None if "--no-prefix-reuse" in argv else "no_prefix_reuse"

    def request(self, body: dict[str, Any], recipe: Recipe, depth: int | None) -> dict[str, Any]:
        """The chat body with usage and timings in a stream."""
        del depth
        return facts.request(body, recipe)

    def step_drafts(self, recipe: Recipe, depth: int | None) -> int | None:
        """None. Its replies tell their drafts."""
        del recipe, depth
        return None

    def reply(self, final: Mapping[str, Any]) -> Mapping[str, Any]:
        """Drafted, accepted and times of one request, from `timings` or a `request_done` event."""
        return facts.reply(final)


ENGINE = Ninfer()
