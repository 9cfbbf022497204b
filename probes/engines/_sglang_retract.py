"""What a retraction line says: requests put back because the pool of keys and values is full."""

from __future__ import annotations

import re
from typing import Any

from probes.engines._sglang_accept import Era

_RETRACTED = re.compile(r"#retracted_reqs: (\d{1,9})(?=,)")
_RATIO = re.compile(r"#new_token_ratio: \d{1,6}\.\d{1,9} -> (\d{1,6}\.\d{4})")
_NUMBERS = (
    ("tokens_gained", re.compile(r"#new_tokens_gained: (-?\d{1,15})(?=,)")),
    ("state_slots_gained", re.compile(r"#mamba_num_gained: (-?\d{1,15})(?=,)")),
    ("aborted", re.compile(r"#aborted_retracted_reqs: (\d{1,9})(?=,)")),
)
_OLD, _NEW, _TEST = "Decode out of memory happened", "Retract requests.", "Testing retraction."


def retraction(message: str, era: Era) -> dict[str, Any] | None:
    """The fields of a retraction, or None: the message is none. `clipped` when the number of requests is cut off.

    The old wording `Decode out of memory happened` is this too, and no CUDA out-of-memory. Tokens and state slots
    gained are other numbers than requests; gained tokens may be negative.
    """
    if _OLD not in message and _NEW not in message and _TEST not in message:
        return None
    fields: dict[str, Any] = {
        "reason": "the KV pool is full: running requests were put back and compute their prompts again",
        "hint": "raise --schedule-conservativeness, lower --max-running-requests, or give the pool more tokens",
    }
    found = _RETRACTED.search(message)
    if found is None:
        fields["clipped"] = True
    else:
        fields["retracted"] = int(found[1])
    for name, pattern in _NUMBERS:
        if (number := pattern.search(message)) is not None:
            fields[name] = int(number[1])
    if (ratio := _RATIO.search(message)) is not None:
        fields["new_token_ratio"] = float(ratio[1])
    if _TEST in message:
        fields |= {"testing": True, "reason": "a test switch of the server puts requests back"}
        fields.pop("hint")
    _tell_era(message, era)
    return fields


def _tell_era(message: str, era: Era) -> None:
    if _OLD in message:
        era.until("0.4.9")
    elif _NEW in message:
        era.since("0.4.10")
        if "#new_tokens_gained" in message:
            era.since("0.5.8")
        if "#mamba_num_gained" in message:
            era.since("0.5.11")
