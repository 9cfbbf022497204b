"""Reads a llama-server log, any build since 2023, line by line into records, a capacity and warnings.

Every number is found by its label; lines that carry no label this file knows cost a few string tests. Text of models
and prompts (continuation lines, debug dumps) is never read as an event.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from probes.engines import _llamacpp_boot as boot
from probes.engines import _llamacpp_capacity as sizes
from probes.engines import _llamacpp_counters as counters
from probes.engines import _llamacpp_requests as requests
from probes.engines import _llamacpp_trouble as trouble
from probes.engines._llamacpp_incident import Incidents
from probes.engines._llamacpp_lines import Line, passed, pieces, take_apart
from probes.events import Capacity, Record, Warn

WARNINGS_MAX = 200
CHILDREN_MAX = 64
LINE_MAX = 20_000
"""Characters of a line that are looked at; what is longer is a chat template or a dump."""
CLIPPED = "a clipped line was left out"

_BOOT_LABELS = (
    "llama_kv_cache", "llama_context", "llama_new_context", "llama_init_from", "load_tensors", "llm_load_tensors",
    "sched_reserve", "llama_memory_recurrent", "spec ", "common_specu", "graph_reserve", "llama_build_graph",
)  # fmt: skip
_BOOT_WORDS = (
    "n_slots", "initializing slots", "new slot", "n_parallel is set", "loading model '", "loading draft", "warming up",
    "build", "not supported", "disabl", "capping", "reduced", "ignor", "forc", "no effect", "falling back", "overrid",
)  # fmt: skip
_NO_EVENT = frozenset({
    "res send", "set_embeddings", "llama_model_loader", "print_info", "load", "srv log_server_r", "llm_load_print_meta",
    "srv log_server_request", "llama_perf_context_print", "common_perf_print",
    "common_sampler_init", "log_server_request",
})  # fmt: skip
"""Labels of lines that hold no event: dumps of prompts and metadata, and the process's own totals at its end."""
_SPOKEN = re.compile(
    r"error(?::| while )|(?:CUDA|ROCm|HIP|MUSA|SYCL) error|terminate called|Segmentation fault|AMX is not ready"
    r"|unexpected error in llama server"
    r"|\S+\.(?:c|cc|cpp|cu|cuh|h|hpp|m|mm):\d+: "
)
"""How a line begins that the process prints past its logger."""
_BARE_BLOCK = "timings without slot (before 2026-05)"
_READY = ("model loaded", "listening on ", "server is listening on ", "router server is listening")
_INSTANCE = re.compile(r"instance name=(\S{1,200}) exited with status (-?\d{1,10})")
_FORCED = re.compile(r"force-killing model instance name=(\S{1,200}) after (\d{1,10}) seconds")
"""A router tells how one of its children ended."""
_LOOK = "its own lines, behind its port in brackets, say why"
_STUCK = "it was busy when another model needed its place: raise --models-max, or stop-timeout in the preset"
_INTERRUPT = re.compile(r"(?:\^C)+")
"""What a terminal echoes of Ctrl-C, before the line that the server prints next."""
_UNSTAMPED_MAX = 200
"""Lines without a stamp in a stamped log continue the line above; after so many the log has another form."""


class Server:
    """One start of one process in the log: the server itself or one child of a router."""

    def __init__(self, line: int) -> None:
        self.start = boot.Start(line)
        self.requests = requests.Requests()
        self.incidents = Incidents()

    def over(self) -> Iterator[Record]:
        """What is still held, when this start or the log is over."""
        yield from self.incidents.close()
        yield from requests.finish_all(self.requests)

    def warnings(self) -> list[Warn]:
        """What it gives to warn of."""
        start, done = self.start, self.requests
        found = [*sizes.identities(start), *sizes.speculation(start), *self.incidents.warnings]
        found.extend(Warn(number, CLIPPED) for number in done.clipped)
        found.extend(Warn(number, text) for number, text in done.cut)
        if start.speculators and done.finished >= 3 and not done.drafted:
            kinds = ", ".join(start.speculators)
            found.append(Warn(start.line, f"{done.finished} requests and nothing drafted by {kinds}"))
        return found


class Reader:
    """The log of a llama-server; see `LogReader`."""

    def __init__(self) -> None:
        self._servers: dict[str, Server] = {}
        self._sized: boot.Start | None = None
        self._sizes: dict[str, boot.Start] = {}
        """The last start with sizes of each child of a router."""
        self._unstamped = _UNSTAMPED_MAX
        self._stamped = False
        self._traits: set[str] = set()
        self._warnings: list[Warn] = []

    def feed(self, line: int, text: str) -> Sequence[Record]:
        """Take one line."""
        if self._stamped and text[:1] == "\t" and "\r" not in text:
            return ()  # sampler settings and the like, continuing the line above
        if passed(text, self._at_rest):
            self._unstamped = 0
            return ()
        found: list[Record] = []
        if len(text) > LINE_MAX:
            text = text[:LINE_MAX]
        if text[:2] == "^C":
            text = _INTERRUPT.sub("", text, count=1)
        for child, body, t, level in pieces(text):
            if t is not None:
                self._unstamped = 0
                self._stamped = True
            elif level == "?":
                self._warn(line, CLIPPED)
                continue
            else:
                self._unstamped += 1
            found.extend(self._line(take_apart(line, child, body, t, level)))
        return found

    def close(self) -> Sequence[Record]:
        """What is still held."""
        return [record for server in self._servers.values() for record in server.over()]

    @property
    def dialect(self) -> str | None:
        """The form of the timing lines, and the version where it is told."""
        version = self._sized.version if self._sized else None
        traits = sorted(self._traits) or (["stamped (2025 and later)"] if self._stamped else [])
        return ", ".join([*traits, *([version] if version else [])]) or None

    @property
    def capacity(self) -> Capacity:
        """Of the last start that began; of one child where a router has several."""
        if self._sized is None:
            return Capacity()
        found = sizes.capacity(self._sized)
        children = {child: start for child, start in self._sizes.items() if child}
        if len(children) < 2:
            return found
        own = next((child for child, start in children.items() if start is self._sized), None)
        said = f"A router runs {len(children)} models here, each with a pool of its own"
        return replace(found, explain=(f"{said}: this is the one of [{own}]." if own else f"{said}.", *found.explain))

    @property
    def warnings(self) -> Sequence[Warn]:
        """So far, by line."""
        found = [*self._warnings, *(warn for server in self._servers.values() for warn in server.warnings())]
        return sorted(found, key=lambda warn: warn.line)[:WARNINGS_MAX]

    def _warn(self, line: int, text: str) -> None:
        if len(self._warnings) < WARNINGS_MAX:
            self._warnings.append(Warn(line, text))

    def _at_rest(self) -> bool:
        """Whether nothing is open that a task on its usual way could end."""
        server = self._servers.get("")
        return (
            server is not None
            and server.requests.awaiting is None
            and not server.requests.deferred
            and not server.incidents.open
        )

    def _server(self, line: Line, old: list[Record]) -> Server:
        """The start that this line belongs to; what an earlier one still held goes to `old`."""
        server = self._servers.get(line.child)
        if server is None:
            server = self._servers[line.child] = Server(line.number)
        start = server.start
        again = start.phase != "booting" or (start.model is not None and line.message.startswith("loading model '"))
        if again and (boot.begins(line) or trouble.argument(line.body)):
            old.extend(server.over())
            for warn in server.warnings():
                self._warn(warn.line, warn.text)
            server = self._servers[line.child] = Server(line.number)
            self._size(line, server)
        return server

    def _size(self, line: Line, server: Server) -> None:
        """From now on the capacity is this start's."""
        self._sized = server.start
        if line.child in self._sizes or len(self._sizes) < CHILDREN_MAX:
            self._sizes[line.child] = server.start

    def _line(self, line: Line) -> Iterator[Record]:
        label = line.label
        if line.t is None and self._unstamped < _UNSTAMPED_MAX and not label.startswith("slot") and not line.child:
            yield from self._continuation(line)
            return
        if label in _NO_EVENT:
            return
        server = self._servers.get(line.child)
        calm = server is not None and label.startswith(("slot", "que", "spec"))
        if not calm and (
            server is None or server.start.phase != "booting" or line.message.startswith("loading model '")
        ):
            old: list[Record] = []
            server = self._server(line, old)
            yield from old
        assert server is not None  # noqa: S101  (calm lines have one, and the others have just been given one)
        if server.incidents.open:
            yield from server.incidents.after(line)
        if server.requests.awaiting is not None and not requests.belongs(line):
            yield from requests.finish(server.requests, server.requests.awaiting)
        if not label.startswith("slot"):
            yield from self._other(server, line)
        elif "new slot" in line.message:
            yield from self._boot(server, line)
        else:
            for record in requests.slot_line(server.requests, line):
                if record.kind == "request" and _BARE_BLOCK not in self._traits:
                    self._traits.add("timings by slot (2026-05 and later)")
                yield record
            start, told = server.start, server.requests.slot_context
            if start.slot_context is None and told is not None:
                start.slot_context, start.slot_context_line = told
                self._size(line, server)

    def _other(self, server: Server, line: Line) -> Iterator[Record]:
        label, text, level = line.label, line.message, line.level
        if not label:
            yield from self._bare(server, line)
        elif text.startswith("statistics "):
            yield from counters.statistics(line)
        elif label == "print_timings":
            self._traits.add("key=value (2024)" if line.pairs else "print_timings (2023)")
            old = requests.old_line if line.pairs else requests.bare_line
            yield from old(server.requests, line, text.strip())
        elif label == "llama_print_timings":
            self._traits.add("llama_print_timings (2023)")
            yield from requests.library_line(server.requests, line, text.strip())
        elif label.startswith(_BOOT_LABELS) and (
            level not in {"E", "W", ""} or (not level and trouble.recognise(text) is None)
        ):
            yield from self._boot(server, line)
        elif label.startswith("que") or text.startswith("no slot is available"):
            yield from counters.queue_line(server.requests, line, server.start.slots)
        elif level in {"E", "W", ""}:
            yield from self._loud(server, line)
        else:
            yield from self._calm(server, line)

    def _calm(self, server: Server, line: Line) -> Iterator[Record]:
        """A line of the server itself that isn't a warning: a stage of its life, or a boot line."""
        text, start = line.message, server.start
        if line.level == "D":
            return  # debug lines dump prompts and settings
        if text.startswith(_READY):
            if start.phase == "booting":
                start.phase = "ready"
                server.incidents.family = ""
                yield requests.record(line, "ready", {"model": start.model} if start.model else {})
        elif "cleaning up before exit" in text and len(text) < 80:
            if start.phase != "exited":
                clean = start.phase != "failed"
                start.phase = "exited"
                fields: dict[str, Any] = {"clean": clean, "reason": "stopped" if clean else "the start failed"}
                yield requests.record(line, "exit", fields)
        elif "exited with status" in text and (ended := _INSTANCE.search(text)):
            if int(ended[2]):
                told = {"reason": f"model instance {ended[1]} exited with status {ended[2]}", "hint": _LOOK}
                yield requests.record(line, "error", told)
        elif "force-killing" in text and (forced := _FORCED.search(text)):
            told = {"reason": f"model instance {forced[1]} did not stop within {forced[2]} seconds and was killed"}
            yield requests.record(line, "error", told | {"hint": _STUCK})
        elif line.label in {"build", "version"} or any(word in text for word in _BOOT_WORDS):
            yield from self._boot(server, line)

    def _boot(self, server: Server, line: Line) -> Iterator[Record]:
        for kind, fields in boot.read(server.start, line):
            yield requests.record(line, kind, fields)
        start = server.start
        if start.slots is not None or start.old_slots or start.contexts:
            self._size(line, server)

    def _loud(self, server: Server, line: Line) -> Iterator[Record]:
        """A warning or an error, or a line of a log without levels, which may be anything."""
        refused = trouble.argument(line.body.strip())
        if refused:
            server.start.phase = "failed"
            yield requests.record(line, "error", {"reason": refused[0], "hint": refused[1]})
            return
        found = list(server.incidents.take(line, server.start))
        yield from found
        if found or server.incidents.swallowed:
            return
        if line.level == "W":
            yield from self._boot(server, line)
        if line.level in {"W", ""}:
            yield from self._calm(server, line)

    def _bare(self, server: Server, line: Line) -> Iterator[Record]:
        """A line without a label: a block's line of older builds, an assertion, an argument error."""
        text = line.message.strip()
        if text.startswith(requests.BLOCK):
            self._traits.add(_BARE_BLOCK)
            yield from requests.bare_line(server.requests, line, text)
        elif text.startswith("statistics "):
            yield from counters.statistics(line._replace(message=text))
        elif text.startswith("-> Slot "):
            yield from self._boot(server, line._replace(message=text))
        elif _SPOKEN.match(text) or (line.level in {"E", "W"} and line.t is not None):
            yield from self._loud(server, line._replace(message=text))

    def _continuation(self, line: Line) -> Iterator[Record]:
        """A line without a stamp in a stamped log: only what the server itself prints so is read."""
        text = line.body.strip()
        if text.startswith(requests.BLOCK):
            server = self._servers.get(line.child)
            if server is not None and server.requests.header in server.requests.open:
                yield from requests.bare_line(server.requests, line, text)
        elif _SPOKEN.match(text):
            old: list[Record] = []
            server = self._server(line, old)
            yield from old
            yield from self._loud(server, line._replace(message=text))
