"""llama.cpp's `llama-server`: what its flags mean, how its log, replies and counters read. Pure; starts nothing.

Extras in records beside the canonical fields: `t_s` (seconds since the server's start, as stamped), `task`, `slot`,
`child` (port of a router's child). boot: `model`, `version`, `spec_type`, `depth` and the speculator's other numbers;
capacity: `lanes`, `ctx_slot`, `kv_unified`, `n_batch`; pool: `cells` (per stream), `streams`, `kv_bytes`, `window`,
`draft`; weights: `weights_bytes`, `device`, `draft`; request: `prompt_ms`, `eval_ms`, `steps` (of verification),
`context_tokens`, `truncated`, `shortened` (the server cut the prompt); prefill: `progress`, `prefilled`; decode:
`decoded`; spec: `impl` and `total_*` counters over the server's life; a deferred request: `deferred_task`, `no_slot`,
later `resumed_task`; a full pool: `pool_exhausted`, `retries`, `failed`, `tasks` (ended by it); reject: `limit_tokens`;
error, crash: `fatal`; exit: `clean`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from probes.engines import _llamacpp_facts as facts
from probes.engines import _llamacpp_flags as flags
from probes.engines import _llamacpp_trouble as trouble
from probes.engines._llamacpp_knobs import KNOBS
from probes.engines._llamacpp_lines import message, sniff
from probes.engines._llamacpp_log import Reader
from probes.events import Capacity, FlagsInForce, Record
from probes.recipe import Dial, Knob, Recipe


@dataclass(frozen=True, slots=True)
class LlamaCpp:
    """The engine `llamacpp`, from b3500 (2024) to b11434 (2026) by its log, b10068 and newer by its flags."""

    name: str = "llamacpp"
    title: str = "llama.cpp"
    reserving: bool | None = False
    """A slot takes any prompt that fits; with one pool for all slots a full pool ends running requests instead."""
    report_s: float = 3.0
    drafted_steps: bool = True
    """Accepted tokens over drafts made, plus one; n-gram kinds make few."""
    rejects_long: bool = False
    """Generation ends where the slot is full; only a prompt that does not fit is refused."""
    knobs: tuple[Knob, ...] = KNOBS

    def reader(self) -> Reader:
        """A fresh reader."""
        return Reader()

    def sniff(self, lines: Sequence[str]) -> float:
        """How surely these lines are llama-server's: 0..1."""
        return sniff(lines)

    def command(self, recipe: Recipe, settings: Mapping[str, Any], depth: int | None, port: int) -> list[str]:
        """The argv, binary first; depth 0 is `--spec-type none`. Raises `Refused`."""
        return flags.command(recipe, settings, depth, port)

    def environment(self, recipe: Recipe, settings: Mapping[str, Any], depth: int | None) -> Mapping[str, str]:
        """What the preset says; the server needs nothing of its own."""
        del settings, depth
        return dict(recipe.env)

    def dial_range(self, dial: Dial) -> tuple[int, int] | None:
        """Legal non-zero depths, inclusive; None: no upper bound."""
        return flags.dial_range(dial)

    def ready_path(self) -> str:
        """503 while loading, then 200. A server started without a model is a router and says 200 at once."""
        return "/health"

    def failure(self, lines: Sequence[str], exit_code: int | None) -> tuple[str | None, str | None]:
        """Reason and cure of a failed start."""
        return trouble.failure([part for text in lines for part in message(text)], exit_code)

    def metrics(self, text: str) -> Mapping[str, Any]:
        """`/metrics` as canonical fields and `total_*` counters."""
        return facts.metrics(text)

    def state_paths(self) -> Sequence[str]:
        """Where a running server tells its slots, context, model and whether it speculates."""
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
        """None: every request of ours says `cache_prompt: false`."""
        del argv
        return None

    def request(self, body: dict[str, Any], recipe: Recipe, depth: int | None) -> dict[str, Any]:
        """The chat body with prompt cache off and timings in every chunk."""
        del depth
        return facts.request(body, recipe)

    def step_drafts(self, recipe: Recipe, depth: int | None) -> int | None:
        """None. Its replies tell their drafts."""
        del recipe, depth
        return None

    def reply(self, final: Mapping[str, Any]) -> Mapping[str, Any]:
        """Drafted, accepted and times of one request, from `timings`."""
        return facts.reply(final)


ENGINE = LlamaCpp()
