"""Rules of the ceiling table about things that run out: pages, lanes, state slots.

Every rule asks for all of its evidence and answers None without it; where two limits bind at once the answer is
`unknown` with both as rivals.
"""

from __future__ import annotations

from probes.events import Confidence
from probes.stats.ceiling_scene import HALF, MOSTLY, Finding, Scene, all_taken, lanes_of, least, pct, times
from probes.stats.ledger import Pool, contradicted, smallest_fits, weigh
from probes.stats.windows import HIGH

FLOOR = 0.14
"""SGLang's least share of the output still to come, as a part of the share that it begins with."""


def arithmetic(scene: Scene) -> Finding | None:
    """Promises against the pool, where a ledger accounts for everyone in flight."""
    w, c = scene.window, scene.capacity
    pool = Pool.of(c)
    estimated = _estimated(scene)
    if estimated is not None and estimated[1] and w.capped > 0 and w.at_cap >= MOSTLY * w.n:
        return Finding(
            "unknown", "low", f"{estimated[0]}; and {all_taken(c.lanes).lower()}: both limits bind.",
            rivals=("kv_pool", "lanes"), missing=("which limit is met first when one more lane is allowed",),
        )  # fmt: skip
    if not scene.views or pool is None or scene.reserving is False or contradicted(pool, scene.views):
        return None
    verdicts = [(weigh(pool, view), view) for view in scene.views]
    # Where only a part of what is to come is set aside, whole outputs may well be more than the pool.
    full = [v for v in verdicts if v[0][0] == "too_much"] if not scene.estimating else []
    capped = w.capped > 0 and w.at_cap >= MOSTLY * w.n
    unit = "pages" if pool.page_tokens > 1 else "tokens"
    if full and len(full) >= max(1, round(MOSTLY * len(verdicts))):
        (_, holds, needs), view = full[-1]
        below = w.capped > 0 and w.at_cap <= (1 - MOSTLY) * w.n
        sums = (
            f"{len(view[0])} running requests hold {least(holds)} of {pool.pages:,} {unit} and the next needs "
            f"{least(needs)}, more than is left"
        )
        if below:
            return Finding(
                "kv_pool", "high" if scene.reserving else "medium", f"{sums}, with {lanes_of(scene)} taken.",
                ("below", "any"), cites=("pages", "kv_pool_tokens", "lanes"),
            )  # fmt: skip
        if c.lanes is None:
            return Finding(
                "kv_pool", "medium", f"{sums}; the number of lanes is not in the log.",
                missing=("the number of lanes",), cites=("pages", "kv_pool_tokens"),
            )  # fmt: skip
        return Finding(
            "unknown", "low", f"{sums}; and {all_taken(c.lanes).lower()}: both limits bind.",
            rivals=("kv_pool", "lanes"), missing=("which limit is met first when one more lane is allowed",),
        )  # fmt: skip
    if capped and all(smallest_fits(pool, view) for _, view in verdicts):
        # That they would fit says nothing of what set the number of lanes.
        if (state := _state_set_the_cap(scene)) is not None:
            return state
        (_, holds, needs), view = verdicts[-1]
        total = holds + needs
        sure = total.high is not None and total.high <= pool.pages
        small = total.low <= pool.pages // 2
        return Finding(
            "lanes", "high" if sure or small else "medium",
            f"{all_taken(c.lanes)} while their requests and the next need {least(total)} of {pool.pages:,} "
            f"{unit}: they would fit.", ("cap",), cites=("lanes", "pages"),
        )  # fmt: skip
    return None


def _estimated(scene: Scene) -> tuple[str, bool] | None:
    """That what an estimating admission sets aside leaves no room, in numbers, and whether that is sure; else None.

    SGLang lets a request in while tokens in use + a share of what those who run may still put out + its prompt and
    whole output stay below the pool; outputs count up to a most. The share begins at 0.7 times a factor of the
    server's, falls to 14 % of that within 600 steps, and jumps towards 1 when requests are put back. So the floor is
    sure; whole outputs are the most. Once refused, none is tried again before a request ends.
    """
    most, size = scene.traits.estimate_tokens, scene.capacity.kv_pool_tokens
    if most is None or not size or not scene.estimating:
        return None
    factor = scene.boot.get("schedule_conservativeness")
    floor = FLOOR * min(0.7 * (factor if isinstance(factor, int | float) else 1.0), 1.0)
    sums = []
    for (running, waiting), used in zip(scene.views, scene.used, strict=True):
        if used is None:
            continue
        in_use = round(used * size)
        made = max(0, in_use - sum(entry.prompt_tokens or 0 for entry in running))
        rest = max(0, sum(min(entry.max_tokens or 0, most) for entry in running) - made)
        need = (waiting[0].prompt_tokens or 0) + min(waiting[0].max_tokens or 0, most)
        sums.append((in_use, rest, need, len(running)))
    for share, full, bound in ((floor, HIGH, "at least"), (1.0, 1.0, "up to")):
        held = [s for s in sums if s[0] + share * s[1] + s[2] >= full * size]
        if held and len(held) >= MOSTLY * len(sums):
            in_use, rest, need, running_n = held[-1]
            aside = round(share * rest)
            return (
                f"{in_use:,} of {size:,} tokens are in use, {bound} {aside:,} more are set aside for what {running_n} "
                f"running may still put out, and the next needs {need:,} at once: "
                f"{pct((in_use + aside + need) / size)} of the pool"
            ), share < 1
    return None


def at_cap(scene: Scene) -> Finding | None:
    """All lanes are taken in nearly every report: the lanes, or whatever set their number."""
    w, c = scene.window, scene.capacity
    if not w.capped or not w.n or (prompts_only(scene) and never_decodes(scene)):
        return None
    taken = w.at_cap >= MOSTLY * w.n
    nearly = w.at_cap >= 0.6 * w.n and w.at_cap + w.near_cap >= 0.9 * w.n and w.kv.high < HIGH
    if not (taken or nearly):
        return None
    state = _state_set_the_cap(scene)
    if state is not None:
        return state
    share = f"{all_taken(c.lanes)} in {w.at_cap} of {w.n} reports with a queue"
    if w.kv.n and w.kv_high >= HALF * w.kv.n:
        return Finding(
            "unknown", "low", f"{share}, and the KV pool is at {pct(w.kv.mean)}: both may bind.", ("cap", "kv"),
            rivals=("lanes", "kv_pool"), missing=("which limit is met first when one more lane is allowed",),
            cites=("lanes",),
        )  # fmt: skip
    if w.kv.n:
        sure: Confidence = "high" if taken and w.n >= 3 and w.kv.high < HIGH else "medium"
        return Finding(
            "lanes", sure, f"{share}, with the KV pool at {pct(w.kv.high)} at most.", ("cap",), cites=("lanes",)
        )
    missing = ("the requests' prompt and output lengths",) if scene.reserving else ("how full the KV pool is",)
    return Finding("lanes", "medium", f"{share}.", ("cap",), missing=missing, cites=("lanes",))


def prompts_only(scene: Scene) -> bool:
    """Whether steps are filled by prompts and nothing decodes."""
    w = scene.window
    return w.n >= 3 and w.alone >= MOSTLY * w.n and w.kv.n > 0 and w.kv.high < HALF and not w.events


def never_decodes(scene: Scene) -> bool:
    """Whether this server only computes prompts: its lanes are free again after a step, and one more stays empty."""
    return scene.boot.get("disaggregation_mode") == "prefill"


def one_short(scene: Scene) -> Finding | None:
    """All lanes but one are taken, always, with room in every pool: SGLang 0.5.12 to 0.5.22 loses the last lane.

    It counts the rest of a prompt that is computed in pieces twice. Drafts by block keep lanes free on purpose.
    """
    w, boot = scene.window, scene.boot
    steady = w.capped > 0 and w.n >= 3 and w.near_cap >= 0.9 * w.n and w.at_cap + w.near_cap == w.n
    blocks = str(boot.get("speculative_algorithm") or "").upper() in {"DFLASH", "DSPARK"} or boot.get("delayer")
    if not scene.traits.delays or not steady or blocks or w.events or not w.kv.n or w.kv.high >= 0.75:
        return None
    if w.state.n and w.state.high >= HIGH:
        return None
    return Finding(
        "lanes", "medium" if w.n >= 5 else "low", f"{lanes_of(scene)} are taken in {w.near_cap} of {w.n} reports with "
        f"a queue, with the KV pool at {pct(w.kv.high)} at most: versions 0.5.12 to 0.5.22 never fill the last lane "
        "while long prompts are computed in pieces.", ("below",), rivals=("admission_delay",), cites=("lanes",),
    )  # fmt: skip


def _state_set_the_cap(scene: Scene) -> Finding | None:
    """Whether the number of lanes is itself what the state slots allow; or can't be told apart from them."""
    w, c, boot = scene.window, scene.capacity, scene.boot
    slots, each, lanes = c.state_slots, c.state_slots_per_request, c.lanes
    said = boot.get("capped_by") == "state"
    cites = ("lanes", "state_slots", "state_slots_per_request")
    if w.kv.n and w.kv_high >= HALF * w.kv.n:
        return None
    if slots is not None and lanes is not None:
        if each is not None and each > 1 and slots // each == lanes:
            return Finding(
                "state_pool", "high" if said else "medium",
                f"{all_taken(lanes)}, and {lanes} is what {slots} state slots at {each} a request allow.",
                ("cap",), rivals=() if said else ("lanes",), cites=cites,
            )  # fmt: skip
        reduced = said or "requested_lanes" in boot or _below_default(scene)
        if each is None and w.held.n and w.held.low == w.held.high and w.held.low >= 1 and reduced and slots > lanes:
            held = round(w.held.low)
            if lanes in {slots // (held + 1), slots // held}:
                return Finding(
                    "state_pool", "medium",
                    f"{all_taken(lanes)}; each request holds {held} of {slots} state slots, and one more is "
                    f"set aside for it: {slots} // {held + 1} = {slots // (held + 1)}.",
                    ("cap",), rivals=("lanes",), cites=cites,
                )  # fmt: skip
        if slots == lanes:
            return Finding(
                "unknown", "low", f"{all_taken(lanes)}, and there are just as many state slots: one follows "
                "from the other.", ("cap",), rivals=("lanes", "state_pool"), cites=cites,
                missing=("which stops it when the cap rises and the state slots stay",),
            )  # fmt: skip
    if said:
        return Finding(
            "state_pool", "high", f"{all_taken(lanes)}, and the log says that the state pool set that number.",
            ("cap",), cites=cites,
        )  # fmt: skip
    if w.state.n and w.state_full < MOSTLY * w.state.n and w.state.high >= HALF and (slots is None or each is None):
        return Finding(
            "unknown", "low", f"{all_taken(lanes)} and the state pool is at {pct(w.state.high)}: their number "
            "may be what the state slots allow, since a request sets more slots aside than it fills.",
            ("cap",), rivals=("lanes", "state_pool"), cites=cites,
            missing=(
                "how many state slots there are, and how many a request sets aside" if slots is None
                else "how many state slots a request sets aside",
            ),
        )  # fmt: skip
    if w.state.n and w.state_full >= MOSTLY * w.state.n:
        return Finding(
            "state_pool", "medium", f"The state pool is at {pct(w.state.mean)} and the KV pool at {pct(w.kv.high)}; "
            f"all {lanes} lanes are taken too.", ("state", "cap"), rivals=("lanes",), cites=cites,
        )  # fmt: skip
    return None


def _below_default(scene: Scene) -> bool:
    """Whether fewer lanes are there than the default that was announced for each rank: something took the rest."""
    default, ranks = scene.boot.get("default_lanes"), scene.boot.get("dp_size")
    if not isinstance(default, int) or scene.capacity.lanes is None:
        return False
    return scene.capacity.lanes < default // (ranks if isinstance(ranks, int) and ranks > 1 else 1)


def pool_full(scene: Scene) -> Finding | None:
    """The pool of keys and values is full while lanes are free, or as good as full by what is set aside of it."""
    found = _full(scene)
    w = scene.window
    below = w.capped > 0 and w.at_cap <= (1 - MOSTLY) * w.n and w.running.high <= MOSTLY * (scene.capacity.lanes or 0)
    if found is not None or not below or w.n < 3 or (estimated := _estimated(scene)) is None:
        return found
    text, sure = estimated
    # What may be set aside is the limit where nothing else can be: lanes are free, and steps have room for prompts.
    steps = w.prefilling <= (1 - MOSTLY) * w.n and not scene.boot.get("delayer") and w.deferred == 0
    grows = w.running.falls == 0 and w.running.rises > 2
    if not sure and (grows or not steps):
        return None
    return Finding(
        "kv_pool", "medium" if sure or w.n >= 10 else "low", f"{text}, with {lanes_of(scene)} taken.",
        ("below", "any"), rivals=() if sure else ("admission_delay",), cites=("kv_pool_tokens", "lanes"),
    )  # fmt: skip


def _full(scene: Scene) -> Finding | None:
    """The pool is full, or requests are put back."""
    w, c = scene.window, scene.capacity
    if not w.kv.n:
        return _put_back(scene)
    high, full = w.kv_high / w.kv.n, w.kv_full / w.kv.n
    # Requests that are put back at a full pool prove that it was overfilled; between two such moments an engine that
    # sets room aside keeps a pool half empty on purpose, so few reports need to show it full.
    thrash = w.events > 0 and full > 0 and (high >= 0.1 or w.events * 200 >= w.n)
    below = w.capped > 0 and w.at_cap <= (1 - MOSTLY) * w.n
    steady = high >= 0.6 or (full >= HALF and w.kv.n <= 3)
    sawtooth = full >= 0.1 and w.kv.n >= 10 and w.prefilling < HALF * w.n
    where = f"the KV pool is at {pct(w.kv.high)} at most and {pct(w.kv.mean)} in the mean"
    put = f"; {times(w.events).lower()} requests were put back" if w.events else ""
    if below and (thrash or steady or sawtooth):
        sure: Confidence = "high" if thrash or (full >= 0.6 and w.n >= 3) or (high >= MOSTLY and w.n >= 3) else "medium"
        return Finding(
            "kv_pool", sure, f"At most {w.running.high:.0f} of {c.lanes} lanes run while {where}{put}.",
            ("event", "kv", "any"), cites=("kv_pool_tokens", "lanes"),
        )  # fmt: skip
    tight = w.kv_tight >= MOSTLY * w.kv.n and w.prefilling < HALF * w.n and w.n >= 3
    if below and w.near_cap < HALF * w.n and tight and not scene.boot.get("delayer"):
        return Finding(
            "kv_pool", "medium", f"At most {w.running.high:.0f} of {c.lanes} lanes run while {where}{put}: one more "
            "request of their size would not fit.", ("tight",), cites=("kv_pool_tokens", "lanes"),
        )  # fmt: skip
    if w.capped or not w.n:
        return None
    no_lanes = ("the number of lanes",)
    if thrash and high >= HALF:
        return Finding("kv_pool", "high", f"Requests wait, {where}{put}.", ("event", "kv"), missing=no_lanes)
    if steady and high >= 0.75 and w.running.low < w.running.high and (w.running.falls or w.kv_full):
        return Finding(
            "kv_pool", "medium", f"Requests wait while {where}, and the number that runs moves between "
            f"{w.running.low:.0f} and {w.running.high:.0f}: no fixed number of lanes stops it.", ("kv",),
            missing=no_lanes,
        )  # fmt: skip
    if steady and full >= HALF and w.n >= 3 and w.running.high < w.ran_before:
        return Finding(
            "kv_pool", "medium", f"Requests wait while {where} and at most {w.running.high:.0f} run; "
            f"{w.ran_before:.0f} ran at once before, so there are lanes enough.", ("kv",), missing=no_lanes,
            cites=("kv_pool_tokens",),
        )  # fmt: skip
    if steady and w.kv.low >= HIGH and full >= MOSTLY and w.n >= 3:
        return Finding(
            "kv_pool", "low", f"Requests wait while {where}.", ("kv",), rivals=("lanes",), missing=no_lanes,
        )  # fmt: skip
    return None


def _put_back(scene: Scene) -> Finding | None:
    """Requests were put back for lack of room and no report says how full the pool is."""
    w = scene.window
    if w.events and w.at_cap < HALF * max(w.n, 1):
        return Finding("kv_pool", "medium", f"{times(w.events)} the engine found no room in the KV pool.", ("event",))
    return None


def state_short(scene: Scene) -> Finding | None:
    """Lanes are free and keys have room, but the state slots are gone."""
    w, c = scene.window, scene.capacity
    if not w.state.n or (w.kv.n and w.kv.high >= HIGH) or not w.n:
        return None
    below = w.capped > 0 and w.at_cap <= (1 - MOSTLY) * w.n
    keys = f"; the KV pool is at {pct(w.kv.high)} at most" if w.kv.n else ""
    cites = ("state_slots", "state_slots_per_request", "lanes")
    if c.state_slots is not None and c.state_slots == c.lanes and w.near_cap >= MOSTLY * w.n:
        return Finding(
            "unknown", "low", f"{w.running.last:.0f} of {c.lanes} lanes run, and there are just as many state slots: "
            "a lane or a slot may be kept free, or admission be delayed.", ("any",),
            rivals=("lanes", "state_pool", "admission_delay"), cites=cites,
            missing=("which stops it when the cap rises and the state slots stay",),
        )  # fmt: skip
    if below and w.near_cap < HALF * w.n:
        if w.state_short >= MOSTLY * w.state.n:
            return Finding(
                "state_pool", "high", f"Fewer state slots are free than one request needs "
                f"({c.state_slots_per_request}){keys}.", ("state",), cites=cites,
            )  # fmt: skip
        if w.state_full >= MOSTLY * w.state.n:
            return Finding(
                "state_pool", "medium", f"The state pool is at {pct(w.state.mean)}{keys}.", ("state",), cites=cites
            )
    if w.state_full >= HALF * w.state.n:
        return Finding(
            "unknown", "low", f"The state pool is at {pct(w.state.mean)}{keys}.", ("state",), ("state_pool", "lanes"),
            missing=("the number of lanes",) if c.lanes is None else ("which binds first",),
            cites=cites,
        )  # fmt: skip
    return None
