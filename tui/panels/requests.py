"""The ledger of requests on the wire, and what the last ones were: outcome, tokens, speed, TTFT, accept rate."""

from __future__ import annotations

from rich.text import Text

from probes.events import RequestDone
from probes.session import Frame
from tui.panels import Panel
from tui.widgets import ink
from tui.widgets.drawn import Drawn
from tui.widgets.flight import in_flight

WARMUP = "warmup"
"""A category that says by itself that it is not measured."""
HEAD = "  d category      tok  tok/s TTFT ms accept"


def draw(frame: Frame, width: int, height: int) -> Text:
    """Newest first; those on the wire on top."""
    out = [Text(ink.cut(HEAD, width), style="dim")]
    out += in_flight(frame, max(1, height // 2))
    out += [_line(r) for r in reversed(frame.recent)]
    if len(out) == 1:
        out.append(Text("no request yet", style="dim"))
    for line in out:
        line.truncate(width, overflow="ellipsis")
    return ink.lines(out[:height])


def _line(r: RequestDone) -> Text:
    depth = ink.figure(r.depth, "d")
    text = Text(f"{depth:>3} {ink.pad(ink.safe(r.category), 12)} {ink.figure(r.completion_tokens, 'd'):>4} ")
    if r.outcome != "ok":
        why = r.error or (f"status {r.status}" if r.status else "")
        return text.append(f"{r.outcome}: {ink.safe(why)}" if why else r.outcome, style=ink.BAD)
    rate = r.accepted / r.drafted if r.drafted and r.accepted is not None else None
    text.append(f"{ink.figure(r.decode_tps):>6} {ink.figure(r.ttft_ms, '.0f'):>7} {ink.figure(rate, '.0%'):>6}")
    if r.warmup:
        text.append("" if r.category == WARMUP else " warm-up")
        text.stylize("dim")
    return text


USES = ("recent", "in_flight", "capacity")
PANEL = Panel("requests", "requests", "tell", 2, 12, lambda _: Drawn("requests", "Last requests", USES, draw))
