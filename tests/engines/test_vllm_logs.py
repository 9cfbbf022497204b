"""Every vLLM log with a known right reading: our own fixtures, and the corpus where it lies beside the checkout."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from probes.engines.vllm import ENGINE
from probes.events import Capacity, Record, Warn

OWN = Path(__file__).resolve().parent.parent / "data" / "logs" / "vllm"


def read(path: Path) -> tuple[list[Record], Capacity, Sequence[Warn]]:
    reader = ENGINE.reader()
    records: list[Record] = []
    for number, text in enumerate(path.read_bytes().decode().split("\n"), 1):
        records.extend(reader.feed(number, text))
    records.extend(reader.close())
    return records, reader.capacity, reader.warnings


def same(want: Any, got: Any, room: float | None = None) -> bool:
    """Equal, numbers within half a unit of the last decimal that the expectation shows, or within `room`."""
    if isinstance(want, bool) or isinstance(got, bool) or want is None or got is None:
        return want is got
    if isinstance(want, int | float):
        if not isinstance(got, int | float):
            return False
        shown = len(f"{want!r}".partition(".")[2]) if isinstance(want, float) else 0
        half = 0.5 * 10.0**-shown if shown else 0.0
        return abs(want - got) <= max(half, 1e-6 * abs(want), room or 0.0) * (1 + 1e-9)
    if isinstance(want, list):
        return isinstance(got, list | tuple) and len(want) == len(got) and all(map(same, want, got))
    return bool(want == got)


def wrong_fields(item: Mapping[str, Any], fields: Mapping[str, Any]) -> list[str]:
    room = item.get("tol", {})
    wrong = [
        f"{k}: {fields.get(k)!r}, not {v!r}"
        for k, v in item["fields"].items()
        if not same(v, fields.get(k), room.get(k))
    ]
    for key, value in item.get("if_present", {}).items():
        if fields.get(key) is not None and not same(value, fields[key], room.get(key)):
            wrong.append(f"{key}: {fields[key]!r}, not {value!r}")
    return wrong


def wrong_record(item: Mapping[str, Any], records: Sequence[Record]) -> list[str]:
    """What no record at the expected lines gets right; empty when one does."""
    kinds = item["kind"] if isinstance(item["kind"], list) else [item["kind"]]
    last = item.get("to", item["line"])
    here = [
        r for r in records if r.kind in kinds and (item["line"] <= r.line <= last or r.line in item.get("also", ()))
    ]
    if not here:
        return [f"line {item['line']}: no {'/'.join(kinds)}"]
    found = []
    for record in here:
        wrong = wrong_fields(item, record.fields)
        if "rank" in item and item["rank"] not in [record.rank, *record.ranks]:
            wrong.append(f"rank {record.rank} {record.ranks}, not {item['rank']}")
        if not wrong:
            return []
        found.append(f"line {item['line']}: " + "; ".join(wrong))
    return found[:1]


RULE = re.compile(r"records\[(?P<cond>[^\]]*)\](?:\.fields\.(?P<key>\w+))?$")


def broken_rule(rule: Mapping[str, Any], records: Sequence[Record], capacity: Mapping[str, Any]) -> bool:
    """Whether a trap that must not be stepped in was stepped in."""
    path = rule["path"]
    values: list[Any]
    if path.startswith("capacity."):
        values = [v for v in [capacity.get(path.removeprefix("capacity."))] if v is not None]
    else:
        found = RULE.match(path)
        if found is None:
            return False
        chosen = list(records)
        for cond in filter(None, found["cond"].split(",")):
            key, _, value = cond.partition("=")
            low, _, high = value.partition("-")
            chosen = [
                r for r in chosen if (r.kind == value if key == "kind" else int(low) <= r.line <= int(high or low))
            ]
        values = [r.fields[found["key"]] for r in chosen if found["key"] in r.fields] if found["key"] else list(chosen)
        if not found["key"] and "more_than" in rule:
            return len(chosen) > int(rule["more_than"])
    if "more_than" in rule:
        return any(bool(v > rule["more_than"]) for v in values)
    forbidden = rule.get("values", [rule["value"]] if "value" in rule else None)
    return bool(values) if forbidden is None else any(same(f, v) for f in forbidden for v in values)


def misses(path: Path) -> list[str]:
    """All that a reading gets wrong of its expectation."""
    expected = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    records, capacity, warnings = read(path)
    plain = asdict(capacity)
    wrong = [w for item in expected["records"] for w in wrong_record(item, records)]
    room = expected.get("capacity_tol", {})
    for key, value in (expected.get("capacity") or {}).items():
        if not same(value, plain[key], room.get(key)):
            wrong.append(f"capacity.{key}: {plain[key]!r}, not {value!r}")
    for key, value in (expected.get("capacity_if_present") or {}).items():
        if plain[key] is not None and not same(value, plain[key]):
            wrong.append(f"capacity.{key}: {plain[key]!r}, not {value!r}")
    wrong += [
        f"no warning at line {item['line']} with {item['text']!r}"
        for item in expected.get("warnings", ())
        if not any(w.line == item["line"] and item["text"] in w.text for w in warnings)
    ]
    wrong += [f"must not: {r['path']}: {r['why']}" for r in expected["must_not"] if broken_rule(r, records, plain)]
    return wrong


@pytest.mark.parametrize("path", sorted(OWN.glob("*.log")), ids=lambda p: p.stem)
def test_own_fixtures_are_read_right(path: Path) -> None:
    assert misses(path) == []


def test_there_are_fixtures() -> None:
    assert len(list(OWN.glob("*.log"))) >= 8


def test_corpus_is_read_right(corpus: Path) -> None:
    found = {path.stem: wrong for path in sorted((corpus / "vllm").glob("*.log")) if (wrong := misses(path))}
    assert found == {}


def test_corpus_is_recognised(corpus: Path) -> None:
    for path in sorted((corpus / "vllm").glob("*.log")):
        expected = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        if expected.get("autodetect", True):
            assert ENGINE.sniff(path.read_text(encoding="utf-8").split("\n")) >= 0.4, path.name
    for other in ("sglang", "ninfer", "llamacpp"):
        for path in sorted((corpus / other).glob("*.log")):
            assert ENGINE.sniff(path.read_text(encoding="utf-8", errors="replace").split("\n")) < 0.7, path.name


@pytest.mark.parametrize("path", sorted(OWN.glob("*.log")), ids=lambda p: p.stem)
def test_every_capacity_field_says_its_line(path: Path) -> None:
    _, capacity, _ = read(path)
    lines = path.read_text(encoding="utf-8").split("\n")
    for name, line in capacity.lines.items():
        assert getattr(capacity, name) is not None
        assert 1 <= line <= len(lines)
    counted = {k for k, v in asdict(capacity).items() if v is not None}
    assert counted - {"per", "reserving", "lines", "explain"} == set(capacity.lines)


def test_a_checker_that_cannot_miss_is_no_checker(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text(
        (OWN / "depth-not-in-force.log").read_text(encoding="utf-8").replace("20,480 tokens,", "20,992 tokens,")
    )
    log.with_suffix(".json").write_text((OWN / "depth-not-in-force.json").read_text(encoding="utf-8"))
    assert any("kv_pool_tokens" in m for m in misses(log))
