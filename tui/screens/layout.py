"""Where each panel stands on a screen of so many cells. Pure: sizes in, rectangles out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tui.panels import Panel

WIDE, TALL = 118, 32
"""From here on everything is in sight at once; below, the panels share one place as tabs."""
LEFT = 38


@dataclass(frozen=True, slots=True)
class Area:
    """A rectangle in cells."""

    x: int
    y: int
    width: int
    height: int


def is_wide(width: int, height: int) -> bool:
    """Whether everything fits at once."""
    return width >= WIDE and height >= TALL


def arrange(width: int, height: int, panels: Sequence[Panel], chosen: str, *, zoomed: bool = False) -> dict[str, Area]:
    """The area of each panel in sight; `chosen` is the tab that is open (or the panel that has the whole screen)."""
    if width <= 0 or height <= 0:
        return {}
    if zoomed:
        return {chosen: Area(0, 0, width, height)}
    return _wide(width, height, panels) if is_wide(width, height) else _narrow(width, height, panels, chosen)


def tabbed(panels: Sequence[Panel]) -> list[Panel]:
    """The panels that share one place on a small screen, the charts first."""
    order = {"did": 0, "tell": 1, "turn": 2, "bounds": 3}
    return sorted((p for p in panels if not p.always), key=lambda p: (order[p.place], p.order))


def _wide(width: int, height: int, panels: Sequence[Panel]) -> dict[str, Area]:
    by = {place: [p for p in panels if p.place == place] for place in ("turn", "did", "bounds", "tell")}
    bounds = sum(p.rows for p in by["bounds"])
    told = max((p.rows for p in by["tell"]), default=0)
    told = max(5, min(told, height - bounds - 20)) if told else 0
    top = height - bounds - told
    found = _column(0, 0, LEFT, top, by["turn"])
    rows = -(-len(by["did"]) // 2)
    for i, panel in enumerate(by["did"]):
        row, column = divmod(i, 2)
        y0, y1 = top * row // rows, top * (row + 1) // rows
        half = (width - LEFT) // 2
        alone = i == len(by["did"]) - 1 and column == 0
        x, w = LEFT + column * half, width - LEFT if alone else half if column == 0 else width - LEFT - half
        found[panel.name] = Area(x, y0, w, y1 - y0)
    y = top
    for panel in by["bounds"]:
        found[panel.name] = Area(0, y, width, panel.rows)
        y += panel.rows
    x = 0
    for i, panel in enumerate(by["tell"]):
        last = i == len(by["tell"]) - 1
        w = width - x if last else (width - 50) // max(1, len(by["tell"]) - 1)
        found[panel.name] = Area(x, y, w, height - y)
        x += w
    return found


def _column(x: int, y: int, width: int, height: int, panels: Sequence[Panel]) -> dict[str, Area]:
    """One under another, each as high as it likes; the first takes what is over and the last give way."""
    wanted = [p.rows for p in panels]
    spare = height - sum(wanted)
    if panels:
        wanted[0] += max(0, spare)
    for i in range(len(wanted) - 1, -1, -1):
        if spare >= 0:
            break
        taken = min(wanted[i] - 3, -spare)
        wanted[i] -= max(0, taken)
        spare += max(0, taken)
    found = {}
    for panel, rows in zip(panels, wanted, strict=True):
        if y + rows > height:
            break
        found[panel.name] = Area(x, y, width, rows)
        y += rows
    return found


def _narrow(width: int, height: int, panels: Sequence[Panel], chosen: str) -> dict[str, Area]:
    """The dial on top, regret under it, then the open tab; row `tabs` names the tabs."""
    always = [p for p in panels if p.always]
    found: dict[str, Area] = {}
    dial = max(1, min(5, height // 4))
    y = 0
    for i, panel in enumerate(always):
        rows = dial if i == 0 else min(8, max(0, (height - dial) // 2))
        if rows < 1 or y + rows > height:
            break
        found[panel.name] = Area(0, y, width, rows)
        y += rows
    if height - y >= 2:
        found["tabs"] = Area(0, y, width, 1)
        found[chosen] = Area(0, y + 1, width, height - y - 1)
    return found
