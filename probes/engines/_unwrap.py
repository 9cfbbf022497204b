r"""Takes off what other programs put around a server's log line: colours, bars, collectors' and supervisors' prefixes.

Knows nothing about any engine's records and never takes off an engine's own stamp, level or process prefix. Shared by
all readers; pure.
"""

from __future__ import annotations

import json
import re
import string
from typing import Any

_ESCAPE = re.compile(
    r"(?:\x1b|\\u001b|\\x1b|\\033|\\e|#033|\^\[|\u241b)"  # real, or spelled out by some viewer
    r"(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))"  # CSI and OSC sequences
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufeff\u200b-\u200f\u202a-\u202e]"
)
_LOST = re.compile(r"\[(?:\d{1,3}(?:;\d{1,3})*)?m")
"""A colour whose escape character a web page swallowed."""
_BREAK = re.compile(r"[\r\n\u2028\u2029]+")
_BAR = re.compile(r"\d%[^\[\]]{0,300}?\d\w?/\d+(?:\.\d+)?\w? \[[^\[\]]{1,80}\](?=\S)", re.ASCII)
"""The tail of a tqdm bar with something stuck to it: a bar ends without a newline."""

_OWN_PROCESS = r"(?:API|Api|EngineCore|Worker|Vllm|VLLM|RustFrontend|DPCoord|Frontend|MM|Mm)"
_DATE = r"20[\d-]{8}+"
_CLOCK = r"[\d:.,]{8,18}+"
"""Loose sets, repeated possessively: a clean line must fail fast here."""
_ZONE = r"(?:Z|UTC|[+-]\d\d:?\d\d)"
_OWN = (
    r"(?=\[?20\d\d-\d\d-\d\d[ T]\d\d:|\("
    + _OWN_PROCESS
    + r"\S* (?:rank=\d+ )?pid=|(?:INFO|WARNING|ERROR|DEBUG|CRITICAL)"
    r" \d\d-\d\d \d\d:|\d+\.\d\d\.\d{3}\.\d{3} [IWED] |\{\""
    r"|(?:slot|srv|que|spec|cmn|res) {1,12}\w+(?:\(\))?: |(?:INFO|WARN|ERR|VERB) \[ *\w+\] "
    r"|(?:llama|llm|common|ggml|gguf|clip|mtmd|load_tensors|print_info|main|decode|system_info|graph_reserve"
    r"|sched_reserve|build|print_timings|update_slots|server|start|init)\w* ?: |statistics +[\w-]+: "
    r"|\S{1,200}\.(?:cpp|cu|c|h):\d{1,6}: "
    r"|\[\d{4,5}\] |error(?:: | while )|ninfer-serve: |GGML_ASSERT\(|terminate called |Segmentation fault"
    r"| {0,12}(?:prompt eval|eval|total) time +=|draft acceptance(?: rate)? =)"
)
"""What an engine's record can start with, so that a stamp right before it is somebody else's."""

_LETTER = re.compile(
    r"[A-Za-z][\w.@-]{0,99}(?: {2,}|(?<=\d) )\|(?: |$)"  # docker compose, swarm: padded, or numbered
    r"|[JFMASOND][a-z]{2} [ \d]\d " + _CLOCK + r" \S{1,64} [\w@./-]{1,64}(?:\[\d+\])?: ?"  # syslog, journald
    r"|[DINWECA][A-Z]{3,7} " + _DATE + r"T" + _CLOCK + _ZONE + r" (?:\[[^\]]{1,200}\] )?"  # a cloud's export
    r"|[a-z][a-z0-9.]*(?:-[a-z0-9.]+)+ [a-z][a-z0-9-]* " + _OWN,  # stern: pod and container
    re.ASCII,
).match
_BRACKET = re.compile(
    r"\[(?:\d{2,6}+\] "  # a router's child: its port
    r"|1\d{9}\] "  # seconds since 1970
    r"|(?:pod|container)/[^\]]{1,200}\] "  # kubectl logs --prefix
    r"|\d+,\d+\]<std(?:out|err)>: ?"  # mpirun --tag-output
    r"|" + _DATE + r"[ T]" + _CLOCK + r"(?: ?" + _ZONE + r")?+\][ \t]++" + _OWN + r")",  # a supervisor's stamp
    re.ASCII,
).match
_PAREN = re.compile(
    r"\((?:pid=\d+(?:, ip=[^)]{1,64})?\) "  # a Ray task
    r"|(?!" + _OWN_PROCESS + r")[\w.:-]{1,80} pid=\d+(?:, ip=[^)]{1,64})?\) "  # a Ray actor
    r"|(?:raylet|autoscaler)[^)]{0,80}\) )",
    re.ASCII,
).match
_YEAR = re.compile(
    _DATE + r"(?:T" + _CLOCK + _ZONE + r"(?:[ \t]|$)"  # docker/kubectl --timestamps, CI
    r"(?:std(?:out|err) [FP](?: |$))?"  # Kubernetes' container log files
    r"(?:\S{1,64} [\w@./-]{1,64}\[\d+\]: ?)?"  # journalctl -o short-iso
    r"|[ T]" + _CLOCK + r"(?: ?" + _ZONE + r")?+:?+[ \t]++" + _OWN + r")",  # a supervisor's stamp
    re.ASCII,
).match
_CITED = re.compile(r"(?:> ?)+|`+(?=[\[({\w])").match
"""Quoted in a mail or a forum: `> ` before the line, or the code mark stuck to its first line."""
_INDENT = re.compile(r"[ \t]++(?!(?:prompt eval|eval|total) time )(?=\d{1,7}[\t:]|" + _OWN[3:], re.ASCII).match
_NUMBER = re.compile(r"\d{1,7}+(?::[ \t]*|[\t ]+)" + _OWN, re.ASCII).match
"""A task of srun, or a line number of `cat -n` and `grep -n`."""
_BORDER = re.compile(r"\| +" + _OWN, re.ASCII).match


def _two(text: str, start: int = 0) -> re.Match[str] | None:
    return _YEAR(text, start) or _NUMBER(text, start)


_PREFIXES = (
    {"[": _BRACKET, "(": _PAREN, ">": _CITED, "`": _CITED, " ": _INDENT, "\t": _INDENT, "|": _BORDER}
    | dict.fromkeys(string.digits, _NUMBER)
    | {"2": _two}
    | dict.fromkeys(string.ascii_letters, _LETTER)
)
REPEATED = re.compile(r" ?\[repeated \d{1,9}x across cluster\](?: \(Ray deduplicates .*)?\Z", re.ASCII)
"""What Ray adds to a line that other actors printed too."""
_NEXT = r"(?:[\[({\da-z/]|(?:INFO|WARNING|ERROR|DEBUG|CRITICAL) \d|(?:INFO|WARN|ERR|VERB) \[)"
_WORD = r"[\w.@-]{1,99}+ *+(?:\||20[\d-]{8}T|\d\d? \d\d:|[a-z][\w-]*+ " + _NEXT + r")"
_ANY = re.compile("").match
_SUSPECTS = (
    dict.fromkeys(string.ascii_letters, re.compile(_WORD, re.ASCII).match)
    | {
        "[": re.compile(
            r"\[(?:20[^\]]{17,32}+\][ \t] *+" + _NEXT + r"|\d{1,10}+[]m;,]|m|pod/|container/)", re.ASCII
        ).match,
        "(": _PAREN,
        "2": re.compile(
            r"20[^ T]{8}(?:T| [^ \t]{8,20}+(?: UTC| [+-]\d\d:?\d\d)?[ \t]++" + _NEXT + r")|\d{1,7}+[:\t ]"
        ).match,
        "b": re.compile("b[\"']|" + _WORD, re.ASCII).match,
        " ": re.compile(r"\s*+(?:\Z|\d++[%\t:]|[^\sF.^~])").match,
        "|": _BORDER,
    }
    | dict.fromkeys("013456789", re.compile(r"\d{1,7}+[:\t ]").match)
    | dict.fromkeys(("", "\0", *"\t{\"'^#>`"), _ANY)
)
"""By a line's first character: what finds cheaply that it may be wrapped. No entry: it isn't."""

_QUOTED = re.compile(r"""b?(["'])(.*)\1[,;]?\Z""", re.DOTALL)
_ESCAPED = re.compile(r"\\(?:([nrt\\\"'/])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4}))")
_PLAIN = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "'": "'", "/": "/"}
_TEXT_KEYS = ("log", "message", "msg", "textPayload", "MESSAGE", "@message", "line", "body", "_raw", "text")
_NESTED_KEYS = ("jsonPayload", "fields", "attributes", "data")


def unwrap(text: str) -> list[str]:
    r"""The clean pieces of one log line, in order; empty ones are left out. A clean line comes back as it is.

    Takes off ANSI codes (also spelled out as `\x1b[`, `^[[`, `#033[`, or with the escape character lost), prefixes of
    docker compose, Kubernetes, syslog/journald, cloud log exports, Ray, routers, MPI and supervisors' second stamps,
    quotes around the whole line, and collectors' JSON (`log`, `message`, `msg`, `textPayload` …, one object a line).
    Splits at `\r`, at newlines inside a JSON or quoted text, and behind a tqdm bar. Indentation after a prefix stays:
    it tells a traceback's inner lines.

    Left alone, because they are an engine's own: a first stamp, `(EngineCore pid=1) ` and its kin, llama.cpp's JSON
    lines (`{"type":"log",…}`), Python logging's JSON (with `asctime`) and JSON without a collector's text field.
    A collector's time is dropped. A lone control character inside an otherwise clean line may stay (looking for it
    costs more than all the rest): `plain` is for showing. Never raises. Idempotent: a piece given again comes back.
    """
    if "\x1b" not in text and "\r" not in text and "\\" not in text and text.isascii():
        suspect = _SUSPECTS.get(text[:1])
        if suspect is None or suspect(text) is None:
            return [text]
    return _slow(text)


_SOURCE = re.compile(
    r"(?:\x1b\[[\d;]{0,12}m){0,3}(?:([A-Za-z][\w.@-]{0,99}) {0,40}\| |\[(?:pod|container)/([^\]]{1,200})\] )", re.ASCII
)


def source(text: str) -> str | None:
    """Which service (docker compose) or pod (kubectl) a collector says that this line is from; None: it doesn't say."""
    found = _SOURCE.match(text)
    return (found[1] or found[2]) if found else None


def plain(text: str, limit: int = 500) -> str:
    """A piece made safe to show: no control characters, tabs as spaces, at most `limit` characters."""
    cut = text[:limit]
    return cut if cut.isprintable() else "".join(c if c.isprintable() else " " if c == "\t" else "" for c in cut)


def _slow(text: str) -> list[str]:
    """The same for a line that may be wrapped: peel one layer at a time; each makes the text shorter."""
    done: list[str] = []
    todo = [text]
    while todo:
        piece = todo.pop()
        if not piece or piece.isspace():
            continue
        inner = _peel(piece)
        if inner is None:
            done.append(piece)
        else:
            todo.extend(reversed(inner))
    return done


def _peel(text: str) -> list[str] | None:
    """What is inside the outermost wrapping, shorter than `text`; None: nothing is wrapped."""
    first = text[0]
    if (first == "{" and (inner := _from_json(text))) or (first in "\"'b" and (inner := _from_quotes(text))):
        return inner
    if not text.isprintable() or "\\" in text or first in "^#":
        parts = _BREAK.split(text)
        if len(parts) > 1:
            return parts
        clean = _ESCAPE.sub("", text)
        if clean != text:
            return [clean]
    if (first == "[" and _LOST.match(text)) or "[0m" in text or "[0;0m" in text:
        return [_LOST.sub("", text)]
    start = 0
    while (look := _PREFIXES.get(text[start : start + 1])) and (found := look(text, start)):
        start = found.end()
    if start:
        return [REPEATED.sub("", text[start:]) if text.endswith((" cluster]", ")")) else text[start:]]
    if ("/s]" in text or "/it]" in text) and (bar := _BAR.search(text)):
        return [text[: bar.end()], text[bar.end() :]]
    return None


def _from_json(text: str) -> list[str] | None:
    """The text inside a log collector's object; None when it isn't one, or is an engine's own JSON."""
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or _is_own(found):
        return None
    for inner in (found, *(found.get(key) for key in _NESTED_KEYS)):
        if isinstance(inner, dict):
            for key in _TEXT_KEYS:
                if isinstance(inner.get(key), str):
                    return [inner[key]]
    return None


def _is_own(entry: dict[str, Any]) -> bool:
    """Whether an engine wrote this object itself, so that more than its text counts."""
    if "asctime" in entry or (entry.get("type") == "log" and "msg" in entry):
        return True
    # llama-server of 2024: seconds since 1970, and the function that speaks.
    return isinstance(entry.get("timestamp"), int) and isinstance(entry.get("function"), str) and "level" in entry


def _from_quotes(text: str) -> list[str] | None:
    """The text inside quotes around the whole line, its escapes resolved."""
    found = _QUOTED.match(text)
    if found is None:
        return None
    return [_ESCAPED.sub(_resolve, found[2])]


def _resolve(found: re.Match[str]) -> str:
    if found[1]:
        return _PLAIN[found[1]]
    return chr(int(found[2] or found[3], 16))
