"""Writes the generated parts of docs/*.md from the program itself: `python docs/tables.py`, or `--check` to compare.

A generated part stands between `<!-- table NAME -->` and `<!-- end -->`; everything else is written by hand.
"""  # noqa: INP001  (a script beside texts, not a package)

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
PART = re.compile(r"(<!-- table (?P<name>[\w. ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def row(*cells: object) -> str:
    """One line of a table; bars inside a cell are escaped."""
    return "| " + " | ".join(str(c).replace("|", r"\|").replace("\n", " ") for c in cells) + " |"


def table(heads: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> str:
    """A Markdown table."""
    return "\n".join([row(*heads), "|" + "---|" * len(heads), *(row(*r) for r in rows)]) + "\n"


def knobs(engine: str) -> str:
    """Every knob of an engine."""
    from probes import engines

    rows = []
    for knob in engines.engine(engine).knobs:
        legal = ", ".join(f"`{c}`" for c in knob.choices)
        if not legal and knob.type in {"int", "float"} and (knob.low is not None or knob.high is not None):
            legal = f"{_bound(knob.low)} to {_bound(knob.high)}"
        default = "" if knob.default is None else f"`{knob.default}`"
        flag = f"`{knob.flag}`" if knob.flag else "composed"
        notes = "; ".join(t for t in (knob.help, knob.rule, knob.also) if t)
        rows.append((f"`{knob.name}`", flag, knob.type, legal, default, ", ".join(knob.changes), notes))
    return table(("knob", "flag", "type", "legal", "default", "changes", "what to know"), rows)


def _bound(value: float | None) -> str:
    return "…" if value is None else f"{value:g}"


def kinds(engine: str) -> str:
    """Every kind of speculation that a dial of this engine may turn, with the depths that it takes."""
    from probes import engines
    from probes.engines import _llamacpp_flags, _ninfer_flags, _sglang_flags, _vllm_flags
    from probes.recipe import Dial

    words: Mapping[str, tuple[str, ...]] = {
        "llamacpp": _llamacpp_flags.KINDS, "ninfer": tuple(_ninfer_flags.DEPTHS), "sglang": _sglang_flags.KINDS,
        "vllm": _vllm_flags.METHODS,
    }  # fmt: skip
    rows: list[tuple[object, ...]] = []
    for kind in words[engine]:
        span = engines.engine(engine).dial_range(Dial(kind, (0,)))
        low, high = (max(span[0], 1), span[1]) if span else (1, None)
        depths = f"{low}" if low == high else f"{low} to {high}" if high else "any; the engine sets no bound"
        rows.append((f"`{kind}`", f"0, {depths}"))
    return table(("kind", "depths"), rows)


def launchers() -> str:
    """Every launcher with its options."""
    from probes.launch import OPTIONS

    rows: list[tuple[object, ...]] = [(f"`{n}`", ", ".join(f"`{o}`" for o in opts)) for n, opts in OPTIONS.items()]
    return table(("launcher", "launcher_options"), rows)


def columns(which: str) -> str:
    """The columns of an export, in order."""
    import dataclasses

    from probes.commands.export import CELL
    from probes.events import RequestDone

    names = CELL if which == "cells" else ("run", *(f.name for f in dataclasses.fields(RequestDone)))
    return " ".join(f"`{n}`" for n in names) + "\n"


def verdicts() -> str:
    """Every ceiling, what it says, and the experiment that separates it."""
    from probes.stats.ceiling_words import EXPERIMENTS, HEADLINES

    return table(("verdict", "means", "to be sure"), [(f"`{v}`", HEADLINES[v], EXPERIMENTS[v]) for v in HEADLINES])


PARTS: Mapping[str, Callable[[str], str]] = {
    "knobs": knobs,
    "kinds": kinds,
    "launchers": lambda _: launchers(),
    "columns": columns,
    "verdicts": lambda _: verdicts(),
}


def made(text: str) -> str:
    """A document with its generated parts made anew."""

    def part(found: re.Match[str]) -> str:
        name, _, about = found["name"].partition(" ")
        return f"{found[1]}\n{PARTS[name](about)}\n{found[3]}"

    return PART.sub(part, text)


def main(words: list[str]) -> int:
    """Write, or with `--check` only say which documents are stale."""
    stale: list[Any] = []
    for path in sorted(HERE.glob("*.md")):
        old = path.read_text(encoding="utf-8")
        if (new := made(old)) != old:
            stale.append(path.name)
            if "--check" not in words:
                path.write_text(new, encoding="utf-8")
    for name in stale:
        sys.stdout.write(f"{name}: {'stale' if '--check' in words else 'written'}\n")
    return 1 if stale and "--check" in words else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
