"""The server: its state, how the start goes, where it answers, and why a start failed."""

from __future__ import annotations

from rich.text import Text

from probes.events import ServerChanged
from probes.session import Frame
from tui.panels import Panel
from tui.widgets import ink
from tui.widgets.drawn import Drawn


def draw(frame: Frame, width: int, height: int) -> Text:  # noqa: ARG001  (the widget wraps and cuts)
    """State first; then what belongs to it."""
    server = frame.server
    if server is None:
        return Text("no server yet: enter starts one", style="dim")
    sign, style = ink.STATES[server.state]
    first = Text(f"{sign} {server.state}", style=f"bold {style}" if style != ink.QUIET else style)
    if server.depth is not None:
        first.append(f"  depth {server.depth}", style="")
    out = [first]
    if server.state == "failed":
        out += failure(server)
    elif server.state in {"starting", "loading", "draining"}:
        out.append(Text(f"{ink.span(server.elapsed_s)} · last boot {ink.span(last_boot(frame))}"))
        out.append(Text(ink.safe(server.last_line or "no line yet"), style="dim"))
    elif server.state == "ready":
        out.append(Text(f"pid {server.pid or ink.NONE}  boot {ink.span(frame.boots.get(server.restart))}"))
        out.append(Text(ink.safe(server.url or ink.NONE)))
        out.append(proof(frame))
    text = ink.lines(out)
    text.no_wrap = server.state not in {"failed", "starting", "loading"}
    text.overflow = "ellipsis"
    return text


def last_boot(frame: Frame) -> float | None:
    """Seconds that the newest finished start took."""
    return frame.boots[max(frame.boots)] if frame.boots else None


def failure(server: ServerChanged) -> list[Text]:
    """Why a start failed, and what to do."""
    ended = (
        f"signal {server.signal}"
        if server.signal
        else f"exit {server.exit_code}"
        if server.exit_code is not None
        else ""
    )
    out = [Text(ink.safe(server.reason or "no reason was printed"), style=ink.BAD)]
    if server.hint:
        out.append(Text(f"→ {ink.safe(server.hint)}"))
    if ended:
        out.append(Text(ended, style="dim"))
    return out


def proof(frame: Frame) -> Text:
    """Whether the flags asked for are in force."""
    flags = frame.flags
    if flags is None:
        return Text("")
    if flags.proven:
        return Text("✔ flags read back: in force", style=ink.GOOD)
    return Text(f"! not proven: {ink.safe('; '.join(flags.notes) or 'the engine does not say')}", style=ink.WARN)


USES = ("server", "boots", "flags")
PANEL = Panel("server", "server", "turn", 2, 6, lambda _: Drawn("server", "Server", USES, draw))
