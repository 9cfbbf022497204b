"""What the tree promises: light starts, one-way imports, one wheel, short files, no shell."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(p for top in ("tui", "probes") for p in (ROOT / top).rglob("*.py"))
HEAVY = ("textual", "httpx", "numpy", "scipy", "plotext", "pynvml", "amdsmi")
FILE_LINES, FUNCTION_LINES, METHODS = 400, 60, 20


def loaded(code: str) -> set[str]:
    """The top-level and dotted modules that are loaded after this code ran in a Python of its own."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint('\\n'.join(sys.modules), file=sys.stderr)"],
        capture_output=True, text=True, check=True, cwd=ROOT, timeout=60,
    )  # fmt: skip
    return set(done.stderr.splitlines())


@pytest.mark.parametrize("module", ["tui.__main__", "probes.__main__"])
def test_help_imports_nothing_heavy(module: str) -> None:
    code = f"""
import io, contextlib, importlib
m = importlib.import_module({module!r})
main = getattr(m, 'draftdial', None) or m.cli
out = io.StringIO()
with contextlib.redirect_stdout(out):
    try:
        main(['--help'])
    except SystemExit:
        pass
assert 'sweep' in out.getvalue(), out.getvalue()
"""
    modules = loaded(code)
    assert not modules & set(HEAVY)
    assert not {m for m in modules if m.startswith("probes.engines.")}
    assert not {m for m in modules if m.startswith("probes.commands.")}


def packages(top: str) -> list[str]:
    """Every package of a tree."""
    return sorted(".".join(p.parent.relative_to(ROOT).parts) for p in (ROOT / top).rglob("__init__.py"))


@pytest.mark.parametrize("package", packages("probes"))
def test_each_package_of_probes_works_without_a_screen(package: str) -> None:
    modules = [m for m in (".".join(p.relative_to(ROOT).with_suffix("").parts) for p in SOURCES)
               if m.rpartition(".")[0] == package and not m.endswith(("__init__", "__main__"))]  # fmt: skip
    found = loaded("import importlib\n" + "\n".join(f"importlib.import_module({m!r})" for m in [package, *modules]))
    assert not found & {"textual", "tui"}  # rich comes with httpx, which uses it for its own command line


@pytest.mark.parametrize("name", ["llamacpp", "ninfer", "sglang", "vllm"])
def test_choosing_one_engine_imports_one(name: str) -> None:
    found = loaded(f"from probes import engines\nengines.engine({name!r})")
    mine = {m for m in found if m.startswith("probes.engines.") and not m.rpartition(".")[2].startswith("_")}
    assert mine == {f"probes.engines.{name}"}
    others = {"llamacpp", "ninfer", "sglang", "vllm"} - {name}
    assert not {m for m in found if any(m.startswith(f"probes.engines._{other}_") for other in others)}
    assert not found & set(HEAVY)


def test_the_wheel_has_two_packages_and_the_presets(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        check=True, cwd=ROOT, capture_output=True, timeout=120,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {n.partition("/")[0] for n in names if ".dist-info/" not in n} == {"tui", "probes"}
    shipped = {n.rpartition("/")[2] for n in names if n.startswith("probes/_presets/")}
    assert shipped == {p.name for p in (ROOT / "presets").glob("*.yaml")}
    assert "probes/load/prompts.json" in names
    assert {n for n in names if n.endswith(".tcss")} == {
        str(p.relative_to(ROOT)) for p in (ROOT / "tui").rglob("*.tcss")
    }
    assert not [n for n in names if "/tests/" in n or n.endswith(".pyc")]


def too_long(path: Path) -> Iterator[tuple[str, str]]:
    """What in a file is longer than the house allows: its name, and how long it is."""
    text = path.read_text(encoding="utf-8")
    where = path.relative_to(ROOT)
    if (lines := text.count("\n")) > FILE_LINES:
        yield str(where), f"{lines} lines, at most {FILE_LINES}"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines > FUNCTION_LINES:
                yield f"{where}: {node.name}", f"{lines} lines, at most {FUNCTION_LINES}"
        if isinstance(node, ast.ClassDef):
            methods = sum(isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)) for n in node.body)
            if methods >= METHODS:
                yield f"{where}: {node.name}", f"{methods} methods, want fewer than {METHODS}"


ALLOWED: dict[str, str] = {
    "probes/lab.py: Lab": "one method for each thing that a front end may ask; the plans and judgments are elsewhere",
    "probes/sim/llamacpp.py: LlamaCpp": "a dialect answers for each of the engine's lines",
    "probes/sim/ninfer.py: Ninfer": "as above",
    "probes/sim/sglang.py: SGLang": "as above",
    "probes/sim/vllm.py: Vllm": "as above",
}
"""What may be longer, and why."""


def test_files_functions_and_classes_are_short() -> None:
    found = {name: text for path in SOURCES for name, text in too_long(path)}
    assert {n: t for n, t in found.items() if n not in ALLOWED} == {}


def test_no_source_gives_a_text_to_a_shell() -> None:
    found = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            shell = any(k.arg == "shell" and ast.unparse(k.value) != "False" for k in node.keywords)
            if shell or name in {"os.system", "os.popen", "subprocess.getoutput", "asyncio.create_subprocess_shell"}:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {name}")
    assert found == []


def test_every_module_says_what_it_is_for() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in SOURCES}
    silent = [str(p.relative_to(ROOT)) for p, text in texts.items() if text and not ast.get_docstring(ast.parse(text))]
    assert silent == []


def test_every_command_of_the_table_exists_and_explains_itself() -> None:
    from probes.__main__ import COMMANDS

    for name in COMMANDS:
        if not (ROOT / "probes" / "commands" / f"{name}.py").exists():
            continue
        command = importlib.import_module(f"probes.commands.{name}").command
        assert command.help, name


def test_the_tree_names_nothing_beside_it() -> None:
    """Sources, presets and docs stand alone: no path of one machine in them."""
    files = [*SOURCES, *(ROOT / "presets").glob("*.yaml"), *(ROOT / "docs").glob("*.md")]
    bad = ("../shared", "/work/", "/root/", "/home/")
    found = [f"{p.relative_to(ROOT)}: {word}" for p in files for word in bad if word in p.read_text(encoding="utf-8")]
    assert found == []
