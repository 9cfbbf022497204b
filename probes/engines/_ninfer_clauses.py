"""Request and throughput lines of ninfer's clause log (formats L and N) as kinds and fields.

Every clause is found by its label, never by its place. A clause whose label is known but whose shape is not is a cut
or damaged line: the whole line is left out (`Clipped`), since a torn number looks like a smaller one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from probes.engines._ninfer_text import (
    BYTES,
    COUNT,
    DURATION,
    PERCENT,
    RATE,
    Clipped,
    clauses,
    count,
    duration_ms,
    number,
    rate,
)
from probes.engines._ninfer_trouble import cut_code, hint, outcome
from probes.events import Kind

Found = tuple[Kind, dict[str, Any]]

_REPORT = {
    "prefill": re.compile(rf"prefill ({RATE})(?: \(({COUNT}) tok\))?"),
    "decode": re.compile(rf"decode ({RATE})(?: \(({COUNT}) tok\))?"),
    "running": re.compile(rf"running ({COUNT})(?: \(([^()]*)\))?"),
    "waiting": re.compile(rf"waiting ({COUNT})"),
    "batch": re.compile(r"batch (\d+(?:\.\d+)?|n/a)"),
    "host": re.compile(rf"host ({PERCENT})(?: \(({DURATION})\))?"),
}
_GAUGE = re.compile(rf"([a-z][a-z -]*[a-z]) ({COUNT})")
_PART = re.compile(rf"(prefill|decode-ready|[a-z-]+) ({COUNT})")
_DONE: dict[str, tuple[re.Pattern[str], str, Callable[[str], float | None]]] = {
    "prompt": (re.compile(rf"prompt ({COUNT})"), "prompt_tokens", count),
    "output": (re.compile(rf"output ({COUNT})"), "output_tokens", count),
    "cache": (re.compile(rf"cache ({COUNT})(?: \(({PERCENT})(?:, ([^()]+))?\))?"), "cached_tokens", count),
    "TTFT": (re.compile(rf"TTFT ({DURATION})"), "ttft_ms", duration_ms),
    "total": (re.compile(rf"total ({DURATION})"), "total_ms", duration_ms),
    "queue": (re.compile(rf"queue ({DURATION})"), "queue_ms", duration_ms),
    "prefill": (re.compile(rf"prefill ({RATE})"), "prompt_tps", rate),
    "decode": (re.compile(rf"decode ({RATE})"), "gen_tps", rate),
}
"""By label: the clause's shape, the field that its first figure goes to, and how that figure is read."""
_ACCEPTED = re.compile(rf"(\w+)(?: speculation)? accepted ({COUNT})/({COUNT}) \((\d+(?:\.\d+)?) ?%\)")
"""`mixed speculation` adds up the model's own drafts and those copied from the text (`ngram`)."""
_SHARES: dict[str, tuple[re.Pattern[str], tuple[str, ...]]] = {
    "ngram": (
        re.compile(rf"ngram ({COUNT})/({COUNT}) accepted, ({COUNT}) rounds"),
        ("ngram_accepted", "ngram_drafted", "ngram_rounds"),
    ),
    "trees": (
        re.compile(rf"trees ({COUNT}) rounds, ({COUNT}) side-branch drafts"),
        ("tree_rounds", "tree_side_accepted"),
    ),
    "archive": (
        re.compile(rf"archive (?:unbound|bound ({COUNT})/({COUNT}) accepted, gen \d+, (?:{COUNT}) sources)"),
        ("archive_accepted", "archive_drafted"),
    ),
}
"""Clauses that tell a part of the drafts once more: by label, the shape and the fields of its figures."""
_OFFLOAD = re.compile(r"(?: vision_offload_\w+=[\d.e+-]+)+$")
"""Figures that some builds hang onto the last clause without a bar."""
_FINISH = re.compile(r"output limit|context capacity|stop token|stop string|cancelled|none|tool calls (\d+)")
_REQUEST = re.compile(r"req#(\d+) (started|done|(\w+) during ([\w -]+)|response failed during ([\w -]+))$")
_STATUS = re.compile(r"HTTP (\d{3})$")
_MAX_OUTPUT = re.compile(rf"max output ({COUNT})$")
_BARE_NUMBER = re.compile(r"[a-z -]+ [\d,]+$")
_INTERVAL = re.compile(DURATION)
_OPEN_END = re.compile(r"(?:prompt|output) |cache [^(]*$")
"""What a `done` line cannot end in: the figure would be torn."""


def report(text: str) -> tuple[dict[str, Any], str | None]:
    """Fields of a `throughput | …` line, and the field (if any) that a cut right at the line's end would falsify.

    Gauges (`running`, `waiting`) are of the interval's end, `batch` and the rates are means over it. A gauge that is
    left out is 0 by this log's convention; it stays absent here.
    """
    parts = clauses(text)[1:]
    found: dict[str, Any] = {}
    for part in parts:
        label = part.partition(" ")[0]
        shape = _REPORT.get(label)
        if shape is None:
            _gauge(part, found, last=part is parts[-1])
            continue
        match = shape.fullmatch(part)
        if match is None:
            raise Clipped
        _reported(label, match, found)
    if "batch n/a" in parts and not found.keys() & {"prompt_tps", "gen_tps"} and not found.get("prefilling", 1):
        found["idle"] = True  # no round and no prompt in the whole interval
    last = parts[-1] if parts else ""
    if not parts or last.startswith(("prefill ", "decode ")) or (len(parts) == 1 and "running" not in found):
        raise Clipped
    if last.startswith("batch ") and not re.fullmatch(r"batch (?:\d+\.\d\d+|n/a)", last):
        raise Clipped
    unsure = last.rsplit(" ", 1)[0].replace("-", "_").replace(" ", "_") if _BARE_NUMBER.match(last) else None
    return found, unsure


def _reported(label: str, match: re.Match[str], found: dict[str, Any]) -> None:
    if label in {"prefill", "decode"}:
        value = rate(match[1])
        if value is not None:
            found["prompt_tps" if label == "prefill" else "gen_tps"] = value
        if match[2]:
            found["interval_prompt_tokens" if label == "prefill" else "interval_output_tokens"] = count(match[2])
    elif label == "running":
        found["running"] = count(match[1])
        if match[2] is not None:
            parts = [_PART.fullmatch(part.strip()) for part in match[2].split(",")]
            if not all(parts):
                raise Clipped
            named = {part[1]: count(part[2]) for part in parts if part}
            # Parts that are 0 are left out of the bracket; the bracket itself tells that they were counted.
            found["decode_ready"] = named.get("decode-ready", 0)
            found["prefilling"] = named.get("prefill", 0)
    elif label == "waiting":
        found["waiting"] = count(match[1])
    elif label == "batch" and match[1] != "n/a":
        found["batch"] = float(match[1])
    elif label == "host":
        found["host_share"] = round(number(match[1].rstrip(" %")) / 100, 6)


def _gauge(part: str, found: dict[str, Any], *, last: bool) -> None:
    """Clauses such as `materializing 1`, also ones that newer builds add; the interval's length."""
    if match := _GAUGE.fullmatch(part):
        found.setdefault(match[1].replace(" ", "_").replace("-", "_"), count(match[2]))
    elif _INTERVAL.fullmatch(part):
        if (length := duration_ms(part)) is not None:
            found["interval_ms"] = length
    elif last and (not any(c.isdigit() for c in part) or part[0].isdigit()):
        raise Clipped


def request(text: str) -> Found | None:
    """Kind and fields of a line that begins `req#` or `HTTP request failed`; None for other remarks on a request."""
    parts = clauses(_OFFLOAD.sub("", text) if " vision_offload_" in text else text)
    if parts[0].startswith("HTTP request failed"):
        return _failed(parts, "http", {"phase": "failed"})
    head = _REQUEST.match(parts[0])
    if head is None:
        if len(parts) == 1:
            raise Clipped
        return None
    fields: dict[str, Any] = {"request_id": int(head[1]), "phase": head[2].split(" ", 1)[0]}
    if head[2] == "started":
        return "request", _started(parts, fields)
    if head[2] == "done":
        return "request", _done(parts, fields)
    if head[5]:
        fields["phase"] = "undelivered"
        return _failed(parts, head[5], fields)
    if head[3] == "cancelled":
        return "request", fields | {"finish": "cancelled", "during": head[4]}
    return _failed(parts, head[4], fields)


def _protocol(parts: Iterable[str], fields: dict[str, Any]) -> None:
    for part in parts:
        name, _, mode = part.partition(" ")
        if name.startswith(("openai-", "anthropic")) or name in {"http", "decide"}:
            fields["protocol"] = name
            if mode in {"stream", "non-stream"}:
                fields["stream"] = mode == "stream"
            return


def _started(parts: list[str], fields: dict[str, Any]) -> dict[str, Any]:
    """`started` means prepared and submitted: the request may still be queued. The output is as asked, unclamped."""
    _protocol(parts[1:2], fields)
    if not any(part.startswith("thinking ") for part in parts):
        raise Clipped
    for part in parts[2:]:
        if match := _MAX_OUTPUT.match(part):
            fields["max_tokens"] = count(match[1])
        elif part.startswith("thinking "):
            fields["thinking"] = part[9:]
        elif (match := _GAUGE.fullmatch(part)) and match[1] in {"tools", "media"}:
            fields[match[1]] = count(match[2])
    return fields


def _done(parts: list[str], fields: dict[str, Any]) -> dict[str, Any]:
    _protocol(parts[1:2], fields)
    for part in parts[1:]:
        shape = _DONE.get(part.partition(" ")[0])
        if shape is not None and (match := shape[0].fullmatch(part)):
            value = shape[2](match[1])
            if value is not None:
                fields[shape[1]] = value
            if shape[1] == "cached_tokens" and match[3]:
                fields["cache_path"] = match[3]
        elif match := _ACCEPTED.fullmatch(part):
            fields |= drafts(count(match[3]), count(match[2]))
            fields["accept_rate_printed"] = round(number(match[4]) / 100, 6)
            fields["spec_backend"] = match[1]
        elif match := _FINISH.fullmatch(part):
            fields["finish"] = "tool calls" if match[1] else part
            if match[1]:
                fields["tool_calls"] = int(match[1])
        elif (share := _SHARES.get(part.partition(" ")[0])) is not None and (match := share[0].fullmatch(part)):
            found = zip(share[1], match.groups(), strict=True)
            fields |= {name: count(figure) for name, figure in found if figure is not None}
        elif shape is not None or share is not None or " accepted" in part:
            raise Clipped
    last = parts[-1]
    ends = any(c.isdigit() for c in last) or last.endswith("n/a") or last == "archive unbound"
    if not ends or _OPEN_END.match(last):
        raise Clipped
    return fields


def drafts(drafted: int, accepted: int) -> dict[str, Any]:
    """Counts of draft tokens and their ratio; nothing when the counts contradict each other."""
    if not 0 <= accepted <= drafted:
        return {}
    found: dict[str, Any] = {"drafted": drafted, "accepted": accepted}
    return found | ({"accept_rate": accepted / drafted} if drafted else {})


def _failed(parts: list[str], during: str, fields: dict[str, Any]) -> Found:
    """A request that ended without its answer: refused at the door, timed out in the queue, or failed inside."""
    _protocol(parts[1:2], fields)
    fields["during"] = during
    status = next((int(m[1]) for part in parts if (m := _STATUS.match(part))), None)
    if status is not None:
        fields["status"] = status
    name = str(fields.get("protocol", "-"))
    skip = re.compile(rf"HTTP \d{{3}}|request \S+|{re.escape(name)}(?: .*)?|{_GAUGE.pattern}")
    words = [part for part in parts[1:] if not skip.fullmatch(part)]
    # Where there is no code, the class of the error is printed, so a line without either is cut.
    if not words or cut_code(words[0]) or "HTTP 000".startswith(re.sub(r"\d", "0", words[0])):
        raise Clipped
    code = words[0]
    fields["code"] = code.replace(" ", "_")
    fields["reason"] = f"{code} during {during}" + (f" (HTTP {status})" if status else "")
    if advice := hint(code):
        fields["hint"] = advice
    kind, fields["outcome"] = outcome(code, status, refused=fields["phase"] == "rejected")
    return kind, fields


_CACHE = re.compile(rf"({COUNT}) active(?: \+ ({COUNT}) (?:cached|snapshot|extra))?")
_HISTORY = re.compile(r"history (on|off)")
_HOST = re.compile(rf"host ({COUNT}) states?(?:, ({BYTES}) KV)?")


def cache(text: str) -> dict[str, Any]:
    """Lanes and device states of a `context cache | …` (L), `prefix cache | …` (N) or `context | …` (P) line.

    The first number alone bounds concurrency; the others are checkpoints of finished prompts. P tells the lanes even
    where the cache is off.
    """
    parts = clauses(text)[1:]
    if parts and (history := _HISTORY.fullmatch(parts[0])):
        fields = cache(" | ".join(("", *parts[1:])))
        return fields | {"prefix_cache": history[1] == "on"}
    if any("off" in p.split(" ")[:1] or p.startswith("root") for p in parts[:1]):
        return {"prefix_cache": False}
    match = _CACHE.match(parts[0]) if parts else None
    if match is None or (match[2] is None and not parts[0].endswith("states")):
        raise Clipped
    found: dict[str, Any] = {"prefix_cache": True, "lanes": count(match[1])}
    if match[2]:
        found["cached_states"] = count(match[2])
    for part in parts[1:]:
        if host := _HOST.fullmatch(part):
            found["host_states"] = count(host[1])
    return found
