"""Reads a llama-server log, any build since 2024, line by line into records, a capacity and warnings.

Every number is found by its label; lines that carry no label this file knows cost a few string tests. Text of models
and prompts (continuation lines, debug dumps) is never read as an event.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from probes.engines import _llamacpp_boot as boot
from probes.engines import _llamacpp_capacity as sizes
from probes.engines import _llamacpp_requests as requests
from probes.engines import _llamacpp_trouble as trouble
from probes.engines._llamacpp_incident import Incidents
from probes.engines._llamacpp_lines import Line, pieces, take_apart
from probes.events import Capacity, Record, Warn

_BOOT_LABELS = (
    "llama_kv_cache", "llama_context", "llama_new_context", "llama_init_from", "load_tensors", "llm_load_tensors",
    "sched_reserve", "llama_memory_recurrent", "spec ", "common_specu", "graph_reserve", "llama_build_graph",
)  # fmt: skip
_BOOT_WORDS = (
    "n_slots", "new slot", "n_parallel is set", "loading model '", "warming up", "build", "threads for HTTP",
    "system_info",
    "device_info", "common_params_print_info", "binding port", "initializing ...", "capping", "is not supported",
)  # fmt: skip
_NO_EVENT = frozenset({"Parsed message", "res send", "set_embeddings", "llama_model_loader", "print_info", "load"})
_UNSTAMPED_MAX = 200
"""Lines without a stamp in a stamped log continue the line above; after so many the log has another form."""
WARNINGS_MAX = 200


class Server:
    """One process in the log: the server itself or one child of a router."""

    def __init__(self, line: int) -> None:
        self.start = boot.Start(line)
        self.requests = requests.Requests()
        self.incidents = Incidents()


class Reader:
    """The log of a llama-server; see `LogReader`."""

    def __init__(self) -> None:
        self._servers: dict[str, Server] = {}
        self._current: Server | None = None
        self._sized: boot.Start | None = None
        self._unstamped = _UNSTAMPED_MAX
        self._traits: set[str] = set()
        self._warnings: list[Warn] = []
        self._number = 0

    def feed(self, line: int, text: str) -> Sequence[Record]:
        """Take one line."""
        found: list[Record] = []
        self._number = line
        for child, body, t, level in pieces(text):
            if t is not None:
                self._unstamped = 0
            else:
                self._unstamped += 1
                if level == "?":
                    self._warn(line, "a clipped line was left out")
                    continue
            found.extend(self._line(take_apart(line, child, body, t, level)))
        return found

    def close(self) -> Sequence[Record]:
        """What is still held."""
        found: list[Record] = []
        for server in self._servers.values():
            found.extend(server.incidents.close())
            found.extend(requests.finish_all(server.requests))
        return found

    @property
    def dialect(self) -> str | None:
        """The form of the timing lines and of the prefix, as far as seen."""
        return ", ".join(sorted(self._traits)) or None

    @property
    def capacity(self) -> Capacity:
        """Of the last start that told any size."""
        return sizes.capacity(self._sized) if self._sized else Capacity()

    @property
    def warnings(self) -> Sequence[Warn]:
        """So far, by line."""
        found = list(self._warnings)
        for server in self._servers.values():
            start, done = server.start, server.requests
            found.extend(sizes.identities(start))
            found.extend(sizes.speculation(start))
            found.extend(server.incidents.warnings)
            found.extend(Warn(number, "a clipped line was left out") for number in done.clipped[:WARNINGS_MAX])
            if start.speculators and done.finished >= 3 and not done.drafted:
                kinds = ", ".join(start.speculators)
                found.append(Warn(start.line, f"{done.finished} requests and nothing drafted by {kinds}"))
        return sorted(found, key=lambda warn: warn.line)

    def _warn(self, line: int, text: str) -> None:
        if len(self._warnings) < WARNINGS_MAX:
            self._warnings.append(Warn(line, text))

    def _server(self, line: Line) -> Server:
        server = self._servers.get(line.child)
        if server is None:
            server = self._servers[line.child] = Server(line.number)
        start = server.start
        again = start.phase != "booting" or (start.model is not None and line.message.startswith("loading model '"))
        if again and boot.begins(line):
            self._warnings.extend(sizes.identities(start)[:WARNINGS_MAX])
            self._warnings.extend(sizes.speculation(start)[:WARNINGS_MAX])
            server.start = boot.Start(line.number, version=start.version if start.phase == "ready" else None)
        return server

    def _line(self, line: Line) -> Iterator[Record]:
        if line.t is None and self._unstamped < _UNSTAMPED_MAX and not line.label.startswith("slot") and not line.child:
            yield from self._continuation(line)
            return
        label = line.label
        if label in _NO_EVENT:
            return
        server = self._servers.get(line.child)
        if server is None or server.start.phase != "booting" or line.message.startswith("loading model '"):
            server = self._server(line)
        if server.incidents.open:
            yield from server.incidents.after(line)
        if label.startswith("slot"):
            if "new slot" in line.message:
                yield from self._boot(server, line)
            else:
                yield from requests.slot_line(server.requests, line)
            return
        yield from self._other(server, line)

    def _other(self, server: Server, line: Line) -> Iterator[Record]:
        label, text = line.label, line.message
        if line.pairs and label == "print_timings":
            self._traits.add("2024 key=value")
            yield from requests.old_line(server.requests, line)
        elif not label or (line.t is None and text.lstrip().startswith(requests.BLOCK)):
            yield from self._bare(server, line)
        elif text.startswith("statistics "):
            yield from requests.statistics(line)
        elif label.startswith(_BOOT_LABELS) and line.level not in {"E", "W"}:
            yield from self._boot(server, line)
        elif label.startswith("que") or "defer task" in text:
            yield from requests.queue_line(server.requests, line, server.start.slots)
        elif line.level in {"E", "W", ""} or "GGML_ASSERT" in text:
            yield from self._loud(server, line)
        else:
            yield from self._calm(server, line)

    def _calm(self, server: Server, line: Line) -> Iterator[Record]:
        """A line of the server itself that isn't a warning: a stage of its life, or a boot line."""
        text, start = line.message, server.start
        if text.startswith("model loaded") or "listening on " in text:
            if start.phase == "booting":
                start.phase = "ready"
                yield requests.record(line, "ready", {"model": start.model} if start.model else {})
        elif "cleaning up before exit" in text:
            if start.phase != "exited":
                clean = start.phase != "failed"
                start.phase = "exited"
                fields: dict[str, Any] = {"clean": clean, "reason": "stopped" if clean else "the start failed"}
                yield requests.record(line, "exit", fields)
        elif any(word in text or word in line.body for word in _BOOT_WORDS):
            yield from self._boot(server, line)

    def _boot(self, server: Server, line: Line) -> Iterator[Record]:
        for kind, fields in boot.read(server.start, line):
            yield requests.record(line, kind, fields)
        start = server.start
        if start.slots is not None or start.old_slots or start.contexts:
            self._sized = start

    def _loud(self, server: Server, line: Line) -> Iterator[Record]:
        """A warning or an error, or a line of a log without levels, which may be anything."""
        refused = trouble.argument(line.body)
        if refused:
            server.start.phase = "failed"
            yield requests.record(line, "error", {"reason": refused[0], "hint": refused[1]})
            return
        taken = False
        for record in server.incidents.take(line, server.start):
            taken = True
            yield record
        if not taken and not server.incidents.swallowed:
            if line.level in {"W", "E"}:
                yield from self._boot(server, line)
            if line.level in {"W", ""}:
                yield from self._calm(server, line)

    def _bare(self, server: Server, line: Line) -> Iterator[Record]:
        """A line without a label: a block's line of older builds, an assertion, an argument error."""
        text = line.message.lstrip() if not line.label else line.body.lstrip()
        if text.startswith(requests.BLOCK):
            self._traits.add("timings without slot")
            requests.bare_line(server.requests, line, text)
        elif text.startswith("statistics "):
            yield from requests.statistics(line._replace(message=text))
        else:
            yield from self._loud(server, line._replace(message=text))

    def _continuation(self, line: Line) -> Iterator[Record]:
        """A line without a stamp in a stamped log: only what the server itself prints so is read."""
        server = self._servers.get(line.child) or self._server(line)
        text = line.body.lstrip()
        if text.startswith(requests.BLOCK) and server.requests.header in server.requests.open:
            requests.bare_line(server.requests, line, text)
        elif "GGML_ASSERT(" in text or text.startswith(
            ("error:", "error while", "terminate called", "Segmentation fault")
        ):
            yield from self._loud(server, line._replace(message=text))
