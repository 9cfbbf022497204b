from __future__ import annotations

import pytest
import yaml

from probes.recipe import Refused
from probes.yamlnode import NODES_MOST, Node, brief, nearest, sound


def node(text: str) -> Node:
    tree = yaml.compose(text, Loader=yaml.SafeLoader)
    assert tree is not None
    return Node("x.yaml", tree, "")


def bomb(lines: int, width: int = 9) -> str:
    """Each line is `width` times the one before it."""
    inner = "\n".join(f"- &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, lines))
    return f"- &a0 [{', '.join('x' * width)}]\n{inner}\n"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (bomb(12), "x.yaml:5: comes to 66,430 values, with aliases followed; at most 20,000"),
        ("a: &a [*a]", "x.yaml:1: an alias stands for itself"),
        ("a: &a {b: {c: *a}}", "an alias stands for itself"),
        ("a: " + "[" * 60 + "]" * 60, "nested deeper than 40"),
        ('a: 1\nb: "x\\0"', "x.yaml:2: the character U+0000 can't be used"),
        ('a: ["\\ud83d"]', "x.yaml:1: the character U+D83D can't be used"),
        ('"\\ud83d": a', "the character U+D83D can't be used"),
    ],
)
def test_what_would_harm_later_is_refused_at_once(text: str, complaint: str) -> None:
    with pytest.raises(Refused) as caught:
        sound(node(text))
    assert complaint in str(caught.value)


def test_aliases_that_help_are_fine() -> None:
    sound(node("a: &a [1, 2]\nb: *a\nc: [*a, *a]\nd: {k: *a}"))
    assert NODES_MOST > 9**4


@pytest.mark.parametrize("text", ["!!bool foo", "!!timestamp foo", "!!int ''", "!!float x", "!mine 1", "="])
def test_a_tag_that_does_not_fit_is_one_line(text: str) -> None:
    with pytest.raises(Refused, match=r"^x.yaml:1: k: not a plain value") as caught:
        node(f"k: {text}").mapping()["k"].plain()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["[a]: 1", "{a: b}: 1", "? [1, 2]\n: 3"])
def test_a_key_is_a_word(text: str) -> None:
    with pytest.raises(Refused, match="a key must be a word"):
        node(text).mapping()


def test_a_long_value_is_shown_by_its_beginning() -> None:
    assert len(brief("x" * 10_000)) < 100
    assert brief(5) == "5"
    with pytest.raises(Refused) as caught:
        node("k: " + "y" * 5000).mapping()["k"].integer(0, 1)
    assert len(str(caught.value)) < 200


def test_the_nearest_word() -> None:
    assert nearest("modle", ["model", "dial"]) == "did you mean 'model'? Legal: model, dial"
    assert nearest("z" * 100_000, ["model"]) == "legal: model"
