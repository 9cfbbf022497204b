from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.show import clean


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]8;;http://e\x1b\\link", "link"),
        ("bar 1%\rbar 2%", "bar 2%"),
        ("a\tb", "a    b"),
        ("bell\x07", "bell·"),
        ("\u202egnirts", "·gnirts"),
        ("[bold]not markup[/bold]", "[bold]not markup[/bold]"),
    ],
)
def test_foreign_text_is_data(text: str, shown: str) -> None:
    assert clean(text) == shown


@given(st.text(max_size=200))
def test_nothing_that_moves_a_cursor_survives(text: str) -> None:
    out = clean(text, most=50)
    assert len(out) <= 50
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in out)
