"""What every dialect of the simulated engine must offer, and the parts of a chat completion that they share."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import exp
from typing import Any, Protocol

from probes.sim import draft
from probes.sim.core import Ask, Core
from probes.sim.draft import Drafts, Noise, Text
from probes.sim.tables import Table
from probes.sim.wire import Answer, Asked

CHAT = frozenset({"/v1/chat/completions", "/chat/completions"})


class BadStartError(Exception):
    """The server ends before it is up: lines as the real one prints them, and its exit code."""

    def __init__(self, lines: Iterable[str], code: int = 1) -> None:
        super().__init__()
        self.lines = list(lines)
        self.code = code


@dataclass(frozen=True, slots=True)
class World:
    """Everything around a simulated engine: its machine, seeds, noise, faults and where log lines go."""

    table: Table
    noise: Noise
    seed: str
    nth: int
    log: Callable[[float, str], None]
    """Takes the simulated second and the line's text; the dialect adds its own stamp."""
    wall: float = 0.0
    """Wall-clock time at simulated second 0."""
    fault: str = ""
    known: Mapping[str, str] = field(default_factory=dict)

    def stamp(self, at: float, form: str) -> str:
        """Local time at a simulated second."""
        return time.strftime(form, time.localtime(self.wall + at))

    def millis(self, at: float) -> int:
        """Thousandths of that second."""
        return int((self.wall + at) * 1000) % 1000


@dataclass(slots=True)
class Chat:
    """A chat completion under way: what the dialect needs to write its chunks."""

    ask: Ask
    text: Text
    body: Mapping[str, Any]
    stream: bool
    id: str
    created: int
    model: str
    usage: bool
    said: str = ""
    head: str = ""
    """The beginning of every chunk with text, written once: tens of thousands of them differ in nothing else."""


class Front(Protocol):
    """One dialect, set up from its argv. `boot` yields (simulated second, log line) up to readiness."""

    core: Core
    world: World
    host: str
    port: int
    binds_at_once: bool
    """Whether the port takes connections while the model loads."""

    def boot(self) -> Iterable[tuple[float, str]]:
        """The start, line by line. Raises `BadStartError` where it fails."""
        ...

    def ready(self, at: float) -> None:
        """It is up: periodic reports may begin."""
        ...

    def loading(self, asked: Asked) -> Answer | None:
        """What it answers while it loads; None: nothing, the connection hangs."""
        ...

    def get(self, asked: Asked) -> Answer:
        """Anything but chat."""
        ...

    def chat(self, asked: Asked) -> Chat | Answer:
        """Check a chat completion: refuse it, or make it ready to be submitted."""
        ...

    def started(self, chat: Chat) -> None:
        """A request was taken in: log it where the engine does."""
        ...

    def chunk(self, chat: Chat, text: str) -> bytes:
        """One event with new text (empty: the one with the role)."""
        ...

    def last(self, chat: Chat) -> list[bytes]:
        """The events that end a good stream, `[DONE]` included."""
        ...

    def whole(self, chat: Chat) -> dict[str, Any]:
        """The reply that is not streamed."""
        ...

    def failed(self, chat: Chat) -> tuple[Answer, list[bytes]]:
        """How a request ends that got no result: as a whole reply, and as events of a stream that is open."""
        ...

    def over(self, chat: Chat, at: float) -> None:
        """A request has ended: log it."""
        ...

    def access(self, asked: Asked, status: int, at: float) -> None:
        """A reply was sent: engines with access lines log it."""
        ...

    def no_port(self) -> list[str]:
        """The lines of a start that finds its port taken."""
        ...

    def stopping(self, at: float, name: str) -> int:
        """A signal came: last lines; the exit code."""
        ...

    def crash(self, at: float, kind: str) -> int:
        """A fault: the lines that a dying server prints; the exit code (negative: by that signal)."""
        ...


def said(body: Mapping[str, Any]) -> str:
    """All text of a chat's messages. Raises ValueError when it is no list of messages."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        raise ValueError("messages must be a non-empty array")
    parts: list[str] = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, str):
            parts.append(content)
        elif isinstance(content, list):
            parts += [str(p.get("text", "")) for p in content if isinstance(p, dict)]
    return "\n".join(parts)


def read(asked: Asked) -> dict[str, Any]:
    """A chat's body. Raises ValueError with what is wrong."""
    body = asked.json()
    if not isinstance(body, dict):
        raise ValueError("the body must be an object")  # noqa: TRY004  (one kind of error for whatever a client sends)
    said(body)
    return body


def whole(value: Any) -> int | None:
    """A count, or None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def one_reply(body: Mapping[str, Any]) -> None:
    """Raises ValueError where more replies than one are asked for: no dialect here makes them."""
    if body.get("n") not in {None, 1}:
        raise ValueError(f"n={body['n']}: only one choice is simulated")


def at_least(body: Mapping[str, Any], least: int) -> int | None:
    """The output limit that was asked for. Raises ValueError when it is no whole number from `least` on."""
    name = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}.")
    return value


def stops(body: Mapping[str, Any]) -> tuple[str, ...]:
    """The strings at which a reply is to end."""
    given = body.get("stop")
    texts = given if isinstance(given, list) else [given]
    return tuple(text for text in texts if isinstance(text, str) and text)


def wrong_method(asked: Asked, *paths: str) -> Answer | None:
    """FastAPI's refusal of a known path asked by another method; `paths`: those that are only read."""
    chat = asked.path in CHAT and asked.method != "POST"
    if chat or (asked.path in paths and asked.method not in {"GET", "HEAD"}):
        return Answer(405, {"detail": "Method Not Allowed"})
    return None


def make_chat(
    world: World, body: Mapping[str, Any], *, depth: int, limit: int, model: str, id: str, at: float,  # noqa: A002
    page: int = 0, seen: set[str] | None = None, eos: bool = True,
) -> Chat:  # fmt: skip
    """A request ready to be submitted. `limit`: tokens it may make; `page`: unit of the prefix cache (0: off)."""
    prompt = said(body)
    name = draft.digest(prompt)
    kind = draft.category(prompt, world.known)
    text = Text(world.table, kind, name, world.seed)
    length = text.length if eos else limit
    tokens = draft.tokens(prompt) + draft.TEMPLATE_TOKENS
    pace = exp(world.noise.request * random.Random(f"request/{world.seed}/{world.nth}/{name}/{depth}").gauss(0, 1))
    ask = Ask(
        name=id, prompt=tokens, limit=limit, output=max(1, min(limit, length)),
        finish="stop" if length < limit else "length",
        drafts=Drafts(world.table, kind, depth, name, world.noise, world.seed), kind=kind, hash=name, pace=pace,
    )  # fmt: skip
    if page and seen is not None:
        ask.cached = (tokens - 1) // page * page if name in seen else 0
        seen.add(name)
    options = body.get("stream_options")
    usage = isinstance(options, Mapping) and bool(options.get("include_usage"))
    return Chat(ask, text, body, bool(body.get("stream")), id, int(world.wall + at), model, usage)


def event(chat: Chat, choices: list[dict[str, Any]], **more: Any) -> bytes:
    """One chunk of a stream as JSON."""
    head = {"id": chat.id, "object": "chat.completion.chunk", "created": chat.created, "model": chat.model}
    return json.dumps({**head, "choices": choices, **more}, separators=(",", ":")).encode()


def delta(chat: Chat, text: str, **more: Any) -> bytes:
    """A chunk with new text, plain words that need no escapes; the first has the role and none."""
    if not text:
        part = {"role": "assistant", "content": ""}
        return event(chat, [{"index": 0, "delta": part, "finish_reason": None}], **more)
    if not chat.head:
        whole = event(chat, [{"index": 0, "delta": {"content": "\n"}, "finish_reason": None}]).decode()
        chat.head = whole.partition("\\n")[0]
    rest = "".join(f',"{name}":{json.dumps(value, separators=(",", ":"))}' for name, value in more.items())
    return f'{chat.head}{text}"}},"finish_reason":null}}]{rest}}}'.encode()


def usage(ask: Ask) -> dict[str, Any]:
    """The usage object."""
    return {
        "prompt_tokens": ask.prompt,
        "completion_tokens": ask.made,
        "total_tokens": ask.prompt + ask.made,
        "prompt_tokens_details": {"cached_tokens": ask.cached},
    }


def timings(ask: Ask) -> dict[str, Any]:
    """llama.cpp's `timings`, which ninfer has too: milliseconds; drafts only where there were any."""
    first, last = ask.first or 0.0, ask.ended if ask.ended is not None else 0.0
    prompt_ms = 1000 * (first - (ask.admitted or 0.0))
    spent_ms = max(0.0, 1000 * (last - first))
    fresh, rest = ask.prompt - ask.cached, max(ask.made - 1, 0)
    found: dict[str, Any] = {
        "cache_n": ask.cached,
        "prompt_n": fresh,
        "prompt_ms": round(prompt_ms, 3),
        "prompt_per_token_ms": round(prompt_ms / max(fresh, 1), 6),
        "prompt_per_second": round(1000 * fresh / prompt_ms, 6) if prompt_ms else 0.0,
        "predicted_n": ask.made,
        "predicted_ms": round(spent_ms, 3),
        "predicted_per_token_ms": round(spent_ms / rest, 6) if rest else 0.0,
        "predicted_per_second": round(1000 * rest / spent_ms, 6) if spent_ms else 0.0,
    }
    if ask.drafted:
        found |= {"draft_n": ask.drafted, "draft_n_accepted": ask.accepted}
    return found
