from __future__ import annotations

import resource
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes import codec, store
from probes.events import (
    Capacity,
    CapacityRead,
    Event,
    GpuReading,
    Judged,
    LogLines,
    LogRecords,
    MemorySample,
    Notice,
    Record,
    RequestDone,
    RequestSent,
    RunStarted,
    ServerChanged,
)  # fmt: skip
from probes.recipe import Dial, Recipe, Refused


def done(name: str, **more: object) -> RequestDone:
    base = {"prompt_id": "code-1", "prompt_hash": "h", "category": "code", "depth": 1, "restart": 1, "block": 0}
    return RequestDone(id=name, outcome="ok", sent=1.0, **{**base, **more})  # type: ignore[arg-type]


EVENTS: list[Event] = [
    RunStarted(1.0, "r", "llamacpp", "p", "m", "draft depth", (0, 1), ("code",)),
    ServerChanged(2.0, "ready", 1, depth=1, pid=5, url="http://x", argv=("a", "b"), boot_s=0.3),
    done("a", per_position=(0.5, 0.25), text="hi\x1b[31m", raw={"x": [1, None]}),
    MemorySample(3.0, 1, (GpuReading(0, "H200", others=((7, "x", None),)),), server_rss=5),
    Notice(4.0, "warning", "w"),
    CapacityRead(1, Capacity(kv_pool_tokens=5, lines={"kv_pool_tokens": 3}, explain=("five",))),
    LogRecords(1, (Record(3, "decode", {"running": 1}),)),
    LogLines(1, ("a", "b")),
    RequestSent("a", 1.0, "code-1", "code", 5, 1),
    Judged(5.0, {"final": True, "regret": {"1": {"code": 0.0}}}),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_an_event_survives_its_line(event: Event) -> None:
    assert codec.decode(codec.encode(event)) == event


@given(st.binary(max_size=100))
def test_no_line_breaks_the_reader(data: bytes) -> None:
    try:
        codec.decode(data)
    except ValueError:
        return


def test_a_run_keeps_what_was_appended(tmp_path: Path) -> None:
    run = store.create(tmp_path)
    run.open()
    for event in EVENTS:
        run.append(event)
    run.close()
    kept = list(store.find(run.name, tmp_path).events())
    assert [type(e).__name__ for e in kept] == [
        "RunStarted", "ServerChanged", "RequestDone", "MemorySample", "Notice", "Judged",
    ]  # fmt: skip


def test_texts_stay_in_the_load_log_alone(tmp_path: Path) -> None:
    run = store.create(tmp_path)
    run.open()
    run.load_log.write_bytes(codec.encode(done("a", text="whole")))
    run.append(done("a", text="whole"))
    run.close()
    assert b"whole" not in run.events_log.read_bytes()
    assert [r.text for r in run.requests()] == ["whole"]


def test_a_request_that_only_the_load_log_has_is_not_lost(tmp_path: Path) -> None:
    run = store.create(tmp_path)
    run.open()
    run.append(done("a"))
    run.close()
    run.load_log.write_bytes(codec.encode(done("a")) + codec.encode(done("b")))
    assert [e.id for e in run.events() if isinstance(e, RequestDone)] == ["a", "b"]


def test_a_torn_last_line_is_dropped_with_a_notice_and_never_glued(tmp_path: Path) -> None:
    run = store.create(tmp_path)
    run.events_log.write_bytes(codec.encode(done("a")) + b'{"kind":"done","id":"to')
    assert [n.text for n in run.events() if isinstance(n, Notice)] == [
        "events.jsonl:2: this line was torn and is left out"
    ]
    run.open()
    run.append(done("b"))
    run.close()
    assert [e.id for e in run.events() if isinstance(e, RequestDone)] == ["a", "b"]


def test_the_last_record_of_an_id_counts(tmp_path: Path) -> None:
    run = store.create(tmp_path)
    run.load_log.write_bytes(codec.encode(done("a")) + codec.encode(done("a", block=3)))
    assert [(r.id, r.block) for r in run.requests()] == [("a", 3)]


def test_names_never_collide_and_a_run_has_one_writer(tmp_path: Path) -> None:
    names = {store.create(tmp_path).name for _ in range(30)}
    assert len(names) == 30
    run = store.create(tmp_path)
    run.open()
    with pytest.raises(Refused, match="another console"):
        store.Run(run.path).open()
    run.close()
    again = store.Run(run.path)
    again.open()
    again.close()


def test_no_secret_reaches_run_yaml(tmp_path: Path) -> None:
    run = store.create(tmp_path)
    recipe = Recipe("p", "llamacpp", "b", "m", Dial("none", (0,)), env={"HF_TOKEN": "s3cret"})
    run.describe(recipe, {"argv": ["x"]})
    text = (run.path / "run.yaml").read_text()
    assert "s3cret" not in text
    assert run.description()["recipe"]["env"] == {"HF_TOKEN": "(set)"}


def test_an_unknown_run_is_named_with_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="none yet"):
        store.find("nothing", tmp_path)


def test_a_disk_that_is_full_is_told_and_tears_nothing(tmp_path: Path) -> None:
    run = store.create(tmp_path)
    run.open()
    run.append(EVENTS[0])
    before = run.events_log.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, hard))
    try:
        with pytest.raises(OSError):
            run.append(EVENTS[1])
        with pytest.raises(OSError):
            run.write_result({"x": "y" * 10_000})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    run.close()
    assert not run.result_file.exists()
    assert sorted(p.name for p in run.path.iterdir()) == [".lock", "events.jsonl"]
    again = store.Run(run.path)
    again.open()
    again.append(EVENTS[4])
    again.close()
    kept = [e for e in again.events() if not (isinstance(e, Notice) and not e.at)]
    assert kept == [EVENTS[0], EVENTS[4]]


def test_a_store_that_cannot_be_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DRAFTDIAL_RUNS", str(tmp_path / "file"))
    with pytest.raises(Refused, match=r"file: no run can be kept here: .*; DRAFTDIAL_RUNS names another place"):
        store.create()
    assert store.listing() == []
    for name in ("", "x" * 300, "/" + "y" * 5000):
        with pytest.raises(Refused, match="no run"):
            store.find(name)


def test_odd_characters_do_not_stop_a_result(tmp_path: Path) -> None:
    run = store.create(tmp_path)
    run.write_result({"x": "a\ud800b"})
    assert run.result() == {"x": "a?b"}


def test_a_user_without_a_home_is_asked_for_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DRAFTDIAL_RUNS", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    with pytest.raises(Refused, match="say with DRAFTDIAL_RUNS where"):
        store.create()
