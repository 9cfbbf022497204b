"""HTTP for the simulated engines: requests in, fixed replies or event streams out, on asyncio. Knows no engine.

Every reply says that it is simulated, and how much faster than real its time runs; events of a stream then carry the
simulated time since their request came, as comments, since a fast clock multiplies every delay of the network.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import httptools

REASONS = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed",
    413: "Payload Too Large", 422: "Unprocessable Entity", 429: "Too Many Requests", 500: "Internal Server Error",
    501: "Not Implemented", 503: "Service Unavailable", 504: "Gateway Timeout",
}  # fmt: skip
MAX_BODY = 64 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole reply: an object to send as JSON, or text."""

    status: int
    body: Any = None
    kind: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)

    def content(self) -> bytes:
        """The body's bytes."""
        if isinstance(self.body, bytes):
            return self.body
        return self.body.encode() if isinstance(self.body, str) else json.dumps(self.body).encode()


@dataclass(slots=True)
class Asked:
    """One HTTP request, whole."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON. Raises ValueError."""
        try:
            return json.loads(self.body)
        except RecursionError:
            raise ValueError("nested too deeply") from None


Handle = Callable[["Client", Asked], None]


class Client(asyncio.Protocol):
    """One connection. `gone` is called when the client leaves while its reply is under way."""

    def __init__(self, handle: Handle, marks: Callable[[], Mapping[str, str]]) -> None:
        self._handle = handle
        self._marks = marks
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._keep = True
        self._chunked = False
        self._bodiless = False
        self._length = 0
        self.gone: Callable[[], None] | None = None

    # -------------------------------------------------------------------------------------------- called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (asyncio's signature)
        """It is gone."""
        self._transport = None
        gone, self.gone = self.gone, None
        if gone is not None:
            gone()

    def data_received(self, data: bytes) -> None:
        """Bytes."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._keep = False
            self.answer(Answer(400, {"error": "malformed HTTP"}))

    # ------------------------------------------------------------------------------------------ called by the parser

    def on_message_begin(self) -> None:
        """Another request."""
        self._url, self._headers, self._body, self._length = b"", {}, bytearray(), 0

    def on_url(self, url: bytes) -> None:
        """Its target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        """Part of its body."""
        self._length += len(body)
        if self._length <= MAX_BODY:
            self._body += body
        else:
            self._body.clear()

    def on_message_complete(self) -> None:
        """It is whole."""
        self._keep = bool(self._parser.should_keep_alive())
        method = self._parser.get_method().decode()
        self._bodiless = method == "HEAD"
        if self._length > MAX_BODY:
            why = f"the body has {self._length} bytes; this simulator takes {MAX_BODY}"
            self.answer(Answer(413, {"error": {"message": why, "type": "invalid_request_error", "param": None,
                                               "code": "request_too_large"}}))  # fmt: skip
            return
        path = self._url.decode("latin-1").partition("?")[0]
        self._handle(self, Asked(method, path, self._headers, bytes(self._body)))

    # ------------------------------------------------------------------------------------------------ out

    @property
    def open(self) -> bool:
        """Whether anything can still be written."""
        return self._transport is not None and not self._transport.is_closing()

    def answer(self, answer: Answer) -> None:
        """A whole reply."""
        content = answer.content()
        more = {"Content-Type": answer.kind, "Content-Length": str(len(content)), **answer.headers}
        self._write(self._head(answer.status, more) + (b"" if self._bodiless else content))
        self._end()

    def begin(self, headers: Mapping[str, str]) -> None:
        """The head of an event stream."""
        self._chunked = True
        more = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "Transfer-Encoding": "chunked"}
        self._write(self._head(200, {**more, **headers}))

    def event(self, data: bytes, comment: str | None = None) -> None:
        """One event, or a comment alone when `data` is empty."""
        text = (f": {comment}\n\n".encode() if comment else b"") + (b"data: " + data + b"\n\n" if data else b"")
        self._write(b"%x\r\n%s\r\n" % (len(text), text))

    def finish(self) -> None:
        """The stream's end."""
        self._write(b"0\r\n\r\n")
        self._chunked = False
        self._end()

    def cut(self) -> None:
        """Break the connection."""
        self.gone = None
        if self._transport is not None:
            self._transport.abort()

    def _head(self, status: int, headers: Mapping[str, str]) -> bytes:
        lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Unknown')}"]
        lines += [f"{name}: {value}" for name, value in {**headers, **self._marks()}.items()]
        if not self._keep:
            lines.append("Connection: close")
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _end(self) -> None:
        self.gone = None
        if not self._keep and self._transport is not None:
            self._transport.close()
