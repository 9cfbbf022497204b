"""Whatever the bytes: nothing raises, cuts change nothing, no record takes a number from a line that isn't its own."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from probes import engines
from probes.engines import engine, names
from probes.events import Record
from probes.explain import screen
from probes.follow import Splitter
from probes.reading import Log, as_dict, read

DATA = Path(__file__).parent / "data" / "logs"
ONE_LINE = frozenset({"decode", "prefill", "throughput"})
SLOW = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
INTO = (b"\n", b"\r", b"\x1b[31m", b"\x00", b"\xe2\x82", b"9" * 400, b"NaN", b"1e999", b"\xd9\xa3", b"\xef\xbc\x97")
FOREIGN = (
    "987654 workers did 987654 things in 987654 ms at 987654.25 tok/s",
    'INFO:     10.9.8.7:987654 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
    "running 987654 waiting 987654 batch 987654 usage 98.7654",
    "| 987654 | 987654 | 987654 |",
    '{"level":"debug","count":987654,"msg":"nothing of note: 987654"}',
    "    987654,  # 987654",
    "",
)


def samples(name: str, most: int = 8) -> list[Path]:
    return sorted((DATA / name).glob("*.log"))[:most]


def lines_of(path: Path, most: int = 400) -> list[str]:
    return path.read_bytes().decode("utf-8", "replace").split("\n")[:most]


def records_of(name: str, lines: list[str]) -> list[Record]:
    return engines.parse(name, lines)


@pytest.mark.parametrize("name", names())
@given(data=st.binary(max_size=600))
@SLOW
def test_no_byte_string_raises(name: str, data: bytes) -> None:
    log = Log()
    log.choose(name)
    splitter = Splitter()
    log.feed(splitter.feed(data))
    log.feed(splitter.close())
    log.close()
    reading = log.reading()
    data = data.replace(b"\0", b"")
    assert reading.lines == len(data.split(b"\n")) - (1 if data.endswith(b"\n") or not data else 0)
    as_dict(reading)
    screen(reading)


@pytest.mark.parametrize("name", names())
@given(seed=st.integers(0, 2**32))
@SLOW
def test_no_mangled_log_raises(name: str, seed: int) -> None:
    """Bytes of real lines flipped, cut out, doubled: closer to the formats than arbitrary bytes ever come."""
    rng = random.Random(seed)
    paths = samples(name)
    if not paths:
        pytest.skip(f"no fixtures of {name}")
    data = bytearray(rng.choice(paths).read_bytes()[:20000])
    for _ in range(rng.randrange(1, 40)):
        at = rng.randrange(len(data))
        match rng.randrange(4):
            case 0:
                data[at] = rng.randrange(256)
            case 1:
                del data[at : at + rng.randrange(1, 80)]
            case 2:
                data[at:at] = data[at : at + rng.randrange(1, 80)]
            case _:
                data[at:at] = rng.choice(
                    (b"\n", b"\r", b"\x1b[31m", b"\x00", b"\xe2\x82", b"9" * 400, b"NaN", b"1e999")
                )
        if not data:
            return
    log = Log()
    splitter = Splitter()
    log.feed(splitter.feed(bytes(data)))
    log.feed(splitter.close())
    log.close()
    screen(log.reading())


@pytest.mark.parametrize("name", names())
@given(cuts=st.lists(st.integers(0, 30000), max_size=12), pick=st.integers(0, 7))
@SLOW
def test_cutting_a_log_anywhere_gives_the_same_records(name: str, cuts: list[int], pick: int) -> None:
    paths = samples(name)
    if not paths:
        pytest.skip(f"no fixtures of {name}")
    data = paths[pick % len(paths)].read_bytes()[:30000]
    whole: list[Record] = []
    log = Log(on_record=whole.append)
    log.choose(name)
    splitter = Splitter()
    log.feed(splitter.feed(data) + splitter.close())
    log.close()
    pieces: list[Record] = []
    other = Log(on_record=pieces.append)
    other.choose(name)
    splitter = Splitter()
    edges = [0, *sorted(cuts), len(data)]
    for begin, end in itertools.pairwise(edges):
        other.feed(splitter.feed(data[begin:end]))
    other.feed(splitter.close())
    other.close()
    assert pieces == whole
    assert as_dict(other.reading()) == as_dict(log.reading())


def numbers(value: object) -> list[float]:
    if isinstance(value, bool) or value is None:
        return []
    if isinstance(value, (int, float)):
        return [float(value)]
    if isinstance(value, (list, tuple)):
        return [n for item in value for n in numbers(item)]
    if isinstance(value, dict):
        return [n for item in value.values() for n in numbers(item)]
    return []


def poisoned(record: Record) -> bool:
    return any(abs(n - p) < 1e-3 for n in numbers(dict(record.fields)) for p in (987654, 987654.25, 98.7654))


@pytest.mark.parametrize("name", names())
@given(seed=st.integers(0, 2**32))
@SLOW
def test_foreign_lines_change_no_record_of_one_line_and_lend_no_number(name: str, seed: int) -> None:
    rng = random.Random(seed)
    paths = samples(name)
    if not paths:
        pytest.skip(f"no fixtures of {name}")
    own = lines_of(rng.choice(paths))
    mixed: list[str] = []
    at: dict[int, int] = {}
    for number, line in enumerate(own, 1):
        mixed.extend(rng.choices(FOREIGN, k=rng.randrange(3) if rng.random() < 0.3 else 0))
        mixed.append(line)
        at[number] = len(mixed)
    plain = records_of(name, own)
    found = records_of(name, mixed)
    for record in found:
        if record.kind in ONE_LINE or record.kind == "request":
            assert not poisoned(record), record
    where = {line: number for number, line in at.items()}
    kept = [(where.get(r.line), r.kind, r.fields) for r in found if r.kind in ONE_LINE and single(r)]
    assert kept == [(r.line, r.kind, r.fields) for r in plain if r.kind in ONE_LINE and single(r)]


def single(record: Record) -> bool:
    """Records that say how many run are one line each; others may be put together from a block."""
    return "running" in record.fields


@pytest.mark.parametrize("name", names())
@given(seed=st.integers(0, 2**32))
@SLOW
def test_replaced_lines_leave_the_records_of_untouched_lines(name: str, seed: int) -> None:
    rng = random.Random(seed)
    paths = samples(name)
    if not paths:
        pytest.skip(f"no fixtures of {name}")
    own = lines_of(rng.choice(paths))
    plain = [r for r in records_of(name, own) if r.kind in ONE_LINE and single(r)]
    if not plain:
        return
    keep = {r.line for r in plain if rng.random() < 0.5}
    starts = {r.line for r in records_of(name, own)} - {r.line for r in plain}
    changed = [
        line if number in keep or number in starts or rng.random() < 0.5 else rng.choice(FOREIGN)
        for number, line in enumerate(own, 1)
    ]
    untouched = {number for number, line in enumerate(own, 1) if changed[number - 1] == line}
    said = ("running", "waiting", "kv_usage", "gen_tps", "prompt_tps", "kv_used_tokens", "accept_len")
    again: dict[tuple[int, str], list[list[object]]] = {}
    for record in records_of(name, changed):
        again.setdefault((record.line, record.kind), []).append([record.fields.get(key) for key in said])
    for record in plain:
        if record.line in untouched and not record.ranks and (record.line, record.kind) in again:
            assert [record.fields.get(key) for key in said] in again[record.line, record.kind], record


def test_a_line_of_many_megabytes_costs_little_memory(tmp_path: Path) -> None:
    import tracemalloc

    path = tmp_path / "one-line.log"
    with path.open("wb") as out:
        for _ in range(24):
            out.write(b"x" * (1 << 20))
    tracemalloc.start()
    found = read(path, engine="sglang")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.lines == 1
    assert peak < 16 << 20


@pytest.mark.parametrize("name", names())
def test_each_engine_knows_its_own_fixtures_best(name: str) -> None:
    for path in samples(name, 50):
        lines = [line for line in lines_of(path, 3000) if line]
        if len(lines) < 8:
            continue
        scores = {other: engine(other).sniff(lines) for other in names()}
        assert max(scores, key=lambda n: scores[n]) == name, (path.name, scores)
