"""The simulated vLLM: blocks taken on demand, a budget of tokens a step, preemption that no log line tells of.

A step serves the running requests first (each its next token and drafts, or a part of its prompt), then lets in what
waits while budget, lanes and blocks for the whole prompt last. Where a running request finds no block, the last one
that came is put back and computed anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from probes.sim import _vllm_text as text
from probes.sim import front
from probes.sim._vllm_args import Plan, parse
from probes.sim.core import Ask, Core, Step
from probes.sim.front import Chat, World
from probes.sim.wire import Answer, Asked


class Vllm:
    """One server."""

    binds_at_once = False

    def __init__(self, argv: list[str], world: World) -> None:
        self.plan_: Plan = parse(argv, world.table)
        self.world = world
        args = self.plan_.args
        self.host, self.port = args["host"] or "127.0.0.1", args["port"] or 8000
        names = args["served_model_name"]
        self.model = names[0] if names else args["model_tag"]
        self.core = Core(self, world.table, world.noise, world.noise.pace(world.seed, world.nth))
        self.counts = text.Counts()
        self._count = 0
        self._seen: set[str] = set()
        self._silent = True
        self._put_back = False
        self._slots: dict[str, int] = {}

    # ------------------------------------------------------------------------------------------------ mechanics

    def blocks(self, tokens: int) -> int:
        """Blocks that so many tokens take."""
        return -(-tokens // self.plan_.block)

    @property
    def used(self) -> int:
        """Blocks taken."""
        return sum(self._slots.values())

    @property
    def total(self) -> int:
        """Blocks that can be taken: one is always held."""
        return self.plan_.blocks - 1

    def arrive(self, core: Core, ask: Ask) -> None:
        """Queue it."""
        core.queue.append(ask)

    def admit(self, core: Core) -> None:
        """Is done while a step is planned."""

    def plan(self, core: Core) -> Step | None:
        """Running requests first, then those that wait, until the budget is spent."""
        p, budget = self.plan_, self.plan_.batch
        step = Step(depth=p.depth)
        self._put_back = False
        for ask in list(core.running):
            if ask not in core.running or budget <= 0:
                continue
            want = 1 + p.depth if ask.decoding else ask.need - ask.computed
            part = min(want, budget)
            if not self._take(core, ask, ask.computed + part):
                continue
            budget -= part
            if ask.decoding:
                step.rows.append(ask)
            else:
                step.prefill.append((ask, part))
        while core.queue and budget > 0 and len(core.running) < p.seqs and not self._put_back:
            head = core.queue[0]
            need = self.blocks(head.context)
            if self.used + need > self.total:
                break
            core.start(head)
            part = min(head.need - head.computed, budget)
            self._slots[head.name] = self.blocks(head.computed + part)
            budget -= part
            step.prefill.append((head, part))
        step.rows = [ask for ask in step.rows if ask in core.running]
        step.prefill = [(ask, n) for ask, n in step.prefill if ask in core.running]
        return step if step.rows or step.prefill else None

    def _take(self, core: Core, ask: Ask, tokens: int) -> bool:
        """Blocks for a running request; others are put back for it, the last that came first, in the end itself."""
        need = self.blocks(tokens)
        while self.used - self._slots.get(ask.name, 0) + need > self.total:
            last = core.running[-1]
            core.back(last)
            self.counts.preempted += 1
            self._put_back = True
            if last is ask:
                return False
        self._slots[ask.name] = max(need, self._slots.get(ask.name, 0))
        return True

    def stepped(self, core: Core, step: Step) -> None:
        """Count."""
        self.counts.step(step)
        for ask in core.running:
            self._slots[ask.name] = max(self._slots.get(ask.name, 0), self.blocks(ask.computed))

    def freed(self, core: Core, ask: Ask) -> None:  # noqa: ARG002  (the policy's signature)
        """Its blocks are free."""
        self._slots.pop(ask.name, None)

    # ------------------------------------------------------------------------------------------------ life

    def boot(self) -> Iterable[tuple[float, str]]:
        """Load, profile, capture, listen."""
        return text.boot(self.plan_, self.world, self.host, self.port)

    def ready(self, at: float) -> None:
        """A line of figures every ten seconds, silent after the first idle one."""

        def report() -> None:
            lines, idle = self.counts.lines(self.core, self.used / self.total, text.INTERVAL)
            if not (idle and self._silent):
                for words in lines:
                    self.world.log(self.core.at, text.line(self.world, self.core.at, words))
            self._silent = idle
            self.core.when(self.core.at + text.INTERVAL, report)

        if not self.plan_.args["disable_log_stats"]:
            self.core.when(at + text.INTERVAL, report)

    def loading(self, asked: Asked) -> Answer | None:  # noqa: ARG002
        """The port opens last."""
        return None

    def no_port(self) -> list[str]:
        """It finds its port taken."""
        return ["Traceback (most recent call last):", "OSError: [Errno 98] Address already in use"]

    def stopping(self, at: float, name: str) -> int:  # noqa: ARG002
        """It ends in order."""
        for words in ("Shutting down", "Waiting for application shutdown.", "Application shutdown complete."):
            self.world.log(at, f"(APIServer pid=4700) INFO:     {words}")
        return 0

    def crash(self, at: float, kind: str) -> int:
        """The engine dies; the API server follows."""
        for words in text.crash(self.world, at, kind):
            self.world.log(at, words)
        return 1

    def access(self, asked: Asked, status: int, at: float) -> None:
        """The web server's line."""
        if not self.plan_.args["disable_uvicorn_access_log"]:
            reason = {200: "OK", 404: "Not Found"}.get(status, "Bad Request")
            words = f'INFO:     127.0.0.1:41000 - "{asked.method} {asked.path} HTTP/1.1" {status} {reason}'
            self.world.log(at, f"(APIServer pid=4700) {words}")

    # ------------------------------------------------------------------------------------------------ requests

    def get(self, asked: Asked) -> Answer:
        """What the server says of itself."""
        if refusal := front.wrong_method(asked, "/health", "/version", "/v1/models", "/metrics"):
            return refusal
        if asked.path in {"/health", "/ping"}:
            return Answer(200, "")
        if asked.path == "/version":
            return Answer(200, {"version": text.VERSION})
        if asked.path == "/v1/models":
            card = {"id": self.model, "object": "model", "owned_by": "vllm", "max_model_len": self.plan_.context}
            return Answer(200, {"object": "list", "data": [card | {"simulated": True}]})
        if asked.path == "/metrics":
            body = text.metrics(self.plan_, self.core, self.used / self.total, self.counts, self.model)
            return Answer(200, body, "text/plain; version=0.0.4")
        return Answer(404, {"detail": "Not Found"})

    def chat(self, asked: Asked) -> Chat | Answer:
        """Refusals name the parameter."""
        try:
            body = front.read(asked)
            front.one_reply(body)
            limit = front.at_least(body, 1)
        except ValueError as problem:
            return _error(400, str(problem))
        if body.get("model", self.model) != self.model:
            return _error(404, f"The model `{body.get('model')}` does not exist.", "NotFoundError")
        p = self.plan_
        if limit is not None and limit > p.context:
            return _error(400, f"max_tokens={limit} cannot be greater than max_model_len={p.context}.")
        self._count += 1
        chat = front.make_chat(
            self.world, body, depth=p.depth, limit=limit if limit is not None else p.context, model=self.model,
            id=f"chatcmpl-{self.world.nth:04x}{self._count:012x}", at=self.core.at,
            page=p.block if p.caching else 0, seen=self._seen, eos=not body.get("ignore_eos"),
        )  # fmt: skip
        ask = chat.ask
        if ask.prompt + (limit or 1) > p.context:
            return _error(400, f"This model's maximum context length is {p.context} tokens. However, your request has "
                          f"{ask.prompt} input tokens.")  # fmt: skip
        if ask.output > p.context - ask.prompt:
            ask.output, ask.finish = p.context - ask.prompt, "length"
        return chat

    def started(self, chat: Chat) -> None:
        """Nothing is logged."""

    def chunk(self, chat: Chat, words: str) -> bytes:
        """Text, with usage in every chunk where it was asked for."""
        options = chat.body.get("stream_options")
        if words and isinstance(options, dict) and options.get("continuous_usage_stats"):
            return front.delta(chat, words, usage=front.usage(chat.ask))
        return front.delta(chat, words)

    def last(self, chat: Chat) -> list[bytes]:
        """Finish, usage with metrics, end mark."""
        finish: dict[str, Any] = {"index": 0, "delta": {"content": ""}, "finish_reason": chat.ask.finish}
        frames = [front.event(chat, [finish])]
        if chat.usage:
            more = text.request_metrics(self.plan_, chat.ask)
            frames.append(front.event(chat, [], usage=front.usage(chat.ask), **more))
        return [*frames, b"[DONE]"]

    def whole(self, chat: Chat) -> dict[str, Any]:
        """The reply in one piece."""
        message = {"role": "assistant", "content": chat.said.strip()}
        choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": chat.ask.finish}
        head = {"id": chat.id, "object": "chat.completion", "created": chat.created, "model": chat.model}
        more = text.request_metrics(self.plan_, chat.ask)
        return {**head, "choices": [choice], "usage": front.usage(chat.ask), **more}

    def failed(self, chat: Chat) -> tuple[Answer, list[bytes]]:
        """Only a dying engine ends a request so."""
        answer = _error(500, f"EngineCore encountered an issue ({chat.ask.outcome}).", "InternalServerError")
        return answer, [json.dumps(answer.body).encode(), b"[DONE]"]

    def over(self, chat: Chat, at: float) -> None:
        """Count it; requests leave no line."""
        del at
        if chat.ask.outcome in {"stop", "length"}:
            self.counts.ended(chat.ask)


def _error(status: int, message: str, kind: str = "BadRequestError") -> Answer:
    return Answer(status, {"error": {"message": message, "type": kind, "param": None, "code": status}})
