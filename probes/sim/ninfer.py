"""The simulated ninfer: reservation admission, log of September 2026, the API with `timings`.

A request is let in when a lane is free, no other prompt is being computed and its whole output fits the pool of
64-token pages; it keeps them until its end. First come, first served; nothing is ever put back.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from probes.sim import _ninfer_text as text
from probes.sim import front
from probes.sim._ninfer_args import USAGE, Options, parse
from probes.sim.core import Ask, Core, Step
from probes.sim.front import BadStartError, Chat, World, usage
from probes.sim.wire import Answer, Asked

PAGE = 64
TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Ninfer:
    """One server."""

    binds_at_once = True

    def __init__(self, argv: list[str], world: World) -> None:
        if argv[:1] in (["-h"], ["--help"]):
            sys.stdout.write("\n".join(USAGE) + "\n")
            raise BadStartError([], 0)
        try:
            self.options: Options = parse(argv)
        except ValueError as problem:
            raise BadStartError([f"ninfer-serve: {problem}", *USAGE]) from None
        self.world = world
        self.host, self.port = self.options.host, self.options.port
        self.model = self.options.model_id or world.table.model
        o = self.options
        self.pages = -(-o.kv_capacity // PAGE)
        self.worst = o.lanes * -(-o.max_context // PAGE)
        if o.auto:
            self.pages = max(
                -(-o.max_context // PAGE), min(self.worst, int(world.table.memory.get("auto_pages", 4096)))
            )
        self.core = Core(self, world.table, world.noise, world.noise.pace(world.seed, world.nth))
        self._held: dict[str, int] = {}
        self._count = 0
        self._seen: set[str] = set()
        self._report = text.Report()
        self._turn = False

    # ------------------------------------------------------------------------------------------------ mechanics

    def claim(self, ask: Ask) -> int:
        """Pages promised to a request for as long as it lives."""
        return -(-(ask.prompt + max(self.effective(ask), 1) - 1) // PAGE)

    def effective(self, ask: Ask) -> int:
        """Output that it may make: cut where the context ends."""
        return min(ask.limit, self.options.max_context - ask.prompt + 1)

    def arrive(self, core: Core, ask: Ask) -> None:
        """Queue it while there is room for one more outstanding request; it has a deadline."""
        if len(core.queue) + len(core.running) >= self.options.lanes + self.options.pending:
            core.end(ask, "overloaded")
            return
        core.queue.append(ask)

        def expire() -> None:
            if ask in core.queue:
                core.end(ask, "queue_timeout")

        core.when(core.at + self.options.pending_ms / 1000, expire)

    def admit(self, core: Core) -> None:
        """The head of the queue, if a lane, the pages and the prompt stage are free."""
        while core.queue and len(core.running) < self.options.lanes:
            if any(not ask.decoding for ask in core.running):
                return
            head = core.queue[0]
            pages = self.claim(head)
            if sum(self._held.values()) + pages > self.pages:
                return
            self._held[head.name] = pages
            core.start(head)

    def plan(self, core: Core) -> Step | None:
        """A chunk of the one prompt under way and a round of those that decode take turns."""
        rows = [ask for ask in core.running if ask.decoding]
        prefill = next((ask for ask in core.running if not ask.decoding), None)
        self._turn = not self._turn
        if prefill is not None and (self._turn or not rows):
            part = min(self.options.chunk, prefill.need - prefill.computed)
            return Step(prefill=[(prefill, part)], depth=self.options.depth)
        return Step(rows=rows, depth=self.options.depth) if rows else None

    def stepped(self, core: Core, step: Step) -> None:  # noqa: ARG002  (the policy's signature)
        """Count for the next report."""
        self._report.step(step)

    def freed(self, core: Core, ask: Ask) -> None:  # noqa: ARG002  (the policy's signature)
        """Its promise is free."""
        self._held.pop(ask.name, None)

    # ------------------------------------------------------------------------------------------------ life

    def boot(self) -> Iterable[tuple[float, str]]:
        """Load, announce capacity, listen."""
        return text.boot(self.options, self.world, self.pages, self.worst, self.model)

    def ready(self, at: float) -> None:
        """Begin the periodic reports."""
        every = self.options.stats_ms / 1000
        if every <= 0:
            return

        def report() -> None:
            line = self._report.line(self.core, every)
            if line:
                self._info(self.core.at, line)
            self._report = text.Report()
            self.core.when(self.core.at + every, report)

        self.core.when(at + every, report)

    def loading(self, asked: Asked) -> Answer | None:  # noqa: ARG002
        """It accepts no connection while it loads."""
        return None

    def no_port(self) -> list[str]:
        """It cannot bind."""
        return [text.line(self.world, 0.0, "ERROR", f"cannot bind {self.host}:{self.port}")]

    def stopping(self, at: float, name: str) -> int:  # noqa: ARG002
        """It stops at once."""
        self._info(at, "server stopped")
        return 0

    def crash(self, at: float, kind: str) -> int:
        """A device error ends the process; out of memory is one too."""
        why = "CUDA error: out of memory" if kind == "oom" else "CUDA error: an illegal memory access was encountered"
        self.world.log(at, text.line(self.world, at, "FATAL", f"engine failed | {why}"))
        return 1 if kind == "oom" else -6

    def access(self, asked: Asked, status: int, at: float) -> None:
        """There are no access lines."""

    # ------------------------------------------------------------------------------------------------ requests

    def get(self, asked: Asked) -> Answer:
        """Health and the model list; there are no metrics."""
        model = {"id": self.model, "object": "model", "created": int(self.world.wall), "owned_by": "ninfer",
                 "max_model_len": self.options.max_context, "simulated": True}  # fmt: skip
        if not self._allowed(asked):
            return _error(401, "invalid_api_key", "invalid API key")
        if asked.method not in {"GET", "HEAD"}:
            return _error(404, "not_found", f"no route for {asked.method} {asked.path}")
        if asked.path == "/health":
            return Answer(200, {"status": "ok"})
        if asked.path == "/v1/models":
            return Answer(200, {"object": "list", "data": [model]})
        if asked.path == f"/v1/models/{self.model}":
            return Answer(200, model)
        return _error(404, "not_found", f"no route for {asked.method} {asked.path}")

    def chat(self, asked: Asked) -> Chat | Answer:
        """Refusals here leave no line in the log."""
        if not self._allowed(asked):
            return _error(401, "invalid_api_key", "invalid API key")
        try:
            body = front.read(asked)
        except ValueError:
            return _error(400, None, "request body must be a JSON object with messages")
        if refusal := self._checked(body):
            return refusal
        try:
            limit = front.at_least(body, 0)
        except ValueError as problem:
            return _error(400, None, str(problem), "max_tokens")
        limit = self.options.default_max_tokens if limit is None else limit
        self._count += 1
        chat = front.make_chat(
            self.world, body, depth=self.options.depth, limit=limit, model=self.model, id=f"req#{self._count}",
            at=self.core.at, page=0 if self.options.no_reuse else PAGE, seen=self._seen,
        )  # fmt: skip
        ask = chat.ask
        if ask.prompt > self.options.max_context:
            self._info(self.core.at, f"{ask.name} rejected during prepare | {text.protocol(chat)} | HTTP 400 | "
                       "context length exceeded | messages 1")  # fmt: skip
            return _error(400, "context_length_exceeded", "prompt exceeds the maximum context length")
        room = self.effective(ask)
        if ask.output > room:
            ask.output, ask.finish = room, "length"
        return chat

    def _allowed(self, asked: Asked) -> bool:
        """Whether it has the key, where one is needed: everywhere but at /health."""
        key = self.options.api_key
        return not key or asked.path == "/health" or asked.headers.get("authorization") == f"Bearer {key}"

    def _checked(self, body: Mapping[str, Any]) -> Answer | None:
        if body.get("model") != self.model:
            return _error(404, "model_not_found", f"The model '{body.get('model')}' does not exist")
        for name in ("logprobs", "logit_bias", "response_format"):
            if body.get(name):
                return _error(400, f"{name}_not_supported", f"{name} is not supported")
        if body.get("n") not in {None, 1}:
            return _error(400, "n_not_supported", "n must be 1", "n")
        if len(front.stops(body)) > 4:
            return _error(400, None, "stop takes 4 strings at most", "stop")
        tools = body.get("tools")
        for place, tool in enumerate(tools if isinstance(tools, list) else []):
            function = tool.get("function") if isinstance(tool, dict) else None
            name = str(function.get("name", "")) if isinstance(function, dict) else ""
            if not TOOL_NAME.fullmatch(name):
                param = f"tools[{place}].function.name"
                return _error(400, None, f"{param} must match [A-Za-z0-9_-]{{1,64}}", param)
        return None

    def started(self, chat: Chat) -> None:
        """It was taken in, and may still wait."""
        self._info(self.core.at, text.started(chat))

    def chunk(self, chat: Chat, words: str) -> bytes:
        """Text, with running counts where they were asked for."""
        if words and chat.body.get("timings_per_token"):
            ask = chat.ask
            counts = {"predicted_n": ask.made, "prompt_n": ask.prompt - ask.cached, "cache_n": ask.cached}
            return front.delta(chat, words, timings=counts)
        return front.delta(chat, words)

    def last(self, chat: Chat) -> list[bytes]:
        """Finish, usage with timings, end mark."""
        finish = [{"index": 0, "delta": {}, "finish_reason": chat.ask.finish}]
        if not chat.usage:
            return [front.event(chat, finish, timings=front.timings(chat.ask)), b"[DONE]"]
        ends = front.event(chat, [], usage=usage(chat.ask), timings=front.timings(chat.ask))
        return [front.event(chat, finish), ends, b"[DONE]"]

    def whole(self, chat: Chat) -> dict[str, Any]:
        """The reply in one piece."""
        message = {"role": "assistant", "content": chat.said.strip(), "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": chat.ask.finish}
        head = {"id": chat.id, "object": "chat.completion", "created": chat.created, "model": chat.model}
        return {**head, "choices": [choice], "usage": usage(chat.ask), "timings": front.timings(chat.ask)}

    def failed(self, chat: Chat) -> tuple[Answer, list[bytes]]:
        """429 at once, 503 after the deadline; inside an open stream the status is hidden in an error frame."""
        answer = (
            _error(429, "server_overloaded", "inference request queue is full")
            if chat.ask.outcome == "overloaded"
            else _error(503, "request_queue_timeout", "inference request expired while waiting for admission")
        )
        return answer, [json.dumps(answer.body).encode()]

    def over(self, chat: Chat, at: float) -> None:
        """Its line in the log."""
        level, line = text.ended(chat, self.options.spec)
        self.world.log(at, text.line(self.world, at, level, line))

    def _info(self, at: float, words: str) -> None:
        self.world.log(at, text.line(self.world, at, "INFO", words))


def _error(status: int, code: str | None, message: str, param: str | None = None) -> Answer:
    kind = "invalid_request_error" if status < 500 and status != 429 else "server_error"
    return Answer(status, {"error": {"message": message, "type": kind, "param": param, "code": code}})
