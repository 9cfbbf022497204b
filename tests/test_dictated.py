"""Servers that were told which drafts to accept."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from probes import preset, store
from probes.bench import Attached, Bench
from probes.dictated import dictated
from probes.events import Event, FlagsInForce

CASES = [
    (("llama-server", "--spec-synth-rates", "0.8,0.6"), {}, "--spec-synth-rates"),
    (("llama-server", "--spec-synth-len=2.5"), {}, "--spec-synth-len"),
    (("vllm", "--speculative-config", '{"rejection_sample_method": "synthetic"}'), {}, "rejection_sample_method"),
    (("vllm", "--speculative-config.rejection_sample_method", "synthetic"), {}, "rejection_sample_method"),
    (("vllm", "--speculative-config.rejection_sample_method=synthetic"), {}, "rejection_sample_method"),
    (("sglang",), {"SGLANG_SIMULATE_ACC_LEN": "2.5"}, "SGLANG_SIMULATE_ACC_LEN"),
    (("sglang",), {"SGLANG_SIMULATE_ACC_LEN": "-1"}, None),
    (("vllm", "--speculative-config", '{"rejection_sample_method": "standard"}', "synthetic-model"), {}, None),
    (("llama-server", "-m", "--spec-synth.gguf"), {}, None),
]


@pytest.mark.parametrize(("argv", "env", "by"), CASES)
def test_what_dictates_acceptance_is_named(argv: tuple[str, ...], env: dict[str, str], by: str | None) -> None:
    said = dictated(argv, env)
    assert said is None if by is None else said is not None and said.startswith(by)


@pytest.mark.parametrize("word", ["synthetic", "standard"])
def test_a_depth_with_dictated_acceptance_is_not_proven(tmp_path: Path, word: str) -> None:
    told: list[Event] = []
    argv = ("vllm", "serve", "m", "--speculative-config.rejection_sample_method", word)
    recipe = preset.load("vllm-ngram")
    bench = Bench(recipe, store.create(tmp_path), told.append, Attached("http://127.0.0.1:9", argv=argv))
    bench.depth = 3
    asyncio.run(bench._read_back(recipe, "http://127.0.0.1:9"))
    flags = next(e for e in told if isinstance(e, FlagsInForce))
    assert flags.proven == (word == "standard")
    assert (3 in bench.unverified) == (word == "synthetic")
    assert [n for n in flags.notes if "dictates" in n] == [*flags.notes]
