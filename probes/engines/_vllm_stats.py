"""vLLM's periodic lines: throughput, speculation, one scheduler step. Each is read by its labels, never by position.

A reading is None where a required label, its number or its unit is missing: the line was clipped, and half a line
is worth less than none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from probes.events import Rank

Fields = dict[str, Any]

_SPEED, _RUST_SPEED, _COUNT, _SHARE, _TOKENS = " tokens/s", " toks/s", " reqs", "%", " tokens"
_THROUGHPUT: Mapping[str, tuple[str, str]] = {
    "Avg prompt throughput": ("prompt_tps", _SPEED),
    "Avg prompt tput": ("prompt_tps", _RUST_SPEED),
    "Avg generation throughput": ("gen_tps", _SPEED),
    "Avg generation tput": ("gen_tps", _RUST_SPEED),
    "Running": ("running", _COUNT),
    "Waiting": ("waiting", _COUNT),
    "Pending": ("waiting", _COUNT),
    "Swapped": ("swapped", _COUNT),
    "Deferred": ("deferred", _COUNT),
    "Corrupted": ("corrupted", _COUNT),
    "Reqs Running": ("running", ""),
    "Preemptions": ("preempted", ""),
    "Prefix cache hit rate": ("prefix_hit_rate", _SHARE),
    "External prefix cache hit rate": ("external_hit_rate", _SHARE),
    "MM cache hit rate": ("mm_hit_rate", _SHARE),
}
"""Label -> field and the unit without which the number counts as torn."""
_KV = ("KV cache usage", "KV cache used")
_NEEDED = ("prompt_tps", "gen_tps", "running", "waiting", "kv_usage")
_ENGINE = re.compile(r"Engine (\d{1,5}): ", re.ASCII)
_ENGINES = re.compile(r"(\d{1,5}) Engines Aggregated: ", re.ASCII)


def engine_rank(message: str) -> Rank | None:
    """`Engine 003: ` -> DP 3."""
    found = _ENGINE.match(message)
    return {"DP": int(found[1])} if found else None


def _number(value: str, unit: str) -> float | None:
    """The number before its unit; None when either is not whole. What is glued behind the unit does not matter."""
    if unit:
        value, there, _ = value.partition(unit)
        if not there:
            return None
    if not value or value[0] not in "0123456789-":
        return None
    try:
        return float(value)
    except ValueError:
        try:
            return float(value.replace(",", ""))
        except ValueError:
            return None


_USUAL = re.compile(
    r"(?:Engine \d{1,5}: )?Avg prompt throughput: (\d+\.\d+) tokens/s, Avg generation throughput: (\d+\.\d+) tokens/s, "
    r"Running: (\d+) reqs, Waiting: (\d+) reqs, \w+ KV cache usage: (\d+\.\d+)%"
    r"(?:, Prefix cache hit rate: (\d+\.\d+)%)?$",
    re.ASCII,
).match
"""The commonest form whole, only because it is much faster than taking it apart."""


def throughput(message: str) -> Fields | None:
    """Fields of an `Avg prompt throughput` line of any version; rates in tokens/s, usages and hit rates 0..1."""
    usual = _USUAL(message)
    if usual is not None:
        prompt, generation, running, waiting, usage, hits = usual.groups()
        found: Fields = {
            "prompt_tps": float(prompt),
            "gen_tps": float(generation),
            "running": int(running),
            "waiting": int(waiting),
            "kv_usage": round(float(usage) / 100, 6),
        }
        if hits is not None:
            found["prefix_hit_rate"] = round(float(hits) / 100, 6)
        return found
    found = {}
    start = message.find("Avg prompt t")
    rust = message.startswith("Avg prompt tput", start)
    separator = " "
    for part in message[start:].split(", "):
        label, separator, value = part.partition(": ")
        known = _THROUGHPUT.get(label)
        if known is not None:
            name, unit = known
            if rust and unit is _COUNT:
                unit = ""
        elif label.endswith(_KV):
            name, unit = ("cpu_kv_usage" if "kv_usage" in found else "kv_usage"), _SHARE
        else:
            continue
        number = _number(value, unit)
        if number is None:
            if value.startswith("nan"):
                continue
            return None
        if unit is _SHARE:
            found[name] = round(number / 100, 6)
        else:
            found[name] = number if name in _NEEDED[:2] else int(number)
    if not separator or message.endswith(",") or any(name not in found for name in _NEEDED):
        return None
    engines = _ENGINES.match(message)
    if engines:
        found["engines"] = int(engines[1])
    return found


_SPEC: Mapping[str, tuple[str, str]] = {
    "Mean acceptance length": ("printed_len", ""),
    "Accepted throughput": ("accepted_tps", _SPEED),
    "Drafted throughput": ("drafted_tps", _SPEED),
    "Accepted": ("accepted", _TOKENS),
    "Drafted": ("drafted", _TOKENS),
    "Avg Draft acceptance rate": ("printed_rate", _SHARE),
    "Draft acceptance rate": ("printed_rate", _SHARE),
}
_POSITIONS = "Per-position acceptance rate"


_USUAL_SPEC = re.compile(
    r"SpecDecoding metrics: Mean acceptance length: (\d+\.\d+), Accepted throughput: (\d+\.\d+) tokens/s, "
    r"Drafted throughput: (\d+\.\d+) tokens/s, Accepted: (\d+) tokens, Drafted: (\d+) tokens, "
    r"Per-position acceptance rate: ([\d., ]+), Avg Draft acceptance rate: (\d+\.\d+)%$",
    re.ASCII,
).match


def _spec_parts(message: str) -> tuple[Fields, list[str], bool] | None:
    """Numbers by label, the per-position texts, and whether the rate stands last (0.10.2 on)."""
    usual = _USUAL_SPEC(message)
    if usual is not None:
        length, accepting, drafting, accepted, drafted, listed, rate = usual.groups()
        return (
            {
                "printed_len": float(length),
                "accepted_tps": float(accepting),
                "drafted_tps": float(drafting),
                "accepted": int(accepted),
                "drafted": int(drafted),
                "printed_rate": float(rate),
            },
            listed.split(", "),
            True,
        )
    raw: Fields = {}
    positions: list[str] = []
    in_list = modern = False
    for part in message.partition("metrics: ")[2].split(", "):
        label, separator, value = part.partition(": ")
        if not separator:
            if label.rstrip(": ") == _POSITIONS:
                in_list = True
            elif in_list:
                positions.append(part)
            else:
                return None
            continue
        in_list = label == _POSITIONS
        if in_list:
            positions.append(value)
        elif label in _SPEC:
            name, unit = _SPEC[label]
            raw[name] = _number(value, unit)
            if raw[name] is None and not value.startswith("nan"):
                return None
            modern = label.startswith("Avg Draft")
    return raw, positions, modern


def spec(message: str, bonus: bool | None) -> tuple[Fields | None, str | None]:
    """Fields of a `SpecDecoding metrics` line, and a remark when its own figures contradict each other.

    `bonus` says whether this version's mean acceptance length counts the bonus token (False in 0.8.x, None: unknown).
    In the field order of 0.8 to 0.10.1 the line itself decides: length − Σ per-position is 1 with the bonus, 0 without.
    Rates and per-position values are 0..1; `accept_len` always has the bonus token.
    """
    parts = _spec_parts(message)
    if parts is None:
        return None, None
    raw, texts, modern = parts
    if any(n not in raw for n in ("accepted", "drafted", "printed_rate", "printed_len")):
        return None, None
    drafted = int(raw["drafted"] or 0)
    fields: Fields = {"accepted": int(raw["accepted"] or 0), "drafted": drafted}
    if drafted == 0:
        return fields, None
    positions = _positions(texts)
    if positions is None:
        return None, None
    if raw["printed_rate"] is not None:
        fields["accept_rate_printed"] = round(raw["printed_rate"] / 100, 6)
    fields["accept_rate"] = fields["accepted"] / drafted
    fields["per_position"] = positions
    for name in ("accepted_tps", "drafted_tps"):
        if raw.get(name) is not None:
            fields[name] = raw[name]
    remark = None
    if raw["printed_len"] is not None:
        fields["accept_len"], remark = _length(raw["printed_len"], positions, True if modern else bonus)
    return fields, remark


def _positions(texts: list[str]) -> list[float] | None:
    """The per-position list; None when its last number may be cut (all have the same number of decimals)."""
    try:
        values = list(map(float, texts))
    except ValueError:
        return None
    widths = set(map(len, texts))
    if not values or len(widths) != 1 or widths.pop() < 3 or not 0 <= min(values) <= max(values) <= 1:
        return None
    return values


def _length(printed: float, positions: list[float], bonus: bool | None) -> tuple[float, str | None]:
    """Mean acceptance length with the bonus token, and a remark when the positions do not add up to it."""
    total = sum(positions)
    room = 0.02 + 0.0006 * len(positions)
    if bonus is not True:
        bonus = abs(printed - 1 - total) <= abs(printed - total)
    length = printed if bonus else printed + 1
    if abs(length - 1 - total) <= room:
        return round(length, 6), None
    return round(length, 6), (
        f"mean acceptance length {length:.2f} is not 1 + the sum of the per-position rates ({1 + total:.2f})"
    )


_LABEL = re.compile(r"(?:^|[:,] )(?P<label>[A-Z][A-Za-z ]{2,40}): (?P<number>\d+(?:\.\d+)?)(?=[,.]? |[,.]?$)", re.ASCII)
_TOTALS = {
    "Number of accepted tokens": "accepted",
    "Number of draft tokens": "drafted",
    "Number of emitted tokens": "emitted",
    "Number of speculative tokens": "draft_depth",
}


def old_spec(message: str) -> Fields | None:
    """Fields of a `Speculative metrics:` line: V0, whose counters only grow, or the first V1 form (0.8.2), a window.

    V0 names its draft depth K and the emitted tokens: mean acceptance length = emitted × K / drafted. Its counters
    come as `total_*` extras with `cumulative`, since they are no window.
    """
    raw: Fields = {}
    for field in _LABEL.finditer(message):
        label, number = field.groups()
        if label == "Draft acceptance rate":
            raw["accept_rate_printed"] = float(number)
        elif label == "System efficiency":
            raw["system_efficiency"] = float(number)
        elif label in _TOTALS:
            raw[_TOTALS[label]] = int(float(number))
    if any(name not in raw for name in ("accept_rate_printed", "accepted", "drafted")):
        return None
    drafted, accepted = raw["drafted"], raw["accepted"]
    fields: Fields = {"accept_rate_printed": raw["accept_rate_printed"]}
    if drafted:
        fields["accept_rate"] = accepted / drafted
    if "System efficiency" not in message:
        return None if not message.rstrip().endswith(",") else fields | {"accepted": accepted, "drafted": drafted}
    if "emitted" not in raw or "draft_depth" not in raw or not message.rstrip().endswith("."):
        return None
    if drafted:
        fields["accept_len"] = raw["emitted"] * raw["draft_depth"] / drafted
    for name in ("accepted", "drafted", "emitted"):
        fields[f"total_{name}"] = raw[name]
    return fields | {"draft_depth": raw["draft_depth"], "cumulative": True}


_STEP = re.compile(
    r"Iteration\((\d+)\): (\d+) context requests, (\d+) context tokens, "
    r"(\d+) generation requests, (\d+) generation tokens, "
    r"iteration elapsed time: (\d+(?:\.\d+)?) ms( \(dummy\))?"
    r"(, .*)?$",
    re.ASCII,
)
_USAGE = re.compile(r"(?:KV cache usage|kv cache): (\d+(?:\.\d+)?)%(?: \(\d+/\d+ blocks, (\d+) tokens\))?", re.ASCII)


def step(message: str) -> Fields | None:
    """Fields of an iteration line: what one scheduler step took in. `scheduled_tokens` counts drafts to verify."""
    found = _STEP.search(message)
    if found is None:
        return None
    number, seqs, tokens, batch, drafts, step_ms, dummy, tail = found.groups()
    fields: Fields = {"iteration": int(number), "new_seqs": int(seqs), "new_tokens": int(tokens), "batch": int(batch)}
    fields["scheduled_tokens"] = fields["new_tokens"] + int(drafts)
    fields["step_ms"] = float(step_ms)
    if dummy:
        fields["dummy"] = True
    if tail:
        usage = _USAGE.search(tail)
        if usage is None:
            return None
        fields["kv_usage"] = round(float(usage[1]) / 100, 6)
        if usage[2]:
            fields["kv_used_tokens"] = int(usage[2])
    return fields
