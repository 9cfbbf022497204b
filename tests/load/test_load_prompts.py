"""The shipped prompts, and files of others."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from probes.events import CATEGORIES
from probes.load.prompts import WARMUP, fingerprint, load, select
from probes.recipe import Refused


def test_four_categories_of_at_least_eight_different_texts() -> None:
    prompts = load()
    assert tuple(prompts) == CATEGORIES
    texts = [prompt.text for group in prompts.values() for prompt in group]
    assert all(len(group) >= 8 for group in prompts.values())
    assert len({*texts, WARMUP.text}) == len(texts) + 1


def test_order_and_texts_are_those_of_the_first_release() -> None:
    # Prompts are part of every measurement: this changes only by adding at the end of a category, with a new value.
    prompts = load()
    chosen = select(prompts, CATEGORIES, 8)
    assert [prompt.id for prompt in chosen[:5]] == ["code-1", "story-1", "translation-1", "structured-1", "code-2"]
    assert fingerprint(chosen) == "eae6fad5ef4b8cc91d13bbec9c4ded401e3cd70faa775422f9cca5d846dc7c05"
    assert chosen[0].hash == hashlib.sha256(chosen[0].text.encode()).hexdigest()


def test_a_fingerprint_knows_order_and_text() -> None:
    chosen = select(load(), CATEGORIES, 2)
    assert fingerprint(chosen) != fingerprint(chosen[::-1])
    assert fingerprint(chosen) != fingerprint(chosen[:-1])


@pytest.mark.parametrize(("categories", "each"), [(("poems",), 1), (("code",), 0), (("code",), 999)])
def test_what_is_not_there_is_refused(categories: tuple[str, ...], each: int) -> None:
    with pytest.raises(Refused):
        select(load(), categories, each)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1]", "found list"),
        ("code: []", "code"),
        ("code: [a, '']", "prompt 2"),
        ("code: [a\n", "not YAML"),
        ("1: [a]", "1"),
        ("", "found NoneType"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(Refused, match=words) as trouble:
        load(str(path))
    assert str(path) in str(trouble.value)
    assert "\n" not in str(trouble.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="No such file"):
        load(str(tmp_path / "none.yaml"))


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text('{"law": [" a ", "b"]}')
    assert [(p.id, p.text) for p in load(str(path))["law"]] == [("law-1", "a"), ("law-2", "b")]
