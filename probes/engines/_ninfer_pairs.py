"""Request and throughput lines of ninfer's older logs (formats S and G1), which are written as `key=value` pairs."""

from __future__ import annotations

import re
from typing import Any

from probes.engines._ninfer_text import NUMBER, Clipped, duration_ms, number, rate
from probes.engines._ninfer_trouble import cut_code, hint
from probes.events import Kind

Found = tuple[Kind, dict[str, Any]]

_REQUEST = re.compile(r"\[req (\d+)\] (.*)")
_PAIR = re.compile(r"(\w+)=(\S+)")
_SAMPLER = re.compile(r"sampler=\[[^\]]*\]?")
"""Left out before pairs are read: its seed has 64 bits and its keys are not the request's."""
_ROUND = re.compile(rf"speculative=(\w+) (?:n/a|({NUMBER})tok/round \((\d+(?:\.\d+)?)%\))(?= |$)")
_OFF = re.compile(r"speculative=(?:off|none)(?= |$)")
_SPEED = re.compile(rf"(?:{NUMBER}[kMG]?tok/s|n/a)")
_TIME = re.compile(r"\d+(?:\.\d+)?(?:us|ms|s)|n/a")
_COUNTS = {"prompt": "prompt_tokens", "gen": "output_tokens", "cache": "cached_tokens", "tool_calls": "tool_calls"}
_SPEEDS = {"prefill": "prompt_tps", "decode": "gen_tps"}
_TIMES = {"ttft": "ttft_ms", "wall": "total_ms", "queue": "queue_ms"}
PATHS = frozenset(
    {"private_endpoint", "endpoint", "turn_closure", "response_replay", "long_anchor", "shared_prefix", "snapshot"}
)
"""How a reused prefix was found. The word ends its line, so only whole ones are believed."""
_GAUGES = {
    "running": "running",
    "prefilling": "prefilling",
    "decode_ready": "decode_ready",
    "waiting": "waiting",
    "materializing": "materializing",
}


def report(text: str) -> dict[str, Any]:
    """Fields of a G1 line `throughput interval=5.000s prefill=… running=2 … avg_decode_batch=2.00`.

    Here zeros are printed, so an absent field is unknown.
    """
    pairs = dict(_PAIR.findall(text))
    found: dict[str, Any] = {}
    for key, value in pairs.items():
        if key in _SPEEDS:
            found |= _speed(key, value)
        elif key in _GAUGES:
            found[_GAUGES[key]] = _count(value)
    interval, batch = pairs.get("interval", ""), pairs.get("avg_decode_batch", "")
    if not re.fullmatch(r"\d+\.\d\d|n/a", batch):
        raise Clipped
    if (length := duration_ms(interval)) is not None:
        found["interval_ms"] = length
    if batch != "n/a":
        found["batch"] = float(batch)
    return found


def request(text: str) -> Found | None:
    """Kind and fields of a line `[req N] …`; None for other text."""
    head = _REQUEST.match(text)
    if head is None:
        return None
    rest = head[2]
    fields: dict[str, Any] = {"request_id": int(head[1])}
    if rest.startswith("done "):
        return "request", fields | {"phase": "done"} | _done(rest)
    if rest.startswith("error"):
        return _error(rest.removeprefix("error").strip(" :"), fields)
    return "request", fields | _started(rest)


def _started(rest: str) -> dict[str, Any]:
    """`→ running` is printed before the engine is entered: the request may be queued, so only `started` is said."""
    if "sampler=[" not in rest:
        raise Clipped
    pairs = dict(_PAIR.findall(_SAMPLER.sub("", rest)))
    found: dict[str, Any] = {"phase": "started"}
    if "max_tokens" in pairs:
        found["max_tokens"] = _count(pairs["max_tokens"])
    if "thinking" in pairs:
        found["thinking"] = pairs["thinking"]
    words = rest.split()
    found["protocol"] = words[0].replace("_", "-")
    if len(words) > 1 and words[1] in {"stream", "non-stream"}:
        found["stream"] = words[1] == "stream"
    return found


def _done(rest: str) -> dict[str, Any]:
    pairs = dict(_PAIR.findall(rest))
    found: dict[str, Any] = {}
    for key, value in pairs.items():
        if key in _COUNTS:
            found[_COUNTS[key]] = _count(value)
        elif key in _SPEEDS:
            found |= _speed(key, value)
        elif key in _TIMES:
            if not _TIME.fullmatch(value):
                raise Clipped
            if (spent := duration_ms(value)) is not None:
                found[_TIMES[key]] = spent
    if "finish" in pairs:
        found["finish"] = pairs["finish"].replace("_", " ")
    rounds = _ROUND.search(rest)
    if rounds is None and not _OFF.search(rest):
        raise Clipped
    if rounds is not None:
        found["spec_backend"] = rounds[1]
        if rounds[2]:
            # Tokens a round, bonus token included; the percentage is accepted/drafted.
            found["accept_len"] = number(rounds[2])
            found["accept_rate"] = found["accept_rate_printed"] = round(float(rounds[3]) / 100, 6)
    if pairs.get("reuse") in PATHS:
        found["cache_path"] = pairs["reuse"].replace("_", " ")
    return found


def _error(text: str, fields: dict[str, Any]) -> Found:
    code = re.split(r"[:|]", text, maxsplit=1)[0].strip().replace("_", " ")
    if not code or cut_code(code):
        raise Clipped
    client = any(word in code for word in ("context length", "invalid", "not supported", "not found", "disabled"))
    fields |= {"phase": "failed", "reason": text or "failed", "outcome": "rejected" if client else "error"}
    if advice := hint(code):
        fields["hint"] = advice
    return ("reject" if client else "error"), fields


def _speed(key: str, value: str) -> dict[str, float]:
    if not _SPEED.fullmatch(value):
        raise Clipped
    speed = rate(value)
    return {} if speed is None else {_SPEEDS[key]: speed}


def _count(value: str) -> int:
    digits = value.replace(",", "")
    if not (digits.isascii() and digits.isdigit()):
        raise Clipped
    return int(digits)
