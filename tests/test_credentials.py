"""A server that asks for a key: named by a variable, sent with everything, written nowhere."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import msgspec
import pytest

from probes import preset, store
from probes.credentials import bearer
from probes.events import Event, FlagsInForce, Notice
from probes.lab import Lab
from probes.load.jobs import Order, build
from probes.load.plan import plan_job
from probes.measure.sweep import sweep
from probes.recipe import Recipe, Refused

KEY = "k-0123456789-abcdef"


def test_the_variable_is_named_and_its_value_never(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", f"  {KEY}\n")
    assert bearer("A_KEY") == {"Authorization": f"Bearer {KEY}"}
    assert bearer(None) == {}
    for value in ("", "  ", "a\r\nX-Other: b", "schlüssel"):
        monkeypatch.setenv("A_KEY", value)
        with pytest.raises(Refused, match="A_KEY") as refused:
            bearer("A_KEY")
        assert not value.strip() or value not in str(refused.value)
    monkeypatch.delenv("A_KEY")
    with pytest.raises(Refused, match="no variable 'A_KEY'"):
        bearer("A_KEY")


@pytest.mark.parametrize("name", ["", "sk-123", "a b", "$KEY", "KEY=1"])
def test_a_preset_takes_a_name_and_no_key(tmp_path: Path, name: str) -> None:
    path = tmp_path / "p.yaml"
    text = Path(preset.load("llamacpp-smollm2-ngram").path).read_text()
    path.write_text(f"{text}\napi_key_env: {name!r}\n")
    with pytest.raises(Refused, match="api_key_env"):
        preset.load(str(path))
    path.write_text(f"{text}\napi_key_env: LLAMA_API_KEY\n")
    assert preset.load(str(path)).api_key_env == "LLAMA_API_KEY"


def test_a_job_names_the_variable_and_each_request_carries_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", KEY)
    recipe = dataclasses.replace(preset.load("llamacpp-smollm2-ngram"), api_key_env="A_KEY")
    job = plan_job(recipe, "http://127.0.0.1:1", [{"id": "a", "body": {"model": "m"}}])
    assert KEY not in msgspec.json.encode(job).decode()
    (request,) = build(msgspec.convert(job, Order)).requests
    assert f"authorization: bearer {KEY}".encode() in request.wire.lower()


def secured(tmp_path: Path) -> tuple[Recipe, store.Run]:
    found = preset.load("llamacpp-smollm2-ngram")
    work = dataclasses.replace(found.workload, prompts_per_category=1, max_tokens=8, categories=("code",))
    return dataclasses.replace(found, api_key_env="LLAMA_API_KEY", workload=work), store.create(tmp_path)


@pytest.mark.llama
def test_a_real_server_with_a_key_is_measured_and_the_key_is_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """llama-server takes the same variable for its own key, and guards /props and /metrics with it too."""
    monkeypatch.setenv("LLAMA_API_KEY", KEY)
    recipe, run = secured(tmp_path)
    seen: list[Event] = []

    async def whole() -> Lab:
        lab = Lab(recipe, run, seen.append, (0,))
        await lab.open()
        try:
            (outcome,) = await lab.carry_out("sweep", sweep((0,), 1, 1), 1)
            assert outcome.failed is None
        finally:
            await lab.close()
        return lab

    lab = asyncio.run(whole())
    assert {r.outcome for r in lab.requests.values()} == {"ok"}
    assert any(isinstance(e, FlagsInForce) and e.proven for e in seen), "what the server says of itself was read"
    assert [p.name for p in run.path.iterdir() if KEY.encode() in p.read_bytes()] == []


def test_a_missing_variable_stops_before_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLAMA_API_KEY", raising=False)
    recipe, run = secured(tmp_path)
    seen: list[Event] = []

    async def whole() -> bool:
        lab = Lab(recipe, run, seen.append, (0,))
        await lab.open()
        try:
            return await lab.apply(0, {})
        finally:
            await lab.close()

    assert not asyncio.run(whole())
    assert any(isinstance(e, Notice) and "no variable 'LLAMA_API_KEY'" in e.text for e in seen)
