"""An A/B's result as text: the verdict first, then what it rests on."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from probes.show import clean


def show(result: Mapping[str, Any]) -> None:
    """The result on stdout; what makes it another experiment stands in red on a terminal."""
    red = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    for text in lines(result):
        shown = clean(text, 400)
        sys.stdout.write(f"\x1b[31m{shown}\x1b[0m\n" if red and text.startswith("! ") else f"{shown}\n")


def lines(result: Mapping[str, Any]) -> list[str]:
    """The result line by line; lines that start with `! ` are warnings."""
    told = " · SIMULATED" if result.get("simulated") else ""
    out = [f"{result['verdict']}: {result['sentence']}", "", f"{result['engine']} · run {result['run']}{told}"]
    out += [f"differs: {text}" for text in result.get("differs") or ["nothing (A/A)"]]
    if "SEVERAL_KNOBS" in result.get("flags", []):
        out.append("! more than one knob differs: this compares two bundles, not one flag")
    out += [f"! {text}" for text in result.get("warnings") or []]
    out += ["", f"{'category':<14} {'B/A':>7}  95 % interval     prompts"]
    rows = [(c, v, v["prompts"]) for c, v in (result.get("per_category") or {}).items()]
    if result.get("interval"):
        rows.append(("all", result["interval"], result["prompts"]))
    out += [f"{c:<14} {v['ratio']:>7.3f}  {v['low']:.3f} to {v['high']:.3f}   {n:>7}" for c, v, n in rows]
    speeds = result.get("speeds") or {}
    for arm in ("a", "b"):
        out.append(f"{arm.upper()} tok/s by block: " + (" ".join(f"{v:.1f}" for v in speeds.get(arm) or []) or "—"))
    floor = result.get("floor")
    if floor:
        out.append(f"noise between identical servers: sd of a block up to {floor['upper']:.1%}")
    live = result.get("anytime") or {}
    if live.get("e") is not None:
        span = f"{live['low']:.3f} to {live['high']:.3f}" if live.get("low") and live.get("high") else "not bounded yet"
        out.append(f"valid at any look: {span} (e-value {live['e']:.1f}, 20 decides)")
    texts = result.get("texts_differ") or []
    if texts:
        out.append(f"! greedy texts differ between the arms for {', '.join(texts[:6])}")
    for point in result.get("failed_points") or []:
        out.append(f"! arm {point['arm'].rstrip('-').upper()}, block {point['block'] + 1} is missing: {point['why']}")
    return out
