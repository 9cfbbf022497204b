from __future__ import annotations

import csv
import dataclasses
import fcntl
import io
import json
import os
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import Result
from hypothesis import example, given
from hypothesis import strategies as st

from probes import history, store
from probes.commands import _report_charts as charts
from probes.commands.export import as_csv, as_json
from probes.commands.runs import spans
from probes.events import (
    Capacity,
    CapacityRead,
    Event,
    FlagsInForce,
    GpuReading,
    MemorySample,
    Notice,
    PlanProgress,
    RequestDone,
    RunStarted,
)
from probes.gpu.throttle import THERMAL_HARDWARE
from probes.recipe import Workload

GIB = 1 << 30
Make = Callable[..., store.Run]
Call = Callable[..., Result]


# ------------------------------------------------------------------------------------------------------------- runs


def test_runs_lists_each_with_what_it_came_to(make: Make, call: Call) -> None:
    first = make()
    call("show", first.name)
    broken = make(events=[RunStarted(1e9, "r", "vllm", "other", "m", "d", (0, 1), ("code",)),
                          PlanProgress(1e9, "sweep", 1, 2, "block 1, depth 1")])  # fmt: skip
    rows = [json.loads(line) for line in call("runs", "--json").stdout.splitlines()]
    assert [(r["run"], r["state"], r["requests"], r["depths"]) for r in rows] == [
        (first.name, "finished", 8, [0, 1]),
        (broken.name, "interrupted", 8, [0, 1]),
    ]
    text = call("runs").stdout.splitlines()
    assert text[0].split() == ["run", "when", "engine", "preset", "depths", "requests", "verdict", "state"]
    assert text[2].endswith("interrupted")
    assert len(call("runs", "--last", "1").stdout.splitlines()) == 2


def test_a_run_that_a_console_holds_is_open(make: Make) -> None:
    run = make()
    assert history.glance(run)["state"] == "finished"
    handle = os.open(run.path / ".lock", os.O_RDWR)
    fcntl.flock(handle, fcntl.LOCK_EX)
    assert history.glance(run)["state"] == "open"
    os.close(handle)


def test_the_last_progress_is_found_however_much_follows_it(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "TAIL", 64)
    noise: list[Event] = [Notice(1.0, "info", "x" * n) for n in range(90)]
    started = RunStarted(1e9, "r", "vllm", "p", "m", "d", (0,), ("code",))
    run = make(events=[started, PlanProgress(1.0, "sweep", 0, 1, "first"), PlanProgress(1.0, "ab", 1, 3, "it"), *noise])
    found = history._last_progress(run)
    assert found is not None
    assert (found.plan, found.step) == ("ab", "it")
    run.events_log.write_bytes(b"")
    assert history._last_progress(run) is None


@pytest.mark.parametrize(
    ("depths", "text"), [([], ""), ([0], "0"), ([0, 1], "0,1"), ([0, 1, 2, 5], "0-2,5"), ([1, 3], "1,3")]
)
def test_depths_are_told_as_spans(depths: list[int], text: str) -> None:
    assert spans(depths) == text


def test_no_runs_is_said_and_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    monkeypatch.setenv("DRAFTDIAL_RUNS", str(tmp_path))
    found = call("runs")
    assert (found.exit_code, found.stdout) == (0, "")
    assert "no runs" in found.stderr


# ------------------------------------------------------------------------------------------------------------- show


def test_show_tells_memory_by_phase_flags_boots_and_the_ceiling(make: Make, call: Call) -> None:
    found = json.loads(call("show", make().name, "--json").stdout)
    assert found["kind"] == "run"
    assert {m["phase"]: m["free"] for m in found["memory"]} == {"boot": 40 * GIB, "idle": 30 * GIB, "probe": 20 * GIB}
    assert (found["free_after_boot"], found["free_under_load"]) == (30 * GIB, 20 * GIB)
    assert [(s["restart"], s["depth"], s["boot_s"], s["proven"]) for s in found["starts"]] == [
        (1, 0, 2.5, True), (2, 1, 3.5, True),
    ]  # fmt: skip
    assert found["outcomes"] == {"ok": 8}
    assert found["ceiling"]["verdict"] == "lanes", "a later 'unknown' of an idle server hides nothing"
    assert found["result"]["cells"]


def test_show_prints_no_control_character_of_a_log(make: Make, call: Call) -> None:
    text = call("show", make().name).stdout
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "free on the tightest GPU: 30.0 GiB after boot, 20.0 GiB under load" in text
    assert "lanes (high): Lanes held them back." in text


def test_a_result_is_computed_where_none_is_stored_and_the_stored_one_stands(make: Make, call: Call) -> None:
    run = make()
    assert "computed now" in call("show", run.name).stdout
    assert run.result() is None, "show writes nothing"
    run.write_result({"kind": "result", "verdict": {"state": "PICK", "depth": 1, "sentence": "as stored"}, "cells": []})
    assert "as stored" in call("show", run.name).stdout
    assert "as stored" not in call("show", run.name, "--recompute").stdout


def test_a_computed_result_bars_depths_whose_flags_are_not_proven(make: Make) -> None:
    plain = make()
    events = [dataclasses.replace(e, proven=False) if isinstance(e, FlagsInForce) else e for e in plain.events()]
    run = make(events=[e for e in events if not isinstance(e, RequestDone)])
    assert history.account(run).result["unverified"] == [0, 1]
    assert history.account(plain).result["unverified"] == []


def test_memory_in_use_is_split_by_the_engines_lines_of_that_start() -> None:
    found = history._Sum()
    assert found.split() is None
    gpu = GpuReading(0, "H200", "GPU-1", total=80 * GIB, used=50 * GIB, free=30 * GIB, ours=48 * GIB)
    for restart, phase, ours in ((1, "load", 70), (2, "idle", 40), (2, "probe", 48)):
        found.take(MemorySample(1.0, restart, (dataclasses.replace(gpu, ours=ours * GIB),), phase=phase))
    found.take(CapacityRead(2, Capacity(weights_bytes=16 * GIB, kv_bytes=30 * GIB)))
    said = "48.0 GiB in use = weights 16.0 GiB + pools 30.0 GiB + 2.0 GiB that no line names"
    assert str(found.split()).startswith(said)


@pytest.mark.parametrize("name", ["load.jsonl", "events.jsonl"])
def test_a_torn_last_line_is_dropped_with_a_warning(make: Make, call: Call, name: str) -> None:
    run = make()
    whole = call("show", run.name).stdout
    assert "this line was" not in whole
    with (run.path / name).open("ab") as file:
        file.write(b'{"kind":"done","id":"d1-r1')
    text = call("show", run.name).stdout
    assert f"warning: {name}:" in text
    assert "this line was torn and is left out" in text
    assert "8 ok" in whole
    assert "8 ok" in text


def test_any_two_depths_are_set_beside_each_other(make: Make, call: Call) -> None:
    run = make()
    told = call("show", run.name, "--between", "0:1").stdout.splitlines()
    assert told[0] == "from depth 0 to 1: speed = accept length / step time"
    assert "code         100.0 → 150.0 tok/s (+50.0%)" in told[1]
    found = json.loads(call("show", run.name, "--between", "0:1", "--json").stdout)
    assert [p["category"] for p in found["points"]] == ["code", "story"]
    for span in ("0", "0:7", "a:1", "0:1:2"):
        refused = call("show", run.name, "--between", span)
        assert refused.exit_code == 2
        assert refused.stderr == f"draftdial: --between {span}: write two measured depths as 3:4; measured: 0, 1\n"


def test_a_sweep_by_someones_traffic_shows_what_that_loses(make: Make, call: Call) -> None:
    run = make()
    plain = call("show", run.name).stdout
    assert "traffic" not in plain
    assert "worst loss by depth" in plain
    result = history.account(run).result
    row = {**result["regret"]["0"], "weighted": 0.123}
    run.write_result({**result, "mix": {"code": 1.0}, "regret": {**result["regret"], "0": row}})
    text = call("show", run.name).stdout
    assert f"{'worst':>8} {'traffic':>8}" in text
    assert "   12.3%" in text


def test_both_first_token_times_of_two_prompts_are_shown(make: Make, call: Call) -> None:
    assert "    0    50.0/50.0    50.0/50.0" in call("show", make().name).stdout.splitlines()


def test_a_depth_that_ran_on_a_slowed_gpu_cannot_win(make: Make) -> None:
    plain = make()
    hot = GpuReading(0, "H200", "GPU-1", throttle=(THERMAL_HARDWARE,))
    events = [e for e in plain.events() if not isinstance(e, RequestDone)]
    run = make(events=[*events, MemorySample(1.0, 2, (hot,), phase="probe")])  # restart 2 is depth 1
    result = history.account(run).result
    assert result["flag_details"]["THROTTLED"] == ["depth 1: the GPU was slowed for 50% of the time, so it cannot win"]
    assert "1" not in result["regret"]
    assert "THROTTLED" not in history.account(plain).result["flags"]


def test_an_ab_and_an_unknown_plan_are_shown_by_their_own_words(make: Make, call: Call) -> None:
    run = make()
    run.write_result({"kind": "result", "verdict": "BETTER", "sentence": "B wins", "odd": {"a": 1}})
    text = call("show", run.name).stdout
    assert "BETTER: B wins" in text
    assert "odd: a 1" in text


def test_an_unknown_run_is_one_line_and_code_2(make: Make, call: Call) -> None:
    make()
    for words in (["show"], ["export", "--format", "csv"], ["report", "-o", "/nonexistent/x.html"]):
        found = call(words[0], "nothing", *words[1:])
        assert found.exit_code == 2
        assert found.stderr.count("\n") == 1
        assert "no run 'nothing'" in found.stderr


# ---------------------------------------------------------------------------------------------------------- compare


def test_two_runs_that_differ_in_one_setting_are_compared_prompt_by_prompt(make: Make, call: Call) -> None:
    a = make()
    faster = [
        dataclasses.replace(r, first=r.sent + 0.025, ttft_ms=25.0, last=r.sent + 0.025 + (r.last - r.first) / 2)
        for r in a.requests()
        if r.first and r.last and r.prompt_id != "story-2"
    ]
    b = make(faster, what={"settings": {"ctx": 2048, "threads": 1}})
    found = json.loads(call("compare", a.name, b.name, "--json").stdout)
    assert found["comparable"] is True
    assert found["tested"] == ["settings.ctx: 1024 against 2048"]
    cells = {(c["depth"], c["category"]): c for c in found["cells"]}
    assert set(cells) == {(d, c) for d in (0, 1) for c in ("code", "story")}
    assert cells[0, "code"]["speed_ratio"] == pytest.approx(2.0)
    assert cells[0, "code"]["ttft_ratio"] == pytest.approx(0.5)
    assert (cells[0, "story"]["n"], cells[0, "story"]["only_a"], cells[0, "story"]["only_b"]) == (1, 1, 0)
    assert cells[1, "code"]["accept_rate"] == [pytest.approx(2 / 3)] * 2
    assert any("one block each" in text for text in found["cell_notes"])
    shown = call("compare", a.name, b.name)
    assert shown.exit_code == 0
    assert "2.000" in shown.stdout


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ({"workload": Workload(("code", "story"), 2, 50)}, "sampling"),
        ({"workload": Workload(("code", "story"), 1, 100)}, "prompts"),
        ({"settings": {"ctx": 1, "threads": 2}}, "settings.threads"),
        ({"settings": {"ctx": 1024, "threads": 1, "cache_type_k": "q8_0"}}, "kv_type"),
    ],
)
def test_runs_that_differ_in_more_are_refused_with_the_reason(
    make: Make, call: Call, what: dict[str, Any], reason: str
) -> None:
    a, b = make(), make(what=what)
    found = call("compare", a.name, b.name)
    assert found.exit_code == 2
    assert found.stdout == ""
    assert reason in found.stderr
    assert "can't be compared" in found.stderr
    told = json.loads(call("compare", a.name, b.name, "--json").stdout)
    assert told["comparable"] is False
    assert "cells" not in told


def test_a_run_without_fingerprint_and_a_run_with_itself_are_refused(make: Make, call: Call) -> None:
    a, b = make(), make(fingerprinted=False)
    assert "second run has no fingerprint" in call("compare", a.name, b.name).stderr
    assert "one run twice" in call("compare", a.name, a.name).stderr


def test_a_bundle_must_be_named_and_is_called_one(make: Make, call: Call) -> None:
    a, b = make(), make(what={"settings": {"ctx": 2, "threads": 2}})
    assert "--tested settings.ctx --tested settings.threads" in call("compare", a.name, b.name).stderr
    named = call("compare", a.name, b.name, "--tested", "settings.ctx", "--tested", "settings.threads")
    assert named.exit_code == 0
    assert "two bundles" in named.stdout
    assert "that is the same" in call("compare", a.name, b.name, "--tested", "model").stderr


# ----------------------------------------------------------------------------------------------------------- export


def test_export_has_a_row_a_request_in_both_forms(make: Make, call: Call) -> None:
    run = make()
    as_list = json.loads(call("export", run.name, "--format", "json").stdout)
    rows = list(csv.DictReader(io.StringIO(call("export", run.name, "--format", "csv").stdout)))
    assert [r["id"] for r in as_list] == [r["id"] for r in rows] == [r.id for r in run.requests()]
    fields = {f.name for f in dataclasses.fields(RequestDone)}
    assert set(as_list[0]) == set(rows[0]) == fields | {"run"}
    assert as_list[0]["drafted"] is None
    assert rows[0]["drafted"] == ""
    assert rows[0]["warmup"] == "false"


def test_export_of_cells_has_stable_columns_and_regret(make: Make, call: Call) -> None:
    run = make()
    rows = json.loads(call("export", run.name, "--format", "json", "--cells").stdout)
    assert list(rows[0]) == [
        "run", "engine", "simulated", "depth", "category", "n", "requests", "drafted", "accepted", "accept_rate",
        "accept_len", "decode_tps", "tpot_ms", "ttft_ms", "step_ms", "approximate", "outcomes", "state", "regret",
    ]  # fmt: skip
    by_cell = {(r["depth"], r["category"]): r for r in rows}
    assert by_cell[0, "code"]["regret"] == pytest.approx(1 - 100 / 150, abs=1e-3)
    assert by_cell[1, "code"]["regret"] == 0.0


@given(st.lists(st.one_of(st.text(), st.none(), st.booleans(), st.integers(), st.lists(st.text())), max_size=6))
@example(["\r0"])
@example(['a"b,\n'])
@example([None])
def test_any_value_survives_csv_and_json(values: list[Any]) -> None:
    columns = [f"c{i}" for i in range(len(values))]
    row = dict(zip(columns, values, strict=True))
    assert json.loads(as_json([row])) == [row]
    back = list(csv.reader(io.StringIO(as_csv(columns, [row]), newline="")))
    assert len(back) == (2 if values else len(back))
    for text in back[1] if values else []:
        assert not text.startswith(("=", "@", "+")), "a spreadsheet would run it"


def test_a_link_stays_one_and_a_pipe_is_written_to(make: Make, call: Call, tmp_path: Path) -> None:
    run = make()
    link, pipe = tmp_path / "link.csv", tmp_path / "pipe"
    link.symlink_to(tmp_path / "there.csv")
    assert call("export", run.name, "--format", "csv", "-o", str(link)).exit_code == 0
    assert link.is_symlink()
    assert (tmp_path / "there.csv").read_text().startswith("run,id,")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert call("export", run.name, "--format", "csv", "-o", str(pipe)).exit_code == 0
        assert os.read(reader, 7) == b"run,id,"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_export_writes_a_whole_file_or_none(make: Make, call: Call, tmp_path: Path) -> None:
    run = make()
    out = tmp_path / "x.csv"
    assert call("export", run.name, "--format", "csv", "-o", str(out)).exit_code == 0
    assert out.read_text().startswith("run,id,prompt_id,")
    bad = call("export", run.name, "--format", "csv", "-o", str(tmp_path / "no" / "x.csv"))
    assert bad.exit_code == 2
    assert [p.name for p in tmp_path.glob("*.csv*")] == ["x.csv"]


# ----------------------------------------------------------------------------------------------------------- report


class Page(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.values: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.values += [v for k, v in attrs if v and k in {"href", "src", "action", "style"}]
        assert not any(k.startswith("on") for k, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def written(run: store.Run, call: Call, tmp_path: Path) -> str:
    out = tmp_path / "page.html"
    assert call("report", run.name, "-o", str(out)).exit_code == 0
    return out.read_text()


def test_a_report_is_one_page_without_scripts_or_network(make: Make, call: Call, tmp_path: Path) -> None:
    text = written(make(), call, tmp_path)
    page = Page(text)
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert page.values == []
    assert "://" not in text
    assert "url(" not in text
    assert page.tags.count("figure") == 5
    body = text[text.index("<body>") :]
    assert body.index("<h1>") < body.index("<table>") < body.index("Starts of the server")
    assert "SIMULATED" not in text


def test_foreign_text_stays_text(make: Make, call: Call, tmp_path: Path) -> None:
    text = written(make(), call, tmp_path)
    assert "&lt;script&gt;alert(1)" in text
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_a_simulated_run_says_so_first(make: Make, call: Call, tmp_path: Path) -> None:
    run = make()
    events = [dataclasses.replace(e, simulated=True) if isinstance(e, RunStarted) else e for e in run.events()]
    text = written(make(events=[e for e in events if not isinstance(e, RequestDone)]), call, tmp_path)
    assert text.index("SIMULATED: no figure") < text.index("<h1>")
    assert "<title>SIMULATED" in text


def test_a_report_of_next_to_nothing_is_still_a_page(make: Make, call: Call, tmp_path: Path) -> None:
    page = Page(written(make([], events=[Notice(1.0, "info", "only this")]), call, tmp_path))
    assert "Nothing was measured to its end." in page.words
    assert "figure" not in page.tags


NUMBERS = st.one_of(st.none(), st.floats(), st.integers(-5, 10**9), st.lists(st.floats(), max_size=3), st.text())


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["a", "<b>", "c"]), NUMBERS), max_size=12))
@example([(0, "a", 5e-324)])
def test_a_chart_is_well_formed_whatever_the_figures(cells: list[tuple[int, str, Any]]) -> None:
    data = charts.series([{"depth": d, "category": c, "v": v} for d, c, v in cells], "v")
    text = charts.chart("V & w", data, ["a", "<b>"])
    assert bool(text) == any(data.values())
    if text:
        root = ET.fromstring(text)  # noqa: S314  (our own text)
        for node in root.iter():
            for value in node.attrib.values():
                assert "nan" not in value
                assert "inf" not in value


def test_a_line_breaks_where_a_depth_was_not_measured() -> None:
    cells = [{"depth": d, "category": "a", "v": 1.0} for d in (0, 1, 3)]
    cells += [{"depth": 2, "category": "b", "v": 2.0}]
    text = charts.chart("V", charts.series(cells, "v"), ["a", "b"])
    line = next(part for part in text.split("<path ") if part.startswith('class="line k0"'))
    assert line.count("M") == 2
    assert line.count("L") == 1


def test_flagged_and_unproven_points_are_hollow() -> None:
    cells = [{"depth": 0, "category": "a", "v": 1.0}, {"depth": 1, "category": "a", "v": 1.0, "state": "FLAGGED"},
             {"depth": 2, "category": "a", "v": 1.0}]  # fmt: skip
    points = charts.series(cells, "v", [2])["a"]
    assert [p.hollow for p in points] == [False, True, True]
    assert charts.chart("V", {"a": points}, ["a"]).count("hollow") == 2
