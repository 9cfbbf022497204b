"""A preset, validated: which engine, binary, model and flags; which flags a draft depth means; what load to send.

Reading YAML happens here; whether an engine accepts a value is that engine's own business (`ENGINE.command`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

SIMULATOR = "@sim"
"""As a preset's binary: the simulated engine that comes with this program."""
SIMULATED = "simulated server: "
"""How the first line of a simulated engine's log begins; the rest of it is word for word as the real one's."""
KnobClass = Literal["speed", "memory", "numerics", "policy", "placement", "logging"]


class Refused(ValueError):  # noqa: N818  (what happened, not what broke)
    """A preset or setting that cannot work, found before a start. One line: where, what, and what is legal."""


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting of a server that a person may turn.

    `flag` is the command-line option (empty: environment or composed by the engine). `type` int/float/bool/choice/
    text; `choices` or `low`/`high` bound it (inclusive, None: open). `rule` is the engine's own rule in words, shown
    when a value is refused. `changes`: what it moves; `numerics` means that outputs may differ. `also` names what
    else moves with it.
    """

    name: str
    flag: str
    type: Literal["int", "float", "bool", "choice", "text"]
    default: Any = None
    choices: tuple[Any, ...] = ()
    low: float | None = None
    high: float | None = None
    changes: tuple[KnobClass, ...] = ("speed",)
    rule: str = ""
    also: str = ""
    help: str = ""


@dataclass(frozen=True, slots=True)
class Dial:
    """What a draft depth means on this preset: a kind of speculation (engine's word) and the legal depths.

    `kind`: e.g. llamacpp `draft-simple` or `ngram-simple`; ninfer `mtp` or `dflash`; sglang `EAGLE3`; vllm `ngram`.
    `values` are the depths that may be chosen, ascending; 0 is always "no speculation", by whatever flags that takes.
    `flags` are extra fixed flags that belong to the speculation and are left out at depth 0.
    """

    kind: str
    values: tuple[int, ...]
    start: int = 0
    label: str = "draft depth"
    flags: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Workload:
    """What probe load is sent: the same prompts in the same order at every depth."""

    categories: tuple[str, ...] = ("code", "story", "translation", "structured")
    prompts_per_category: int = 2
    max_tokens: int = 400
    concurrency: int = 1
    temperature: float = 0.0
    prompts_file: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds that things may take before they count as failed."""

    boot_s: float = 600.0
    request_s: float = 300.0
    stop_s: float = 15.0
    memory_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Recipe:
    """A preset, resolved: everything needed to start the server and to measure it."""

    name: str
    engine: str
    binary: str
    model: str
    dial: Dial
    title: str = ""
    path: str = ""
    flags: Mapping[str, Any] = field(default_factory=dict)
    """Fixed flags: option with dashes -> value; True for a bare flag; a list repeats it."""
    env: Mapping[str, str] = field(default_factory=dict)
    knobs: tuple[Knob, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Starting values of knobs by name."""
    host: str = "127.0.0.1"
    port: int | None = None
    """None: choose a free one at each start."""
    model_id: str | None = None
    """What requests name as model; None: ask `/v1/models`."""
    api_key_env: str | None = None
    """The environment variable that holds the key which requests must carry; None: the server asks for none."""
    workload: Workload = field(default_factory=Workload)
    limits: Limits = field(default_factory=Limits)
    launcher: str | None = None
    launcher_options: Mapping[str, Any] = field(default_factory=dict)
    simulated: bool = False
    simulation: Mapping[str, Any] = field(default_factory=dict)
    """For the simulated engine (binary `@sim`): table, speed, seed, noise, fault."""
    notes: str = ""

    @property
    def speed(self) -> float:
        """Simulated seconds a real second; 1 on a real engine."""
        return float(self.simulation.get("speed", 1.0)) if self.simulated else 1.0
