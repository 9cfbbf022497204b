"""vLLM 0.6 to 0.33: what its flags mean, how its log, replies and counters read. Pure; starts nothing.

Extras in records beside the canonical fields are listed in `_vllm_log`. V1 never logs a preemption: a log that shows
none proves nothing, only `vllm:num_preemptions_total` does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from probes.engines import _vllm_facts as facts
from probes.engines import _vllm_flags as flags
from probes.engines._vllm_knobs import KNOBS
from probes.engines._vllm_log import Reader
from probes.events import Capacity, FlagsInForce, Record
from probes.recipe import Dial, Knob, Recipe

_SURE = re.compile(
    r"\((?:EngineCore|APIServer|ApiServer|RustFrontend|VllmWorker|Worker)(?:_\w{1,40})?(?: rank=\d+)? pid=\d+\)"
    r"|(?:Spec|Diffusion)Decoding metrics: |Avg prompt (?:throughput|tput): [^\n]{0,200}KV cache us"
    r"|[A-Z]{3}[\w +]{0,20} KV cache size: [\d,]+ tokens|Maximum concurrency for [\d,]+ tokens per request"
    r"|LLM engine (?:\(v\d|with config: )|vllm serve: error: "
    r"|non-default args: \{|preempted by PreemptionMode|\"vllm_process_name\"|vLLM (?:API )?server"
    r"|(?:metrics|loggers)\.py:\d+\] (?:Speculative metrics|Avg prompt)|# GPU blocks: \d+",
    re.ASCII,
)
_LIKELY = re.compile(
    r"[/\\]vllm[/\\]\w|vllm\.\w{2,20}\.|[A-Z]{4,8} \d\d-\d\d \d\d:\d\d:\d\d \[?[\w/]+\.py:\d+\] |vllm:\w", re.ASCII
)
_KILLED = {
    -9: (
        "the server was killed (SIGKILL)",
        "mostly the kernel's out-of-memory killer: see the kernel log, use less RAM",
    ),
    -11: ("the server crashed (SIGSEGV)", "a native library failed: check that driver, torch and vLLM fit together"),
    -7: ("the server crashed (SIGBUS)", "shared memory is often too small in a container: --shm-size or --ipc=host"),
    -4: ("the server crashed (SIGILL)", "this build uses instructions that this CPU does not have"),
}


@dataclass(frozen=True, slots=True)
class Vllm:
    """The engine `vllm`."""

    name: str = "vllm"
    title: str = "vLLM"
    reserving: bool | None = False
    """Blocks are taken as tokens come; a full pool preempts and computes again."""
    report_s: float = 10.0
    """VLLM_LOG_STATS_INTERVAL; V0 reported every 5 s."""
    drafted_steps: bool = True
    """Steps without a draft are not observed; n-gram and suffix drafting have many."""
    rejects_long: bool = True
    """HTTP 400, whatever the text would have needed."""
    knobs: tuple[Knob, ...] = KNOBS

    def reader(self) -> Reader:
        """A fresh reader."""
        return Reader()

    def sniff(self, lines: Sequence[str]) -> float:
        """How surely these lines are vLLM's: 0..1."""
        sure = likely = 0
        for line in lines[:4000]:
            short = line[:4000]
            if _SURE.search(short):
                sure += 1
                if sure >= 3:
                    return 0.98
            elif _LIKELY.search(short):
                likely += 1
        if sure:
            return 0.9 if sure > 1 else 0.8
        return 0.6 if likely > 2 else 0.4 if likely else 0.0

    def command(self, recipe: Recipe, settings: Mapping[str, Any], depth: int | None, port: int) -> list[str]:
        """The argv, binary first; depth 0 has no speculative config at all. Raises `Refused`."""
        return flags.command(recipe, settings, depth, port)

    def environment(self, recipe: Recipe, settings: Mapping[str, Any], depth: int | None) -> Mapping[str, str]:
        """No colours in the log, a report every 2 s, no usage statistics to anyone; the preset's own on top."""
        del settings, depth
        own = {"NO_COLOR": "1", "VLLM_LOG_STATS_INTERVAL": "2", "VLLM_NO_USAGE_STATS": "1"}
        return {**own, **recipe.env}

    def dial_range(self, dial: Dial) -> tuple[int, int] | None:
        """Any depth above 0."""
        return flags.dial_range(dial)

    def ready_path(self) -> str:
        """The port opens last, so before that connections are refused; 503 when the engine has died."""
        return "/health"

    def failure(self, lines: Sequence[str], exit_code: int | None) -> tuple[str | None, str | None]:
        """Reason and cure of a failed start: the first cause, never its last consequence."""
        reader = Reader()
        records: list[Record] = []
        for number, text in enumerate(lines, 1):
            records.extend(reader.feed(number, text))
        records.extend(reader.close())
        last = max((i for i, r in enumerate(records) if r.kind == "boot" and "version" not in r.fields), default=0)
        bad = [r for r in records[last:] if r.kind in {"oom", "error", "crash"}]
        named = [r for r in bad if r.fields["cause"] not in {"exception", "consequence", "died"}]
        for record in (*named[:1], *bad[:1]):
            return str(record.fields["reason"]), record.fields.get("hint")
        if exit_code in _KILLED:
            return _KILLED[exit_code]
        return None, None

    def metrics(self, text: str) -> Mapping[str, Any]:
        """`/metrics` as canonical fields and `total_*` counters."""
        return facts.metrics(text)

    def state_paths(self) -> Sequence[str]:
        """Where a running server tells its version, context and pool."""
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
        """On by default in V1, from 0.9 on."""
        return None if "--no-enable-prefix-caching" in argv else "--no-enable-prefix-caching"

    def request(self, body: dict[str, Any], recipe: Recipe, depth: int | None) -> dict[str, Any]:
        """The chat body with usage in every chunk."""
        del depth
        return facts.request(body, recipe)

    def step_drafts(self, recipe: Recipe, depth: int | None) -> int | None:
        """None. A step may draft less than the depth, or nothing; `/metrics` tells."""
        del recipe, depth
        return None

    def reply(self, final: Mapping[str, Any]) -> Mapping[str, Any]:
        """Drafts and times of one request, where the server tells them."""
        return facts.reply(final)


ENGINE = Vllm()
