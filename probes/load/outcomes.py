"""What became of a request, told from its status, its body and how its stream ended. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from probes.events import Outcome

QUEUE_WORDS = (
    "request_queue_timeout", "queue timeout", "queue_timeout", "queue timed out", "timed out in the queue",
    "waiting for admission", "expired while waiting", "timed out waiting", "before submission",
)  # fmt: skip
"""Words by which servers say that a request waited too long to be admitted."""
FULL_WORDS = ("queue is full", "queue full", "server_overloaded", "overloaded", "too many requests", "at capacity")
"""Words by which servers say that they take no more requests now."""


def error_text(error: Any) -> str:
    """An error object of a reply in one short line: its code or type, and its message."""
    if isinstance(error, Mapping):
        inner = error.get("error", error)
        if isinstance(inner, Mapping):
            words = [inner.get("code"), inner.get("type"), inner.get("message") or inner.get("detail")]
            text = " ".join(str(word) for word in words if isinstance(word, str | int) and word != "")
            return _line(text or str(inner))
        return _line(str(inner))
    return _line(str(error))


def _line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text[:2000]).split())[:500]


def from_status(status: int, text: str) -> Outcome:
    """The outcome of a reply that isn't a 200; `text` is its body or message.

    500 and its kin are failures under way (`aborted`), as when the same message comes inside a stream; a 503 that only
    says "unavailable" (a model still loading) is a refusal.
    """
    words = text.lower()
    if status in {429, 529}:
        return "overloaded"
    if status in {503, 504}:
        if any(word in words for word in QUEUE_WORDS):
            return "queue_timeout"
        if any(word in words for word in FULL_WORDS):
            return "overloaded"
        return "timeout" if status == 504 else "rejected"
    if status in {408, 522, 524}:
        return "timeout"
    return "aborted" if status >= 500 else "rejected"
