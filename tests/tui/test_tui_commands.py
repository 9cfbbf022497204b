from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from probes import machine, preset, store
from probes.recipe import Refused
from tui import __main__ as entry
from tui.commands import demo, live
from tui.messages import Open, OpenRun
from tui.replay import Replay


def loaded(*words: str) -> set[str]:
    """Modules that a command line imports."""
    code = f"import sys; sys.argv = ['draftdial', *{words!r}]\ntry:\n import tui.__main__ as m; m.main()\nexcept SystemExit: pass\nprint(*sys.modules, file=sys.stderr)"  # noqa: E501
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_help_and_other_commands_load_no_screen() -> None:
    for words in (("--help",), ("presets",), ("demo", "--help")):
        found = loaded(*words)
        assert "click" in found
        assert not {"textual", "httpx", "numpy", "plotext", "scipy"} & found, words


def test_a_screen_loads_neither_lab_nor_charts_before_its_first_paint() -> None:
    code = "import sys, tui.commands.live, tui.app; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"httpx", "numpy", "plotext", "scipy", "probes.lab"} & set(done.stdout.split())


@pytest.mark.parametrize(
    ("word", "near"), [("demmo", "command is demo"), ("swep", "command is sweep"), ("llamacp", "preset is llamacpp")]
)
def test_a_misspelt_word_names_what_is_near(word: str, near: str) -> None:
    found = CliRunner().invoke(entry.draftdial, [word])
    assert found.exit_code == 2
    assert found.output.startswith(f"draftdial: '{word}' is no command and no preset; ")
    assert near in found.output
    assert found.output.count("\n") == 1


def test_a_refused_setting_makes_no_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DRAFTDIAL_RUNS", str(tmp_path))
    for words in (["llamacpp", "--set", "thread=3"], ["llamacpp", "--set", "depth=999"], ["llamacpp"], ["demo"], []):
        found = CliRunner().invoke(entry.draftdial, words)
        assert found.exit_code == 2
        assert found.output.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_settings_and_depth_are_where_the_dial_starts() -> None:
    found = live.recipe("llamacpp-smollm2-ngram", ("depth=8", "threads=2"))
    assert found.dial.start == 8
    assert found.settings["threads"] == 2
    assert found.settings["ctx"] == 2048


def test_every_preset_is_in_the_picker_with_its_title() -> None:
    rows = live.rows()
    assert [name for name, _, _ in rows] == list(preset.listing())
    assert all(title and problem is None for _, title, problem in rows)


def test_the_picker_opens_presets_and_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DRAFTDIAL_RUNS", str(tmp_path))
    feed = live.opener(Open("llamacpp"))
    assert feed.recipe is not None
    (feed.run.path / "events.jsonl").touch()
    past = live.opener(OpenRun(feed.run.name))
    assert isinstance(past, Replay)
    assert past.past
    assert past.run.path == feed.run.path
    with pytest.raises(Refused, match="no run 'none'"):
        live.opener(OpenRun("none"))
    assert [r.path for r in store.listing()] == [feed.run.path]


def test_the_demo_takes_another_server_where_its_own_cannot_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = preset.load(demo.PRESET)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object())
    monkeypatch.setattr(machine, "demo_obstacles_here", lambda: ("needs a processor with AVX2",))
    monkeypatch.setattr(machine, "program", lambda name: "/opt/llama-server" if name == "llama-server" else None)
    assert demo.able(recipe).binary == "/opt/llama-server"
    assert capsys.readouterr().err == (
        "the demo's own llama-server needs a processor with AVX2: using /opt/llama-server\n"
    )
    monkeypatch.setattr(machine, "program", lambda _: None)
    with pytest.raises(Refused, match="needs a processor with AVX2, and no llama-server is on PATH"):
        demo.able(recipe)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(Refused, match="the demo extra is not installed"):
        demo.able(recipe)


def test_a_misspelt_command_is_named_also_before_its_arguments() -> None:
    found = CliRunner().invoke(entry.draftdial, ["swep", "sim-vllm", "--json"])
    assert found.exit_code == 2
    assert found.output == "draftdial: 'swep' is no command and no preset; the nearest command is sweep\n"


def test_ctrl_c_before_a_command_has_begun_is_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("probes.preset.load", interrupted)
    assert CliRunner().invoke(entry.draftdial, ["check", "sim-vllm"]).exit_code == 130


def test_a_pipe_that_cannot_hold_an_arrow_gets_the_rest() -> None:
    code = "import sys; sys.argv = ['draftdial', 'check', 'sim-vllm']\nimport tui.__main__ as m; m.main()"
    for coding in ("ascii", "latin-1"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            check=False,
            env={**os.environ, "PYTHONIOENCODING": coding},
        )
        assert done.returncode == 0, done.stderr
        assert b"engine         vllm" in done.stdout


def shell(line: str, **told: str) -> subprocess.CompletedProcess[str]:
    """A shell line with `$D` as this program."""
    program = f"{sys.executable} -m tui"
    env = {**os.environ, "D": program, **told}
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, env=env)


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("$D presets >/dev/full", 4, "draftdial: the output: No space left on device\n"),
        ("$D presets >&-", 0, ""),
        ("$D check nosuch 2>&-", 2, ""),
        ("set -o pipefail; $D presets | true", 130, ""),
    ],
)
def test_an_output_that_takes_nothing_is_no_traceback(line: str, code: int, said: str) -> None:
    done = shell(line)
    assert (done.returncode, done.stderr) == (code, said)


def test_a_word_is_shown_at_once_only_where_a_screen_follows() -> None:
    assert entry.opens_screen([])
    assert entry.opens_screen(["demo"])
    assert entry.opens_screen(["llamacpp", "--set", "threads=1"])
    assert not entry.opens_screen(["demo", "--help"])
    assert not entry.opens_screen(["sweep", "llamacpp"])
    assert not entry.opens_screen(["--version"])
