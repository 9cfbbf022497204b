"""Which engine answers at a URL, and which local process that is. Asked once, when someone attaches to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil

from probes.credentials import bearer
from probes.load.simtime import SPEED
from probes.recipe import Refused
from probes.server import ask

OWN = frozenset({"", "/v1", "/v1/models", "/v1/chat/completions", "/v1/completions", "/health", "/metrics"})
"""Paths that people copy with the address and that every engine has."""
PATHS = ("/v1/models", "/props", "/server_info", "/get_server_info", "/version", "/health")


def checked(url: str) -> str:
    """The URL's scheme, host and port, to which paths are added. Raises `Refused`."""
    whole = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(whole)
        port = parts.port
    except ValueError as problem:
        raise Refused(f"{url}: not a URL: {problem}") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise Refused(f"{url}: want http://HOST:PORT or https://…")
    if parts.username or parts.password:
        raise Refused("a URL with a password ends in logs; leave it out (headers come from the environment)")
    if parts.path.rstrip("/") not in OWN:
        raise Refused(
            f"{url}: scheme, host and port are enough; a server behind a path such as {parts.path} is not reached"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" + (f":{port}" if port else "")


def told(replies: Mapping[str, Any]) -> str | None:
    """The engine that these replies give away; None when they don't."""
    listed = replies.get("/v1/models")
    served = listed.get("data") if isinstance(listed, dict) else None
    owners = [str(m.get("owned_by", "")).lower() for m in served or [] if isinstance(m, dict)]
    for owner, engine in (("llamacpp", "llamacpp"), ("vllm", "vllm"), ("sglang", "sglang"), ("ninfer", "ninfer")):
        if any(owner in o.replace(".", "") for o in owners):
            return engine
    props = replies.get("/props")
    if isinstance(props, dict) and "total_slots" in props:
        return "llamacpp"
    if any(isinstance(replies.get(p), dict) and "server_args" in str(replies[p])[:20000] for p in PATHS[2:4]):
        return "sglang"
    if any(isinstance(replies.get(p), dict) and "max_total_num_tokens" in replies[p] for p in PATHS[2:4]):
        return "sglang"
    return None


async def engine_at(url: str, named: str | None = None, headers: Mapping[str, str] | None = None) -> str:
    """The engine at a URL. Raises `Refused` when nothing answers or nothing gives the engine away.

    `named`: what it is said to be; that is believed unless its replies give another engine away.
    """
    with contextlib.suppress(httpx.HTTPError):
        replies = await ask(url, PATHS, headers)
        found = told(replies)
        if named and found and found != named:
            raise Refused(f"{url}: it answers as {found}, not as {named}; leave --engine out")
        if named or found:
            return named or found or ""
        if any(reply is not None for reply in replies.values()):
            raise Refused(f"{url}: it answers, but not as any engine known here; name it with --engine")
    raise Refused(f"{url}: nothing answers there")


def process_at(url: str) -> int | None:
    """The pid that listens at a URL on this machine; None when it is elsewhere or can't be seen."""
    parts = urlsplit(url)
    if parts.hostname not in {"127.0.0.1", "localhost", "::1", "0.0.0.0"}:
        return None
    with contextlib.suppress(psutil.Error, OSError):
        for found in psutil.net_connections("tcp"):
            if found.laddr and found.laddr.port == parts.port and found.status == psutil.CONN_LISTEN:
                return found.pid
    return None


@dataclass(frozen=True, slots=True)
class Found:
    """A server that answers: its URL, engine, and where it is local its process group and command line."""

    url: str
    engine: str
    pgid: int | None = None
    argv: tuple[str, ...] = ()
    speed: float | None = None
    """How many times faster than real its time runs, where it says that it is simulated; None: it does not say so."""


async def simulated_at(url: str) -> float | None:
    """The speed of a simulated engine, which every reply of one names; None: a real one, or nothing answers."""
    with contextlib.suppress(httpx.HTTPError):
        async with httpx.AsyncClient(trust_env=False, timeout=5.0) as http:
            told = (await http.get(f"{url}/health")).headers.get(SPEED, "")
            with contextlib.suppress(ValueError):
                return float(told)
    return None


def whole(url: str, engine: str | None, key: str | None = None) -> Found:
    """What is known of the server at a URL; `key`: the variable that holds its API key. Raises `Refused`."""
    base = checked(url)
    name = asyncio.run(engine_at(base, engine, bearer(key)))
    speed = asyncio.run(simulated_at(base))
    pid = process_at(base)
    if pid is not None:
        with contextlib.suppress(OSError, psutil.Error):
            return Found(base, name, os.getpgid(pid), tuple(psutil.Process(pid).cmdline()), speed)
    return Found(base, name, speed=speed)
