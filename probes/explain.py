"""A reading in words: what ran, what it can hold, what bound it when, acceptance, trouble. One screen of plain text.

Everything that comes from a log passes through `show.clean`: no escape or control character reaches a terminal.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from probes.events import Ceiling, Record, Verdict
from probes.reading import Reading
from probes.show import clean
from probes.stats.timeline import Stretch
from probes.story import Story, Trouble

LABEL = 12
BARS = "▁▂▃▄▅▆▇█"
WORDS: dict[Verdict, str] = {
    "kv_pool": "KV pool",
    "lanes": "lanes",
    "state_pool": "state pool",
    "prefill": "prefill",
    "admission_delay": "admission delay",
    "client": "client",
    "none": "nothing",
    "unknown": "unknown",
}
TITLES = {"llamacpp": "llama.cpp", "ninfer": "ninfer", "sglang": "SGLang", "vllm": "vLLM"}


def screen(reading: Reading, width: int = 100) -> str:
    """The whole reading on one screen, ending without a newline."""
    if reading.engine is None:
        return "\n".join(_unknown_engine(reading, width))
    parts = textwrap.wrap(_head(reading), width, subsequent_indent="  ")
    parts += _block("Ran", _ran(reading), width)
    parts += _block("Capacity", _capacity(reading), width)
    parts += _block("Ceiling", _ceiling(reading.ceiling), width)
    parts += _block("When", _when(reading.timeline), width, wrap=False)
    parts += _block("Acceptance", _acceptance(reading.story, drafted=reading.drafted_steps), width)
    parts += _block("Trouble", _trouble(reading.story), width)
    parts += _block("Warnings", _warnings(reading), width)
    return "\n".join(parts)


def brief(reading: Reading, width: int = 100) -> str:
    """Three lines for one log of many."""
    if reading.engine is None:
        return f"{clean(reading.file)}: no known engine in {reading.lines:,} lines"
    first = reading.capacity.explain[:1]
    lines = [_head(reading), f"  {reading.ceiling.verdict} ({reading.ceiling.confidence}): {reading.ceiling.sentence}"]
    lines += [f"  {clean(text)}" for text in first]
    return "\n".join(line if len(line) <= width else line[: width - 1] + "…" for line in lines)


def _path(text: str, most: int = 40) -> str:
    """A path whose end stays in sight."""
    shown = clean(text, 4000)
    return shown if len(shown) <= most else f"…{shown[1 - most :]}"


def event_line(record: Record) -> str:
    """One record on one line, for following a log."""
    said = ", ".join(f"{name} {_value(value)}" for name, value in record.fields.items() if name != "per_position")
    at = f"{clean(record.at, 40)} " if record.at else ""
    return clean(f"{at}line {record.line} {record.kind}: {said or record.text}", 400)


def ceiling_line(ceiling: Ceiling) -> str:
    """The ceiling on one line, for following a log."""
    return clean(f"ceiling {ceiling.verdict} ({ceiling.confidence}): {ceiling.sentence}", 600)


def _value(value: object) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else clean(str(value), 120)


def _head(reading: Reading) -> str:
    name = TITLES.get(reading.engine or "", reading.engine or "")
    dialect = f" · format {clean(reading.dialect, 60)}" if reading.dialect else ""
    starts = len(reading.story.starts) + reading.story.more_starts
    count = f" · {starts} starts" if starts > 1 else ""
    return f"{_path(reading.file)} · {name}{dialect} · {reading.lines:,} lines, {reading.records:,} records{count}"


def _block(label: str, lines: Sequence[str], width: int, *, wrap: bool = True) -> list[str]:
    """Lines with their label before the first, wrapped and indented."""
    out: list[str] = []
    for line in lines:
        lead = f"{label:<{LABEL}}" if not out else " " * LABEL
        if wrap:
            out += textwrap.wrap(
                line, width, initial_indent=lead, subsequent_indent=" " * (LABEL + 2), break_on_hyphens=False
            ) or [lead]
        else:
            out.append((lead + line)[:width])
    return out


def _ran(reading: Reading) -> list[str]:
    """What each start was, the last ones in full."""
    starts = reading.story.starts
    shown = starts[-4:]
    out = [f"{len(starts) + reading.story.more_starts - len(shown)} earlier starts"] if len(starts) > len(shown) else []
    for start in shown:
        facts = ", ".join(f"{name.replace('_', ' ')} {clean(value, 80)}" for name, value in start.facts.items())
        many = start.capacity.lanes
        lanes = f", {many} lane{'' if many == 1 else 's'}" if many and len(starts) > 1 else ""
        ready = f", ready at line {start.ready}" if start.ready else ""
        if start.ended and not start.ready and not start.served:
            ready = ", never ready"
        ended = f", {clean(start.ended, 120)} at line {start.ended_line}" if start.ended else ""
        at = f" {clean(start.at, 40)}" if start.at else ""
        out.append(f"from line {start.line}{at}: {facts or 'start'}{lanes}{ready}{ended}")
    if reading.story.requests:
        ended_n = reading.story.requests
        out.append(f"{ended_n:,} request{'' if ended_n == 1 else 's'} ended")
    return out


def _capacity(reading: Reading) -> list[str]:
    if reading.capacity.explain:
        return [clean(text, 600) for text in reading.capacity.explain]
    return ["The log does not say what the server can hold."]


def _ceiling(ceiling: Ceiling) -> list[str]:
    out = [f"{WORDS[ceiling.verdict].upper()} ({ceiling.confidence}). {clean(ceiling.sentence, 800)}"]
    out += [f"line {e.line}: {clean(e.text, 160)}" for e in ceiling.evidence[:4]]
    if ceiling.missing:
        out.append("Missing: " + clean("; ".join(ceiling.missing), 400))
    if ceiling.experiment:
        out.append(f"To be sure: {ceiling.experiment}")
    if ceiling.advice:
        out.append(f"To do: {ceiling.advice}")
    return out


def _when(timeline: Sequence[Stretch], most: int = 10) -> list[str]:
    """The timeline, a stretch a line; the shortest are left out when there are too many."""
    if len(timeline) > most:
        floor = sorted((s.reports for s in timeline), reverse=True)[most - 1]
        shown = [s for s in timeline if s.reports >= floor][-most:]
    else:
        shown = list(timeline)
    many = len({s.start for s in timeline}) > 1
    out = []
    for part in shown:
        when = f"{_clock(part.first_at)}–{_clock(part.last_at)}" if part.first_at and part.last_at else ""
        start = f"start {part.start + 1} " if many else ""
        word = WORDS[part.verdict]
        queue = f", up to {part.waiting} waiting" if part.waiting else ""
        lines = f"lines {part.first_line}–{part.last_line}"
        ran = "— running" if part.running is None else f"up to {part.running} running"
        out.append(f"{start}{when:<19} {word:<15} {ran}{queue} ({part.reports:,} reports, {lines})")
    if len(shown) < len(timeline):
        out.append(f"… and {len(timeline) - len(shown)} shorter stretches")
    return out


def _clock(at: str | None) -> str:
    """The time of day of a stamp; the whole stamp where it has none."""
    text = clean(at or "", 40)
    for date in (10, 5):  # with and without a year
        if len(text) >= date + 9 and text[date] in "T ":
            return text[date + 1 : date + 9]
    return text


def _acceptance(story: Story, *, drafted: bool) -> list[str]:
    """Tokens a step and rate. `drafted`: the lengths leave out steps without a draft, so they aren't of all steps."""
    overall = story.overall
    if overall is None:
        return []
    out = []
    length, rate = overall.accept_len, overall.accept_rate
    said = []
    if length is not None:
        each = [b.accept_len for b in story.acceptance if b.accept_len is not None]
        step = "step that had a draft" if drafted else "step"
        said.append(f"{length:.2f} tokens a {step}, with the bonus token ({min(each):.2f} … {max(each):.2f})")
    if rate is not None:
        counted = f" ({overall.accepted:,} of {overall.drafted:,})" if overall.drafted else ""
        said.append(f"{rate:.1%} of drafted tokens accepted{counted}")
    out.append(f"{', '.join(said)}, over {overall.n:,} report{'' if overall.n == 1 else 's'}")
    if drafted and length is not None:
        out.append("Steps without a draft, most of them with n-gram drafting, give one token and are not counted.")
    line = _spark([b.accept_len if length is not None else b.accept_rate for b in story.acceptance])
    if line:
        out.append(f"over time: {line}")
    return out


def _spark(values: Sequence[float | None]) -> str:
    known = [v for v in values if v is not None]
    if len(known) < 4:
        return ""
    low, high = min(known), max(known)
    step = (high - low) / (len(BARS) - 1) or 1.0
    return "".join(" " if v is None else BARS[round((v - low) / step)] for v in values)


def _trouble(story: Story, most: int = 8) -> list[str]:
    worst = sorted(story.troubles, key=_weight)[:most]
    out = []
    for item in sorted(worst, key=lambda t: t.first):
        times = f"{item.count:,}× " if item.count > 1 else ""
        lines = f"line {item.first}" if item.count == 1 else f"lines {item.first}–{item.last}"
        cure = f" → {clean(item.hint, 300)}" if item.hint else ""
        out.append(f"{times}{item.kind} ({lines}): {clean(item.reason, 200)}{cure}")
    rest = len(story.troubles) - len(worst) + story.more_troubles
    if rest:
        out.append(f"… and {rest} other kinds of trouble")
    return out


def _weight(item: Trouble) -> tuple[int, int]:
    order = ("oom", "crash", "error", "exit", "retract", "preempt", "reject")
    return (0 if item.hint else 1) * 10 + order.index(item.kind), -item.count


def _warnings(reading: Reading, most: int = 6) -> list[str]:
    out = [f"line {w.line}: {clean(w.text, 300)}" if w.line else clean(w.text, 300) for w in reading.warnings[:most]]
    if len(reading.warnings) > most:
        out.append(f"… and {len(reading.warnings) - most} more")
    return out


def _unknown_engine(reading: Reading, width: int) -> list[str]:
    """What was looked for, and not found."""
    tried = ", ".join(TITLES.get(name, name) for name, _ in reading.scores) or ", ".join(TITLES.values())
    text = (
        "The file is empty."
        if not reading.lines
        else f"No known engine wrote this: {reading.lines:,} lines were looked at for the start-up, batch and request "
        f"lines of {tried}. If you know which one it was, name it with --engine."
    )
    return [f"{clean(reading.file, 200)} · no known engine", *_block("Read", [text], width)]
