"""Foreign text made safe to show: no control characters, no escapes, no direction overrides, bounded length."""

from __future__ import annotations

import re
import time

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-9;:?<=>!]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])"
)
_CONTROLS = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def clean(text: str, most: int = 2000) -> str:
    """`text` on one line, as data: terminal escapes dropped, tabs to spaces, other control characters to `·`."""
    text = text[: most * 4]
    if not text.isprintable():
        text = _CONTROLS.sub("·", _ESCAPES.sub("", text.replace("\t", "    ").rstrip("\r\n")).rpartition("\r")[2])
    return text if len(text) <= most else text[: most - 1] + "…"


def moment(at: float | None, form: str, unknown: str) -> str:
    """A wall clock's seconds as local time; `unknown` for none, and for what no calendar has."""
    try:
        return time.strftime(form, time.localtime(at)) if at else unknown
    except (ValueError, OverflowError, OSError):
        return unknown
