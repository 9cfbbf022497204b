"""Servers that a console of ours runs on this machine, found by their guards; and how two command lines differ."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from probes.link import GUARD


@dataclass(frozen=True, slots=True)
class Running:
    """A server under a guard: its pid, its command line, the log that it writes."""

    pid: int
    argv: tuple[str, ...]
    log: str


def servers() -> list[Running]:
    """Every server that runs under a guard of this installation."""
    found: list[Running] = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if str(GUARD) not in words or "--" not in words or "--log" not in words:
            continue
        with contextlib.suppress(psutil.Error):
            children = process.children()
            if children:
                argv = tuple(words[words.index("--") + 1 :])
                found.append(Running(children[0].pid, argv, words[words.index("--log") + 1]))
    return found


def options(argv: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """A command line's options with their values; words before the first option stand under ''.

    An option starts with `-` and a letter or a second dash (a negative number does not); `--a=b` is `--a b`.
    """
    found: dict[str, list[str]] = {"": []}
    name = ""
    for word in argv:
        option, equals, value = word.partition("=")
        if len(option) > 1 and option.startswith("-") and (option[1] == "-" or option[1].isalpha()):
            name = option
            found.setdefault(name, [])
            if equals:
                found[name].append(value)
        else:
            found[name].append(word)
    return {option: tuple(values) for option, values in found.items()}


def changes(old: Sequence[str], new: Sequence[str], ignore: Sequence[str] = ("--port",)) -> list[str]:
    """What another command line changes, one sentence an option; the order of options is no change."""
    before, after = options(old), options(new)
    out = []
    for name in dict.fromkeys([*before, *after]):
        if name in ignore or before.get(name) == after.get(name):
            continue
        shown = name or "program and positional words"
        if name not in after:
            out.append(f"{shown} goes ({' '.join(before[name]) or 'it is set'})")
        elif name not in before:
            out.append(f"{shown} comes: {' '.join(after[name]) or 'set'}")
        else:
            out.append(f"{shown}: {' '.join(before[name]) or 'set'} → {' '.join(after[name]) or 'set'}")
    return out
