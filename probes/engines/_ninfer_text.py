"""ninfer's way of writing numbers, stamps and clauses, in all its log formats. Reads text only; knows no record."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Form = Literal["S", "G1", "L"]
"""S: `ninfer-serve: …` without stamp; G1: `[stamp] [level] …`; L: `stamp  LEVEL  …` (N looks the same)."""

COUNT = r"\d{1,3}(?:,\d{3})+|\d+"
NUMBER = r"\d[\d,]*(?:\.\d+)?"
RATE = rf"(?:{NUMBER}[kMG]? ?tok/s|n/a)"
BYTES = rf"{NUMBER} ?(?:[KMGT]iB|B)"
DURATION = r"(?:n/a|\d+h \d+m(?: [\d.]+s)?|\d+m \d+(?:\.\d+)?s|\d[\d,]*(?:\.\d+)? ?(?:us|\u00b5s|ms|s))"
PERCENT = r"\d+(?:\.\d+)? ?%"

_PART = re.compile(r"(\d[\d,]*(?:\.\d+)?) ?(h|ms|m|us|\u00b5s|s)")
_ONE = re.compile(r"(\d+(?:\.\d+)?) ?(s|ms|us|\u00b5s)")
_SCALE = {"h": 3_600_000.0, "m": 60_000.0, "s": 1000.0, "ms": 1.0, "us": 0.001, "\u00b5s": 0.001}
_RATE = re.compile(rf"({NUMBER})([kMG]?)")
_KILO = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_BYTES = re.compile(rf"({NUMBER}) ?([KMGT]iB|B)")
_IEC = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def count(text: str) -> int:
    """`224,000` as 224000."""
    return int(text.replace(",", ""))


def number(text: str) -> float:
    """`1,234.5` as 1234.5."""
    return float(text.replace(",", ""))


def duration_ms(text: str) -> float | None:
    """`437 us`, `4.21 ms`, `14.0s`, `2m 5.3s`, `1h 12m` in milliseconds; None for `n/a`."""
    if one := _ONE.fullmatch(text):
        return round(float(one[1]) * _SCALE[one[2]], 6)
    parts = _PART.findall(text)
    if not parts:
        return None
    return round(sum(number(value) * _SCALE[unit] for value, unit in parts), 6)


def rate(text: str) -> float | None:
    """`188.1 tok/s`, `2.46k tok/s` in tokens per second; None for `n/a`. k and M are decimal."""
    found = _RATE.match(text)
    return round(number(found[1]) * _KILO[found[2]], 6) if found else None


def size(text: str) -> int | None:
    """`8.64 GiB` in bytes, as exact as it is printed."""
    found = _BYTES.match(text)
    return round(number(found[1]) * _IEC[found[2]]) if found else None


@dataclass(frozen=True, slots=True)
class Line:
    """One message of the engine: its format, stamp (ISO 8601, no zone), level in capitals, and text."""

    form: Form
    at: str | None
    level: str
    text: str


_STAMP_AT = re.compile(
    r"(20\d\d-\d\d-\d\d)[ T](\d\d:\d\d:\d\d(?:[.,]\d{1,6})?) {1,4}(TRACE|DEBUG|INFO|WARN|ERROR|FATAL) +"
)
_LEVELS = (" INFO ", " WARN ", " ERROR ", " FATAL ", " DEBUG ", " TRACE ")
_STAMP = re.compile(r"(?<!\d)" + _STAMP_AT.pattern)
_STUCK = re.compile(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}  (?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL) ")
"""The start of a record right behind another that lost its newline, even when a digit comes before it."""
_SPDLOG = re.compile(
    r"\[(20\d\d-\d\d-\d\d)[ T](\d\d:\d\d:\d\d(?:[.,]\d{1,6})?)\] \[(\w+)\] (?:\[ninfer-serve\]:?|ninfer-serve:) "
)
_BARE = re.compile(
    r"(?:throughput|capacity|context cache|prefix cache|context|engine ready|weights ready|listening on) *\| ?|"
    r"req#\d+ \w|(?:starting engine|server stopped)$"
)
LEVELS = {"WARNING": "WARN", "CRITICAL": "FATAL", "ERR": "ERROR"}


def lines(piece: str) -> list[Line]:
    """The messages in one cleaned piece of a log: usually one, none when it isn't this engine's.

    A stamp may stand anywhere (an unknown prefix may come first), and two records may share a line. A message without
    any stamp is taken when its first words are unmistakable.
    """
    found = _STAMP_AT.match(piece)
    if found is None:
        if "ninfer-serve" in piece and _SPDLOG.search(piece):
            return _bracketed(piece)
        if any(level in piece for level in _LEVELS):
            found = _STAMP.search(piece)
        if found is None:
            return _unstamped(piece)
    split: list[Line] = []
    while found is not None:
        start = found.end()
        stuck = _STUCK.search(piece, start)
        text = piece[start : stuck.start() if stuck else len(piece)].rstrip()
        split.append(Line("L", f"{found[1]}T{found[2].replace(',', '.')}", found[3], text))
        found = _STAMP_AT.match(piece, stuck.start()) if stuck else None
    return split


def _bracketed(piece: str) -> list[Line]:
    found = list(_SPDLOG.finditer(piece))
    ends = [match.start() for match in found[1:]] + [len(piece)]
    split: list[Line] = []
    for match, end in zip(found, ends, strict=True):
        level = match[3].upper()
        text = piece[match.end() : end].rstrip()
        split.append(Line("G1", f"{match[1]}T{match[2].replace(',', '.')}", LEVELS.get(level, level), text))
    return split


def _unstamped(piece: str) -> list[Line]:
    if piece.startswith("ninfer-serve: "):
        return [Line("S", None, "", piece[14:].rstrip())]
    text = piece.strip()
    if text[:1] in "tcpewlrs" and _BARE.match(text):
        return [Line("L", None, "", text)]
    if text.startswith("error: "):
        return [Line("S", None, "ERROR", text)]
    if "CUDA_CHECK(" in text:
        return [Line("S", None, "FATAL", text)]
    return []


class Clipped(ValueError):  # noqa: N818  (what is known of the line, not a failure)
    """A line was cut off or damaged: nothing of it may be believed."""


def clauses(text: str) -> list[str]:
    """`a | b | c` as its parts. Raises `Clipped` when the line ends in a bar."""
    parts = text.rstrip().split(" | ")
    if not parts[-1] or parts[-1][-1] == "|":
        raise Clipped
    return parts
