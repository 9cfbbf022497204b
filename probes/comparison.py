"""Whether two runs may be compared at all, from their fingerprints: equal in everything but the thing that was tested.

Pure. A refusal names each reason in one phrase; unknown never counts as equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from probes.fingerprint import HARD, Difference, brief, differences, guesses
from probes.recipe import Refused

NEVER = ("prompts", "sampling")
"""Replies to other prompts, or sampled or cut otherwise, are another measurement: these can't be what was tested."""
OF_ENGINE = ("binary", "settings.", "flags.", "dial", "env", "launcher", "files", "kv_type")
"""What follows from another engine, and is told with it and not one by one."""
UNTYPED = ("auto", "none", "", "***")


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was tested, why ratios are refused (empty: they may be shown), and what a reader must know."""

    tested: tuple[str, ...]
    why: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def allowed(self) -> bool:
        """Whether ratios may be shown."""
        return not self.why


def weigh(left: Mapping[str, Any], right: Mapping[str, Any], tested: Sequence[str] = ()) -> Comparison:
    """Compare two fingerprints. `tested` names what was meant to differ; one soft difference needs no naming.

    Raises `Refused` when `tested` names something that is equal in both, or can't be tested so.
    """
    for side, given in (("first", left), ("second", right)):
        if not given:
            return Comparison(tuple(tested), (f"the {side} run has no fingerprint",))
    found = differences(left, right)
    notes = [*(f"first run: {t}" for t in guesses(left)), *(f"second run: {t}" for t in guesses(right))]
    if version := next((d for d in found if d.name == "package"), None):
        notes.append(f"measured by draftdial {brief(version.left)} and {brief(version.right)}")
        found.remove(version)
    _check(tested, found)
    if any(d.name == "engine" for d in found):
        return _engines(left, right, found, notes)
    hard = [d for d in found if d.name in HARD and d.name not in tested]
    soft = [d for d in found if d.name not in HARD]
    groups = list(dict.fromkeys(_group(d.name) for d in soft))
    meant = {_group(name) for name in tested}
    if not tested and not hard and len(groups) == 1:
        meant = set(groups)
    extra = [d for d in soft if _group(d.name) not in meant]
    why = [d.words + (" (not known)" if d.unknown else "") for d in (*hard, *extra)]
    if why and not hard:
        why.append("name what you meant to test: " + " ".join(f"--tested {name}" for name in groups))
    names = [d for d in found if _group(d.name) in meant or d.name in tested]
    if len({_group(d.name) for d in names}) > 1:
        notes.append("more than one thing was changed: this compares two bundles, not one flag")
    if "model" in tested:
        notes.append("tokens of two models are not the same unit")
    return Comparison(tuple(d.words for d in names), tuple(why), tuple(notes))


def _check(tested: Sequence[str], found: Sequence[Difference]) -> None:
    for name in tested:
        if name in NEVER:
            raise Refused(f"--tested {name}: other {name} make another measurement, and no ratio")
        if name not in {d.name for d in found} | {_group(d.name) for d in found}:
            there = ", ".join(dict.fromkeys(_group(d.name) for d in found)) or "nothing"
            raise Refused(f"--tested {name}: that is the same in both runs; what differs: {there}")


def _group(name: str) -> str:
    """The dial's kind and its flags are one thing."""
    return "dial" if name.startswith("dial") else name


def _engines(
    left: Mapping[str, Any], right: Mapping[str, Any], found: Sequence[Difference], notes: list[str]
) -> Comparison:
    """Two engines: only with the same artifact, KV type, prompts, sampling and machine."""
    why = [d.words for d in found if d.name != "engine" and not d.name.startswith(OF_ENGINE)]
    types = [{str(v).lower() for v in (side.get("kv_type") or {"": None}).values()} for side in (left, right)]
    if types[0] != types[1] or types[0] & set(UNTYPED):
        why.append(
            f"kv_type: {brief(left.get('kv_type'))} against {brief(right.get('kv_type'))}, not known to be equal"
        )
    named = [side.get("model") or {} for side in (left, right)]
    if not all(m.get("sha256") or m.get("revision") for m in named) and not any("model" in text for text in why):
        why.append("model: known by name alone, so the artifacts are not known to be equal")
    words = next(d.words for d in found if d.name == "engine")
    notes.append("two engines: their programs, flags and ways to draft differ with them")
    return Comparison((words,), tuple(f"two engines, and {text}" for text in why), tuple(notes))
