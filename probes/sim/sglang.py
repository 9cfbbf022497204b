"""The simulated SGLang: slots, an estimating admission, a pool of states, retraction, prompts before decoding.

Admission asks, in this order: is a slot free, are enough slots free (the DFLASH family waits for a few), is there
budget left in this pass, and do the prompt and an estimate of all future output fit the pool.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from probes.sim import _sglang_text as text
from probes.sim import front
from probes.sim._sglang_args import Plan, parse
from probes.sim.core import Ask, Core, Step
from probes.sim.front import Chat, World
from probes.sim.wire import Answer, Asked

RATIO, RATIO_LOW, RATIO_STEPS = 0.7, 0.098, 600
"""Share of the output still to come that admission sets aside: at first, at least, and steps from one to the other."""
CLIP = 4096
"""Output tokens of one request that the estimate counts at most."""


class SGLang:
    """One server, as its first rank logs it."""

    binds_at_once = False

    def __init__(self, argv: list[str], world: World) -> None:
        self.plan_: Plan = parse(argv, world.table)
        args = self.plan_.args
        self.world = world
        self.host, self.port = args["host"] or "127.0.0.1", args["port"]
        self.model = args["served_model_name"] or args["model_path"]
        self.core = Core(self, world.table, world.noise, world.noise.pace(world.seed, world.nth))
        self._ratio = RATIO * (args["schedule_conservativeness"] or 1.0)
        self._decay = (self._ratio - self._ratio * RATIO_LOW / RATIO) / RATIO_STEPS
        self._low = self._ratio * RATIO_LOW / RATIO
        self._exact: set[str] = set()
        self._full = False
        self._count = 0
        self._seen: set[str] = set()
        self._log = text.Log(self.plan_, world)
        self._totals = {"retracted": 0, "verify": 0, "made": 0, "prompt": 0, "requests": 0}

    # ------------------------------------------------------------------------------------------------ mechanics

    @property
    def used(self) -> int:
        """Tokens that the running requests hold."""
        return sum(ask.computed for ask in self.core.running)

    def states_used(self) -> int:
        """State slots that they hold: one fewer than each sets aside, where the prefix cache keeps several."""
        return len(self.core.running) * self.plan_.held_each

    def arrive(self, core: Core, ask: Ask) -> None:
        """Queue it, up to --max-queued-requests."""
        most = self.plan_.args["max_queued_requests"]
        if most is not None and len(core.queue) >= most:
            core.end(ask, "overloaded")
        else:
            core.queue.append(ask)

    def admit(self, core: Core) -> None:
        """What a pass of the scheduler lets in."""
        p = self.plan_
        if not core.queue or self._full:
            return
        if any(not ask.decoding for ask in core.running):
            budget = p.chunk - sum(a.need - a.computed for a in core.running if not a.decoding)
        else:
            budget = p.chunk
            free = p.lanes - len(core.running)
            if p.delay > 1 and core.running and free < p.delay:
                return
        while core.queue and budget > 0:
            head = core.queue[0]
            if len(core.running) >= p.lanes:
                self._full = True
                return
            own = head.context - (0 if head.made else head.cached)
            if not self._fits(head):
                self._full = True
                return
            core.start(head)
            budget -= own

    def _fits(self, head: Ask) -> bool:
        """Whether a prompt and its own output fit beside what runs and what is set aside for that."""
        p, running = self.plan_, self.core.running
        promised = sum(ask.need for ask in running)
        if not p.radix and (head.name in self._exact or any(a.name in self._exact for a in running)):
            aside = sum(ask.output - ask.made for ask in running)
        else:
            aside = int(sum(min(ask.limit - ask.made, CLIP) * self._ratio for ask in running))
        return promised + aside + head.context + min(head.limit - head.made, CLIP) <= p.kv_tokens or (
            not running and head.context < p.kv_tokens
        )

    def plan(self, core: Core) -> Step | None:
        """Prompts come first: while any is to be computed, nothing is decoded."""
        p = self.plan_
        parts: list[tuple[Ask, int]] = []
        budget = p.chunk
        for ask in core.running:
            if not ask.decoding and budget > 0:
                part = min(budget, ask.need - ask.computed)
                parts.append((ask, part))
                budget -= part
        if parts:
            lacking = self.world.table.memory.get("activations_gb", 0.0) * (p.chunk - budget) / 16384
            if p.free_gb < lacking:
                core.broke("oom")
                return None
            return Step(prefill=parts, depth=p.depth)
        if not core.running:
            return None
        self._retract(core)
        return Step(rows=list(core.running), depth=p.depth)

    def _retract(self, core: Core) -> None:
        """Put requests back while the next step's tokens do not fit; the ratio rises, so fewer are let in."""
        p, put = self.plan_, []
        each = p.depth + 1
        while len(core.running) > 1 and self.used + each * len(core.running) > p.kv_tokens:
            last = min(core.running, key=lambda ask: (ask.made, -ask.arrived))
            core.back(last, front=False)
            put.append(last)
        if put:
            before, rest = self._ratio, core.running
            done, all_ = sum(a.made for a in rest), sum(max(1, a.output) for a in rest)
            self._ratio = min(1.0, max(self._ratio, (done + 20 * len(rest)) / all_))
            self._totals["retracted"] += len(put)
            self._log.retracted(core, len(put), before, self._ratio)

    def stepped(self, core: Core, step: Step) -> None:
        """Log what the engine logs at the end of a step."""
        if step.prefill:
            self._totals["prompt"] += sum(n for _, n in step.prefill)
            pending = sum(a.context - a.cached for a in core.queue) + sum(a.need - a.computed for a in core.running)
            self._log.prefilled(core, step, self.used, self.states_used(), pending)
        if step.rows:
            self._ratio = max(self._low, self._ratio - self._decay)
            self._totals["verify"] += len(step.rows)
            self._totals["made"] += step.tokens
            self._log.decoded(core, step, self.used, self.states_used())

    def freed(self, core: Core, ask: Ask) -> None:  # noqa: ARG002  (the policy's signature)
        """Something has left: the next pass looks at the queue again."""
        self._full = False

    # ------------------------------------------------------------------------------------------------ life

    def boot(self) -> Iterable[tuple[float, str]]:
        """Load, size the pools, capture graphs."""
        return text.boot(self.plan_, self.world)

    def ready(self, at: float) -> None:
        """Reports follow decode steps, not a clock."""

    def loading(self, asked: Asked) -> Answer | None:  # noqa: ARG002
        """The port is not bound yet."""
        return None

    def no_port(self) -> list[str]:
        """It finds its port taken."""
        return [text.line(self.world, 0.0, f"ERROR:    [Errno 98] error while attempting to bind on address "
                          f"('{self.host}', {self.port}): address already in use")]  # fmt: skip

    def stopping(self, at: float, name: str) -> int:
        """It ends in order."""
        self.world.log(at, text.line(self.world, at, "INFO:     Shutting down"))
        self.world.log(at, text.line(self.world, at, f"{name} received. Exiting..."))
        return 0

    def crash(self, at: float, kind: str) -> int:
        """A scheduler dies and takes the rest with it."""
        for words in text.crash(kind, self.plan_):
            stamped = words.startswith("*")
            self.world.log(at, text.line(self.world, at, words[1:]) if stamped else words)
        return -9

    def access(self, asked: Asked, status: int, at: float) -> None:
        """The web server's line."""
        reason = {200: "OK", 503: "Service Unavailable", 404: "Not Found"}.get(status, "Bad Request")
        words = f'INFO:     127.0.0.1:41000 - "{asked.method} {asked.path} HTTP/1.1" {status} {reason}'
        self.world.log(at, text.line(self.world, at, words))

    # ------------------------------------------------------------------------------------------------ requests

    def get(self, asked: Asked) -> Answer:
        """What the server says of itself."""
        p, core = self.plan_, self.core
        if refusal := front.wrong_method(
            asked, "/health", "/health_generate", "/v1/models", "/server_info", "/v1/loads"
        ):
            return refusal
        if asked.path in {"/health", "/health_generate"}:
            return Answer(200, "")
        if asked.path == "/v1/models":
            card = {"id": self.model, "object": "model", "owned_by": "sglang", "max_model_len": p.context}
            return Answer(200, {"object": "list", "data": [card | {"simulated": True}]})
        if asked.path in {"/server_info", "/get_server_info"}:
            return Answer(200, text.server_info(p))
        if asked.path == "/v1/loads":
            return Answer(200, {"loads": [text.load(p, core, self.used)]})
        if asked.path == "/flush_cache":
            self._seen.clear()
            return Answer(200, "Cache flushed.\n", "text/plain")
        if asked.path == "/metrics" and p.args["enable_metrics"]:
            body = text.metrics(p, core, self.used, self.states_used(), self._totals, self.model)
            return Answer(200, body, "text/plain; version=0.0.4")
        return Answer(404, {"detail": "Not Found"})

    def chat(self, asked: Asked) -> Chat | Answer:
        """Refusals have status 400; the model's name is not checked."""
        try:
            body = front.read(asked)
            front.one_reply(body)
            asked_limit = front.at_least(body, 0)
        except ValueError as problem:
            return _error(400, str(problem))
        p = self.plan_
        self._count += 1
        self._totals["requests"] += 1
        chat = front.make_chat(
            self.world, body, depth=p.depth, limit=asked_limit or p.context, model=self.model,
            id=f"{self.world.nth:04x}{self._count:028x}", at=self.core.at, page=1 if p.radix else 0, seen=self._seen,
            eos=not body.get("ignore_eos"),
        )  # fmt: skip
        ask = chat.ask
        if ask.prompt >= p.context:
            return _error(400, f"The input ({ask.prompt} tokens) is longer than the model's context length "
                          f"({p.context} tokens).")  # fmt: skip
        if ask.prompt >= p.kv_tokens:
            return _error(400, f"Input length ({ask.prompt} tokens) exceeds the maximum allowed length "
                          f"({p.kv_tokens - 1} tokens).")  # fmt: skip
        if asked_limit and ask.prompt + asked_limit > p.context:
            return _error(400, "Requested token count exceeds the model's maximum context length of "
                          f"{p.context} tokens.")  # fmt: skip
        ask.limit = min(ask.limit, p.context - ask.prompt)
        ask.output = min(ask.output, ask.limit, p.kv_tokens - ask.prompt - p.depth - 1)
        if body.get("ignore_eos"):
            self._exact.add(ask.name)
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
        """Finish with draft counts, usage, end mark."""
        finish: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": chat.ask.finish}
        frames = [front.event(chat, [finish], **text.details(chat.ask, chat.body))]
        if chat.usage:
            frames.append(front.event(chat, [], usage=front.usage(chat.ask)))
        return [*frames, b"[DONE]"]

    def whole(self, chat: Chat) -> dict[str, Any]:
        """The reply in one piece."""
        message = {"role": "assistant", "content": chat.said.strip()}
        choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": chat.ask.finish}
        head = {"id": chat.id, "object": "chat.completion", "created": chat.created, "model": chat.model}
        more = text.details(chat.ask, chat.body)
        return {**head, "choices": [choice], "usage": front.usage(chat.ask), **more}

    def failed(self, chat: Chat) -> tuple[Answer, list[bytes]]:  # noqa: ARG002  (one reason only)
        """A full queue is 503; in a stream it hides in a 200."""
        answer = _error(503, "The request queue is full.")
        return answer, [json.dumps({"error": answer.body}).encode(), b"[DONE]"]

    def over(self, chat: Chat, at: float) -> None:
        """Requests leave no line of their own."""
        self._exact.discard(chat.ask.name)
        del at


def _error(status: int, message: str) -> Answer:
    return Answer(status, {"object": "error", "message": message, "type": "BadRequestError", "code": status})
