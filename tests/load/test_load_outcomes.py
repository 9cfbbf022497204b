"""Outcomes told from status and words, as servers really send them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.events import OUTCOMES
from probes.load.outcomes import error_text, from_status


@pytest.mark.parametrize(
    ("status", "body", "want"),
    [
        (400, '{"error":{"code":400,"message":"request (431 tokens) exceeds the available context size"}}', "rejected"),
        (401, "", "rejected"),
        (404, '{"error":{"message":"The model `nope` does not exist.","code":404}}', "rejected"),
        (429, '{"error":{"code":"server_overloaded","message":"inference request queue is full"}}', "overloaded"),
        (529, "", "overloaded"),
        (
            503,
            '{"error":{"code":"request_queue_timeout","message":"expired while waiting for admission"}}',
            "queue_timeout",
        ),
        (504, '{"error":{"type":"request_queue_timeout"}}', "queue_timeout"),
        (503, '{"error":{"message":"The request queue is full."}}', "overloaded"),
        (503, '{"error":{"message":"Loading model","type":"unavailable_error","code":503}}', "rejected"),
        (504, "<html>Gateway Time-out</html>", "timeout"),
        (500, '{"error":{"code":500,"message":"Context size has been exceeded."}}', "aborted"),
        (502, "", "aborted"),
        (302, "", "rejected"),
    ],
)
def test_statuses(status: int, body: str, want: str) -> None:
    assert from_status(status, body) == want


@pytest.mark.parametrize(
    ("error", "want"),
    [
        ({"error": {"code": 500, "message": "no", "type": "server_error"}}, "500 server_error no"),
        ({"error": "plain"}, "plain"),
        ({"object": "error", "message": "bad", "type": "T", "code": 4}, "4 T bad"),
        ({"error": {"code": {"a": 1}, "message": ["x"], "type": "t"}}, "t"),
        ("two\nlines \x1b[31mred", "two lines [31mred"),
    ],
)
def test_errors_in_one_line(error: object, want: str) -> None:
    assert error_text(error) == want


KEYS = st.sampled_from(["error", "code", "message", "x"])
json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["error", "code", "message", "x"]), inner)
    ),
    max_leaves=8,
)


@given(json, st.integers(201, 599), st.text(max_size=20))
def test_any_error_has_a_line_and_any_status_an_outcome(error: object, status: int, text: str) -> None:
    line = error_text(error)
    assert line.isprintable()
    assert len(line) <= 500
    assert from_status(status, text) in set(OUTCOMES) - {"ok", "degenerate", "disconnected"}
