"""The same load through TLS, with a certificate made on the spot."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path

import msgspec
import pytest
import uvloop

from probes.events import RequestDone, RequestSent
from probes.load.jobs import Order, build, carry_out

BODY = (
    b'data: {"choices":[{"delta":{"content":"hi"},"finish_reason":null}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\ndata: [DONE]\n\n'
)


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1 and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make a certificate with")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.lower().partition(b"content-length:")[2].partition(b"\r")[0]))
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(BODY)
            writer.write(head + BODY)
    except (OSError, asyncio.IncompleteReadError):
        writer.close()


@pytest.mark.parametrize("trusted", [True, False])
def test_a_certificate_must_be_trusted(
    trusted: bool, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = certificate
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    facts: list[RequestSent | RequestDone] = []

    async def main() -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(cert, key)
        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        wanted = [{"id": name, "body": {"max_tokens": 1}} for name in ("a", "b", "c")]
        job = build(msgspec.convert({"url": url, "requests": wanted}, Order))
        await asyncio.wait_for(carry_out(job, facts.append, []), 30)
        server.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    done = [fact for fact in facts if isinstance(fact, RequestDone)]
    assert [one.outcome for one in done] == (["ok"] * 3 if trusted else ["disconnected"] * 3)
    assert all("certificate" in str(one.error) for one in done if not trusted)
