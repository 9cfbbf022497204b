from __future__ import annotations

import threading
from pathlib import Path

import pytest

from probes import store
from probes.events import Notice, PlanProgress, RequestDone, RunStarted, ServerChanged
from probes.recipe import Dial, Recipe
from tui.labthread import LabThread, attach
from tui.messages import Apply, Cancel, Pause, Probe, StopServer, Sweep
from tui.replay import Replay

MISSING = Recipe("gone", "llamacpp", "/nonexistent/llama-server", "/nonexistent/m.gguf", Dial("ngram-simple", (0, 3)))


def finish(thread: LabThread) -> list[object]:
    """Everything that happened, until the end; whatever was asked before `close` is carried out first."""
    thread.close()
    return list(thread.drain())


def test_it_opens_and_closes_and_leaves_no_thread(tmp_path: Path) -> None:
    thread = LabThread(MISSING, store.create(tmp_path))
    thread.start()
    events = finish(thread)
    assert isinstance(events[0], RunStarted)
    assert "lab" not in {t.name for t in threading.enumerate()}
    assert thread.doing is None


def test_what_is_asked_before_it_is_open_is_not_lost(tmp_path: Path) -> None:
    thread = LabThread(MISSING, store.create(tmp_path))
    thread.ask(Apply(0))
    thread.start()
    events: list[object] = []
    waiting = threading.Event()
    while not any(isinstance(e, (Notice, ServerChanged)) for e in events):
        events += thread.drain()
        waiting.wait(0.02)
    told = [e.text for e in events if isinstance(e, Notice)]
    assert any("/nonexistent/" in t for t in told), told
    thread.close()


def test_a_run_that_another_console_holds_is_told_not_raised(tmp_path: Path) -> None:
    run = store.create(tmp_path)
    run.open()
    thread = LabThread(MISSING, store.Run(run.path))
    thread.start()
    told = finish(thread)
    run.close()
    assert [e.text for e in told if isinstance(e, Notice)] == [f"{run.path}: another console is writing this run"]
    thread.ask(Probe())


def test_how_to_attach_names_url_log_and_engine(tmp_path: Path) -> None:
    said = attach(7, "http://127.0.0.1:1", store.Run(tmp_path), MISSING)
    assert "pid 7" in said
    assert f"draftdial attach http://127.0.0.1:1 --log {tmp_path}/server.log --engine llamacpp" in said


def test_a_past_run_is_read_to_its_end_and_asks_nothing(tmp_path: Path) -> None:
    run = store.create(tmp_path)
    thread = LabThread(MISSING, run)
    thread.start()
    live = finish(thread)
    again = Replay(store.find(run.name, tmp_path))
    again.start()
    again.ask(Sweep())
    again._thread.join()
    assert live
    assert again.drain() == live
    assert again.doing is None
    again.close()


def test_a_run_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").mkdir()
    again = Replay(store.Run(tmp_path))
    again.start()
    again.close()
    assert all(isinstance(e, Notice) for e in again.drain())


@pytest.mark.llama
def test_a_real_server_is_swept_probed_and_stopped(tmp_path: Path) -> None:
    from dataclasses import replace

    from probes import preset

    found = preset.load("llamacpp-smollm2-draft")
    load = replace(found.workload, prompts_per_category=1, max_tokens=8, categories=("translation",))
    recipe = replace(found, workload=load, dial=replace(found.dial, kind="draft-simple", values=(0, 1)))
    thread = LabThread(recipe, store.create(tmp_path))
    thread.start()
    events: list[object] = []
    waiting = threading.Event()

    def until(*kinds: object) -> None:
        while not any(kind(e) if callable(kind) else False for e in events for kind in kinds):
            events.extend(thread.drain())
            waiting.wait(0.02)
        while thread.doing:
            events.extend(thread.drain())
            waiting.wait(0.02)

    thread.ask(Sweep())
    until(lambda e: isinstance(e, PlanProgress) and e.finished)
    assert {e.depth for e in events if isinstance(e, RequestDone)} == {0, 1}
    thread.ask(Apply(1, {}))
    until(lambda e: isinstance(e, ServerChanged) and e.state == "ready" and e.restart == 3)
    before = sum(isinstance(e, RequestDone) for e in events)
    thread.ask(Probe())
    until(lambda _: sum(isinstance(e, RequestDone) for e in events) > before)
    thread.ask(Pause(on=True))
    thread.ask(Cancel())
    thread.ask(StopServer())
    until(lambda e: isinstance(e, ServerChanged) and e.state == "stopped" and e.restart == 3)
    assert [e for e in events if isinstance(e, Notice) and e.level == "error"] == []
    thread.close()


def test_of_two_keys_pressed_at_once_the_first_counts(tmp_path: Path) -> None:
    thread = LabThread(MISSING, store.create(tmp_path))
    for intent in (Apply(0), Apply(0), Probe()):
        thread.ask(intent)
    thread.start()
    told: list[Notice] = []
    waiting = threading.Event()
    while thread.doing is not None:
        told += [e for e in thread.drain() if isinstance(e, Notice)]
        waiting.wait(0.02)
    told += [e for e in finish(thread) if isinstance(e, Notice)]
    assert [n.text for n in told if n.level == "warning"] == ["busy: starting"]
    assert sum("/nonexistent/" in n.text for n in told) == 1
    thread.ask(Probe())
    assert [e.text for e in thread.drain() if isinstance(e, Notice)] == [
        "this run has ended: nothing can be started in it"
    ]
