"""A sweep's result for a terminal or a pipe: cells, regret, picks, the verdict in words; charts on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from probes.commands._common import words
from probes.events import Event, PlanProgress, RequestDone
from probes.show import clean
from probes.stats import chances, tails


def bar() -> Callable[[Event], None]:
    """A progress bar on stderr, with a line of its own for what matters."""
    state: dict[str, Any] = {"done": 0, "total": 1, "requests": 0, "step": "", "left": ""}

    def draw(event: Event) -> None:
        if isinstance(event, PlanProgress):
            left = f" · {event.seconds_left:.0f} s left" if event.seconds_left else ""
            state.update(done=event.done, total=max(event.total, 1), step=event.step, left=left)
        elif isinstance(event, RequestDone):
            state["requests"] = state["requests"] + 1
        elif text := words(event):
            sys.stderr.write(f"\r\x1b[K{clean(text)}\n")
        else:
            return
        filled = 24 * int(state["done"]) // int(state["total"])
        shown = f"{'━' * filled}{'┄' * (24 - filled)} {state['done']}/{state['total']} {state['step']}"
        sys.stderr.write(f"\r\x1b[K{shown} · {state['requests']} requests{state['left']}")
        if isinstance(event, PlanProgress) and event.finished:
            sys.stderr.write("\n")
        sys.stderr.flush()

    return draw


def show(result: Mapping[str, Any]) -> None:
    """The result as plain text on stdout."""
    for text in lines(result):
        sys.stdout.write(clean(text, 400) + "\n")
    if sys.stdout.isatty():
        charts(result)


def number(value: Any, spec: str = ".1f", none: str = "—") -> str:
    """A figure, or a dash where there is none."""
    return none if value is None else format(value, spec)


def lines(result: Mapping[str, Any]) -> list[str]:
    """Cells, regret, picks, flags and the verdict, line by line."""
    told = " · SIMULATED" if result.get("simulated") else ""
    out = [f"{result.get('engine')} · run {result.get('run')}{told}", ""]
    heads = f"{'accept':>7} {'length':>7} {'tok/s':>15} {'TPOT ms':>8} {'TTFT ms':>8} {'step ms':>8}"
    out.append(f"{'depth':>5} {'category':<12} {'n':>3} {heads}")
    for cell in result.get("cells") or []:
        if not cell.get("requests"):
            continue
        speeds = cell.get("decode_tps") or []
        both = (
            " ".join(f"{v:.1f}" for v in speeds)
            if len(speeds) <= 2
            else f"{sum(speeds) / len(speeds):.1f} of {len(speeds)}"
        )
        figures = [(cell.get("accept_rate"), 7, ".1%"), (cell.get("accept_len"), 7, ".2f")]
        rest = [(cell.get("tpot_ms"), 8, ".2f"), (cell.get("ttft_ms"), 8, ".1f"), (cell.get("step_ms"), 8, ".2f")]
        left, right = (" ".join(f"{number(v, spec):>{width}}" for v, width, spec in part) for part in (figures, rest))
        out.append(f"{cell['depth']:>5} {cell['category']:<12} {cell.get('n', 0):>3} {left} {both or '—':>15} {right}")
    out += ["", *_regret(result), "", *chances.lines(result), "", *tails.lines(result), ""]
    for name in result.get("flags") or []:
        details = (result.get("flag_details") or {}).get(name) or []
        out.append(
            f"! {name}: {'; '.join(details[:3])}" + (f" (and {len(details) - 3} more)" if len(details) > 3 else "")
        )
    verdict = result.get("verdict") or {}
    out.append(f"{verdict.get('state', '—')}: {verdict.get('sentence', '')}")
    for point in result.get("failed_points") or []:
        out.append(f"! depth {point['depth']}, block {point['block'] + 1} is missing: {point['why']}")
    return out


def _regret(result: Mapping[str, Any]) -> list[str]:
    regret, picks = result.get("regret") or {}, result.get("picks") or {}
    seen = [c for c in result.get("categories") or [] if any(c in row for row in regret.values())]
    if not seen:
        return ["no depth was measured"]
    out = [
        "loss against each category's own best depth",
        f"{'depth':>5} "
        + " ".join(f"{c[:11]:>11}" for c in seen)
        + f" {'worst':>8}"
        + (f" {'traffic':>8}" if result.get("mix") else ""),
    ]
    for depth, row in sorted(regret.items(), key=lambda item: int(item[0])):
        names = [name for name in ("minimax", "median", "mean") if picks.get(name) == int(depth)]
        cells = " ".join(f"{'0' if row.get(c) == 0 else number(row.get(c), '.1%'):>11}" for c in seen)
        mixed = f" {number(row.get('weighted'), '.1%'):>8}" if result.get("mix") else ""
        out.append(
            f"{depth:>5} {cells} {number(row.get('worst'), '.1%'):>8}{mixed}"
            + (f"  ← {', '.join(names)}" if names else "")
        )
    return out


def charts(result: Mapping[str, Any]) -> None:
    """Accept rate and speed by depth, drawn with plotext to the terminal's width."""
    import plotext

    for key, title in (("accept_rate", "accept rate by depth"), ("decode_tps", "decode tok/s by depth")):
        series: dict[str, list[tuple[int, float]]] = {}
        for cell in result.get("cells") or []:
            value = cell.get(key)
            if isinstance(value, list):
                value = sum(value) / len(value) if value else None
            if value is not None:
                series.setdefault(cell["category"], []).append((cell["depth"], value))
        if not any(len(points) > 1 for points in series.values()):
            continue
        figure = plotext.figure
        figure.clear()
        figure.plot_size(min(plotext.terminal_width() or 80, 110), 18)
        for name, points in series.items():
            points.sort()
            figure.draw(figure.signal([p[0] for p in points], [p[1] for p in points]).lines().label(name))
        figure.title(title)
        sys.stdout.write(f"\n{figure.build()}\n")
