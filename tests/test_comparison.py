from __future__ import annotations

from typing import Any

import pytest

from probes.comparison import weigh
from probes.fingerprint import HARD
from probes.recipe import Refused

BASE: dict[str, Any] = {
    "package": "1", "engine": "vllm", "simulated": False, "binary": {"name": "vllm", "script": True, "version": "0.30"},
    "model": {"name": "m", "sha256": "aa", "bytes": 1, "how": "the whole file"}, "files": {},
    "kv_type": {"kv_dtype": "bf16"}, "prompts": {"sha256": "p"}, "sampling": {"temperature": 0.0},
    "concurrency": 1, "gpus": ["H200"], "drivers": {"nvidia": "580"}, "machine": {"cpus": 8},
    "settings": {"lanes": 4}, "flags": {"--x": 1}, "dial": {"kind": "mtp", "flags": {}}, "launcher": None, "env": [],
}  # fmt: skip


def like(**more: Any) -> dict[str, Any]:
    return BASE | more


OTHER_ENGINE = {
    "engine": "sglang", "binary": {"name": "sglang", "version": "0.6"}, "kv_type": {"kv_cache_dtype": "bf16"},
    "settings": {"mem": 0.9}, "flags": {}, "dial": {"kind": "EAGLE3", "flags": {"--draft": "y"}},
}  # fmt: skip


def test_equal_runs_compare_as_an_aa() -> None:
    assert weigh(BASE, like()) == weigh(like(), BASE)
    assert weigh(BASE, like()).tested == ()
    assert weigh(BASE, like()).allowed


@pytest.mark.parametrize("name", HARD)
def test_a_hard_difference_is_refused_unless_it_was_meant(name: str) -> None:
    if name == "engine":
        return
    other = like(**{name: {"name": "other", "sha256": "bb"}})
    assert not weigh(BASE, other).allowed
    assert name in weigh(BASE, other).why[0]
    if name in {"prompts", "sampling"}:
        with pytest.raises(Refused, match="another measurement"):
            weigh(BASE, other, [name])
    else:
        assert weigh(BASE, other, [name]).allowed


def test_what_is_not_known_is_not_equal() -> None:
    less = {k: v for k, v in BASE.items() if k != "gpus"}
    assert weigh(BASE, less).why == ("gpus: H200 against not known (not known)",)
    assert not weigh(less, less).allowed


def test_one_soft_difference_is_what_was_tested() -> None:
    assert weigh(BASE, like(settings={"lanes": 8})).tested == ("settings.lanes: 4 against 8",)
    dial = weigh(BASE, like(dial={"kind": "ngram", "flags": {"--n": 3}}))
    assert dial.allowed
    assert len(dial.tested) == 2
    assert not any("bundle" in n for n in dial.notes), "a dial's kind and its flags are one thing"


def test_another_version_of_the_console_is_a_note() -> None:
    found = weigh(BASE, like(package="2"))
    assert found.allowed
    assert "measured by draftdial 1 and 2" in found.notes


def test_two_engines_need_the_same_artifact_kv_type_prompts_and_machine() -> None:
    assert weigh(BASE, like(**OTHER_ENGINE)).allowed
    assert weigh(BASE, like(**OTHER_ENGINE)).tested == ("engine: vllm against sglang",)
    for change in (
        {"model": {"name": "m", "sha256": "bb"}},
        {"kv_type": {"kv_cache_dtype": "fp8"}},
        {"kv_type": {"kv_cache_dtype": "auto"}},
        {"prompts": {"sha256": "q"}},
        {"gpus": ["H100"]},
        {"sampling": {"temperature": 1.0}},
    ):
        assert not weigh(BASE, like(**(OTHER_ENGINE | change))).allowed, change
    unknown = {"model": {"name": "org/m", "how": "by name alone", "revision": None}}
    assert not weigh(like(**unknown), like(**(OTHER_ENGINE | unknown))).allowed


def test_auto_on_both_sides_of_two_engines_proves_nothing() -> None:
    both = like(kv_type={"kv_dtype": "auto"}), like(**(OTHER_ENGINE | {"kv_type": {"kv_cache_dtype": "auto"}}))
    assert not weigh(*both).allowed
    assert weigh(both[0], both[0]).allowed, "in one engine, auto is auto"


def test_a_run_without_fingerprint_says_which() -> None:
    assert weigh({}, BASE).why == ("the first run has no fingerprint",)
    assert weigh(BASE, {}).why == ("the second run has no fingerprint",)


def test_parts_of_a_file_are_told_as_parts() -> None:
    ends = like(model={"name": "m", "sha256": "aa", "bytes": 9, "how": "first and last MiB", "modified": "t"})
    assert any("first and last MiB" in note for note in weigh(ends, ends).notes)
    moved = like(model={**ends["model"], "modified": "later"})
    assert not weigh(ends, moved).allowed
