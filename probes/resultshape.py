"""The shape of result.json, as far as anything reads it. The file is derived: one of another shape is passed over."""

from __future__ import annotations

from typing import Any

import msgspec

Number = int | float | None


class _Cell(msgspec.Struct):
    category: str
    depth: int | None = None
    n: Number = None
    requests: Number = None
    drafted: Number = None
    accepted: Number = None
    accept_rate: Number = None
    accept_len: Number = None
    decode_tps: list[Number] | None = None
    tpot_ms: Number = None
    ttft_ms: Number = None
    step_ms: Number = None
    outcomes: dict[str, int] | None = None
    state: str | None = None


class _Verdict(msgspec.Struct):
    state: str | None = None
    depth: int | None = None
    sentence: str | None = None
    needs_requests: Number = None


class _Result(msgspec.Struct):
    run: str | None = None
    engine: str | None = None
    simulated: bool | None = None
    depths: list[int] | None = None
    categories: list[str] | None = None
    cells: list[_Cell] | None = None
    regret: dict[str, dict[str, Number]] | None = None
    picks: dict[str, int | None] | None = None
    verdict: _Verdict | str | None = None
    sentence: str | None = None
    flags: list[str] | None = None
    failed_points: list[dict[str, Any]] | None = None
    unverified: list[int] | None = None
    floor: dict[str, Any] | None = None
    wall_s: Number = None
    boot_s: list[Number] | None = None


def fits(found: Any) -> bool:
    """Whether this can be shown as a result."""
    try:
        msgspec.convert(found, _Result)
    except (msgspec.ValidationError, RecursionError):
        return False
    return True
