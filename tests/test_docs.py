"""The documents say what the program does: tables are made from it, words are checked against it."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import typing
from pathlib import Path

import pytest

from probes import engines, preset, recipe
from probes.commands import _common
from probes.events import FIELDS, OUTCOMES, Kind, Verdict

DOCS = Path(__file__).resolve().parent.parent / "docs"


def text(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def section(name: str, title: str) -> str:
    """What stands under a heading of the second level."""
    return next(part for part in re.split(r"^## ", text(name), flags=re.MULTILINE) if part.startswith(title + "\n"))


def first_words(part: str) -> list[str]:
    """The code words of each table row's first cell."""
    return [
        w
        for line in part.splitlines()
        if line.startswith("| `")
        for w in re.findall(r"`([^`]+)`", line.split(" | ")[0])
    ]


def test_generated_tables_are_fresh() -> None:
    spec = importlib.util.spec_from_file_location("tables", DOCS / "tables.py")
    assert spec
    assert spec.loader
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    for path in DOCS.glob("*.md"):
        old = path.read_text(encoding="utf-8")
        assert tables.made(old) == old, f"{path.name} is stale: run `python docs/tables.py`"
    assert tables.made("<!-- table launchers -->\nold\n<!-- end -->") != "<!-- table launchers -->\nold\n<!-- end -->"


@pytest.mark.parametrize(
    ("title", "legal"),
    [
        ("Keys", preset.TOP),
        ("The dial", tuple(f.name for f in dataclasses.fields(recipe.Dial))),
        ("Workload", tuple(f.name for f in dataclasses.fields(recipe.Workload))),
        ("Limits", tuple(f.name for f in dataclasses.fields(recipe.Limits))),
        ("Launchers", preset.LAUNCHERS),
        ("Knobs", ("name", "flag", "type", "choices", "low", "high", "changes", "rule", "also", "help", "start")),
    ],
)
def test_every_key_of_a_preset_is_documented_and_no_other(title: str, legal: tuple[str, ...]) -> None:
    part = section("presets.md", title).split("\n### ")[0]
    assert sorted(first_words(part)) == sorted(legal)


def test_every_word_that_a_key_takes_is_named() -> None:
    keys = section("presets.md", "Keys")
    for word in (*engines.names(), *preset.LAUNCHERS):
        assert f"`{word}`" in keys
    knobs = section("presets.md", "Knobs").split("\n### ")[0]
    for word in (*preset.KNOB_TYPES, *preset.CHANGES):
        assert f"`{word}`" in knobs
    for engine in engines.names():
        for knob in engines.engine(engine).knobs:
            assert f"| `{knob.name}` |" in text("presets.md")


def test_the_documented_defaults_are_the_defaults() -> None:
    for part, kind in (("Workload", recipe.Workload), ("Limits", recipe.Limits)):
        body = section("presets.md", part)
        for field in dataclasses.fields(kind):
            if isinstance(field.default, (int, float)) and field.name != "temperature":
                line = next(row for row in body.splitlines() if row.startswith(f"| `{field.name}`"))
                assert re.search(rf"\| {field.default:g}\b", line), line


def test_the_examples_are_presets() -> None:
    found = re.findall(r"```yaml\n(.*?)```", text("presets.md"), flags=re.DOTALL)
    assert len(found) == 3
    for number, example in enumerate(found):
        loaded = preset.parse(example, f"example-{number}.yaml")
        engine = engines.engine(loaded.engine)
        for depth in loaded.dial.values:
            assert engine.command(loaded, loaded.settings, depth, 8080)


def test_runs_names_files_codes_and_outcomes() -> None:
    files = section("runs.md", "Files")
    for name in ("run.yaml", "server.log", "load.jsonl", "events.jsonl", "result.json"):
        assert f"| `{name}` |" in files
    codes = {int(n) for n in re.findall(r"^\| (\d+) \|", section("runs.md", "Exit codes"), flags=re.MULTILINE)}
    assert codes == {
        _common.DONE, _common.NO, _common.USAGE, _common.NOT_STARTED, _common.INCOMPLETE, _common.INTERRUPTED,
    }  # fmt: skip
    assert all(f"`{outcome}`" in section("runs.md", "Export") for outcome in OUTCOMES)


def test_every_key_of_a_result_is_documented() -> None:
    from probes.stats.result import judge_sweep

    result = judge_sweep([], engine="e", run="r", depths=[0], categories=["code"], simulated=False)
    told = first_words(section("runs.md", "The result of a sweep"))
    everywhere = set(re.findall(r"`(\w+)`", section("runs.md", "The result of a sweep")))
    assert set(result) <= everywhere
    assert set(told) <= {*result, "failed_points", "run_path"}


def test_the_words_of_a_reading_are_documented() -> None:
    records = section("reading-logs.md", "Records")
    assert set(typing.get_args(Kind)) <= set(re.findall(r"`(\w+)`", records))
    assert sorted(first_words(records)) == sorted(FIELDS)
    assert sorted(first_words(section("reading-logs.md", "How a verdict is reached"))) == sorted(
        typing.get_args(Verdict)
    )
    for engine in engines.names():
        assert f"### {engines.engine(engine).title}\n" in text("reading-logs.md")


def test_links_lead_somewhere() -> None:
    for path in DOCS.glob("*.md"):
        body = path.read_text(encoding="utf-8")
        heads = {
            re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.*)$", body, re.MULTILINE)
        }
        for target in re.findall(r"\]\(#([^)]+)\)", body):
            assert target in heads, f"{path.name}: #{target}"
        for target in re.findall(r"\]\((?!#|http)([^)#]+)", body):
            assert (path.parent / target).exists(), f"{path.name}: {target}"
