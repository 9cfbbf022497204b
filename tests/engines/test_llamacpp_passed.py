"""Lines of llama-server that are passed over unread: they must be those in which nothing could have been read."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from probes.engines._llamacpp_log import Reader
from probes.events import Record

TIMED = "slot print_timing: id  {s} | task {t} |"
WAY = (
    "slot get_availabl: id  {s} | task -1 | selected slot by LRU, t_last = -1",
    "slot launch_slot_: id  {s} | task {t} | processing task, is_child = 0",
    "slot   operator(): id  {s} | task {t} | cached n_tokens = 3, memory_seq_rm [3, end)",
    "slot print_timing: id  {s} | task {t} | n_decoded =    100, tg =  23.22 t/s, tg_3s =  23.21 t/s",
    f"{TIMED} prompt eval time =   29.61 ms /     4 tokens (    7.40 ms per token,   135.09 tokens per second)",
    f"{TIMED}        eval time =  200.00 ms /    10 tokens (   20.00 ms per token,    50.00 tokens per second)",
    "slot      release: id  {s} | task {t} | stop processing: n_tokens = 15, truncated = 0",
    "srv  update_slots: all slots are idle",
    "que          post: new task, id = {t}, front = 0",
    "srv  update_slots: no slot is available, defer task, id_task = {t}",
    "que  pop_deferred: pop deferred task, id_task = {t}",
    "srv  update_slots: failed to find free space in the KV cache, retrying with smaller batch size, n_batch = 4",
)


def read(lines: Iterable[str]) -> tuple[Reader, list[Record]]:
    reader = Reader()
    found: list[Record] = []
    for number, text in enumerate(lines, 1):
        found.extend(reader.feed(number, text))
    return reader, [*found, *reader.close()]


@example([(WAY[0], 0, 1, "I"), (WAY[9], 0, 1, "I"), (WAY[1], 0, 1, "I"), (WAY[9], 0, 2, "I")])
@example([(WAY[0], 0, 1, "I"), (WAY[11], 0, 1, "W"), (WAY[7], 0, 1, "I"), (WAY[11], 0, 1, "W")])
@given(st.lists(st.tuples(st.sampled_from(WAY), st.integers(0, 1), st.integers(1, 3), st.sampled_from("IW"))))
def test_lines_passed_over_are_those_that_change_nothing(said: list[tuple[str, int, int, str]]) -> None:
    lines = [f"0.00.{n:03}.000 {level} {form.format(s=s, t=t)}" for n, (form, s, t, level) in enumerate(said)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reader, "_at_rest", lambda _: False)
        slow, expected = read(lines)
    fast, found = read(lines)
    assert found == expected
    assert fast.warnings == slow.warnings


def test_a_line_glued_behind_one_that_tells_nothing_is_read() -> None:
    told = WAY[3].format(s=0, t=7)
    for first in (WAY[0].format(s=0), "srv  log_server_r: done request: POST /v1/completions 127.0.0.1 200"):
        _, records = read([f"0.00.001.000 I {first}0.00.002.000 I {told}"])
        assert [r.fields["decoded"] for r in records] == [100]
