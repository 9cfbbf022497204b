"""What the diagnosis shows, as text: what it would do, then load by load verdict, experiment, verdict. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from probes.session import Frame
from tui.widgets import ink
from tui.widgets.ceiling import verdict
from tui.widgets.flight import in_flight

SAYS = {"confirmed": ink.GOOD, "contradicted": ink.BAD}
STRIP = 24
LEDGER = 8
"""Rows for the requests on the wire."""


def proposal(depth: int | None, width: int, *, attached: bool, boot_s: float | None) -> Text:
    """What enter would do, and to whom."""
    boot = f", {ink.span(boot_s)} each at the last boot" if boot_s is not None else ""
    does = "reads what the server announces, sends loads that should meet its pool and its lanes, and where something "
    does += "waits, the same load changed in one thing: half the output, shorter prompts, a lane more"
    rows = [("does", does)]
    if attached:
        rows += [
            ("server", "this one is someone else's: it is not restarted, so experiments that need that are left out"),
            ("beware", "whoever else uses it waits while the loads last"),
        ]
    else:
        starts = f"depth {ink.figure(depth, 'd')} with the knobs of the dial; about seven starts{boot}"
        rows.append(("server", f"{starts}; one that runs is stopped first"))
    rows.append(("where", "in a run of its own: these loads are never mixed with the figures of a sweep"))
    return ink.lines([ink.hang(f"{n:<9}", Text(words), width) for n, words in rows])


def measured(frame: Frame, width: int, *, ended: bool = False) -> Text:
    """What runs and waits now (not of a run that has `ended`), then every load that is over."""
    result, progress = frame.result or {}, frame.progress
    ended = ended or (progress is not None and progress.finished)
    loads = result.get("loads") or []
    out = [] if ended else [*_now(frame, width), Text(" ")]
    out += _best(frame, result, width) if ended and loads else []
    for load in loads:
        out += [*_load(load, width), Text(" ")]
    for point in result.get("failed_points") or []:
        if not any(point["point"] == e["name"] for load in loads for e in load["experiments"]):
            out.append(Text(f"✖ {ink.safe(point['point'])}: {ink.safe(point['why'])}", style=ink.BAD))
    if ended and not loads:
        out.append(Text("No load was measured.", style=f"bold {ink.WARN}"))
    return ink.lines(out)


def _best(frame: Frame, result: Mapping[str, Any], width: int) -> list[Text]:
    """The strongest verdict of all loads."""
    ceiling = result.get("ceiling") or {}
    simulated = " SIMULATED" if result.get("simulated") or (frame.run and frame.run.simulated) else ""
    text = Text(_name(ceiling.get("verdict")) + simulated, style=f"bold {ink.WARN}")
    text.append(f" · {ink.safe(ceiling.get('sentence') or '')}", style="not bold default")
    said = (result.get("admits") or {}).get("sentence")
    admits = [ink.hang("→ ", Text(ink.safe(said), style=ink.HOT), width)] if said else []
    return [ink.hang("", text, width), *admits, Text(" ")]


def _now(frame: Frame, width: int) -> list[Text]:
    """The queue at this moment and what it looks like."""
    last = frame.activity[-1] if frame.activity else None
    lanes = f" of {frame.capacity.lanes} lanes" if frame.capacity and frame.capacity.lanes else ""
    step = ink.safe(frame.progress.step) if frame.progress else "starting"
    running, waiting = (last.running, last.waiting) if last else (None, None)
    line = f"running {ink.figure(running, 'g')}{lanes}, waiting {ink.figure(waiting, 'g')}"
    strip = ink.strip([a.waiting for a in frame.activity], STRIP)
    flight = f"{len(frame.in_flight)} of ours on the wire"
    queue = Text(f"{line} · {flight} ").append(strip, style=ink.WARN)
    rows = (("now", Text(step)), ("queue", queue), ("verdict", verdict(frame)))
    told = [ink.hang(f"{name:<9}", words, width) for name, words in rows]
    held = in_flight(frame, LEDGER)
    for row in held:
        row.truncate(width, overflow="ellipsis")
    return [*told, *held]


def _load(load: Mapping[str, Any], width: int) -> list[Text]:
    """One load: the queue, the verdict before, each experiment, the verdict after, what would admit it."""
    was, ceiling = load["measured"], load["ceiling"]
    name, says = _name(ceiling["verdict"]), str(load["conclusion"])
    share = was.get("waited_share")
    late = f" (in {share:.0%} of the reports)" if share is not None else ""
    lanes = f" of {was['lanes']} lanes" if was.get("lanes") else ""
    queue = f"running {ink.figure(was['running'], 'g')}{lanes}, waiting {ink.figure(was['waiting'], 'g')}{late}"
    rivals = f" · could also be: {', '.join(map(_name, ceiling['rivals']))}" if ceiling.get("rivals") else ""
    before = Text(name, style=f"bold {ink.WARN}")
    before.append(f" ({ceiling['confidence']}) {ink.safe(ceiling['sentence'])}{rivals}", style="not bold default")
    rows = [("queue", Text(queue)), ("before", before)]
    for trial in load["experiments"]:
        what = ink.safe(str(trial["name"]).rpartition(": ")[2])
        told = f"not run: {ink.safe(trial['failed'])}" if trial.get("failed") else ink.safe(trial["says"])
        rows.append(("try", Text(f"{what}: {told}", style="dim" if trial.get("failed") else "")))
    if load["experiments"]:
        after = Text(f"{name} {says}", style=f"bold {SAYS.get(says, ink.WARN)}")
        rows.append(("after", after.append(f": {ink.safe(load['because'])}", style="not bold default")))
    if load.get("admits"):
        rows.append(("admits", Text(ink.safe(load["admits"]["sentence"]), style=ink.HOT)))
    if ceiling.get("advice"):
        rows.append(("to do", Text(ink.safe(ceiling["advice"]))))
    title = Text(f"─ {ink.cut(ink.safe(load['load']), max(4, width - 4))}", style="bold")
    return [title, *[ink.hang(f"  {label:<7}", words, width) for label, words in rows]]


def _name(verdict: Any) -> str:
    return str(verdict or "unknown").replace("_", " ").upper()
