"""One run in words and as plain values: what `show` prints and `report` writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from probes.commands import _sweep_view
from probes.gpu.room import gib
from probes.history import Account, PhaseMemory, Start
from probes.show import moment

NOTICES = 12
SKIPPED = frozenset({"kind", "final", "sentence", "verdict", "run", "engine", "run_path", "simulated", "cells"})


def plain(run: Account) -> dict[str, Any]:
    """The account as JSON values; the requests themselves are what `export` is for."""
    found = {name: getattr(run, name) for name in Account.__slots__ if name not in {"requests", "began", "capacity"}}
    found["began"] = run.began
    found["capacity"] = run.capacity
    whole: dict[str, Any] = {"kind": "run", **msgspec.to_builtins(found, enc_hook=str)}
    return whole


def lines(run: Account) -> list[str]:
    """The account as text, line by line."""
    out = head(run)
    for title, part in (
        ("", result(run)),
        ("starts", [start(s) for s in run.starts]),
        ("memory", memory(run)),
        ("requests", outcomes(run)),
        ("capacity", capacity(run)),
        ("ceiling", ceiling(run)),
        ("fingerprint", fingerprint(run)),
        ("notices", notices(run)),
    ):
        if part:
            out += ["", *([title] if title else []), *(f"  {text}" if title else text for text in part)]
    return out


def head(run: Account) -> list[str]:
    """Which run this is and how it ended."""
    began = run.began
    told = " · SIMULATED" if began and began.simulated else ""
    when = moment(began.at if began else None, "%Y-%m-%d %H:%M:%S", "time unknown")
    what = f"{began.engine} · {began.preset} · {began.model}" if began else "nothing was started"
    state = run.state if run.state != "interrupted" else f"interrupted ({run.step})"
    return [f"run {run.name}{told} · {when} · {run.plan or 'no plan'} · {state}", what, run.path]


def result(run: Account) -> list[str]:
    """The verdict first, then the figures it rests on."""
    found = run.result
    if not found:
        return ["no result: no request was measured to its end"]
    how = [] if run.stored else ["(computed now from load.jsonl; there is no result.json, or it was passed over)"]
    if "cells" in found:
        return [*how, *_sweep_view.lines(found)]
    if isinstance(found.get("verdict"), str) and "per_category" in found:
        from probes.commands import _ab_view

        return [*how, *_ab_view.lines(found)]
    return [*how, f"{verdict(found)[0]}: {verdict(found)[1]}", *other(found)]


def verdict(found: Mapping[str, Any]) -> tuple[str, str]:
    """State and sentence of any plan's result."""
    said = found.get("verdict")
    if isinstance(said, Mapping):
        return str(said.get("state") or "—"), str(said.get("sentence") or "")
    return str(said or "—"), str(found.get("sentence") or "")


def other(found: Mapping[str, Any]) -> list[str]:
    """What a result of another kind holds, key by key."""
    return [f"{k}: {_short(v)}" for k, v in found.items() if k not in SKIPPED and v not in (None, [], {})]


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {v}" for k, v in value.items())[:300]
    if isinstance(value, list):
        return "; ".join(_short(v) for v in value)[:300]
    return str(value)


def start(one: Start) -> str:
    """One start: depth, seconds or reason, and whether its flags are proven."""
    depth = "no depth" if one.depth is None else f"depth {one.depth}"
    if one.reason and one.boot_s is None:
        return f"{one.restart}: {depth} did not start: {one.reason}" + (f" → {one.hint}" if one.hint else "")
    boot = "never ready" if one.boot_s is None else f"ready in {one.boot_s:.2f} s"
    flags = {True: "flags proven", False: "flags NOT proven", None: "flags not read back"}[one.proven]
    notes = f": {'; '.join(one.notes)}" if one.notes and not one.proven else ""
    died = f" · ended: {one.reason}" if one.reason else ""
    return f"{one.restart}: {depth} {boot} · {flags}{notes}{died}"


def size(value: int | None) -> str:
    """Bytes in words, or a dash."""
    return "—" if value is None else gib(value)


def memory(run: Account) -> list[str]:
    """High water by phase, and what is free after boot against under load."""
    if not run.memory:
        return []
    out = [f"{'phase':<6} {'GPU used':>10} {'GPU free':>10} {'server RSS':>11} {'samples':>8}"]
    out += [_phase(part) for part in run.memory]
    if run.free_after_boot is not None or run.free_under_load is not None:
        out.append(
            f"free on the tightest GPU: {size(run.free_after_boot)} after boot, {size(run.free_under_load)} under load"
        )
        out += [run.split] if run.split else []
    else:
        out.append("no GPU was seen: resident memory of the server alone")
    return out


def _phase(part: PhaseMemory) -> str:
    return f"{part.phase:<6} {size(part.used):>10} {size(part.free):>10} {size(part.rss):>11} {part.samples:>8}"


def outcomes(run: Account) -> list[str]:
    """How requests ended."""
    if not run.outcomes and not run.warmups:
        return []
    told = ", ".join(f"{n} {name}" for name, n in sorted(run.outcomes.items(), key=lambda i: -i[1])) or "none measured"
    return [f"{told} (and {run.warmups} warm-ups, left out of every figure)"]


def capacity(run: Account) -> list[str]:
    """What the last start said it can hold."""
    if run.capacity is None:
        return []
    said = list(run.capacity.explain) or ["the log does not say what the server can hold"]
    return [*said, *(f"! line {w.line}: {w.text}" if w.line else f"! {w.text}" for w in run.warnings[:6])]


def ceiling(run: Account) -> list[str]:
    """The limit that held requests back, in words."""
    found = run.ceiling
    if found is None:
        return []
    out = [f"{found.verdict} ({found.confidence}): {found.sentence}"]
    out += [f"no queue was seen after {found.until}"] if found.until else []
    out += [f"line {e.line}: {e.text}" if e.line else e.text for e in found.evidence[:4]]
    if found.missing:
        out.append("missing: " + "; ".join(found.missing))
    out += [f"to be sure: {found.experiment}"] if found.experiment else []
    return out


def fingerprint(run: Account) -> list[str]:
    """What it was measured with."""
    from probes import fingerprint as prints

    found = run.description.get("fingerprint")
    if not isinstance(found, Mapping):
        return ["none was recorded: this run can't be compared"]
    names = ("binary", "model", "files", "kv_type", "prompts", "sampling", "gpus", "drivers", "machine", "settings")
    out = [f"{name}: {prints.brief(found[name])}" for name in names if found.get(name)]
    return [*out, *(f"! {text}" for text in prints.guesses(found))]


def notices(run: Account) -> list[str]:
    """What the person was told, the newest."""
    out = [f"{n.level}: {n.text}" for n in run.notices[-NOTICES:]]
    if len(run.notices) > NOTICES:
        out.insert(0, f"({len(run.notices) - NOTICES} earlier ones are in events.jsonl)")
    return out
