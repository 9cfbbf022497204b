"""Small questions to a server over HTTP, bounded in time and in size: a reply that never ends holds nobody up.

Not for load: what is measured has a client of its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

MOST = 8 << 20
"""Bytes of a reply that are read: metrics of a large server are a few hundred kB."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply: `body` is its beginning where it is longer than was asked for."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", "replace")

    def value(self) -> Any:
        """The body as JSON, else as text. Numbers that JSON does not have, and trees too deep to read, are text."""
        try:
            return json.loads(self.body, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            return self.text


def _no_constant(word: str) -> Any:
    raise ValueError(word)


async def get(http: httpx.AsyncClient, url: str, seconds: float, most: int = MOST) -> Answer | None:
    """The reply to a GET; None when there was none within that time, whatever went wrong."""
    body = bytearray()
    try:
        async with asyncio.timeout(seconds), http.stream("GET", url) as reply:
            async for part in reply.aiter_bytes(1 << 16):
                body += part
                if len(body) > most:
                    break
            return Answer(reply.status_code, reply.headers, bytes(body[:most]))
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, TimeoutError):
        return None
