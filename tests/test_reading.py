"""Reading whole logs: telling the engine, several starts, archives, huge lines, and the two ninfer reproductions."""

from __future__ import annotations

import codecs
import gzip
import os
from pathlib import Path

import pytest

from probes.engines import Refused
from probes.events import Record
from probes.explain import brief, screen
from probes.reading import LOOK, Log, Reading, Unreadable, as_dict, logs_in, read, record_dict

D = "2026-07-02 10:00:"
CONTEXT = "3 active + 2 cached device states | host 8 states, 8.00 GiB KV | private 6 | shared 3 | anchors 2"
NINFER = (
    f"{D}00.000  INFO  starting engine\n"
    f"{D}05.000  INFO  engine ready | total 5.0s | weights 18.9 GiB\n"
    f"{D}05.000  INFO  capacity | KV 192,000 tokens, int8, explicit | pages 3,000/9,000 | runtime 7 GiB | free 3 GiB\n"
    f"{D}05.000  INFO  context cache | {CONTEXT}\n"
    f"{D}05.400  INFO  listening on http://127.0.0.1:8080 | model m | auth disabled\n"
)
LANES_UNKNOWN = (
    "\n".join(line for line in NINFER.splitlines() if "capacity" not in line and "active" not in line) + "\n"
)


def requests(count: int, output: str) -> str:
    return "".join(
        f"{D}07.{i:03d}  INFO  req#{i} started | openai-chat stream | 1 message | max output {output} | thinking off\n"
        for i in range(1, count + 1)
    )


def queue(running: int) -> str:
    return "".join(
        f"{D}{12 + 5 * i}.000  INFO  throughput | 5.0s | decode 120.0 tok/s (600 tok) | "
        f"running {running} (decode-ready {running}) | waiting 1 | batch {running}.00 | host 14.0% (700 ms)\n"
        for i in range(4)
    )


def sglang(lines: int, running: int = 3, waiting: int = 0) -> str:
    return "".join(
        f"[2026-03-01 09:{i // 60 % 60:02d}:{i % 60:02d}] Decode batch, #running-req: {running}, #token: 900, "
        f"token usage: 0.10, cuda graph: True, gen throughput (token/s): {200 + i}.00, #queue-req: {waiting}\n"
        for i in range(lines)
    )


def write(folder: Path, text: str | bytes, name: str = "x.log") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_same_waiting_one_two_ceilings_and_neither_without_the_facts(tmp_path: Path) -> None:
    pool = read(write(tmp_path, NINFER + requests(3, "90,000") + queue(2)))
    assert (pool.engine, pool.ceiling.verdict, pool.ceiling.confidence) == ("ninfer", "kv_pool", "high")
    lanes = read(write(tmp_path, NINFER + requests(4, "1,500") + queue(3)))
    assert (lanes.ceiling.verdict, lanes.ceiling.confidence) == ("lanes", "high")
    bare = read(write(tmp_path, LANES_UNKNOWN + queue(2)))
    assert bare.ceiling.verdict == "unknown"
    assert "the number of lanes" in bare.ceiling.missing
    assert len(bare.ceiling.missing) >= 2


def test_several_starts_the_last_ones_capacity_and_a_timeline_of_all(tmp_path: Path) -> None:
    text = (
        NINFER + requests(4, "1,500") + queue(3) + NINFER.replace("3 active", "2 active").replace("192,000", "64,000")
    )
    found = read(write(tmp_path, text.replace("pages 3,000/9,000", "pages 1,000/2,000", 2)))
    assert found.capacity.lanes == 2
    assert len(found.story.starts) == 2
    assert [s.capacity.lanes for s in found.story.starts] == [3, 2]
    assert [(s.start, s.verdict) for s in found.timeline] == [(0, "lanes")]
    assert found.ceiling.verdict == "unknown"


def test_gzip_is_told_by_its_bytes_and_a_broken_one_is_read_up_to_the_break(tmp_path: Path) -> None:
    packed = gzip.compress(sglang(3000).encode(), compresslevel=1)
    whole = read(write(tmp_path, packed, "odd-name"))
    assert (whole.lines, whole.records) == (3000, 3000)
    broken = read(write(tmp_path, packed[: len(packed) // 2], "half.gz"))
    assert broken.engine == "sglang"
    assert 0 < broken.records < 3000
    assert any("damaged" in w.text for w in broken.warnings)
    mangled = bytearray(packed)
    mangled[len(packed) // 2] ^= 0xFF
    assert read(write(tmp_path, bytes(mangled), "bad.gz")).lines > 0


@pytest.mark.parametrize(
    "data", [b"", b"\n\n\n", b"\x00" * 5000, os.urandom(0) + bytes(range(256)) * 40, b"\xff\xfe\n"]
)
def test_nothing_to_read_is_no_error(tmp_path: Path, data: bytes) -> None:
    found = read(write(tmp_path, data))
    assert found.engine is None
    assert found.ceiling.verdict == "unknown"
    text = screen(found)
    assert "SGLang" in text or "empty" in text


def test_an_engine_that_speaks_up_late_is_still_found_with_right_line_numbers(tmp_path: Path) -> None:
    noise = "".join(f"nothing to see in line {i}\n" for i in range(2 * LOOK + 17))
    seen: list[Record] = []
    found = read(write(tmp_path, noise + sglang(5)), on_record=seen.append)
    assert found.engine == "sglang"
    assert [r.line for r in seen] == list(range(2 * LOOK + 18, 2 * LOOK + 23))
    assert found.lines == 2 * LOOK + 22


def test_the_engine_can_be_named(tmp_path: Path) -> None:
    path = write(tmp_path, sglang(5))
    assert read(path, engine="vllm").records == 0
    with pytest.raises(Refused, match="no engine 'tgi'"):
        read(path, engine="tgi")


def test_a_huge_line_is_cut_and_never_gives_a_torn_number(tmp_path: Path) -> None:
    line = b"[2026-03-01 09:00:00] Decode batch, #running-req: 3, #token: 900, token usage: 0.10, #queue-req: "
    text = sglang(3).encode() + line + b"7" * 3_000_000 + b"\n" + sglang(2).encode()
    seen: list[Record] = []
    found = read(write(tmp_path, text), on_record=seen.append)
    assert found.lines == 6
    assert any("mebibyte" in w.text and w.line == 4 for w in found.warnings)
    assert all((r.fields.get("waiting") or 0) < 7 for r in seen)
    assert [r.line for r in seen if r.line != 4] == [1, 2, 3, 5, 6]


def test_a_last_line_without_its_end_counts(tmp_path: Path) -> None:
    assert read(write(tmp_path, sglang(3).rstrip("\n"))).lines == 3


def test_which_files_a_path_means(tmp_path: Path) -> None:
    for name in ("b.log", "a.txt", "c.log.gz", "c.log.1", "notes.md", ".hidden.log", "data.json"):
        (tmp_path / name).write_text("")
    assert [p.name for p in logs_in(tmp_path)] == ["a.txt", "b.log", "c.log.1", "c.log.gz"]
    (tmp_path / "server.log").write_text("")
    assert logs_in(tmp_path) == [tmp_path / "server.log"]
    assert logs_in(tmp_path / "notes.md") == [tmp_path / "notes.md"]
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(Unreadable, match=r"no server\.log"):
        logs_in(empty)
    with pytest.raises(Unreadable, match="no such file"):
        logs_in(tmp_path / "absent.log")
    with pytest.raises(Unreadable):
        read(empty)


def test_reading_bit_by_bit_is_reading_at_once(tmp_path: Path) -> None:
    text = NINFER + requests(3, "90,000") + queue(2)
    whole = read(write(tmp_path, text))
    log = Log()
    for line in text.splitlines():
        log.feed([line])
        log.pause()
        log.reading()
    log.close()
    assert as_dict(log.reading()) | {"file": ""} == as_dict(whole) | {"file": ""}


def test_records_leave_out_what_a_line_does_not_say() -> None:
    assert record_dict(Record(3, "ready")) == {"line": 3, "kind": "ready", "fields": {}}
    full = record_dict(Record(3, "decode", {"running": 1}, "2026-01-01T00:00:00", {"DP": 1}, ({"DP": 1},)))
    assert full["at"] == "2026-01-01T00:00:00"
    assert full["rank"] == {"DP": 1}
    assert full["ranks"] == [{"DP": 1}]


def test_the_screen_shows_no_control_character_of_the_log(tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07\x1b[31m\u202e"
    text = (
        sglang(4, running=4, waiting=3).replace("Decode", f"{evil}Decode")
        + f"[2026-03-01 09:01:00] Scheduler hit an exception: {evil}Traceback\n"
        + f"torch.OutOfMemoryError: CUDA out of memory. {evil}Tried to allocate 1.75 GiB.\n"
    )
    found = read(write(tmp_path, text))
    assert found.engine == "sglang"
    for shown in (screen(found), brief(found)):
        assert all(c == "\n" or c.isprintable() for c in shown)


def test_acceptance_over_time_stays_short_and_weighs_by_counts() -> None:
    log = Log()
    log.choose("sglang")
    for i in range(5000):
        length = 2.0 if i < 2500 else 3.0
        line = "[2026-03-01 09:00:00] Decode batch, #running-req: 1, #token: 9, token usage: 0.10, accept len: "
        log.feed([f"{line}{length:.2f}, cuda graph: True, gen throughput (token/s): 10.00, #queue-req: 0"])
    log.close()
    story = log.reading().story
    assert len(story.acceptance) <= 64
    assert story.overall is not None
    assert story.overall.accept_len == pytest.approx(2.5)
    lengths = [b.accept_len for b in story.acceptance]
    assert lengths[0] == pytest.approx(2.0)
    assert lengths[-1] == pytest.approx(3.0)


def test_the_same_trouble_is_told_once_with_its_count(tmp_path: Path) -> None:
    lines = (
        "[2026-03-01 09:00:0{i}] KV cache pool is full. Retract requests. #retracted_reqs: 1, "
        "#new_token_ratio: 0.1000 -> 0.2000\n"
    )
    found = read(write(tmp_path, sglang(3) + "".join(lines.format(i=i) for i in range(5))))
    (trouble,) = [t for t in found.story.troubles if t.kind == "retract"]
    assert (trouble.count, trouble.first, trouble.last) == (5, 4, 8)
    assert f"5× retract (lines 4–8)" in screen(found)  # noqa: F541


def test_screen_of_a_whole_reading_fits(tmp_path: Path) -> None:
    found: Reading = read(write(tmp_path, NINFER + requests(3, "90,000") + queue(2)))
    lines = screen(found, 90).splitlines()
    assert max(map(len, lines)) <= 90
    assert len(lines) <= 45
    text = "\n".join(lines)
    for part in ("Capacity", "Ceiling", "When", "KV POOL (high)", "To be sure", "10:00:12"):
        assert part in text


def test_each_failed_start_is_a_start_of_its_own(tmp_path: Path) -> None:
    failed = f"{D}00.000  INFO  starting engine\n{D}01.000  ERROR cannot bind 127.0.0.1:8080\n"
    log = tmp_path / "a.log"
    log.write_text(failed + failed + NINFER)
    found = read(log)
    assert [start.line for start in found.story.starts] == [1, 3, 5]
    assert [start.ready for start in found.story.starts] == [None, None, 9]


def test_counts_agree_with_their_nouns_and_times_are_short(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    done = "openai-chat | output limit | prompt 57 | output 40 | cache 0 (0.0%) | TTFT 121 ms | total 2.2s"
    log.write_text(NINFER.replace("3 active", "1 active") + f"{D}09.000  INFO  req#1 done | {done}\n" + NINFER)
    assert "1 request ended" in screen(read(log), 100)
    assert ", 1 lane, ready" in screen(read(log), 200)
    report = "Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 9.0 tokens/s, Running: 2 reqs"
    log.write_text(
        "".join(
            f"INFO 03-17 15:38:{10 * i} [loggers.py:1] {report}, Waiting: 5 reqs, GPU KV cache usage: 9.0%\n"
            for i in range(1, 4)
        )
    )  # fmt: skip
    assert "15:38:10–15:38:30" in screen(read(log), 100)


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-be"])
@pytest.mark.parametrize("bom", [True, False])
def test_a_log_that_powershell_wrote_reads_the_same(tmp_path: Path, coding: str, bom: bool) -> None:
    plain = write(tmp_path, sglang(3) + "The path is D:\\Modèles\n")
    wide = tmp_path / "wide.log"
    text = plain.read_text().replace("\n", "\r\n").encode("utf-16-le" if coding == "utf-16" else coding)
    mark = (codecs.BOM_UTF16_LE if coding == "utf-16" else codecs.BOM_UTF16_BE) if bom else b""
    wide.write_bytes(mark + text)
    left, right = read(plain), read(wide)
    assert (right.lines, right.records, right.ceiling) == (left.lines, left.records, left.ceiling)


def test_a_log_that_was_cut_under_its_writer_begins_with_nothing(tmp_path: Path) -> None:
    log = write(tmp_path, sglang(3))
    records = read(log).records
    log.write_bytes(b"\0" * 70_000 + log.read_bytes())
    assert read(log).records == records


def compose(*services: str) -> str:
    """Two servers' lines as docker compose mixes them: each starts, gets ready and has a queue."""
    boot = "[2026-03-01 09:00:00 TP0] max_total_num_tokens=1000, max_running_requests=3, context_len=512"
    ready = "[2026-03-01 09:00:01] The server is fired up and ready to roll!"
    whole = [boot, ready, *sglang(5, waiting=4).splitlines()]
    return "".join(f"{name:<10} | {line}\n" for line in whole for name in services)


def test_the_lines_of_two_services_are_not_taken_for_one_server(tmp_path: Path) -> None:
    one = read(write(tmp_path, compose("decode-1")))
    assert (one.ceiling.verdict, one.capacity.lanes) == ("lanes", 3)
    two = read(write(tmp_path, compose("decode-1", "prefill-1")))
    assert (two.ceiling.verdict, two.ceiling.missing) == ("unknown", ("one server's lines",))
    assert two.capacity.lanes is None
    assert "2 servers are mixed in this log: decode-1, prefill-1" in " ".join(screen(two, 200).split())
    # Other services' chatter is no second server.
    text = compose("decode-1") + "router-1   | [2026-03-01 09:00:09] The router is fired up and ready to roll!\n"
    assert read(write(tmp_path, text.replace("The router", "the router"))).records


def test_a_second_engine_in_the_same_file_is_told(tmp_path: Path) -> None:
    report = (
        "Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 9.0 tokens/s, Running: 2 reqs, Waiting: 5 reqs"
    )
    other = [
        f"INFO 03-17 15:38:{i} [loggers.py:1] Engine 000: {report}, GPU KV cache usage: 9.0%" for i in range(10, 14)
    ]
    found = read(write(tmp_path, sglang(5) + "\n".join(other)))
    assert found.engine == "sglang"
    assert [w.text for w in found.warnings if "--engine vllm" in w.text]
    assert not read(write(tmp_path, sglang(5))).warnings


@pytest.mark.parametrize(
    ("mark", "name"), [(b"\x28\xb5\x2f\xfd\x04", "zstd"), (b"\xfd7zXZ\0", "xz"), (b"PK\x03\x04", "zip")]
)
def test_a_log_packed_otherwise_says_what_to_do(tmp_path: Path, mark: bytes, name: str) -> None:
    with pytest.raises(Unreadable, match=f"packed with {name}; unpack it first"):
        read(write(tmp_path, mark + b"\0\1\2"))
