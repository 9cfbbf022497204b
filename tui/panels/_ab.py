"""What the A/B screen shows, as text: what would differ and what it takes, then two columns and the verdict. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from probes.measure.ab import Arm, Design, budgets, differences
from probes.recipe import Recipe
from probes.session import Frame
from tui.messages import Compare
from tui.panels._cells import spoken
from tui.widgets import ink
from tui.widgets.choice import Chosen
from tui.widgets.dial import legal, said

BUNDLE = "! more than one knob differs: this compares two bundles, not one flag"
ROOMY = 66
"""From so many cells on the table has its full columns; below, B/A would be cut off."""
DECIDES = 20
"""The e-value that rejects "no difference" at 5 %."""
COLOURS = {"BETTER": ink.GOOD, "WORSE": ink.BAD, "EQUIVALENT": ink.GOOD}
Costs = tuple[float | None, float | None]


def proposal(chosen: Chosen, design: Design, costs: Costs, width: int, *, early: bool, runs: bool) -> Text:
    """Both arms knob by knob, then the plan and its price. `costs`: seconds of a boot and of a request."""
    recipe, a, b = chosen.recipe, chosen.asked or chosen.wanted, chosen.wanted
    rows = [Text(f"{'':<24}{'A ' + ('(runs now)' if runs else '(the dial)'):<18}B", style="bold")]
    rows.append(_row(chosen.row == 0, recipe.dial.label, a.depth, b.depth, " ".join(map(str, recipe.dial.values))))
    for i, knob in enumerate(recipe.knobs, 1):
        left, right = (side.knobs.get(knob.name, knob.default) for side in (a, b))
        rows.append(_row(chosen.row == i, knob.name, left, right, legal(knob)))
    arms = Arm(a.depth, a.knobs), Arm(b.depth, b.knobs)
    rows += [Text(" "), *_differs(differences(*arms), width)]
    rows += [ink.hang("! ", Text(text, style=f"bold {ink.BAD}"), width) for text in budgets(recipe, *arms)]
    rows.append(Text(" "))
    rows += plan(recipe, design, costs, width, early=early)
    return ink.lines(rows)


def _row(here: bool, name: str, left: Any, right: Any, rule: str) -> Text:
    text = Text("▸ " if here else "  ", style=ink.HOT).append(ink.pad(name, 22), style="bold" if here else "not bold")
    text.append(ink.pad(said(left), 18), style="not bold default")
    text.append(ink.pad(said(right), 14), style=ink.HOT if left != right else "not bold default")
    return text.append(f"  {rule}" if here else "", style="not bold dim")


def _differs(found: Sequence[str], width: int) -> list[Text]:
    """What differs, in words; more than one knob in red."""
    if not found:
        return [Text("nothing differs yet: change one thing in B", style="dim")]
    out = _rows([("differs", ink.safe("; ".join(found)))], width)
    return out if len(found) == 1 else [*out, ink.hang("", Text(BUNDLE, style=f"bold {ink.BAD}"), width)]


def _rows(rows: Sequence[tuple[str, str]], width: int) -> list[Text]:
    return [ink.hang(f"{name:<9}", Text(words), width) for name, words in rows]


def plan(recipe: Recipe, design: Design, costs: Costs, width: int, *, early: bool) -> list[Text]:
    """Restarts, time and stop rule, before anything starts."""
    kinds = len(recipe.workload.categories)
    alone = f"{design.floor} of A alone for the noise floor, then " if design.floor else ""
    whole = f"{design.restarts} restarts: {alone}{design.blocks} blocks of A and B (AB, BA, …)"
    boot, request = costs
    if boot is None or request is None:
        price = "not known: nothing of this preset was measured yet; the first restarts tell"
    else:
        seconds = design.seconds(boot, request, kinds) / recipe.speed
        price = f"about {ink.about(seconds)}, as a boot took {ink.span(boot)} and a request {ink.span(request)}"
        price += f" (simulated, {recipe.speed:g} times as fast)" if recipe.speed != 1 else ""
    prompts = f"{design.prompts} prompts of each of {kinds} categories, the same in both arms"
    return _rows([("plan", whole), ("", prompts), ("time", price), ("stops", stops(design, early=early))], width)


def stops(design: Design, *, early: bool) -> str:
    """The stop rule in words."""
    end = f"after {design.blocks} blocks, whatever the figures look like on the way"
    sooner = f"as soon as the e-value reaches {DECIDES}, which may be looked at any time; at the latest"
    return f"{sooner} {end.partition(',')[0]} (e: always all blocks)" if early else f"{end} (e: as soon as it is sure)"


def measured(asked: Compare | None, frame: Frame, width: int) -> Text:
    """The verdict or how far it is, the interval that may be watched, then A and B in two columns.

    `asked` is None for a run of the past: what differed is in its result.
    """
    result, progress = frame.result or {}, frame.progress
    ended = asked is None or (progress is not None and progress.finished)
    found = result.get("differs") or [] if asked is None else differences(asked.a, asked.b)
    out = [ink.hang("", _verdict(frame, result, ended=ended), width)]
    red = f"bold {ink.BAD}"
    out += [ink.hang("! ", Text(ink.safe(w), style=red), width, red) for w in result.get("warnings") or []]
    out += [*_differs(found, width), *_state(asked, result, width, ended=ended)]
    out += [ink.hang("! ", Text(told), width, ink.WARN) for told in (_against(result) if ended else [])]
    rows = [Text(" "), *table(result, width, ended=ended)]
    for row in rows:
        row.truncate(width, overflow="ellipsis")
    out += rows
    texts = result.get("texts_differ") or []
    if texts:
        out.append(Text(f"! greedy texts differ between the arms for {ink.safe(', '.join(texts[:6]))}", style=ink.WARN))
    return ink.lines(out)


def _verdict(frame: Frame, result: Mapping[str, Any], *, ended: bool) -> Text:
    """The verdict when it ends; before, only that it is measuring: a figure on the way is no verdict."""
    simulated = " SIMULATED" if result.get("simulated") or (frame.run and frame.run.simulated) else ""
    if not ended:
        step = frame.progress.step if frame.progress else "starting"
        text = Text("measuring", style=f"bold {ink.WARN}").append(simulated)
        return text.append(f" · {ink.safe(step)} · no verdict before it ends", style="not bold default")
    word = str(result.get("verdict") or "NO_CLAIM")
    said, sentence = spoken({"state": word, "sentence": result.get("sentence") or "Nothing was measured."})
    text = Text(said, style=f"bold {COLOURS.get(word, ink.WARN)}")
    text.append(simulated, style=f"bold {ink.WARN}").append(f" · {sentence}", style="not bold default")
    step = frame.progress.step if frame.progress else ""
    return text.append(f" · {step}", style="not bold dim") if step.startswith("stopped") else text


def _against(result: Mapping[str, Any]) -> list[str]:
    """Kinds of text for which the opposite of the verdict holds: a mean hides them."""
    kinds = (result.get("per_category") or {}).items()
    slower = [f"{ink.safe(c)} ({v['ratio'] - 1:+.1%})" for c, v in kinds if v["high"] < 1]
    faster = [f"{ink.safe(c)} ({v['ratio'] - 1:+.1%})" for c, v in kinds if v["low"] > 1]
    if result.get("verdict") != "WORSE" and slower:
        return [f"not for every kind of text: B is slower on {', '.join(slower)}"]
    if result.get("verdict") != "BETTER" and faster:
        return [f"not for every kind of text: B is faster on {', '.join(faster)}"]
    return []


def _state(asked: Compare | None, result: Mapping[str, Any], width: int, *, ended: bool) -> list[Text]:
    """Blocks done, the line that may be watched, the noise floor, the stop rule, and what is still needed."""
    live, floor = result.get("anytime") or {}, result.get("floor") or {}
    if live.get("low") is not None and live.get("high") is not None:
        span = f"B/A between {live['low'] - 1:+.1%} and {live['high'] - 1:+.1%}"
    else:
        span = "not bounded yet: it needs three blocks or more"
    e = f" · e-value {live['e']:.1f} of {DECIDES}" if live.get("e") is not None else ""
    sure = " · it has decided" if (live.get("e") or 0) >= DECIDES else ""
    heard = (
        f"identical servers differ by up to {floor['upper']:.1%} a block"
        if floor.get("upper") is not None
        else "not measured yet: restarts of A alone tell it"
    )
    done = f"{result.get('blocks', 0)}" + ("" if asked is None else f" of {asked.design.blocks}") + " done"
    rows = [("blocks", done), ("any look", f"{span}{e}{sure}"), ("noise", heard)]
    if asked is not None and not ended:
        rows.append(("stops", stops(asked.design, early=asked.early).partition(" (e:")[0]))
    elif result.get("verdict") == "UNDECIDED":
        need = result.get("needs_blocks")
        more = f"about {max(need, result.get('blocks', 0) + 1)} blocks" if need else "more blocks than is sensible"
        rows.append(("needs", more))
    return _rows(rows, width)


def table(result: Mapping[str, Any], width: int, *, ended: bool) -> list[Text]:
    """A row for each category over all blocks, then one for each block, newest first. Dim until it has ended."""
    sizes = (12, 15) if width >= ROOMY else (8, 11)
    rows = result.get("rows") or []
    if not rows:
        return [Text("no figure of a block yet", style="dim")]
    quiet = "" if ended else "dim"
    name, cell = sizes
    out = [
        Text(f"{'block':<6}{ink.pad('category', name)}│ {'A tok/s':<{cell}}│ {'B tok/s':<{cell}}│ B/A", style="bold")
    ]
    if ended:
        for category, found in (result.get("per_category") or {}).items():
            mine = [r for r in rows if r["category"] == category]
            a, b = ([v for r in mine for v in r[arm]] for arm in ("a", "b"))
            ratio = f"{found['ratio']:.3f} {found['low'] - 1:+.1%}…{found['high'] - 1:+.1%}"
            out.append(_line("all", category, a, b, ratio, "bold", sizes))
    for row in reversed(_grouped(rows)):
        a, b = row["a"], row["b"]
        ratio = f"{sum(b) / len(b) / (sum(a) / len(a)):.3f}" if a and b and len(a) == len(b) else ink.NONE
        out.append(_line(str(row["block"] + 1), row["category"], a, b, ratio, quiet, sizes))
    return out


def _grouped(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows so that, reversed, blocks fall and the categories within one keep their order."""
    blocks = sorted({r["block"] for r in rows})
    return [row for block in blocks for row in reversed([r for r in rows if r["block"] == block])]


def _line(
    block: str,
    category: str,
    a: Sequence[float],
    b: Sequence[float],
    ratio: str,
    style: str,
    sizes: tuple[int, int],
) -> Text:
    name = f"{ink.pad(block, 6)}{ink.pad(ink.safe(category), sizes[0])}"
    return Text(f"{name}│ {speeds(a):<{sizes[1]}}│ {speeds(b):<{sizes[1]}}│ {ratio}", style=style)


def speeds(values: Sequence[float]) -> str:
    """Up to two speeds spelled out, more as their mean; always with their number."""
    if not values:
        return ink.NONE
    shown = "/".join(f"{v:.1f}" for v in values) if len(values) <= 2 else f"{sum(values) / len(values):.1f}"
    return f"{shown} n={len(values)}"
