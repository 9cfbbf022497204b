"""One line of a llama-server log, taken apart: child, stamp, level, label, message. Knows the prefixes of every format
since 2024 and no record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from probes.engines._unwrap import unwrap


class Line(NamedTuple):
    """A cleaned line. `t`: seconds since the server's start; `label`: what stands before the first colon, spaces
    squeezed; `body`: label and message as printed; `pairs`: the tail of the 2024 form, else empty.
    """

    number: int
    child: str
    t: float | None
    level: str
    label: str
    message: str
    body: str
    pairs: str = ""


_CHILD = re.compile(r"\[(\d{2,6})\] ")
_ANY_CHILD = re.compile(r"(?:\| |[ZFP] |\]: |: |\"|^)\[(\d{4,5})\] ")
_STAMP = re.compile(
    r"(\d{1,7})\.([0-5]\d)\.(\d{3})\.(\d{3}) ([IWED])(?: |$)|(\d{1,7})\.([0-5]\d)\.(\d{3})\.(\d{3}) (?=\S)"
)
_GLUED = re.compile(r"(?<![\d.])(?=\d{1,7}\.[0-5]\d\.\d{3}\.\d{3} [IWED] )")
_LEVEL = re.compile(r"([IWED]) (?=(?:slot|srv|que|res|spec|cmn) |\w+: )")
_LABEL = re.compile(r"(?:(slot|srv|que|res|spec|cmn)\s+)?([~\w:<>]+(?:\(\))?): ?")
_OLD = re.compile(r"(INFO|WARN|WARNING|ERR|ERROR|VERB|DEBUG)\s*\[\s*([\w~]+)\] (.*)")
_OLD_TAIL = re.compile(r"\s*\| (tid=.*)")


def pieces(text: str) -> Iterator[tuple[str, str, float | None, str]]:
    """(child, body, seconds, level) for each log line in `text`: glued lines and foreign prefixes taken apart."""
    child = ""
    if text.startswith("["):
        found = _CHILD.match(text)
        if found:
            child, text = found[1], text[found.end() :]
    clean = _STAMP.match(text)
    if clean is not None and "\r" not in text and "\x1b" not in text:
        parts: Sequence[str] = (text,)
    elif text.startswith('{"type":'):
        yield from _json(text, child)
        return
    else:
        wrapped = _ANY_CHILD.search(text) if not child and "] " in text else None
        child = wrapped[1] if wrapped else child
        parts = unwrap(text)
    for part in parts:
        if part.startswith('{"type":'):
            yield from _json(part, child)
        elif (
            part.find(" I ", 16) > 0 or part.find(" W ", 16) > 0 or part.find(" E ", 16) > 0 or part.find(" D ", 16) > 0
        ):
            for single in _GLUED.split(part):
                yield _stamped(single, child)
        else:
            yield _stamped(part, child)


def _stamped(text: str, child: str) -> tuple[str, str, float | None, str]:
    if not child and text.startswith("["):
        inner = _CHILD.match(text)
        if inner:
            child, text = inner[1], text[inner.end() :]
    found = _STAMP.match(text)
    if found is None:
        level = _LEVEL.match(text)
        return (child, text[level.end() :], None, level[1]) if level else (child, text, None, "")
    minutes, seconds, milli, micro = found.group(1, 2, 3, 4) if found[5] else found.group(6, 7, 8, 9)
    t = int(minutes) * 60 + int(seconds) + int(milli) / 1000 + int(micro) / 1e6
    return child, text[found.end() :], t, found[5] or ""


def _json(text: str, child: str) -> Iterator[tuple[str, str, float | None, str]]:
    """--log-jsonl: one object a line on stdout, the text inside `msg`; other types (memory tables) are no log lines."""
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        yield child, text, None, "?"
        return
    if not isinstance(entry, dict) or entry.get("type") != "log" or not isinstance(entry.get("msg"), str):
        return
    stamp = entry.get("time")
    t = stamp / 1e6 if isinstance(stamp, int) and 0 <= stamp < 1e16 else None
    level = str(entry.get("level", ""))[:1].upper()
    for part in entry["msg"].rstrip("\n").split("\n"):
        yield child, part, t, level


def take_apart(number: int, child: str, body: str, t: float | None, level: str) -> Line:
    """Label and message of a body; a body without a label has an empty one."""
    found = _LABEL.match(body)
    if found is not None:
        label = f"{found[1]} {found[2]}" if found[1] else found[2]
        return Line(number, child, t, level, label, body[found.end() :], body)
    old = _OLD.match(body)
    if old is not None:
        tail = _OLD_TAIL.search(old[3])
        text, pairs = (old[3][: tail.start()], tail[1]) if tail else (old[3], "")
        return Line(number, child, t, old[1][0], old[2], text.strip(), body, pairs)
    return Line(number, child, t, level, "", body, body)


def message(text: str) -> list[str]:
    """The bodies in a line, without prefixes: what failure texts are looked for in."""
    return [body for _, body, _, _ in pieces(text)]


_SURE = re.compile(
    r"slot\s+(?:print_timing|launch_slot_|release|get_availabl|load_model|update_slots|operator\(\)|init)\w*: id "
    r"|srv\s+(?:load_model|llama_server|update_slots|operator\(\)|init|log_server_r|get_availabl|send_error)\w*: "
    r"|llama_(?:kv_cache|context|model_loader|new_context_with_model|memory_recurrent|print_timings|model_load)\w*: "
    r"|(?:cmn|spec|que)\s+\S+: |print_timings\] |ggml_(?:backend|cuda|vulkan|metal|gallocr)\w*: "
    r"|prompt eval time\s*=\s*[\d.]+ ms|failed to find free space in the KV cache|draft acceptance(?: rate)? = "
    r"|error while handling argument \"|GGML_ASSERT\(|llama_server: |server_main: "
)


def sniff(lines: Sequence[str]) -> float:
    """0..1: by the share of lines that only llama.cpp writes, sure after few."""
    hits = shown = 0
    for text in lines[:3000]:
        if not text.strip():
            continue
        shown += 1
        if _SURE.search(text[:400]):
            hits += 1
            if hits >= 12:
                break
    if not hits:
        return 0.0
    return min(0.98, 0.5 + 0.4 * hits / shown + 0.04 * min(hits, 10))
