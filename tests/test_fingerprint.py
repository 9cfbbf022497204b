from __future__ import annotations

import asyncio
import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from probes import fingerprint, store
from probes.bench import Bench
from probes.describe import Description
from probes.events import ServerChanged
from probes.gpu.devices import Device
from probes.recipe import Dial, Recipe, Refused, Workload


def recipe(tmp_path: Path, **more: Any) -> Recipe:
    for name in ("m.gguf", "d.gguf", "server"):
        path = tmp_path / name
        if not path.exists():
            path.write_bytes(f"bytes of {name}".encode())
            path.chmod(0o755)
    base: dict[str, Any] = {
        "name": "p", "engine": "llamacpp", "binary": str(tmp_path / "server"), "model": str(tmp_path / "m.gguf"),
        "dial": Dial("draft-simple", (0, 2), flags={"-md": str(tmp_path / "d.gguf")}),
        "flags": {"--poll": 0}, "settings": {"threads": 1}, "workload": Workload(prompts_per_category=1),
    }  # fmt: skip
    return Recipe(**{**base, **more})


def taken(tmp_path: Path, **more: Any) -> dict[str, Any]:
    what = recipe(tmp_path, **more)
    return fingerprint.gather(what, what.settings, fingerprint.hardware([], {}))


def named(left: dict[str, Any], right: dict[str, Any]) -> list[str]:
    return [d.name for d in fingerprint.differences(left, right)]


def test_the_same_recipe_has_the_same_fingerprint_wherever_its_files_lie(tmp_path: Path) -> None:
    here, there = tmp_path / "a", tmp_path / "b"
    here.mkdir()
    there.mkdir()
    assert named(taken(here), taken(there)) == []


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"settings": {"threads": 2}}, "settings.threads"),
        ({"settings": {"threads": 1, "cache_type_k": "q8_0"}}, "kv_type"),
        ({"flags": {"--poll": 1}}, "flags.--poll"),
        ({"workload": Workload(prompts_per_category=2)}, "prompts"),
        ({"workload": Workload(prompts_per_category=1, max_tokens=5)}, "sampling"),
        ({"workload": Workload(prompts_per_category=1, temperature=1.0)}, "sampling"),
        ({"workload": Workload(prompts_per_category=1, concurrency=2)}, "concurrency"),
        ({"launcher": "srun"}, "launcher"),
        ({"env": {"A": "b"}}, "env"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_each_change_is_named_once(tmp_path: Path, change: dict[str, Any], name: str) -> None:
    assert name in named(taken(tmp_path), taken(tmp_path, **change))
    if name != "launcher":  # behind a launcher no file can be hashed, so more is unlike
        assert named(taken(tmp_path), taken(tmp_path, **change)) == [name]


def test_another_model_program_draft_or_gpu_is_told(tmp_path: Path) -> None:
    before = taken(tmp_path)
    for name, part in (("m.gguf", "model"), ("d.gguf", "files"), ("server", "binary")):
        kept = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(b"something else of it")
        assert named(before, taken(tmp_path)) == [part]
        (tmp_path / name).write_bytes(kept)
    what = recipe(tmp_path)
    gpu = fingerprint.hardware([Device("nvidia", 0, "H200")], {"nvidia": "580.1", "amd": None})
    assert gpu == {"gpus": ["H200"], "drivers": {"nvidia": "580.1"}}
    assert named(before, fingerprint.gather(what, what.settings, gpu)) == ["gpus", "drivers"]


def test_a_big_file_is_known_by_its_ends_and_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "WHOLE", 100)
    monkeypatch.setattr(fingerprint, "END", 40)
    path = tmp_path / "w.safetensors"
    path.write_bytes(b"a" * 50 + b"b" * 50 + b"c" * 50)
    first = fingerprint.file(path)
    assert first["how"] == "first and last MiB"
    assert first["bytes"] == 150
    stamp = path.stat().st_mtime_ns
    path.write_bytes(b"a" * 50 + b"X" * 50 + b"c" * 50)
    os.utime(path, ns=(stamp, stamp))
    assert fingerprint.file(path) == first, "what lies between the ends is not read"
    os.utime(path, ns=(stamp, stamp + 10**10))
    whole = taken(tmp_path)
    assert named(whole | {"model": first}, whole | {"model": fingerprint.file(path)}) == ["model"], "a new time counts"
    path.write_bytes(b"a" * 50 + b"b" * 50 + b"c" * 49 + b"Z")
    assert fingerprint.file(path)["sha256"] != first["sha256"]


def test_a_folder_of_weights_is_one_artifact(tmp_path: Path) -> None:
    (tmp_path / "1.safetensors").write_bytes(b"one")
    before = fingerprint.artifact(str(tmp_path))
    (tmp_path / "2.safetensors").write_bytes(b"two")
    after = fingerprint.artifact(str(tmp_path))
    assert (before["bytes"], after["bytes"]) == (3, 6)
    assert before["sha256"] != after["sha256"]


def test_a_hub_name_has_the_revision_of_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert fingerprint.artifact("org/name")["how"] == "by name alone"
    refs = tmp_path / "models--org--name" / "refs"
    refs.mkdir(parents=True)
    (refs / "main").write_text("f" * 40)
    assert fingerprint.artifact("org/name") == {
        "name": "org/name", "how": "by name and revision", "revision": "f" * 40,
    }  # fmt: skip
    assert fingerprint.hub_revision("../refs") is None


def test_a_script_is_known_by_its_version_not_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "serve"
    found = []
    for comment in ("", "# moved\n"):
        path.write_text(f"#!/bin/sh\n{comment}echo serve version 5.1\n")
        path.chmod(0o755)
        found.append(fingerprint.program(str(path)))
    assert found[0]["version"] == "serve version 5.1"
    assert found[0]["sha256"] != found[1]["sha256"]
    everything = taken(tmp_path)
    assert named(everything | {"binary": found[0]}, everything | {"binary": found[1]}) == []
    other = found[1] | {"version": "serve version 5.2"}
    assert named(everything | {"binary": found[0]}, everything | {"binary": other}) == ["binary"]


def test_the_simulated_engine_is_never_like_a_real_one(tmp_path: Path) -> None:
    sim = taken(tmp_path, binary="@sim", simulated=True, simulation={"table": "t", "speed": 40, "seed": "1"})
    assert sim["binary"]["simulation"] == {"table": "t", "seed": "1"}, "how fast it ran changes no figure"
    assert "simulated" in named(sim, taken(tmp_path))


def test_a_side_that_says_nothing_is_not_equal(tmp_path: Path) -> None:
    found = fingerprint.differences(taken(tmp_path), {})
    assert {d.name for d in found if d.unknown} >= set(fingerprint.HARD)


def test_no_secret_is_kept(tmp_path: Path) -> None:
    what = recipe(
        tmp_path,
        env={"HF_TOKEN": "s3cret"},
        flags={"--api-key": "s3cret", "--max-tokens": 5, "--tokenizer": "x"},
        settings={"api_key": "s3cret"},
        launcher="docker",
        launcher_options={"image": "i", "args": ["--env", "HF_TOKEN=s3cret", "-v", "/a:/b"]},
    )
    found = fingerprint.gather(what, what.settings, {})
    assert "s3cret" not in str(found)
    assert found["flags"] == {"--api-key": "***", "--max-tokens": 5, "--tokenizer": "x"}
    assert found["launcher"]["args"] == ["--env", "HF_TOKEN=***", "-v", "/a:/b"]


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bench of these tests watches nothing, so a GPU of this machine must not be found by a look either."""
    monkeypatch.setattr(fingerprint, "look", lambda _: fingerprint.hardware([], {}))


def written(what: Recipe, run: store.Run) -> None:
    """A run that is opened, started once and closed, without a server."""

    async def whole() -> None:
        bench = Bench(what, run, lambda _: None)
        about = Description(run, what, bench, {"sweep": {"depths": "0,2"}})
        await about.open()
        about.see(ServerChanged(1.0, "starting", 1, depth=2, argv=("server", "--api-key", "***")))
        about.see(ServerChanged(1.0, "loading", 1, depth=2))
        await about.close()

    asyncio.run(whole())


@pytest.mark.usefixtures("no_gpu")
def test_run_yaml_gets_the_fingerprint_and_each_start(tmp_path: Path) -> None:
    run = store.create(tmp_path / "runs")
    what = recipe(tmp_path)
    written(what, run)
    found = run.description()
    assert found["starts"] == {
        "1": {"depth": 2, "settings": {"threads": 1}, "argv": ["server", "--api-key", "***"]},
    }  # fmt: skip
    assert found["fingerprint"] == fingerprint.gather(what, what.settings, fingerprint.hardware([], {}))
    assert found["sweep"] == {"depths": "0,2"}


@pytest.mark.usefixtures("no_gpu")
def test_a_run_goes_on_only_on_what_it_began_on(tmp_path: Path) -> None:
    run = store.create(tmp_path / "runs")
    written(recipe(tmp_path), run)
    before = run.description()
    written(recipe(tmp_path), run)
    assert run.description() == before
    changed = dataclasses.replace(recipe(tmp_path), flags={"--poll": 7})
    with pytest.raises(Refused, match=r"can't be resumed.*flags\.--poll: 0 against 7") as problem:
        written(changed, run)
    assert "\n" not in str(problem.value)
    assert run.description() == before
