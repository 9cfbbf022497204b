"""The simulated llama-server: slots, a pool of cells of each slot's own or shared, log at verbosity 4.

A request waits for a free slot. With a shared pool nothing is set aside: when it is full, every running request fails.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from probes.sim import _llamacpp_text as text
from probes.sim import front
from probes.sim._llamacpp_args import Options, parse
from probes.sim.core import Ask, Core, Step
from probes.sim.front import BadStartError, Chat, World
from probes.sim.wire import Answer, Asked


class LlamaCpp:
    """One server."""

    binds_at_once = True

    def __init__(self, argv: list[str], world: World) -> None:
        self.options: Options = parse(argv, world.table)
        self.world = world
        self.host, self.port = self.options.host, self.options.port
        self.model = self.options.alias or self.options.model
        self.core = Core(self, world.table, world.noise, world.noise.pace(world.seed, world.nth))
        self._slots: dict[int, str | None] = dict.fromkeys(range(self.options.slots))
        self._tasks: dict[str, tuple[int, int]] = {}
        self._chats: dict[str, Chat] = {}
        self._count = self._asked = -1
        self._counts = {"prompt": 0, "made": 0, "drafted": 0, "accepted": 0, "drafts": 0, "decodes": 0}
        self._told: dict[str, float] = {}

    # ------------------------------------------------------------------------------------------------ mechanics

    def arrive(self, core: Core, ask: Ask) -> None:
        """It waits for a slot; at verbosity 5 the log tells."""
        self._count += 1
        self._tasks[ask.name] = (-1, self._count)
        core.queue.append(ask)
        if len(core.running) >= self.options.slots and self.options.verbosity >= 5:
            self._log(f"srv  process_sing: no slot is available, defer task, id_task = {self._count}", "D")

    def admit(self, core: Core) -> None:
        """First come, first served."""
        while core.queue and len(core.running) < self.options.slots:
            ask = core.queue[0]
            slot = max(i for i, held in self._slots.items() if held is None)
            self._slots[slot] = ask.name
            task = self._tasks[ask.name][1]
            self._tasks[ask.name] = (slot, task)
            core.start(ask)
            for words in text.taken(slot, task, self.options, ask):
                self._log(words)

    def plan(self, core: Core) -> Step | None:
        """Decoding rows and as much prompt as the batch takes go together."""
        o = self.options
        step = Step(depth=o.depth, rows=[ask for ask in core.running if ask.decoding])
        budget = o.batch - len(step.rows) * (1 + o.depth)
        for ask in core.running:
            if not ask.decoding and budget > 0:
                part = min(budget, ask.need - ask.computed)
                step.prefill.append((ask, part))
                budget -= part
        if o.unified:
            used = sum(ask.computed for ask in core.running)
            new = len(step.rows) * (1 + o.depth) + sum(n for _, n in step.prefill)
            if used + new > o.cells:
                self._exhausted(core, new)
                return None
        return step if step.rows or step.prefill else None

    def _exhausted(self, core: Core, batch: int) -> None:
        """No room for the batch: it is halved until it cannot be, then every running request fails."""
        for words, level in text.exhausted(batch):
            self._log(words, level)
        for ask in list(core.running):
            core.end(ask, "exhausted")
        core.when(core.at + 0.01, lambda: None)

    def stepped(self, core: Core, step: Step) -> None:
        """Count; every three seconds of a long reply are told."""
        c = self._counts
        c["prompt"] += sum(n for _, n in step.prefill)
        c["made"] += step.tokens
        c["decodes"] += 1
        for ask in step.rows:
            begun = self._told.setdefault(ask.name, ask.first or core.at)
            if core.at - begun >= 3.0 and ask.made > 100 and ask.ended is None:
                self._told[ask.name] = core.at
                slot, task = self._tasks[ask.name]
                speed = ask.made / max(core.at - (ask.first or core.at), 1e-6)
                self._log(f"slot print_timing: id {slot:>2} | task {task} | n_decoded = {ask.made:>6}, tg = "
                          f"{speed:6.2f} t/s, tg_3s = {speed:6.2f} t/s")  # fmt: skip

    def freed(self, core: Core, ask: Ask) -> None:  # noqa: ARG002  (the policy's signature)
        """Its slot is free."""
        slot = self._tasks[ask.name][0]
        if slot in self._slots and self._slots[slot] == ask.name:
            self._slots[slot] = None

    # ------------------------------------------------------------------------------------------------ life

    def _log(self, words: str, level: str = "I") -> None:
        self.world.log(self.core.at, text.line(self.core.at, words, level))

    def boot(self) -> Iterable[tuple[float, str]]:
        """Load and listen."""
        return text.boot(self.options, self.world)

    def ready(self, at: float) -> None:
        """There are no periodic reports."""

    def loading(self, asked: Asked) -> Answer | None:  # noqa: ARG002
        """All routes are 503 while the model loads."""
        return _error(503, "Loading model", "unavailable_error")

    def no_port(self) -> list[str]:
        """It finds its port taken."""
        where = f"hostname: {self.host}, port: {self.port}"
        return [
            text.line(0.006, f"srv         start: couldn't bind HTTP server socket, {where}", "E"),
            text.line(0.006, "srv  llama_server: exiting due to HTTP server error", "E"),
        ]

    def stopping(self, at: float, name: str) -> int:  # noqa: ARG002
        """It cleans up."""
        self.world.log(at, text.line(at, "srv    operator(): operator(): cleaning up before exit..."))
        return 0

    def crash(self, at: float, kind: str) -> int:
        """It aborts."""
        for words in text.crash(kind):
            self.world.log(at, words)
        return -6

    def access(self, asked: Asked, status: int, at: float) -> None:
        """Not logged at this verbosity."""

    # ------------------------------------------------------------------------------------------------ requests

    def get(self, asked: Asked) -> Answer:
        """What the server says of itself."""
        o = self.options
        if asked.method not in {"GET", "HEAD"}:
            return _error(404, "File Not Found", "not_found_error")
        if asked.path == "/health":
            return Answer(200, {"status": "ok"})
        if asked.path == "/v1/models":
            meta = {"n_ctx": o.per_slot, "n_ctx_train": int(self.world.table.memory.get("context", 131072))}
            card = {"id": self.model, "object": "model", "owned_by": "llamacpp", "meta": meta}
            return Answer(200, {"object": "list", "data": [card | {"simulated": True}]})
        if asked.path == "/props":
            return Answer(200, {"default_generation_settings": {"n_ctx": o.per_slot}, "total_slots": o.slots,
                                "model_path": o.model, "build_info": "b10068-simulated"})  # fmt: skip
        if asked.path == "/slots":
            return Answer(200, [self._slot(i, name) for i, name in self._slots.items()])
        if asked.path == "/metrics":
            if not o.metrics:
                why = "This server does not support metrics endpoint. Start it with `--metrics`"
                return _error(501, why, "not_supported_error")
            return Answer(200, text.metrics(self.core, self._counts), "text/plain; version=0.0.4")
        return _error(404, "File Not Found", "not_found_error")

    def _slot(self, number: int, name: str | None) -> dict[str, Any]:
        ask = next((a for a in self.core.running if a.name == name), None)
        found: dict[str, Any] = {
            "id": number, "n_ctx": self.options.per_slot, "speculative": self.options.depth > 0,
            "is_processing": ask is not None,
        }  # fmt: skip
        if ask is not None:
            found |= {"id_task": self._tasks[ask.name][1], "n_prompt_tokens": ask.context,
                      "next_token": [{"has_next_token": True, "n_remain": ask.output - ask.made,
                                      "n_decoded": ask.made}]}  # fmt: skip
        return found

    def chat(self, asked: Asked) -> Chat | Answer:
        """Refusals have the server's own types; the model's name is not checked."""
        try:
            body = asked.json()
        except ValueError:
            return _error(500, "[json.exception.parse_error.101] parse error", "server_error")
        try:
            body = front.read(asked)
            front.one_reply(body)
        except ValueError as problem:
            return _error(400, str(problem), "invalid_request_error")
        o = self.options
        limit = front.whole(body.get("max_completion_tokens", body.get("max_tokens", body.get("n_predict"))))
        cache = body.get("cache_prompt", True)
        self._asked += 1
        chat = front.make_chat(
            self.world, body, depth=o.depth, limit=limit if limit is not None else o.per_slot, model=self.model,
            id=f"chatcmpl-{self.world.nth:04x}{self._asked:012x}", at=self.core.at, page=1 if cache else 0,
            seen=set(), eos=not body.get("ignore_eos"),
        )  # fmt: skip
        ask = chat.ask
        if ask.prompt >= o.per_slot:
            why = f"request ({ask.prompt} tokens) exceeds the available context size ({o.per_slot} tokens)"
            why += ", try increasing it"
            return _error(400, why, "exceed_context_size_error", n_prompt_tokens=ask.prompt, n_ctx=o.per_slot)
        if ask.output > o.per_slot - ask.prompt:
            ask.output, ask.finish = o.per_slot - ask.prompt, "length"
        return chat

    def started(self, chat: Chat) -> None:
        """Logged when a slot takes it."""

    def chunk(self, chat: Chat, words: str) -> bytes:
        """Text, with running counts where they were asked for."""
        if words and chat.body.get("timings_per_token"):
            ask = chat.ask
            return front.delta(chat, words, timings={"predicted_n": ask.made, "prompt_n": ask.prompt - ask.cached})
        return front.delta(chat, words)

    def last(self, chat: Chat) -> list[bytes]:
        """Finish, usage with timings, end mark."""
        finish: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": chat.ask.finish}
        times = front.timings(chat.ask)
        if not chat.usage:
            return [front.event(chat, [finish], timings=times), b"[DONE]"]
        return [
            front.event(chat, [finish]),
            front.event(chat, [], usage=front.usage(chat.ask), timings=times),
            b"[DONE]",
        ]

    def whole(self, chat: Chat) -> dict[str, Any]:
        """The reply in one piece."""
        message = {"role": "assistant", "content": chat.said.strip()}
        choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": chat.ask.finish}
        head = {"id": chat.id, "object": "chat.completion", "created": chat.created, "model": chat.model}
        return {**head, "choices": [choice], "usage": front.usage(chat.ask), "timings": front.timings(chat.ask)}

    def failed(self, chat: Chat) -> tuple[Answer, list[bytes]]:
        """A full pool is an error 500; an open stream gets it as its last event, without an end mark."""
        del chat
        answer = _error(500, "Context size has been exceeded.", "server_error")
        return answer, [json.dumps(answer.body).encode()]

    def over(self, chat: Chat, at: float) -> None:
        """Timings and acceptance of one request."""
        ask = chat.ask
        self._counts["drafted"] += ask.drafted
        self._counts["accepted"] += ask.accepted
        self._counts["drafts"] += ask.rounds if ask.drafted else 0
        slot, task = self._tasks.pop(ask.name, (-1, 0))
        self._told.pop(ask.name, None)
        for words in text.ended(slot, task, ask):
            self.world.log(at, text.line(at, words))
        if slot in self._slots:
            self._slots[slot] = None


def _error(status: int, message: str, kind: str, **more: Any) -> Answer:
    return Answer(status, {"error": {"code": status, "message": message, "type": kind, **more}})


__all__ = ["BadStartError", "LlamaCpp"]
