"""Memory: each GPU of the server, or the host and the server's resident set where there is none."""

from __future__ import annotations

from rich.text import Text

from probes.events import GpuReading
from probes.gpu.room import split
from probes.session import Frame
from tui.panels import Panel
from tui.widgets import ink
from tui.widgets.drawn import Drawn


def draw(frame: Frame, width: int, height: int) -> Text:
    """Bars, then a strip over the run, then the most that each phase took."""
    sample = frame.memory
    if sample is None:
        return Text("no reading yet", style="dim")
    out: list[Text] = []
    if sample.gpus:
        for gpu in sample.gpus:
            out += _gpu(gpu, width)
    else:
        used = (
            None
            if sample.host_total is None or sample.host_available is None
            else sample.host_total - sample.host_available
        )
        out.append(_bar("host", used, sample.host_total, width))
        out.append(Text(f"server {ink.size(sample.server_rss)} resident"))
    if parts := _parts(frame):
        out.append(Text(parts, style="dim"))
    history = [m.used for m in frame.memory_history]
    if any(h is not None for h in history):
        out.append(Text(ink.strip(history, width), style=ink.HOT))
    for line in out:
        line.truncate(width, overflow="ellipsis")
    for word, marks in (("least free", frame.low_free), ("most", frame.high_water)):
        if marks:
            shown = " ".join(f"{ink.safe(phase)} {ink.size(value)}" for phase, value in marks.items())
            out.append(Text(f"{word}: {shown}", style="dim"))
    return ink.lines(out[:height])


def _parts(frame: Frame) -> str:
    """What the engine's own lines say is in the tightest GPU, and what none of them names; empty where none speak."""
    tight = frame.memory.gpus[0] if frame.memory and frame.memory.gpus else None
    used = None if tight is None else tight.ours if tight.ours is not None else tight.used
    if frame.capacity is None or used is None:
        return ""
    found = split(used, frame.capacity)
    told = (("weights", found.weights), ("pools", found.pools), ("other", found.other))
    parts = [f"{name} {ink.size(size)}" for name, size in told if size is not None]
    left = f"unnamed {ink.size(found.rest)}" if found.rest >= 0 else f"{ink.size(-found.rest)} too much"
    return "  ".join([*parts, left]) if parts else ""


def _bar(name: str, used: int | None, total: int | None, width: int) -> Text:
    label = f" {ink.size(used)} of {ink.size(total)}"
    room = max(0, width - len(name) - 1 - len(label))
    share = used / total if used is not None and total else None
    return Text(f"{name} ").append(ink.bar(share, room), style=ink.HOT).append(label)


def _gpu(gpu: GpuReading, width: int) -> list[Text]:
    out = [_bar(f"GPU{gpu.index}", gpu.used, gpu.total, width)]
    if gpu.problem:
        return [*out, Text(ink.safe(gpu.problem), style=ink.WARN)]
    facts = [f"free {ink.size(gpu.free)}", f"ours {ink.size(gpu.ours)}"]
    facts += [ink.figure(gpu.temperature_c, ".0f", " °C")] if gpu.temperature_c is not None else []
    facts += [ink.figure(gpu.power_w, ".0f", " W")] if gpu.power_w is not None else []
    facts += [f"{gpu.utilisation:.0%}"] if gpu.utilisation is not None else []
    out.append(Text("  ".join(facts), style="dim"))
    if gpu.throttle:
        out.append(Text(f"▲ slowed: {', '.join(gpu.throttle)}", style=ink.WARN))
    return out


USES = ("memory", "capacity", "memory_history", "high_water", "low_free")
PANEL = Panel("memory", "memory", "turn", 3, 7, lambda _: Drawn("memory", "Memory", USES, draw))
