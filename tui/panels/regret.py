"""Regret: what each depth loses against each category's own best, what rules of thumb would pick, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from rich.text import Text

from probes.recipe import Recipe
from probes.session import Frame
from probes.stats import chances
from tui.charts import colours
from tui.panels import Panel
from tui.panels._cells import ALONE, OTHERS, cells, conclusion, kind, spoken
from tui.widgets import ink
from tui.widgets.drawn import Drawn

RULES = (("minimax", "worst case"), ("median", "median"), ("mean", "mean"))
SHORT = 9
"""Below this many rows only verdict and table are shown, the verdict on two rows; `y` tells all of it."""
FIRM = ("PICK", "NOTHING_TO_CHOOSE")


def draw(frame: Frame, width: int, height: int, *, past: bool = False) -> Text:
    """The verdict first when there is little room, then the table, the rules of thumb and the warnings."""
    result = frame.result or {}
    regret: Mapping[str, Mapping[str, Any]] = result.get("regret") or {}
    names = [c for c in result.get("categories") or [] if any(c in row for row in regret.values())]
    if other := OTHERS.get(kind(result) or ""):
        return ink.lines([Text(conclusion(result), style="bold"), Text(other, style=ink.HOT)])
    if not names:
        return Text("no figures" if past else _first_steps(frame), style="dim")
    if lone(result):
        result = {**result, "picks": {}}
    head, table, rules = _verdict(frame, result), _table(result, regret, names, width), _rules(result)
    if len(regret) == 1:
        table = []
    told = [] if rules is None or height < SHORT else [rules]
    needed = len(table) + sum(_rows(t, width) for t in told)
    if _rows(head, width) > max(2, height - needed):
        head = _verdict(frame, result, first=True)
        head.truncate(max(2, height - needed) * width - 8, overflow="ellipsis")
    left = height - _rows(head, width) - sum(_rows(t, width) for t in told)
    if len(table) > left:
        table = _shortened(table, result, regret, max(2, left))
    left -= len(table)
    kept: list[Text] = []
    likely = Text(f"chance to be best: {said}", style="dim") if (said := chances.best(result)) else None
    for text in [t for t in (likely, _units(frame), *_flags(result)) if t is not None]:
        if (left := left - _rows(text, width)) < 0:
            break
        kept.append(text)
    return ink.lines([head, *table, *told, *kept])


def _first_steps(frame: Frame) -> str:
    """What can be done while nothing is measured."""
    if frame.run is not None and frame.run.attached:
        return "nothing measured yet: p probes it"
    ready = frame.server is not None and frame.server.state == "ready"
    first = "p probes this depth" if ready else "enter starts this depth, p probes it"
    return f"nothing measured yet: {first}, s sweeps all of them"


def lone(result: Mapping[str, Any]) -> bool:
    """Whether only one depth could be judged: then nothing was compared, whatever an older result calls it."""
    verdict = result.get("verdict") or {}
    nothing = verdict.get("state") == "NOTHING_TO_CHOOSE" and not result.get("decision")
    return nothing or str(verdict.get("sentence") or "").startswith(ALONE)


def _rows(text: Text, width: int) -> int:
    return max(1, -(-text.cell_len // max(1, width - 2)))


def _verdict(frame: Frame, result: Mapping[str, Any], *, first: bool = False) -> Text:
    """The verdict in a word, then its sentence; the word is not said twice.

    `first`: what is still needed comes before the sentence, because the sentence will be cut.
    """
    verdict = result.get("verdict") or {}
    state = str(verdict.get("state") or ink.NONE)
    word, sentence = spoken(verdict)
    if lone(result):
        state, word = "NO_CLAIM", ALONE.upper()
    text = Text(word, style=f"bold {ink.GOOD}" if state in FIRM else f"bold {ink.WARN}")
    if verdict.get("depth") is not None:
        text.append(f" {verdict['depth']}")
    if result.get("simulated") or (frame.run and frame.run.simulated):
        text.append(" SIMULATED", style=f"bold {ink.WARN}")
    needs = verdict.get("needs_requests")
    if needs and (first or str(needs) not in sentence):
        text.append(f" · about {needs} more requests", style="not bold default")
    return text.append(f" · {sentence}" if sentence else "", style="not bold default")


def _table(result: Mapping[str, Any], regret: Mapping[str, Any], names: list[str], width: int) -> list[Text]:
    inks = colours(list(result.get("categories") or []))
    column = max(6, min(11, (width - 6 - 8 - 17) // len(names) - 1))
    head = Text("depth ", style="dim")
    for name in names:
        head.append(f"{ink.cut(ink.safe(name), column):>{column}} ", style=inks[name])
    out = [head.append(f"{'worst':>7}", style="dim")]
    firm = (result.get("verdict") or {}).get("state") in FIRM and not lone(result)
    for depth, row in sorted(regret.items(), key=lambda kv: int(kv[0])):
        line = Text(f"{depth:>5} ")
        for name in names:
            line.append(f"{_loss(row.get(name)):>{column}} ", style=_style(row.get(name), firm=firm))
        line.append(f"{ink.figure(row.get('worst'), '.1%'):>7}", style="" if firm else "dim")
        picks = [rule for rule, _ in RULES if (result.get("picks") or {}).get(rule) == int(depth)]
        told = "all three" if len(picks) == len(RULES) else ", ".join(picks)
        out.append(line.append(f" ← {told}" if told else "", style="bold"))
    for line in out:
        line.truncate(width, overflow="ellipsis")
    return out


def _loss(value: float | None) -> str:
    return ink.NONE if value is None else "best" if value == 0 else f"−{value:.1%}"


def _style(value: float | None, *, firm: bool) -> str:
    return "bold" if value == 0 else "" if firm else "dim"


def _shortened(table: list[Text], result: Mapping[str, Any], regret: Mapping[str, Any], rows: int) -> list[Text]:
    """The head and the depths that a rule picks, then the others while there is room; in the dial's order."""
    picked = {str(d) for d in (result.get("picks") or {}).values() if d is not None}
    order = sorted(regret, key=int)
    best = sorted(order, key=lambda d: (d not in picked, regret[d].get("worst") or 9.0))
    keep = set(best[: rows - 1])
    head = table[0].append(f"   {len(order) - len(keep)} more: y", style="dim")
    return [head, *[line for depth, line in zip(order, table[1:], strict=True) if depth in keep]]


def _rules(result: Mapping[str, Any]) -> Text | None:
    """A plain sentence on what the rules of thumb say."""
    picks = result.get("picks") or {}
    said = [(word, picks[rule]) for rule, word in RULES if picks.get(rule) is not None]
    if not said:
        return None
    if len({depth for _, depth in said}) == 1:
        return Text(f"{', '.join(word for word, _ in said)}: all say {said[0][1]}")
    words = ", ".join(f"{word} {'says ' if i == 0 else ''}{depth}" for i, (word, depth) in enumerate(said))
    return Text(f"they disagree: {words}", style=ink.WARN)


def _units(frame: Frame) -> Text | None:
    counts = [int(c.get("n", 0)) for c in cells(frame)]
    if not counts:
        return None
    shown = f"n={counts[0]}" if min(counts) == max(counts) else f"n={min(counts)}–{max(counts)}"
    state = ((frame.result or {}).get("verdict") or {}).get("state")
    few = ": too few to call" if max(counts) < 3 and state != "PICK" else ""  # a pick was called from them
    return Text(f"{shown} prompts a cell{few}", style="dim")


def _flags(result: Mapping[str, Any]) -> list[Text]:
    details = result.get("flag_details") or {}
    found = []
    for name in result.get("flags") or []:
        first = (details.get(name) or [""])[0]
        more = len(details.get(name) or []) - 1
        found.append(
            Text(f"! {ink.safe(first or name)}" + (f" (+{more}, y tells)" if more > 0 else ""), style=ink.WARN)
        )
    return found


USES = ("result", "run", "server")
TITLE = "Regret: loss against each category's own best"


def make(recipe: Recipe | None) -> Drawn:
    """Without a recipe it's a run of the past, in which nothing can be done."""
    return Drawn("regret", TITLE, USES, partial(draw, past=recipe is None))


PANEL = Panel("regret", "regret", "did", 3, 13, make, always=True)
