"""What one start of SGLang holds: gathers its start-up lines and puts them in words.

Per rank and never summed over tensor-parallel ranks. Caps that are defaults are told apart from caps that memory sets,
and identities (a pool that was made from the cap) from mechanisms. It reads no batch lines.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from probes.events import Capacity, Rank, Warn

RankKey = tuple[tuple[str, int], ...]
_SLOTS_EACH = (5, 4, 3)
"""State slots that a request reserves with the prefix cache on, by strategy; 1 with it off."""


def key_of(rank: Rank | None) -> RankKey:
    """A rank as something to index by."""
    return tuple(sorted(rank.items())) if rank else ()


@dataclass(slots=True)
class Pool:
    """Pools of one rank up to a `Memory pool end`: the target model's group, then the draft's."""

    tokens: int
    size: int
    line: int


@dataclass(slots=True)
class RankFacts:
    """What one rank's start-up lines said."""

    groups: list[list[Pool]] = field(default_factory=lambda: [[]])
    full_tokens: tuple[int, int] | None = None
    weights: list[tuple[int, int]] = field(default_factory=list)
    states: tuple[int, int] | None = None
    state_bytes: tuple[int, int] | None = None
    base_state: float = 0.0
    draft_state: float = 0.0
    graphs: int = 0
    avail: tuple[int, int] | None = None
    said: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(slots=True)
class Start:
    """One start of the server, as far as its lines have come."""

    args: dict[str, Any] = field(default_factory=dict)
    args_line: int = 0
    ready: bool = False
    served: bool = False
    reset: tuple[int, int] | None = None
    capped: tuple[int, int, int, int] | None = None
    """Lanes, state slots, slots a request, line."""
    reduced: tuple[int, int, int] | None = None
    """Lanes asked, lanes given, line."""
    profiled: tuple[int, int, int] | None = None
    """Tokens asked, tokens that fit, line."""
    radix: bool | None = None
    window: int | None = None
    graph_max: int | None = None
    notes: list[Warn] = field(default_factory=list)
    ranks: dict[RankKey, RankFacts] = field(default_factory=dict)

    def rank(self, rank: Rank | None) -> RankFacts:
        """The facts of one rank; no more than 1024 ranks are kept."""
        key = key_of(rank)
        if key not in self.ranks and len(self.ranks) >= 1024:
            key = next(iter(self.ranks))
        return self.ranks.setdefault(key, RankFacts())

    def note(self, line: int, text: str) -> None:
        """Keep a warning, once."""
        if len(self.notes) < 32 and all(w.text != text for w in self.notes):
            self.notes.append(Warn(line, text))

    @property
    def begun(self) -> bool:
        """Whether anything that belongs to one start alone was seen."""
        return bool(self.args or self.ranks or self.ready or self.served)

    # ------------------------------------------------------------------------------------------------- derived

    def least(self, name: str) -> tuple[int, int] | None:
        """The least value of a capacity line's field over the ranks, with its line."""
        return min((f.said[name] for f in self.ranks.values() if name in f.said), default=None)

    def pool_tokens(self) -> tuple[int, int] | None:
        """Tokens of one rank's KV pool: the capacity line, else the target's pool."""
        said = self.least("max_total_num_tokens")
        if said is not None:
            return said
        found = [
            f.full_tokens or max((p.tokens, p.line) for p in f.groups[0]) for f in self.ranks.values() if f.groups[0]
        ]
        least = min(found, default=None)
        if least is None:
            return None
        return least[0], min(line for tokens, line in found if tokens == least[0])

    def lanes(self) -> tuple[int, int] | None:
        """Requests that may run at once on one data-parallel rank."""
        said = self.least("max_running_requests")
        if said is not None:
            return said
        if self.capped is not None and self.capped[0] > 0:
            return self.capped[0], self.capped[3]
        return (self.reduced[1], self.reduced[2]) if self.reduced is not None else None

    def step(self) -> tuple[int, int] | None:
        """Prompt tokens of one step at most. Before 0.4 the capacity line has no chunk: then the flags' counts.

        None when neither says: the limit on prompts is larger than a chunk, and no step comes near it.
        """
        chunk, asked = self.least("chunked_prefill_size"), self.args.get("chunked_prefill_size")
        if chunk is None and isinstance(asked, int) and not self.args.get("enable_dp_attention"):
            chunk = asked, self.args_line
        if chunk is None:
            return None
        return chunk if chunk[0] > 0 else self.least("max_prefill_tokens")

    def slots(self) -> tuple[int, int] | None:
        """State slots of one rank."""
        found = min((f.states for f in self.ranks.values() if f.states is not None), default=None)
        if found is None and self.capped is not None:
            return self.capped[1], self.capped[3]
        return found

    def slots_each(self) -> tuple[int, int] | None:
        """State slots that one request reserves: as said, or the only number that explains a reduced cap."""
        if self.capped is not None:
            return self.capped[2], self.capped[3]
        slots = self.slots()
        if self.reduced is None or slots is None:
            return None
        fitting = [s for s in _SLOTS_EACH if slots[0] // s == self.reduced[1]]
        return (fitting[0], self.reduced[2]) if len(fitting) == 1 else None

    def capped_by(self) -> str | None:
        """What memory set the cap, by arithmetic: `state`, `kv`, or None (a policy, or not known)."""
        if self.capped is not None:
            return "state"
        if self.reduced is None:
            return None
        if self.slots_each() is not None:
            return "state"
        tokens = self.pool_tokens()
        return "kv" if tokens is not None and tokens[0] // 2 == self.reduced[1] else None


def capacity(start: Start) -> Capacity:
    """The start's capacity in canonical form."""
    lines: dict[str, int] = {}
    values: dict[str, Any] = {}

    def put(name: str, found: tuple[int, int] | None) -> None:
        if found is not None:
            values[name], lines[name] = found

    tokens = start.pool_tokens()
    put("kv_pool_tokens", tokens if tokens is not None and tokens[0] >= 0 else None)
    put("lanes", start.lanes())
    put("max_context", start.least("context_len"))
    put("batch_tokens", start.step())
    put("state_slots", start.slots())
    put("state_slots_per_request", start.slots_each())
    put(
        "free_bytes",
        start.least("available_gpu_mem") or min(_each(f.avail for f in start.ranks.values()), default=None),
    )
    put("kv_bytes", min(_each(_kv_bytes(f) for f in start.ranks.values()), default=None))
    put("weights_bytes", max(_each(_sum(f.weights) for f in start.ranks.values()), default=None))
    put("state_bytes", max(_each(f.state_bytes for f in start.ranks.values()), default=None))
    put("other_bytes", max(_each(_other(f) for f in start.ranks.values()), default=None))
    page = start.args.get("page_size")
    if isinstance(page, int) and page > 0 and "kv_pool_tokens" in values:
        values |= {"page_tokens": page, "pages": values["kv_pool_tokens"] // page}
        lines |= {"page_tokens": start.args_line, "pages": lines["kv_pool_tokens"]}
    dp = max(len(_seen(start)), _told(start, "dp_size"), _told(start, "attn_dp_size"))
    ranks = dp if dp > 1 or _seen(start) else None
    return Capacity(**values, per="rank", ranks=ranks, lines=lines, explain=tuple(_explain(start, values)))


def _each(found: Iterable[tuple[int, int] | None]) -> list[tuple[int, int]]:
    return [f for f in found if f is not None]


def _kv_bytes(facts: RankFacts) -> tuple[int, int] | None:
    """Bytes of the target model's pools: all of the first group when a window pool belongs to it, else its first."""
    first = facts.groups[0]
    if not first:
        return None
    mine = first if facts.full_tokens is not None else first[:1]
    return sum(p.size for p in mine), mine[0].line


def _sum(found: list[tuple[int, int]]) -> tuple[int, int] | None:
    return (sum(size for size, _ in found), found[0][1]) if found else None


def _drafts(facts: RankFacts) -> list[Pool]:
    """The pools of draft models."""
    first = facts.groups[0]
    return [p for group in facts.groups[1:] for p in group] + (first[1:] if facts.full_tokens is None else [])


def _other(facts: RankFacts) -> tuple[int, int] | None:
    """Bytes of draft pools and captured graphs."""
    rest = _drafts(facts)
    size = sum(p.size for p in rest) + facts.graphs
    line = rest[0].line if rest else facts.avail[1] if facts.avail else 0
    return (size, line) if size and line else None


# -------------------------------------------------------------------------------------------------------- in words


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"


def _explain(start: Start, values: dict[str, Any]) -> list[str]:
    out: list[str] = []
    tokens, lanes = values.get("kv_pool_tokens"), values.get("lanes")
    if tokens is not None:
        size = f" in {_gib(values['kv_bytes'])}" if "kv_bytes" in values else ""
        pages = f" = {values['pages']:,} pages of {values['page_tokens']}" if values.get("page_tokens", 1) > 1 else ""
        ranks = " on each rank (tensor-parallel ranks hold parts of the same tokens)" if len(start.ranks) > 1 else ""
        out.append(f"The KV pool holds {tokens:,} tokens{pages}{size}{ranks}{_explain_draft(start)}.")
        out.append(
            "Admission sets an estimate of the running requests' further output aside, so requests can wait while the "
            "pool is not full yet."
        )
    if lanes is not None:
        out.append(_explain_lanes(start, lanes, tokens))
    out.extend(_explain_state(start, values))
    if start.graph_max is not None and lanes is not None and start.graph_max < lanes:
        out.append(
            f"Graphs were captured for batches up to {start.graph_max}: with more running, of {lanes} possible, every "
            "step is slower."
        )
    if "free_bytes" in values:
        out.append(
            f"{_gib(values['free_bytes'])} are left on the rank with the least; activations, logits and lazily "
            "loaded kernels come out of that."
        )
    return out


def _explain_draft(start: Start) -> str:
    """What a draft model's own pool takes: as many tokens, in memory of its own."""
    found = [_drafts(facts) for facts in start.ranks.values()]
    if not any(found):
        return ""
    size = max(sum(pool.size for pool in pools) for pools in found)
    return (
        f"; the draft model's pool for as many takes {_gib(size)} beside it"
        if size
        else "; the draft model has its own"
    )


def _explain_lanes(start: Start, lanes: int, tokens: int | None) -> str:
    per = " on each data-parallel rank" if any("DP" in dict(k) for k in start.ranks) else ""
    text = f"At most {lanes} requests run at once{per}"
    by, slots, each = start.capped_by(), start.slots(), start.slots_each()
    if by == "state" and slots and each:
        return f"{text}: the state pool sets that cap, {slots[0]} slots // {each[0]} a request = {slots[0] // each[0]}."
    if by == "kv" and tokens is not None:
        return f"{text}: the KV pool sets that cap, {tokens:,} tokens // 2."
    ways = _sharing(start)
    if start.reset is not None and lanes in (start.reset[0], start.reset[0] // ways):
        share = f" ({start.reset[0]} shared by the ranks)" if lanes != start.reset[0] else ""
        return (
            f"{text}{share}: {start.reset[0]} is the engine's default under speculation when --max-running-requests "
            "is not given, a policy and not what memory allows."
        )
    asked = start.args.get("max_running_requests")
    if isinstance(asked, int) and lanes in (asked, asked // ways):
        share = f"; {ways} ranks share {asked}" if lanes != asked else ""
        return f"{text}, as --max-running-requests asks{share}: a policy."
    if tokens is not None and lanes == tokens // 2:
        return f"{text}: the KV pool allows no more, {tokens:,} tokens // 2."
    return f"{text}."


def _explain_state(start: Start, values: dict[str, Any]) -> list[str]:
    out: list[str] = []
    slots, lanes = values.get("state_slots"), values.get("lanes")
    if slots is None:
        return out
    facts = max(start.ranks.values(), key=lambda f: f.base_state, default=None)
    if facts is not None and facts.draft_state and facts.base_state:
        out.append(
            f"Recurrent state takes {facts.base_state:.2f} GiB, and the copies for drafted tokens "
            f"{facts.draft_state:.2f} GiB, {facts.draft_state / facts.base_state:.1f} times as much: a smaller draft "
            "window gives memory back."
        )
    if slots == lanes and start.radix is not True:
        out.append(
            f"The state pool was made with as many slots as requests may run ({slots}): its usage near 1 is that "
            "identity, and says nothing about which of the two binds."
        )
    elif values.get("state_slots_per_request") is not None:
        out.append(
            f"A request reserves {values['state_slots_per_request']} of {slots} state slots but holds fewer, so usage "
            "stays below 1 at the cap."
        )
    return out


def _seen(start: Start) -> set[int]:
    """The data-parallel ranks that this log has lines of; the other machines of a server write their own."""
    return {rank["DP"] for rank in map(dict, start.ranks) if "DP" in rank}


def _told(start: Start, name: str) -> int:
    """A size that the flags tell, at least 1."""
    value = start.args.get(name)
    return value if isinstance(value, int) and value > 1 else 1


def _sharing(start: Start) -> int:
    """Ranks that share the server's caps: those of attention parallelism; replicas have the whole of them each."""
    ways = _told(start, "attn_dp_size")
    if start.args.get("enable_dp_attention"):
        ways = max(ways, _told(start, "dp_size"))
    return max(ways, len(_seen(start))) if not start.args else ways


def warnings(start: Start) -> list[Warn]:
    """Flags that did not take, identities that fail, sentences of the engine that its own numbers contradict."""
    out: list[Warn] = []
    tokens, slots = start.pool_tokens(), start.slots()
    if start.reset is not None:
        out.append(Warn(start.reset[1], f"running requests were set to {start.reset[0]} because the flag is not given: "
                        "a default, no sign of a full pool"))  # fmt: skip
    if start.capped is not None:
        cap, have, each, line = start.capped
        if each and have // each != cap:
            out.append(Warn(line, f"{have} state slots // {each} a request is {have // each}, but the log says {cap}"))
        if cap == 0:
            out.append(
                Warn(line, f"{have} state slots are fewer than the {each} that one request needs: nothing can run")
            )
    if start.reduced is not None:
        asked, given, line = start.reduced
        out.append(Warn(line, f"--max-running-requests {asked} did not take: {given} a rank"))
        if start.capped_by() == "state" and slots is not None and start.capped is None:
            out.append(Warn(line, f"the log blames the KV pool, but {given} is what {slots[0]} state slots allow"
                            + (f" and the KV pool would allow {tokens[0] // 2:,}" if tokens else "")))  # fmt: skip
    if start.profiled is not None:
        asked, fits, line = start.profiled
        why = "; a negative number means that the weights exceed the static budget" if fits < 0 else ""
        out.append(Warn(line, f"--max-total-tokens {asked:,} did not take: {fits:,} fit{why}"))
    return [*out, *_overruled(start), *start.notes]


def _overruled(start: Start) -> list[Warn]:
    """A running limit that was asked for and is not in force. After a reset the flags hold the default: no wish."""
    asked, lanes = start.args.get("max_running_requests"), start.lanes()
    if not isinstance(asked, int) or start.reset is not None or start.reduced is not None:
        return []
    if start.capped is not None:
        cap, _, _, line = start.capped
        text = f"--max-running-requests {asked} did not take: the state pool allows {cap} a rank"
        return [Warn(line, text)] if cap < asked // _sharing(start) else []
    if lanes is None or lanes[0] in (asked, asked // _sharing(start)):
        return []
    return [Warn(lanes[1], f"--max-running-requests {asked} did not take: {lanes[0]} a rank")]
