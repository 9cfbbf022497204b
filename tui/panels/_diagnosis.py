"""What the diagnosis shows, as text: what it would do, then load by load verdict, experiment, verdict. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from probes.session import Frame
from tui.widgets import ink
from tui.widgets.ceiling import verdict

SAYS = {"confirmed": ink.GOOD, "contradicted": ink.BAD}
STRIP = 24


def proposal(depth: int | None, *, attached: bool, boot_s: float | None) -> Text:
    """What enter would do, and to whom."""
    boot = f", {ink.span(boot_s)} each at the last boot" if boot_s is not None else ""
    rows = [
        ("does", "reads what the server announces, sends loads that should meet its pool and its lanes, and where"),
        ("", "something waits, the same load changed in one thing: half the output, shorter prompts, a lane more"),
    ]
    if attached:
        rows += [
            ("server", "this one is someone else's: it is not restarted, so experiments that need that are left out"),
            ("beware", "whoever else uses it waits while the loads last"),
        ]
    else:
        rows += [
            ("server", f"depth {ink.figure(depth, 'd')} with the knobs of the dial; about seven starts{boot}"),
            ("", "one that runs is stopped first"),
        ]
    rows.append(("where", "in a run of its own: these loads are never mixed with the figures of a sweep"))
    return ink.lines([Text(f"{n:<9}", style="bold").append(words, style="not bold") for n, words in rows])


def measured(frame: Frame, width: int) -> Text:
    """What runs and waits now, then every load that is over."""
    result, progress = frame.result or {}, frame.progress
    ended = progress is not None and progress.finished
    out: list[Text] = []
    if not ended:
        out += [*_now(frame), Text(" ")]
    loads = result.get("loads") or []
    out += _best(frame, result) if ended and loads else []
    for load in loads:
        out += [*_load(load, width), Text(" ")]
    for point in result.get("failed_points") or []:
        if not any(point["point"] == e["name"] for load in loads for e in load["experiments"]):
            out.append(Text(f"✖ {ink.safe(point['point'])}: {ink.safe(point['why'])}", style=ink.BAD))
    if ended and not loads:
        out.append(Text("No load was measured.", style=f"bold {ink.WARN}"))
    return ink.lines(out)


def _best(frame: Frame, result: Mapping[str, Any]) -> list[Text]:
    """The strongest verdict of all loads, in one line."""
    ceiling = result.get("ceiling") or {}
    simulated = " SIMULATED" if result.get("simulated") or (frame.run and frame.run.simulated) else ""
    text = Text(_name(ceiling.get("verdict")), style=f"bold {ink.WARN}").append(simulated)
    text.append(f" · {ink.safe(ceiling.get('sentence') or '')}", style="not bold default")
    said = (result.get("admits") or {}).get("sentence")
    return [text, *([Text(f"→ {ink.safe(said)}", style=ink.HOT)] if said else []), Text(" ")]


def _now(frame: Frame) -> list[Text]:
    """The queue at this moment and what it looks like."""
    last = frame.activity[-1] if frame.activity else None
    lanes = f" of {frame.capacity.lanes} lanes" if frame.capacity and frame.capacity.lanes else ""
    step = ink.safe(frame.progress.step) if frame.progress else "starting"
    seen = [(r.fields.get("running"), r.fields.get("waiting")) for r in frame.last_records if "running" in r.fields]
    running, waiting = seen[-1] if seen else (last.running, last.waiting) if last else (None, None)
    line = f"running {ink.figure(running, 'g')}{lanes}, waiting {ink.figure(waiting, 'g')}"
    strip = ink.strip([w for _, w in seen] or [a.waiting for a in frame.activity], STRIP)
    flight = f"{len(frame.in_flight)} of ours on the wire"
    return [
        Text("now      ", style="bold").append(step, style="not bold"),
        Text("queue    ", style="bold").append(f"{line} · {flight} ", style="not bold").append(strip, style=ink.WARN),
        Text("verdict  ", style="bold").append_text(verdict(frame)),
    ]


def _load(load: Mapping[str, Any], width: int) -> list[Text]:
    """One load: the queue, the verdict before, each experiment, the verdict after, what would admit it."""
    was, ceiling = load["measured"], load["ceiling"]
    out = [Text(f"─ {ink.cut(ink.safe(load['load']), max(4, width - 4))}", style="bold")]
    share = was.get("waited_share")
    late = f" (in {share:.0%} of the reports)" if share is not None else ""
    lanes = f" of {was['lanes']} lanes" if was.get("lanes") else ""
    queue = f"running {ink.figure(was['running'], 'g')}{lanes}, waiting {ink.figure(was['waiting'], 'g')}{late}"
    out.append(_row("queue", queue))
    rivals = f" · could also be: {', '.join(ceiling['rivals'])}" if ceiling.get("rivals") else ""
    sentence = f" ({ceiling['confidence']}) {ink.safe(ceiling['sentence'])}{rivals}"
    name = _name(ceiling["verdict"])
    before = _row("before", "").append(name, style=f"bold {ink.WARN}")
    out.append(before.append(sentence, style="not bold default"))
    for trial in load["experiments"]:
        name = ink.safe(str(trial["name"]).rpartition(": ")[2])
        if trial.get("failed"):
            out.append(_row("try", f"{name}: not run: {ink.safe(trial['failed'])}", "dim"))
            continue
        out.append(_row("try", f"{name}: {ink.safe(trial['says'])}"))
    if load["experiments"]:
        says = str(load["conclusion"])
        after = _row("after", "").append(f"{name} {says}", style=f"bold {SAYS.get(says, ink.WARN)}")
        out.append(after.append(f": {ink.safe(load['because'])}", style="not bold default"))
    if load.get("admits"):
        out.append(_row("admits", ink.safe(load["admits"]["sentence"]), ink.HOT))
    if ceiling.get("advice"):
        out.append(_row("to do", ink.safe(ceiling["advice"])))
    return out


def _row(name: str, words: str, style: str = "not bold") -> Text:
    return Text(f"  {name:<7}", style="bold").append(words, style=style)


def _name(verdict: Any) -> str:
    return str(verdict or "unknown").replace("_", " ").upper()
