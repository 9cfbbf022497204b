"""The prompts that probe load sends: read, checked and hashed. Original texts, in an order that never changes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from probes.recipe import Refused

BUILT_IN = Path(__file__).with_name("prompts.json")
"""Written for this project. Texts and order are part of every measurement's fingerprint: add at the end of a category,
never change or move what is there. JSON, as reading YAML takes longer than all the rest of the client's start."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One user message: `id` is its category and its 1-based place there."""

    id: str
    category: str
    text: str

    @property
    def hash(self) -> str:
        """SHA-256 of the text in UTF-8, in hex."""
        return hashlib.sha256(self.text.encode()).hexdigest()


WARMUP = Prompt("warmup", "warmup", "Name three colours of the sky and say when each of them can be seen.")
"""Sent once after each start and left out of every figure; no measured prompt shares its beginning."""


def load(path: str | None = None) -> dict[str, list[Prompt]]:
    """Prompts by category, from the file shipped with the package or from `path`.

    The file is YAML (or JSON): category -> list of texts. Raises `Refused` with one line that names the place.
    """
    source = Path(path) if path else BUILT_IN
    tree = _read(source)
    if not isinstance(tree, dict) or not tree:
        raise Refused(f"{source}: want `category: [prompt, …]`, found {type(tree).__name__}")
    found = {}
    for category, texts in tree.items():
        if not isinstance(category, str) or not isinstance(texts, list) or not texts:
            raise Refused(f"{source}: {category}: want a list of prompts")
        for place, text in enumerate(texts, 1):
            if not isinstance(text, str) or not text.strip():
                raise Refused(f"{source}: {category}: prompt {place} is not a text")
        found[category] = [Prompt(f"{category}-{place}", category, text.strip()) for place, text in enumerate(texts, 1)]
    return found


def _read(source: Path) -> Any:
    try:
        data = source.read_bytes()
    except OSError as error:
        raise Refused(f"{source}: {error.strerror or error}") from None
    try:
        if source.suffix == ".json":
            return msgspec.json.decode(data)
        import yaml

        try:
            return yaml.safe_load(data)
        except yaml.YAMLError as error:
            raise Refused(f"{source}: not YAML: {' '.join(str(error).split())}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(f"{source}: not readable: {error}") from None


def select(prompts: dict[str, list[Prompt]], categories: Sequence[str], each: int) -> list[Prompt]:
    """The first `each` prompts of each category, categories taking turns.

    Raises `Refused` for an unknown category or when there are fewer: repeats of a prompt are not replicates.
    """
    for category in categories:
        if category not in prompts:
            raise Refused(f"category {category!r}: there are {', '.join(prompts)}")
        if not 1 <= each <= len(prompts[category]):
            raise Refused(f"prompts_per_category {each}: {category} has 1 to {len(prompts[category])}")
    return [prompts[category][place] for place in range(each) for category in categories]


def fingerprint(prompts: Sequence[Prompt]) -> str:
    """SHA-256 over ids and texts in their order: equal workloads have equal fingerprints."""
    whole = hashlib.sha256()
    for prompt in prompts:
        whole.update(f"{prompt.id}\0{prompt.text}\0".encode())
    return whole.hexdigest()
