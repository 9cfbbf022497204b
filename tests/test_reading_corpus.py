"""Every log of the corpus beside the checkout, scored by its own checker; skipped where it is absent."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from probes.events import Record
from probes.reading import as_dict, read, record_dict


@pytest.fixture(scope="module")
def checker(corpus: Path) -> ModuleType:
    path = corpus.parent / "tools" / "check_readings.py"
    if not path.is_file():
        pytest.skip("no checker beside the corpus")
    spec = importlib.util.spec_from_file_location("check_readings", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("engine", ["llamacpp", "ninfer", "sglang", "vllm"])
def test_every_log_is_read_fully_right(corpus: Path, checker: ModuleType, engine: str) -> None:
    found = 0
    wrong: dict[str, list[str]] = {}
    for expectation in sorted((corpus / engine).glob("*.json")):
        log = expectation.with_suffix(".log")
        if not log.exists():
            continue
        found += 1
        records: list[Record] = []
        reading: dict[str, Any] = as_dict(read(log, on_record=records.append))
        reading["records"] = [record_dict(r) for r in records]
        as_printed = json.loads(json.dumps(reading))
        result = checker.check_file(checker.load(expectation), as_printed)
        if result["misses"]:
            wrong[log.name] = result["misses"]
    assert found > 10
    assert wrong == {}
