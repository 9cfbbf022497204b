"""One line of a llama-server log, taken apart: child, stamp, level, label, message. Knows the prefixes of every format
since 2024 and no record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
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


Piece = tuple[str, str, float | None, str]

_CHILD = re.compile(r"\[(\d{2,6})\] ")
_ANY_CHILD = re.compile(r"(?:\| |[ZFP] |\]: |: |\"|^)\[(\d{4,5})\] ")
_STAMP = re.compile(
    r"(\d{1,7})\.([0-5]\d)\.(\d{3})\.(\d{3}) ([IWED])(?: |$)|(\d{1,7})\.([0-5]\d)\.(\d{3})\.(\d{3}) (?=\S)"
)
_GLUED = re.compile(r"(?<![\d.])(?=\d{1,7}\.[0-5]\d\.\d{3}\.\d{3} [IWED] )")
_LEVEL = re.compile(r"([IWED]) (?=(?:slot|srv|que|res|spec|cmn|statistics) |\w+: )")
_LABEL = re.compile(r"(?![A-Za-z]:\\)(?:(slot|srv|que|res|spec|cmn)\s+)?([~\w:<>]+(?:\(\))?)(?:(?<=update_slots) )?: ?")
_OLD = re.compile(r"\s*(INFO|WARN|WARNING|ERR|ERROR|VERB|DEBUG)\s*\[\s*([\w~]+)\] (.*)")
_OWN_JSON = re.compile(r'\{"(?:type|tid|timestamp|function)":.{0,400}?"(?:msg|message|data)":')
_OLD_TAIL = re.compile(r"\s*\| (tid=.*)")


def pieces(text: str) -> Sequence[Piece]:
    """(child, body, seconds, level) for each log line in `text`: glued lines and foreign prefixes taken apart."""
    stamp = _STAMP.match(text)
    if stamp is not None and single(text):
        return (("", text[stamp.end() :], *_clock(stamp)),)
    child = ""
    if text.startswith("["):
        found = _CHILD.match(text)
        if found:
            child, text = found[1], text[found.end() :]
    if "\r" not in text and "\x1b" not in text and (text[:1] == "\t" or _STAMP.match(text)):
        return _unglued(text, child)
    if text.startswith('{"') and _OWN_JSON.match(text):
        return list(_json(text, child))
    wrapped = _ANY_CHILD.search(text) if not child and "] " in text else None
    child = wrapped[1] if wrapped else child
    found_pieces: list[Piece] = []
    for part in unwrap(text):
        if part.startswith('{"') and _OWN_JSON.match(part):
            found_pieces.extend(_json(part, child))
        else:
            found_pieces.extend(_unglued(part, child))
    return found_pieces


def _unglued(text: str, child: str) -> Sequence[Piece]:
    """A line, or each of several that lost the newline between them: a stamp has three dots and a level."""
    if not _another(text):
        return (_stamped(text, child),)
    return [_stamped(each, child) for each in _GLUED.split(text) if each]


def _stamped(text: str, child: str) -> Piece:
    if not child and text.startswith("["):
        inner = _CHILD.match(text)
        if inner:
            child, text = inner[1], text[inner.end() :]
    found = _STAMP.match(text)
    if found is None:
        level = _LEVEL.match(text)
        return (child, text[level.end() :], None, level[1]) if level else (child, text, None, "")
    return child, text[found.end() :], *_clock(found)


def _clock(stamp: re.Match[str]) -> tuple[float, str]:
    """Seconds and level of a stamp."""
    level = stamp[5] or ""
    minutes, seconds, milli, micro = stamp.group(1, 2, 3, 4) if level else stamp.group(6, 7, 8, 9)
    return int(minutes) * 60 + int(seconds) + int(milli) / 1000 + int(micro) / 1e6, level


def _json(text: str, child: str) -> Iterator[Piece]:
    """--log-jsonl: one object a line on stdout, the text inside `msg`; other types (memory tables) are no log lines."""
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        yield child, text, None, "?"
        return
    if isinstance(entry, dict) and isinstance(entry.get("function"), str):
        yield child, _old_json(entry), None, ""
        return
    if not isinstance(entry, dict) or entry.get("type") != "log" or not isinstance(entry.get("msg"), str):
        return
    stamp = entry.get("time")
    t = stamp / 1e6 if isinstance(stamp, int) and 0 <= stamp < 1e16 else None
    level = str(entry.get("level", ""))[:1].upper()
    for part in entry["msg"].rstrip("\n").split("\n"):
        yield child, part, t, level


_PASSED = re.compile(
    r"\d{1,7}\.[0-5]\d\.\d{3}\.\d{3} [ID] {1,9}"
    r"(?:(?:slot +(?:get_availabl|init_sampler|process_toke|handle_last_|reset)"
    r"|srv +(?:log_server_r|update|load|get_availabl|prompt_save|server_strea|decode|init(?!: initializing))"
    r"|que +(?:start_loop|post)|res +(?:send|remove_waiti)|load|print_info|llama_model_loader|set_embeddings"
    r"|adapters_lora_are_same|set_adapters_lora|common_sampler_init): "
    r"|(slot launch_slot_: id +\d{1,15} \| task \d{1,15} \| processing task(?:, is_child = [01])?"
    r"|srv  update_slots: all slots are idle)\Z)"
)


def passed(text: str, at_rest: Callable[[], bool]) -> bool:
    """Whether nothing can be read in this line: most of a log, so this must be fast.

    It has a label that tells nothing, or it says that a task goes its usual way, which tells nothing `at_rest`: while
    no earlier line has left something open.
    """
    found = _PASSED.match(text)
    if found is None:
        return False
    if found.lastindex is not None:
        return at_rest()
    return (text.count(".") < 6 and "\r" not in text and "\x1b" not in text) or single(text)


def single(text: str) -> bool:
    """Whether a stamped line is one line, as printed: no other is glued to it, nothing of a terminal is in it."""
    return "\r" not in text and "\x1b" not in text and (not _another(text) or _GLUED.search(text, 1) is None)


def _another(text: str) -> bool:
    """Whether this may be two lines glued to each other: another stamp's three dots, and a level behind the first."""
    # An address has three dots as well.
    return text.count(".") >= 6 and (
        text.find(" I ", 16) > 0 or text.find(" W ", 16) > 0 or text.find(" E ", 16) > 0 or text.find(" D ", 16) > 0
    )


def _old_json(entry: dict[str, object]) -> str:
    """The 2024 form as JSON (`--log-format json`), put as that form's text: level, function, message, pairs."""
    text = entry.get("msg", entry.get("message", ""))
    pairs = " ".join(f"{key}={value}" for key, value in entry.items() if isinstance(value, (int, float, bool)))
    return f"{entry.get('level', 'INFO')} [ {entry['function']}] {text} | tid={entry.get('tid', '')} {pairs}"


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
    r"|(?:^|[]|:] )\d{1,7}\.[0-5]\d\.\d{3}\.\d{3} [IWED] |\bcmd_child_to_router:|ggml[-/]cuda\.cu:\d+: CUDA error"
    r"|error while handling argument \"|^error: invalid argument: -|GGML_ASSERT\(|llama_server: |server_main: "
    r"|(?:INFO|WARN|ERR|VERB) \[ *\w{3,40}\] .{0,300}\| tid=\""
    r"|\"function\":\"(?:print_timings|update_slots|launch_slot_with_task|log_server_request|init)\""
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
