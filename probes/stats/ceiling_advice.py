"""Which settings would let a whole load run at once, by the engines' own rules of admission. Pure arithmetic.

A setting is named only with everything that must go with it: lanes without the pool for their requests admit nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from probes.events import Capacity, Verdict
from probes.stats.ceiling_trials import Seen

NINFER_LANES = 8
DELAYS = frozenset({"DSPARK", "DFLASH"})
"""SGLang's draft families that let nobody in until a few slots are free, unless told otherwise."""
DELAY_FROM = 8
STATES_EACH = 5
"""State slots that SGLang sets aside for a request at most, its drafts apart, where its log does not say how many."""
Named = tuple[str, str]
"""A knob's name and its flag."""


@dataclass(frozen=True, slots=True)
class Words:
    """One engine's knobs for its limits; None: it has none that makes this limit larger."""

    lanes: Named
    pool: Named | None = None
    states: Named | None = None
    step: Named | None = None
    """Tokens of one step, which may not be fewer than the lanes."""
    spare_pages: int = 0
    """Pages of the pool that no request gets."""
    ahead: int = 1
    """Tokens beyond its output that a request may take; its drafts come on top."""


WORDS: Mapping[str, Words] = {
    "ninfer": Words(("max_concurrency", "--max-concurrency"), ("kv_capacity", "--kv-capacity"), ahead=-1),
    "sglang": Words(("max_running_requests", "--max-running-requests"),
                    states=("max_mamba_cache_size", "--max-mamba-cache-size")),
    "vllm": Words(("lanes", "--max-num-seqs"), step=("batch_tokens", "--max-num-batched-tokens"), spare_pages=1),
    "llamacpp": Words(("parallel", "-np"), ("ctx", "-c")),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Server:
    """What must be known of the server beside its capacity. `prompt`: tokens of a prompt as the server counted them."""

    engine: str
    depth: int = 0
    drafter: str = ""
    prompt: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def words(self) -> Words:
        """Its knobs."""
        return WORDS.get(self.engine, Words(("lanes", "lanes")))

    def delay(self, lanes: int) -> int:
        """Slots that must be free before SGLang lets anybody in; 1 where any free slot will do."""
        if self.engine != "sglang":
            return 1
        given = self.settings.get("min_free_slots_delay")
        if isinstance(given, int):
            return max(1, given)
        waits = self.drafter.upper() in DELAYS and self.depth > 0 and lanes >= DELAY_FROM
        return min(4, max(2, (lanes + 5) // 6)) if waits else 1


def admits(verdict: Verdict, load: Seen, capacity: Capacity | None, server: Server) -> dict[str, Any] | None:
    """The settings that would let the whole load run at once; None where there is none to give.

    `settings` are those of the server, `max_tokens` is the output that the present server admits from all at once.
    """
    if verdict not in {"lanes", "kv_pool", "state_pool"}:
        return None
    if verdict == "kv_pool" and load.others:
        return None  # what somebody else's requests hold of the pool is not known
    known = capacity or Capacity()
    want = _Want.of(load, known, server)
    if not want.grow and not want.short:
        return None
    found: dict[str, Any] = {
        "knob": want.knob, "value": want.grow.get(want.knob), "legal": want.legal, "settings": dict(want.settings),
    }  # fmt: skip
    if want.short:
        found |= {"pool_tokens": want.pool, "max_tokens": want.most if want.lanes is None else None}
    return {**found, "sentence": want.sentence(load)}


@dataclass(slots=True)
class _Want:
    """What a load needs of each limit, where this server has less. `grow`: flag -> value, in the order to tell it."""

    server: Server
    count: int
    """Requests that are to run at once, those of others among them."""
    have: int | None
    each: int
    most: int | None
    fit: int | None
    pool: int = 0
    short: bool = False
    lanes: int | None = None
    legal: bool = True
    knob: str = ""
    grow: dict[str, int] = field(default_factory=dict)
    settings: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, load: Seen, capacity: Capacity, server: Server) -> _Want:
        """By arithmetic from what is known."""
        have, page = capacity.kv_pool_tokens, capacity.page_tokens or 1
        spare = server.words.spare_pages * page
        own = _apart(capacity, server)
        each = -(-_tokens(load, capacity, server) // page) * page
        pool = each * load.streams + spare
        most = fit = None
        if have is not None and not own:
            room = (have - spare) // load.streams // page * page
            most = room - _prompt(load, server) - _ahead(server)
            fit = (have - spare) // each
        most = most if most is not None and most > 0 else None
        made = cls(server, load.streams + load.others, have, each, most, fit, pool)
        # What others' requests hold is not known: then nothing is said of the pool.
        made.short = have is not None and not own and not load.others and pool > have
        made._ask_lanes(load, capacity, own=own)
        if made.short:
            made._add(server.words.pool, pool)
        return made

    def _ask_lanes(self, load: Seen, capacity: Capacity, *, own: bool) -> None:
        words, count = self.server.words, self.count
        while count - self.server.delay(count) + 1 < self.count:
            count += 1
        slots, lanes = capacity.state_slots, load.lanes
        each = capacity.state_slots_per_request or STATES_EACH + self.server.depth
        if lanes and slots:  # so many lanes there are, and each has its slots
            each = max(1, min(each, slots // lanes))
        # Where the pool is short and nothing tells the lanes, nothing says that they are short too.
        if lanes < count if lanes is not None else not self.short:
            self.lanes = count
            self.legal = self.server.engine != "ninfer" or count <= NINFER_LANES
            self._add(words.lanes, count)
        if slots is not None and count * each > slots:
            self._add(words.states, count * each)
        if self.lanes is None:
            return
        step = capacity.batch_tokens
        if words.step is not None and step is not None and step < count:
            self._add(words.step, count)
        if own and capacity.max_context and words.pool is not None:
            self._add(words.pool, capacity.max_context * count)

    def _add(self, name: Named | None, value: int) -> None:
        if name is None:
            return
        self.settings[name[0]] = self.grow[name[1]] = value
        self.knob = self.knob or name[1]

    def sentence(self, load: Seen) -> str:
        """In words."""
        flags = " and ".join(f"{flag} {value}" for flag, value in self.grow.items())
        lead = f"{flags} would let all {self.count} run{self._note(load)}" if flags else ""
        if not self.short:
            return f"{lead}."
        made = f"{self.count} × {self.each:,} tokens need a pool of {self.pool:,}; this one holds {self.have:,}"
        if lead and self.server.words.pool is None:
            lead += ", once the pool is large enough"
        text = f"{lead}. {made}" if lead else made
        if self.most is None:
            return f"{text}, in which not even their prompts find room."
        lanes = " once there are lanes for them," if self.lanes is not None and load.lanes is not None else ""
        fit = f", or {self.fit} of them as they are" if self.fit else ""
        return f"{text}, which admits {self.count}{lanes} with at most {self.most:,} tokens of output each{fit}."

    def _note(self, load: Seen) -> str:
        if not self.legal:
            return f"; the engine takes {NINFER_LANES} at most, so send fewer at once"
        if self.lanes is not None and self.lanes > self.count:
            return f": {self.lanes - self.count} more than requests, since it lets nobody in before so many are free"
        return f", {load.others} of them not ours" if load.others else ""


def _apart(capacity: Capacity, server: Server) -> bool:
    """Whether each llama.cpp slot has cells of its own: a slot more needs a share more."""
    if server.engine != "llamacpp" or server.settings.get("kv_unified"):
        return False
    if capacity.lanes == 1 and capacity.max_context == capacity.kv_pool_tokens:
        return server.settings.get("parallel") == 1
    return capacity.max_context != capacity.kv_pool_tokens


def _prompt(load: Seen, server: Server) -> int:
    """Tokens of a prompt; a length that was only asked for gets room for a chat template and a strange tokenizer."""
    return server.prompt if server.prompt is not None else load.prompt_tokens * 5 // 4 + 64


def _ahead(server: Server) -> int:
    return server.words.ahead + (server.depth if server.words.ahead > 0 else 0)


def _tokens(load: Seen, capacity: Capacity, server: Server) -> int:
    """Tokens that one request may come to hold: it ends where the context does."""
    tokens = _prompt(load, server) + load.max_tokens
    if capacity.max_context:
        tokens = min(tokens, capacity.max_context + 1)
    return tokens + _ahead(server)
