from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes import engines, preset
from probes.recipe import Knob, Refused

GOOD = """\
engine: llamacpp
binary: llama-server
model: ~/m.gguf
dial:
  kind: draft-simple
  values: 0-4
  flags:
    -md: d.gguf
knobs:
  - threads
  - {name: ctx, start: 4096}
workload:
  categories: [code, story]
  max_tokens: 50
limits:
  boot_s: 9.5
"""


def test_a_preset_becomes_a_recipe() -> None:
    recipe = preset.parse(GOOD, "mine.yaml")
    assert recipe.name == "mine"
    assert recipe.engine == "llamacpp"
    assert recipe.dial.values == (0, 1, 2, 3, 4)
    assert recipe.dial.flags == {"-md": "d.gguf"}
    assert recipe.settings == {"ctx": 4096}
    assert [k.name for k in recipe.knobs] == ["threads", "ctx"]
    assert recipe.workload.categories == ("code", "story")
    assert recipe.workload.max_tokens == 50
    assert recipe.limits.boot_s == 9.5
    assert recipe.port is None
    assert recipe.host == "127.0.0.1"


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (
            "engine: llamacpp",
            "engine: lamacpp",
            "mine.yaml:1: engine: 'lamacpp' is not legal here; did you mean 'llamacpp'?",
        ),
        ("  values: 0-4", "  values: 4-0", "mine.yaml:6: dial.values: must be depths in rising order"),
        ("  values: 0-4", "  values: []", "mine.yaml:6: dial.values: must be depths"),
        ("  values: 0-4", "  valeus: 0-4", "mine.yaml:6: dial.valeus: no such key; did you mean 'values'?"),
        ("  values: 0-4", "  values: 0-4\n  start: 7", "mine.yaml:7: dial.start: 7 is not on the dial: 0, 1, 2, 3, 4"),
        ("  kind: draft-simple", "  kind: wishful", "mine.yaml:5: dial.kind:"),
        ("model: ~/m.gguf\n", "", "mine.yaml:1: key 'model' is missing"),
        (
            "  max_tokens: 50",
            "  max_tokens: lots",
            "mine.yaml:14: workload.max_tokens: must be a whole number from 1 to",
        ),
        ("  boot_s: 9.5", "  boot_s: -1", "mine.yaml:16: limits.boot_s: must be a number from 0.1"),
        ("  - threads", "  - treads", "mine.yaml:10: knobs[0]: 'treads' is not legal here; did you mean 'threads'?"),
        ("start: 4096", "start: many", "mine.yaml:11: knobs[1].start: ctx must be a whole number"),
        ("    -md: d.gguf", "    md: d.gguf", "mine.yaml:8: dial.flags.md: a flag starts with '-'"),
        ("[code, story]", "[code, prose]", "mine.yaml:13: workload.categories[1]: 'prose' is not legal here"),
        ("engine: llamacpp", "engine: llamacpp\nengine: vllm", "mine.yaml:2: engine: is given twice"),
        ("engine: llamacpp", "engine: [llamacpp", "not YAML"),
        (
            "engine: llamacpp",
            "engine: llamacpp\nport: 99999",
            "mine.yaml:2: port: must be auto or a whole number from 1 to 65535",
        ),
    ],
)
def test_a_bad_preset_gets_one_line_with_its_place(old: str, new: str, complaint: str) -> None:
    assert old in GOOD
    with pytest.raises(Refused) as caught:
        preset.parse(GOOD.replace(old, new, 1), "mine.yaml")
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_depth_beyond_the_engines_range_is_refused_with_its_rule() -> None:
    text = (
        GOOD.replace("llamacpp", "ninfer")
        .replace("draft-simple", "mtp")
        .replace("0-4", "0-6")
        .replace("    -md: d.gguf\n", "")
    )
    text = text.replace("  flags:\n", "").replace("  - threads\n  - {name: ctx, start: 4096}\n", "  []\n")
    if "ninfer" not in engines.names():
        pytest.skip("no ninfer engine in this installation")
    with pytest.raises(Refused, match="6 is no depth of"):
        preset.parse(text, "mine.yaml")


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ("{0: 1, 1: 2}", "in rising order from 0 to 1024"),
        ("!!binary aGk=", "in rising order from 0 to 1024"),
        ("!!set {0, 1}", "in rising order from 0 to 1024"),
        ("[0, true]", "in rising order from 0 to 1024"),
        ("[0, 1.0]", "in rising order from 0 to 1024"),
        ("[0, 1025]", "in rising order from 0 to 1024"),
        ("0-64", "must be at most 64 depths, not 65"),
    ],
)
def test_depths_of_another_kind_are_refused(values: str, complaint: str) -> None:
    with pytest.raises(Refused, match=f"^mine.yaml:6: dial.values: .*{complaint}"):
        preset.parse(GOOD.replace("values: 0-4", f"values: {values}"), "mine.yaml")


@pytest.mark.parametrize(
    ("knob", "complaint"),
    [
        ("{name: x, flag: --x, type: choice}", "a choice needs choices"),
        ("{name: x, flag: --x, type: choice, choices: [[1]]}", "a choice needs choices"),
        ("{name: x, flag: --x, type: int, low: 5, high: 1}", "low 5 is above high 1"),
        ("{name: x, flag: x, type: int}", "a flag starts with '-'"),
        ("{name: x, flag: --port, type: int}", "--port is set by `port:` of the preset"),
        ("{name: x, flag: --api-key, type: text}", "holds a secret, which is no knob"),
        ("{name: depth, flag: --x, type: int}", "must be one word of letters, digits and _, and not depth"),
        ("{name: a=b, flag: --x, type: int}", "must be one word"),
        ("threads, threads", "knob threads is given twice"),
        ("{name: ctx, start: 1}, ctx", "knob ctx is given twice"),
        (f"{{name: ctx, start: {'9' * 400}}}", "ctx must be a whole number from 0, not 999"),
        (f"{{name: threads, start: {'9' * 400}}}", "threads must be a whole number from -1 to 512, not 999"),
    ],
)
def test_a_knob_that_cannot_be_is_refused(knob: str, complaint: str) -> None:
    text = GOOD.replace("knobs:\n  - threads\n  - {name: ctx, start: 4096}\n", f"knobs: [{knob}]\n")
    with pytest.raises(Refused) as caught:
        preset.parse(text, "mine.yaml")
    assert str(caught.value).startswith("mine.yaml:9: knobs[")
    assert complaint in str(caught.value)


def test_the_engine_is_asked_about_every_depth_before_a_start(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD.replace("  flags:\n    -md: d.gguf\n", "") + "flags:\n  --jinja: true\n  --port: 1\n")
    recipe = preset.load(str(path))
    with pytest.raises(Refused, match=r"mine.yaml:16: flags: --port is set by"):
        preset.accept(recipe, recipe.dial.values)
    path.write_text(path.read_text().replace("  --port: 1\n", ""))
    recipe = preset.load(str(path))
    preset.accept(recipe, [0])
    with pytest.raises(Refused, match=r"mine.yaml:5: dial.flags: draft-simple needs a draft model.*\(at depth 1\)"):
        preset.accept(recipe, recipe.dial.values)
    good = preset.parse(GOOD, "mine.yaml")
    with pytest.raises(Refused, match="-ub 4096 is larger than -b 512") as caught:
        preset.accept(good, [1], {"ubatch": 4096, "batch": 512})
    assert "mine.yaml" not in str(caught.value)


def test_a_file_that_is_no_preset_is_one_line(tmp_path: Path) -> None:
    for name, data, complaint in [
        ("a.yaml", GOOD.encode() + b"title: d\xe9pth", r"a.yaml:17: not UTF-8 text \(byte 0xe9\)"),
        ("b.yaml", b"# " + b"x" * (1 << 18), "b.yaml: too large for a preset"),
    ]:
        (tmp_path / name).write_bytes(data)
        with pytest.raises(Refused, match=complaint):
            preset.load(str(tmp_path / name))
    for name in (f"{tmp_path}/", "~no-such-user/x.yaml", "/" + "x" * 300 + ".yaml", "x" * 300 + ".yaml"):
        with pytest.raises(Refused, match="preset file"):
            preset.load(name)


@given(st.text(max_size=200))
def test_any_text_gets_one_line(text: str) -> None:
    complaint = ""
    try:
        preset.parse(text, "x.yaml")
    except Refused as problem:
        complaint = str(problem)
    assert complaint.startswith("x.yaml:")
    assert "\n" not in complaint


@pytest.mark.parametrize(
    ("text", "found"),
    [("0-3", (0, 1, 2, 3)), ("4", (4,)), ("0,2,4", (0, 2, 4)), ("0-2,8", (0, 1, 2, 8)), ("2,0", (0, 2))],
)
def test_depths(text: str, found: tuple[int, ...]) -> None:
    assert preset.depths(text) == found


@pytest.mark.parametrize("text", ["", "a", "3-1", "-1", "1-", "0-9999", "1.5"])
def test_depths_that_are_none(text: str) -> None:
    with pytest.raises(ValueError):
        preset.depths(text)


def test_every_shipped_preset_loads_and_commands_every_depth() -> None:
    listed = preset.listing()
    assert listed
    for path in listed.values():
        recipe = preset.load(str(path))
        engine = engines.engine(recipe.engine)
        for depth in recipe.dial.values:
            argv = engine.command(recipe, dict(recipe.settings), depth, 18000)
            assert all(isinstance(word, str) for word in argv)
            assert any("18000" in word for word in argv)


def test_settings_from_the_command_line() -> None:
    recipe = preset.parse(GOOD, "mine.yaml")
    assert preset.setting(recipe, "threads=2") == ("threads", 2)
    assert preset.setting(recipe, "depth=3") == ("depth", 3)
    for text, complaint in [
        ("treads=2", "did you mean 'threads'"),
        ("threads=two", "must be a whole number"),
        ("threads", "write knob=value"),
        ("depth=9", "the dial has 0, 1, 2, 3, 4"),
        ("depth=\u00b2", "the dial has 0, 1, 2, 3, 4"),
        ("depth=99999999999999999999", "the dial has 0, 1, 2, 3, 4"),
        ("threads=" + "9" * 400, "must be a whole number"),
    ]:
        with pytest.raises(Refused, match=complaint):
            preset.setting(recipe, text)


@pytest.mark.parametrize(
    ("knob", "value", "fine"),
    [
        (Knob("k", "-k", "int", low=1, high=8), 8, True),
        (Knob("k", "-k", "int", low=1, high=8), 9, False),
        (Knob("k", "-k", "int"), True, False),
        (Knob("k", "-k", "float", low=0, high=1), 0.5, True),
        (Knob("k", "-k", "float"), float("nan"), False),
        (Knob("k", "-k", "choice", choices=("a", "b")), "c", False),
        (Knob("k", "-k", "bool"), False, True),
        (Knob("k", "-k", "bool"), 1, False),
        (Knob("k", "-k", "text"), "x\x00", False),
    ],
)
def test_what_a_knob_takes(knob: Knob, value: object, fine: bool) -> None:
    problem = preset.illegal(knob, value)
    assert (problem is None) is fine
    assert problem is None or problem.startswith("k ")


def test_a_persons_own_preset_hides_a_shipped_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "draftdial" / "presets"
    folder.mkdir(parents=True)
    (folder / "llamacpp.yaml").write_text(GOOD)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert preset.load("llamacpp").model == "~/m.gguf"
    with pytest.raises(Refused, match="did you mean 'llamacpp'"):
        preset.find("lamacpp")
    with pytest.raises(Refused, match="no such preset file"):
        preset.find("./nothing.yaml")
