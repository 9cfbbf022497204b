"""Whether a server was told which drafts to accept: good for the price of a step, worthless as a result. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from probes.events import FlagsInForce

FLAGS = ("--spec-synth-len", "--spec-synth-rates")
"""llama.cpp, newer builds: each position is accepted at the rate given, whatever the text."""
SYNTHETIC = re.compile(r"rejection_sample_method[\"']?\s*[:=\s]\s*[\"']?synthetic\b")
"""vLLM's speculative configuration, as JSON, as a dotted option, or with its value as the next word."""
VARIABLE = "SGLANG_SIMULATE_ACC_LEN"
OFF = frozenset({"", "0", "-1", "-1.0", "false"})


def dictated(argv: Sequence[str], env: Mapping[str, str]) -> str | None:
    """What dictates acceptance, in a sentence; None: the texts decide."""
    by = next((flag for flag in FLAGS if any(w.partition("=")[0] == flag for w in argv)), None)
    if by is None and SYNTHETIC.search(" ".join(argv)):
        by = "rejection_sample_method synthetic"
    if by is None and env.get(VARIABLE, "").strip().lower() not in OFF:
        by = VARIABLE
    return None if by is None else f"{by} dictates what is accepted: its step times are real, its speeds no result"


class Started(Protocol):
    """A server with the command line that it was started by."""

    @property
    def argv(self) -> tuple[str, ...]:
        """Its words."""
        ...


def doubted(flags: FlagsInForce, server: Started | None, env: Mapping[str, str]) -> FlagsInForce:
    """The flags in force, not proven where acceptance is dictated: such a point cannot win."""
    said = dictated(server.argv, env) if server else None
    return dataclasses.replace(flags, proven=False, notes=(*flags.notes, said)) if said else flags
