"""One HTTP connection that stamps bytes as they arrive and keeps them; it reads no JSON and decides nothing.

Why so bare: whatever happens between a packet's arrival and its stamp is an error of the measurement. Where the kernel
tells when it took a packet in (Linux, no TLS), that is the stamp: then not even a loop that has to wait for its turn on
a busy machine makes it late. Elsewhere it is taken as the bytes are read.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic, time
from typing import Any, Literal, cast
from urllib.parse import urlsplit

import httptools

from probes.load.sse import Stamped
from probes.recipe import Refused

End = Literal["complete", "lost", "garbage", "refused", "timeout", "cancelled"]
"""How a reply ended: whole; connection gone; bytes that aren't HTTP; no connection; by our clock; by our own wish."""

SO_TIMESTAMPNS = 35
"""Linux: stamp received packets; the stamp comes as a message of the same number, a `struct timespec`."""
TIMESPEC = struct.Struct("qq")
ANCILLARY_SIZE = socket.CMSG_SPACE(TIMESPEC.size)
READ_SIZE = 1 << 16
LATE_S = 5.0
"""A packet can't have waited longer than this to be read; a larger difference is a wall clock that was set."""
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


def wall_offset() -> float:
    """What to take from the wall clock to get `time.monotonic()`: the same until someone sets the wall clock."""
    before = monotonic()
    return time() - (before + monotonic()) / 2


def arrival(ancillary: Sequence[tuple[int, int, bytes]], offset: float) -> float:
    """When the kernel took the bytes in, on the `time.monotonic()` scale; now, if it does not say or can't be right.

    The kernel stamps with the wall clock. Where several packets are read at once it is the last one's time.
    """
    now = monotonic()
    if not ancillary:
        return now
    data = ancillary[0][2]
    if len(data) != TIMESPEC.size:
        return now
    seconds, nanoseconds = TIMESPEC.unpack(data)
    stamp: float = seconds - offset + nanoseconds * 1e-9
    return stamp if now - LATE_S < stamp <= now else now


class Connection(asyncio.Protocol):
    """A connection for one request at a time. `ended(connection, reply)` is called once for each request sent.

    It holds a plain socket that it reads itself, or, for TLS, the loop's transport.
    """

    def __init__(self, ended: Callable[[Connection, Reply], None], sock: socket.socket | None = None) -> None:
        self._ended = ended
        self._offset = wall_offset()
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._transport: asyncio.Transport | None = None
        self._reply: Reply | None = None
        self._parser: Any = None
        self._complete = False
        self._keep = True
        self._framed = False
        self._used = False
        if sock is not None:
            self._receive = sock.recvmsg
            self._loop.add_reader(sock.fileno(), self._readable)

    @property
    def usable(self) -> bool:
        """Whether another request can be sent on it now."""
        transport = self._transport
        is_open = self._sock is not None or (transport is not None and not transport.is_closing())
        return is_open and self._reply is None and self._keep

    @property
    def reply(self) -> Reply | None:
        """Of the request under way."""
        return self._reply

    def send(self, data: bytes, label: Any = None) -> Reply:
        """Put a request on the wire, now; the stamp is taken just before."""
        if self._reply is not None or (self._sock is None and self._transport is None):
            raise RuntimeError("one request at a time, on an open connection")
        self._parser = httptools.HttpResponseParser(self)
        self._feed = self._parser.feed_data
        self._complete = self._framed = False
        reply = self._reply = Reply(0.0, label, fresh=not self._used)
        self._used = True
        self._offset = wall_offset()
        reply.sent = monotonic()
        if self._sock is not None:
            self._write(data)
        elif self._transport is not None:
            self._transport.write(data)
        return reply

    def _write(self, data: bytes) -> None:
        """Straight to the socket: a transport holds it until the end of the loop's turn, too late for the stamp."""
        sock = self._sock
        if sock is None:
            return
        try:
            data = data[sock.send(data) :]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            # Not from within `send`: whoever sends must have its reply first.
            self._loop.call_soon(self.connection_lost, error)
            return
        self._loop.remove_writer(sock.fileno())
        if data:
            self._loop.add_writer(sock.fileno(), self._write, data)

    def close(self, end: End = "cancelled", error: str | None = None) -> None:
        """Cut the connection at once; a request under way ends so."""
        self._keep = False
        if self._transport is not None:
            self._transport.abort()
        self._drop_socket()
        self._finish(end, error)

    def _drop_socket(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None:
            self._loop.remove_reader(sock.fileno())
            self._loop.remove_writer(sock.fileno())
            sock.close()

    def _finish(self, end: End, error: str | None = None, now: float | None = None) -> None:
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.done = monotonic() if now is None else now
            reply.end, reply.error = end, error
            self._ended(self, reply)

    # ------------------------------------------------------------------------------------------- called by the loop

    def _readable(self) -> None:
        try:
            data, ancillary, _, _ = self._receive(READ_SIZE, ANCILLARY_SIZE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.connection_lost(error)
            return
        if data:
            self._take(data, arrival(ancillary, self._offset))
        else:
            self.connection_lost(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """TLS is up."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Bytes out of TLS."""
        self._take(data, monotonic())

    def _take(self, data: bytes, stamp: float) -> None:
        """Keep bytes and their stamp, and find out where the reply ends; nothing else yet."""
        reply = self._reply
        if reply is None:
            self._keep = False
            return
        reply.done = stamp
        reply.received += len(data)
        try:
            self._feed(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.close("garbage", f"not HTTP: {type(error).__name__}")
            return
        if self._complete:
            self._finish("complete", now=stamp)
        elif reply.received > MAX_BODY:
            self.close("garbage", "the reply is larger than 64 MiB")

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side closed or broke it: for a body without a length that is its end."""
        self._keep = False
        self._drop_socket()
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
        async with asyncio.timeout(timeout_s):
            if tls is None:
                return Connection(ended, await _plain(where))
            _, connection = await loop.create_connection(
                lambda: Connection(ended), where.host, where.port, ssl=tls, server_hostname=where.host
            )
            return connection
    except TimeoutError:
        raise OSError(f"no connection to {where.authority} within {timeout_s:g} s") from None
    except UnicodeError as error:
        raise OSError(f"{where.host[:80]!r} is no host name: {error}") from None


async def _plain(where: Target) -> socket.socket:
    """A connected socket whose packets the kernel stamps, if it can."""
    loop = asyncio.get_running_loop()
    trouble: OSError | None = None
    for family, kind, protocol, _, address in await loop.getaddrinfo(where.host, where.port, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            trouble = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise trouble or OSError(f"{where.host} has no address")
