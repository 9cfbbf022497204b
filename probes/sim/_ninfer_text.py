"""Log lines of the simulated ninfer, in the clause format of September 2026. Writes text only; decides nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from probes.sim._ninfer_args import Options
from probes.sim.core import Ask, Core, Step
from probes.sim.front import BadStartError, Chat, World

GIB = 1 << 30
HOST_SHARE = 0.14
"""Share of time that the CPU is busy beside the GPU."""


def line(world: World, at: float, level: str, words: str) -> str:
    """With its stamp and level."""
    return f"{world.stamp(at, '%Y-%m-%d %H:%M:%S')}.{world.millis(at):03d}  {level:<5} {words}"


def seconds(value: float) -> str:
    """A duration: `437 us`, `42.1 ms`, `14.0s`, `2m 5.3s`."""
    if value < 0.001:
        return f"{value * 1e6:.0f} us"
    if value < 1:
        ms = value * 1000
        return f"{ms:.2f} ms" if ms < 9.995 else f"{ms:.1f} ms" if ms < 99.95 else f"{ms:.0f} ms"
    if value < 59.95:
        return f"{value:.1f}s"
    minutes, rest = divmod(round(value, 1), 60)
    if minutes < 60:
        return f"{minutes:.0f}m {rest:.1f}s"
    return f"{minutes // 60:.0f}h {minutes % 60:.0f}m"


def gib(value: float) -> str:
    """A size in GiB: two decimals below 10."""
    return f"{value:.2f} GiB" if value < 9.995 else f"{value:.1f} GiB"


def rate(value: float) -> str:
    """Tokens a second: `188.1 tok/s`, `2.46k tok/s`."""
    if value < 999.95:
        return f"{value:.1f} tok/s"
    kilo = value / 1000
    return f"{kilo:.2f}k tok/s" if kilo < 9.995 else f"{kilo:.1f}k tok/s"


def boot(o: Options, world: World, pages: int, worst: int, model: str) -> Iterable[tuple[float, str]]:
    """The start, line by line. Raises `BadStartError` where memory does not suffice."""
    b = world.table.boot
    pace = world.noise.pace(world.seed, world.nth + 1000)
    total, weights_s, size = b["total_s"] * pace, b["weights_s"] * pace, b["weights_gib"]
    speed = size / weights_s
    runtime, free = memory(o, world, pages)

    def info(at: float, words: str) -> tuple[float, str]:
        return at, line(world, at, "INFO", words)

    yield info(0.01, "starting engine")
    yield info(0.01, f"loading weights | {gib(size)}")
    if world.fault == "oom-boot" or free < 0:
        at = weights_s * 0.7
        yield at, line(world, at, "ERROR", f"startup failed | loading weights | {seconds(at)}")
        lacks = f"CUDA error: out of memory (requested {gib(runtime)}, free {gib(max(runtime + free, 0.1))})"
        at += 0.001
        raise BadStartError([line(world, at, "FATAL", f"server failed during startup | {lacks}")])
    part = 0.45
    left = seconds((1 - part) * weights_s)
    loaded = f"  loading weights {part:.1%} | {gib(size * part)}/{gib(size)} | {gib(speed)}/s | ETA {left}"
    yield info(0.01 + part * weights_s, loaded)
    yield info(weights_s, f"weights ready | {gib(size)} | {seconds(weights_s)} | {gib(speed)}/s")
    yield info(total, f"engine ready | total {seconds(total)} | weights {gib(size)}")
    mode = "auto" if o.auto else "explicit"
    sizes = f"pages {pages:,}/{worst:,} | runtime {gib(runtime)} | free {gib(free)}"
    yield info(total, f"capacity | KV {pages * 64:,} tokens, {o.kv_dtype}, {mode} | {sizes}")
    if o.no_reuse:
        yield info(total, "context cache | root only")
    else:
        slots = o.lanes if o.state_slots is None else o.state_slots
        host = f"host {o.host_states} states, {gib(o.host_kv_mib / 1024)} KV"
        kept = f"private {2 * o.lanes} | shared {o.lanes} | anchors 2"
        yield info(total, f"context cache | {o.lanes} active + {slots} cached device states | {host} | {kept}")
    warm = b.get("warmup_ms", 300.0) / 1000
    yield info(total + warm, f"warmup complete | {seconds(warm)}")
    where = f"listening on http://{o.host}:{o.port} | model {model}"
    yield info(total + warm, f"{where} | auth {'bearer' if o.api_key else 'disabled'}")


def memory(o: Options, world: World, pages: int) -> tuple[float, float]:
    """GiB of the runtime's reservation and GiB left: the table's figures are of a pool of 224,000 int8 tokens."""
    m = world.table.memory
    width = {"bf16": 2.0, "nvfp4": 0.56, "k8v4": 0.75}.get(o.kv_dtype, 1.0)
    pool = m.get("kv_gib_per_1k", 0.0312) * width * pages * 64 / 1000
    lanes = m.get("lane_gib", 0.15) * o.lanes
    runtime = m.get("runtime_gib", 8.64) - 224 * m.get("kv_gib_per_1k", 0.0312) - 3 * m.get("lane_gib", 0.15)
    runtime += pool + lanes
    free = m.get("free_gib", 3.26) + m.get("runtime_gib", 8.64) - runtime
    return runtime, free


def protocol(chat: Chat) -> str:
    """`openai-chat`, and whether it streams."""
    return f"openai-chat {'stream' if chat.stream else 'non-stream'}"


def started(chat: Chat) -> str:
    """A request was taken in."""
    messages = chat.body.get("messages")
    count = len(messages) if isinstance(messages, list) else 0
    tools = chat.body.get("tools")
    extra = f" | tools {len(tools)}" if isinstance(tools, list) and tools else ""
    said = f"{count} message{'' if count == 1 else 's'}"
    return f"{chat.ask.name} started | {protocol(chat)} | {said} | max output {chat.ask.limit:,} | thinking off{extra}"


def ended(chat: Chat, spec: str) -> tuple[str, str]:
    """Level and line of a request's end."""
    ask = chat.ask
    if ask.outcome == "overloaded":
        return (
            "WARN",
            f"{ask.name} rejected during prepare | {protocol(chat)} | HTTP 429 | server overloaded | messages 1",
        )
    if ask.outcome == "queue_timeout":
        return "WARN", f"{ask.name} failed during generation | openai-chat | HTTP 503 | request queue timeout"
    if ask.outcome == "torn":
        return "INFO", f"{ask.name} response failed during transport | openai-chat | client gone"
    return "INFO", f"{ask.name} done | openai-chat | {finish(ask)} | {figures(ask, spec)}"


def finish(ask: Ask) -> str:
    """Why it ended."""
    if ask.outcome == "cancelled":
        return "cancelled"
    if ask.finish == "stop":
        return "stop token"
    return "output limit" if ask.made >= ask.limit else "context capacity"


def figures(ask: Ask, spec: str) -> str:
    """Counts and times of a request that ended."""
    end = ask.ended or 0.0
    cut = f"{ask.cached / ask.prompt:.1%}" + (", private endpoint" if ask.cached else "")
    first = "n/a" if ask.first is None else seconds(ask.first - ask.arrived)
    parts = [
        f"prompt {ask.prompt:,}", f"output {ask.made:,}", f"cache {ask.cached:,} ({cut})", f"TTFT {first}",
        f"total {seconds(end - ask.arrived)}",
    ]  # fmt: skip
    waited = (end if ask.admitted is None else ask.admitted) - ask.arrived
    if waited >= 0.01:
        parts.append(f"queue {seconds(waited)}")
    if ask.first is not None and ask.prefill_s > 0:
        parts.append(f"prefill {rate((ask.prompt - ask.cached) / ask.prefill_s)}")
    if ask.made > 1 and ask.decode_s > 0:
        parts.append(f"decode {rate((ask.made - 1) / ask.decode_s)}")
    if ask.drafted:
        share = ask.accepted / ask.drafted
        parts.append(f"{spec} accepted {ask.accepted:,}/{ask.drafted:,} ({share:.1%})")
    return " | ".join(parts)


@dataclass(slots=True)
class Report:
    """What one interval did."""

    prefill: int = 0
    tokens: int = 0
    rounds: int = 0
    row_rounds: int = 0

    def step(self, step: Step) -> None:
        """Count a step."""
        self.tokens += step.tokens
        self.prefill += sum(count for _, count in step.prefill)
        if step.rows:
            self.rounds += 1
            self.row_rounds += len(step.rows)

    def line(self, core: Core, every: float) -> str | None:
        """The line, or None when there is nothing to tell."""
        running, waiting = len(core.running), len(core.queue)
        if not (self.prefill or self.rounds or running or waiting):
            return None
        parts = ["throughput", seconds(every)]
        if self.prefill:
            parts.append(f"prefill {rate(self.prefill / every)} ({self.prefill:,} tok)")
        if self.tokens:
            parts.append(f"decode {rate(self.tokens / every)} ({self.tokens:,} tok)")
        ready = sum(1 for ask in core.running if ask.decoding)
        inner = [f"{name} {n}" for name, n in (("prefill", running - ready), ("decode-ready", ready)) if n]
        if running:
            parts.append(f"running {running} ({', '.join(inner)})")
        if waiting:
            parts.append(f"waiting {waiting}")
        parts.append(f"batch {self.row_rounds / self.rounds:.2f}" if self.rounds else "batch n/a")
        busy = HOST_SHARE if self.rounds else 0.05
        parts.append(f"host {busy:.1%} ({seconds(busy * every)})")
        return " | ".join(parts)
