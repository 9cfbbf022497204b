"""One HTTP connection that stamps bytes as they arrive and keeps them; it reads no JSON and decides nothing.

Why so bare: whatever runs on this loop between a packet's arrival and its stamp is an error of the measurement.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Literal, cast
from urllib.parse import urlsplit

import httptools

from probes.load.sse import Stamped
from probes.recipe import Refused

End = Literal["complete", "lost", "garbage", "refused", "timeout", "cancelled"]
"""How a reply ended: whole; connection gone; bytes that aren't HTTP; no connection; by our clock; by our own wish."""

MAX_BODY = 64 << 20
"""Bytes of one reply that are kept; a server that sends more is cut off."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go: host and port to connect to, the path of chat completions, and whether to speak TLS."""

    host: str
    port: int
    path: str
    tls: bool

    @property
    def authority(self) -> str:
        """As the Host header wants it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def target(url: str) -> Target:
    """Read a server's base address, with or without `/v1` or the whole path. Raises `Refused` with one line."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise Refused(f"url {url!r}: {error}") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise Refused(f"url {url!r}: want http://HOST:PORT or https://HOST[:PORT], optionally with a path")
    if parts.username or parts.password:
        raise Refused("url: credentials don't belong in an address; name an environment variable with --header-env")
    path = parts.path.rstrip("/")
    if any(ord(c) <= 32 or ord(c) > 126 for c in path):
        raise Refused(f"url {url!r}: the path must be printable ASCII without spaces")
    if not path.endswith("/chat/completions"):
        path += "/chat/completions" if path.endswith("/v1") else "/v1/chat/completions"
    tls = parts.scheme == "https"
    return Target(parts.hostname, port or (443 if tls else 80), path, tls)


def encode(
    where: Target, body: bytes | None, headers: Mapping[str, str], path: str | None = None, accept: str = "*/*"
) -> bytes:
    """A whole HTTP/1.1 request: a POST of a JSON body, or a GET when there is none."""
    lines = [f"{'GET' if body is None else 'POST'} {path or where.path} HTTP/1.1", f"Host: {where.authority}"]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    lines += [f"Accept: {accept}", "User-Agent: draftdial-load"]
    for name, value in headers.items():
        if any(c in name + value for c in "\r\n\0") or not name or not name.isascii() or " " in name or ":" in name:
            raise Refused(f"header {name!r}: a header is NAME: VALUE on one line")
        lines.append(f"{name}: {value}")
    return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + (body or b"")


@dataclass(slots=True)
class Reply:
    """What came back for one request, unread: stamps are `time.monotonic()` seconds."""

    sent: float
    label: Any = None
    """Whatever the sender wants to find again here."""
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    parts: list[Stamped] = field(default_factory=list)
    received: int = 0
    done: float = 0.0
    end: End = "complete"
    error: str | None = None
    fresh: bool = True
    """Whether it was the connection's first request: a kept connection may have been closed meanwhile."""


class Connection(asyncio.Protocol):
    """A connection for one request at a time. `ended(connection, reply)` is called once for each request sent."""

    def __init__(self, ended: Callable[[Connection, Reply], None]) -> None:
        self._ended = ended
        self._transport: asyncio.Transport | None = None
        self._fd = -1
        self._reply: Reply | None = None
        self._parser: Any = None
        self._complete = False
        self._keep = True
        self._framed = False
        self._used = False

    @property
    def usable(self) -> bool:
        """Whether another request can be sent on it now."""
        open_ = self._transport is not None and not self._transport.is_closing()
        return open_ and self._reply is None and self._keep

    @property
    def reply(self) -> Reply | None:
        """Of the request under way."""
        return self._reply

    def send(self, data: bytes, label: Any = None) -> Reply:
        """Put a request on the wire, now; the stamp is taken just before."""
        transport = self._transport
        if transport is None or self._reply is not None:
            raise RuntimeError("one request at a time, on an open connection")
        self._parser = httptools.HttpResponseParser(self)
        self._complete = self._framed = False
        reply = self._reply = Reply(0.0, label, fresh=not self._used)
        self._used = True
        reply.sent = monotonic()
        if self._fd >= 0:
            # The loop would hold a write until the end of its turn, behind other connections' work: too late for the
            # stamp. The transport's buffer is empty here (one request at a time), so order is kept.
            try:
                count = os.write(self._fd, data)
            except OSError:
                count = 0
            if count == len(data):
                return reply
            data = data[count:]
        transport.write(data)
        return reply

    def close(self, end: End = "cancelled", error: str | None = None) -> None:
        """Cut the connection at once; a request under way ends so."""
        if self._transport is not None:
            self._transport.abort()
        self._keep = False
        self._finish(end, error)

    def _finish(self, end: End, error: str | None = None, now: float | None = None) -> None:
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.done = monotonic() if now is None else now
            reply.end, reply.error = end, error
            self._ended(self, reply)

    # ------------------------------------------------------------------------------------------- called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, and the socket itself where nothing (TLS) stands between."""
        self._transport = cast("asyncio.Transport", transport)
        if transport.get_extra_info("sslcontext") is None:
            with contextlib.suppress(AttributeError, OSError, ValueError):
                self._fd = transport.get_extra_info("socket").fileno()

    def data_received(self, data: bytes) -> None:
        """Stamp first; then only find out where the reply ends."""
        now = monotonic()
        reply = self._reply
        if reply is None:
            self._keep = False
            return
        reply.done = now
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.close("garbage", f"not HTTP: {type(error).__name__}")
            return
        if self._complete:
            self._finish("complete", now=now)
        elif reply.received > MAX_BODY:
            self.close("garbage", "the reply is larger than 64 MiB")

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side closed or broke it: for a body without a length that is its end."""
        self._fd = -1
        self._keep = False
        reply = self._reply
        if reply is None:
            return
        if exc is None and reply.status is not None and not self._framed:
            self._finish("complete")
        else:
            self._finish("lost", f"connection {'closed by the server' if exc is None else f'broken: {exc}'}")

    # ----------------------------------------------------------------------------------------- called by the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep what says how the body is framed and what it is."""
        key = name.decode("latin-1").lower()
        if key in {"content-length", "transfer-encoding"}:
            self._framed = True
        if self._reply is not None:
            self._reply.headers[key] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Keep the status."""
        if self._reply is not None:
            self._reply.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        """Keep the bytes under the stamp of the read that brought them."""
        reply = self._reply
        if reply is not None:
            reply.parts.append((reply.done, body))
            reply.received += len(body)

    def on_message_complete(self) -> None:
        """The reply is whole, unless it was only a "100 Continue"."""
        reply = self._reply
        if reply is not None and reply.status is not None and reply.status < 200:
            reply.status, reply.headers = None, {}
            self._framed = False
        else:
            self._complete = True
            # Only here: a moment later the parser has forgotten the message.
            self._keep = self._keep and bool(self._parser.should_keep_alive())


async def connect(
    where: Target, ended: Callable[[Connection, Reply], None], tls: ssl.SSLContext | None, timeout_s: float
) -> Connection:
    """Open a connection. Raises `OSError` (also for a time-out and for TLS trouble)."""
    loop = asyncio.get_running_loop()
    try:
        _, connection = await asyncio.wait_for(
            loop.create_connection(
                lambda: Connection(ended),
                where.host,
                where.port,
                ssl=tls,
                server_hostname=where.host if tls else None,
            ),
            timeout_s,
        )
    except TimeoutError:
        raise OSError(f"no connection to {where.authority} within {timeout_s:g} s") from None
    return connection
