"""What a simulated model says and how many drafts of it are accepted; all of it drawn from seeds, none of it timed."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp

from probes.load import prompts
from probes.sim.tables import OTHER, Table, along

GOLDEN = (5**0.5 - 1) / 2
WORDS = re.findall(
    r"[a-z]+",
    """
    the a of and to in is it that for on with as at by from this be are was or an which one more all can when
    there  if out up into them then some could time now than other only its over also back after use two how work
    first  well way even new want because any these give day most us river stone light cloud table paper green
    quiet early  house number letter garden window winter summer bridge road small large under between around
    through along  value list name count total check begin end open close read write call return found shown given
    taken kept held
    """,
)
WORDS = [f" {word}" for word in WORDS]
CHARS_A_TOKEN = 4.2
TEMPLATE_TOKENS = 14
"""Tokens that a chat template adds to a prompt."""


@dataclass(frozen=True, slots=True)
class Noise:
    """Relative standard deviations and what else disturbs a machine. `drift`: log change of speed a restart.

    `thermal`: every so many seconds, for so many seconds, so much slower (0 seconds: never).
    """

    request: float = 0.0
    restart: float = 0.0
    content: float = 0.0
    drift: float = 0.0
    thermal_every_s: float = 0.0
    thermal_s: float = 5.0
    thermal_slow: float = 1.15

    def pace(self, seed: str, nth: int) -> float:
        """Factor on every time of this restart, the `nth` of its run."""
        return exp(self.restart * random.Random(f"restart/{seed}/{nth}").gauss(0, 1) - self.drift * nth)

    def heat(self, at: float) -> float:
        """Factor on times at that moment: above 1 while the GPU is throttled."""
        if self.thermal_every_s <= 0 or at % self.thermal_every_s < self.thermal_every_s - self.thermal_s:
            return 1.0
        return self.thermal_slow


def digest(text: str) -> str:
    """SHA-256 of a text, in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def tokens(text: str) -> int:
    """Tokens of a text, near enough: letters over a mean token's length."""
    return max(1, round(len(text) / CHARS_A_TOKEN)) if text else 0


def known_prompts() -> Mapping[str, str]:
    """Category by hash of every prompt that probe load sends."""
    return {p.hash: category for category, many in prompts.load().items() for p in many}


HINTS: Mapping[str, tuple[str, ...]] = {
    "structured": ("json", "yaml", "csv", "table with"),
    "translation": ("translate", "übersetze", "翻译"),
    "code": ("function", "class ", "python", "sql", "script", "code"),
    "story": ("story", "tale", "novel", "poem", "letter"),
}


def category(text: str, known: Mapping[str, str]) -> str:
    """Which kind of text a prompt asks for: by its hash if it is one of ours, else by words in it."""
    if (found := known.get(digest(text))) is not None:
        return found
    small = text[:2000].lower()
    return next((name for name, words in HINTS.items() if any(w in small for w in words)), OTHER)


class Text:
    """The reply to one prompt: its length when nothing cuts it, and its words."""

    def __init__(self, table: Table, kind: str, prompt_hash: str, seed: str) -> None:
        self._random = random.Random(f"text/{seed}/{prompt_hash}")
        median = table.natural_tokens.get(kind) or table.natural_tokens.get(OTHER) or 2000.0
        self.length = max(8, int(median * exp(0.25 * self._random.gauss(0, 1))))
        self._rest: list[str] = []

    def take(self, count: int) -> str:
        """The next `count` tokens."""
        draw = self._random.random
        return "".join([WORDS[int(draw() * len(WORDS))] for _ in range(count)])


class Drafts:
    """Accepted drafts of one request, step by step: points of a golden-ratio sequence against a survival curve.

    Such a sequence has the curve's means after few steps, where independent draws would add noise of their own; the
    noise of contents is a factor that the prompt's hash draws.
    """

    def __init__(self, table: Table, kind: str, depth: int, prompt_hash: str, noise: Noise, seed: str) -> None:
        chance = random.Random(f"drafts/{seed}/{prompt_hash}")
        factor = exp(noise.content * chance.gauss(0, 1))
        self._curve = [min(0.995, share * factor) for share in table.curve(kind, depth)]
        self._context = table.accept_context
        self._point = chance.random()

    def next(self, context: float) -> int:
        """Drafts accepted in the next step, from none to all."""
        self._point = (self._point + GOLDEN) % 1.0
        point = self._point
        if self._context:
            point /= max(along(self._context, context), 1e-9)
        return accepted(self._curve, point)


def accepted(curve: Sequence[float], point: float) -> int:
    """How many positions of a falling curve lie above a point in 0..1."""
    found = 0
    for share in curve:
        if point >= share:
            break
        found += 1
    return found
