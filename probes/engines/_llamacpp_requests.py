"""Requests in a llama-server log: the block of timing lines of each, from `prompt eval time` to `release`.

A block's lines carry a slot and a task in newer builds and nothing in older ones, where they belong to the last header.
What is counted outside any request is in `_llamacpp_counters`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from probes.engines._llamacpp_lines import Line
from probes.events import Record

HELD_MAX = 512
"""Open blocks kept; slots are few, so more means lost `release` lines."""

_SLOT = re.compile(r"id\s+(\d{1,15}) \| task (-?\d{1,15}) \| ?(.*)", re.DOTALL)
_PROMPT = re.compile(
    r"prompt eval time\s*=\s*(\d{1,12}\.\d{1,9}) ms\s*/\s*(\d{1,15}) tokens\s*"
    r"\(\s*\S+ ms per token,\s*(\S+) tokens per second\)"
)
_EVAL = re.compile(
    r"(?:generation )?eval time\s*=\s*(\d{1,12}\.\d{1,9}) ms\s*/\s*(\d{1,15}) (?:tokens|runs)\s*"
    r"\(\s*\S+ ms per token,\s*(\S+) tokens per second\)"
)
_SAMPLED = re.compile(r"sample time\s*=\s*\d{1,12}\.\d{1,9} ms\s*/\s*(\d{1,15}) runs\b")
_TOTAL = re.compile(r"total time\s*=\s*(\d{1,12}\.\d{1,9}) ms(?:\s*/\s*\d+ tokens)?\s*$")
_GRAPHS = re.compile(r"graphs reused\s*=\s*\d+\s*$")
_ACCEPT = re.compile(
    r"draft acceptance(?: rate)?\s*=\s*(\d\.\d+) \(\s*(\d{1,15}) accepted /\s*(\d{1,15}) generated\)"
    r"(?:, mean (?:len|acceptance length)\s*=\s*(\d{1,12}\.\d\d))?"
    r"(?:, acceptance rate per position\s*=\s*\(([\d., ]*)\))?\s*$"
)
_PER_POSITION = re.compile(r"acc per pos\s*=\s*\(([\d., ]*)\)\s*$")
_RELEASE = re.compile(r"stop processing: n_(?:tokens|past) = (\d{1,15}), truncated = ([01])\s*$")
_PROGRESS = re.compile(
    r"n_(?:decoded|gen) =\s*(\d{1,15}), tg =\s*(\d{1,12}\.\d{1,9}) t/s(?:, tg_3s =\s*(\d{1,12}\.\d{1,9}) t/s)?\s*$"
)
_PREFILLED = re.compile(r"\bn_past =\s*(\d{1,15}),|\bn_tokens =\s*(\d{1,15}),")
_SHARE = re.compile(r"\bprogress = ([01]\.\d+)")
_PREFILL_TPS = re.compile(r" s / (\d{1,12}\.\d{1,9}) tokens per second\s*$")
_NEW = re.compile(r"new prompt, n_ctx_slot = (\d{1,15}), .*?(?:task\.n_tokens|n_prompt_tokens) = (\d{1,15})\s*$")
_CACHED = re.compile(r"cached n_tokens = (\d{1,15}), memory_seq_rm|kv cache rm \[(\d{1,15}), end\)")
_IDS = re.compile(r"id_slot=(\d{1,15}) id_task=(\d{1,15})")

BLOCK = ("prompt eval time", "eval time", "generation eval time", "total time", "graphs reused", "draft acceptance",
         "acc per pos")  # fmt: skip
"""How a line of a block begins."""


@dataclass(slots=True)
class Block:
    """A finished request's lines so far."""

    line: int
    text: str
    fields: dict[str, Any]


@dataclass(slots=True)
class Requests:
    """The requests of one server process (one child of a router)."""

    open: dict[int, Block] = field(default_factory=dict)
    """By task; -1 for blocks without one."""
    prompts: dict[int, dict[str, Any]] = field(default_factory=dict)
    header: int = -1
    """Task of the last header line, to which lines without ids belong."""
    released: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Builds before 2026 release a slot before they print its timings: what the release said, by task."""
    awaiting: int | None = None
    """Task of an open block whose release is past: the first line that isn't the block's ends it."""
    deferred: set[int] = field(default_factory=set)
    cut: list[tuple[int, str]] = field(default_factory=list)
    """Requests that the server shortened in silence: line and words."""
    clipped: list[int] = field(default_factory=list)
    finished: int = 0
    drafted: int = 0
    slot_context: tuple[int, int] | None = None
    """Tokens of a slot as every new prompt tells them, and the line: where the log has lost the boot."""


def record(line: Line, kind: Any, fields: dict[str, Any]) -> Record:
    """A record of this line, with its stamp and child."""
    if line.t is not None:
        fields.setdefault("t_s", round(line.t, 6))
    if line.child:
        fields.setdefault("child", line.child)
    return Record(line.number, kind, fields, text=line.body[:500])


def slot_line(state: Requests, line: Line) -> Iterator[Record]:
    """A line that names a slot: part of a block, progress, or the way of a task through its slot."""
    found = _SLOT.match(line.message)
    if found is None:
        if line.message.startswith("context shift - "):  # 2024: the slot is in the label
            _shortened(state, line, line.label, line.message)
        return
    slot, task, text = int(found[1]), int(found[2]), found[3].strip()
    if line.label == "slot print_timing":
        if not text or text.startswith(BLOCK):
            state.header = task
            if task not in state.open:
                yield from _left_behind(state, slot)
        if not text:
            _start(state, line, task, slot)
        elif text.startswith(BLOCK):
            _part(state, line, task, slot, text)
        else:
            yield from _progress(state, line, task, slot, text)
    elif text.startswith("stop processing"):
        yield from _release(state, line, task, slot, text)
    elif text.startswith(("new prompt", "cached n_tokens", "kv cache rm")):
        _prompt(state, line, task, text)
    elif text.startswith("prompt processing"):
        yield from _progress(state, line, task, slot, text)
    elif text.startswith(("input truncated", "slot context shift")):
        _shortened(state, line, f"task {task}", text)
        state.prompts.setdefault(task, {})["shortened"] = True
    elif text.startswith("processing task"):
        state.deferred.discard(task)


def _shortened(state: Requests, line: Line, whose: str, text: str) -> None:
    """Count what the server cut away in silence, the first few hundred by line."""
    if len(state.cut) < HELD_MAX:
        state.cut.append((line.number, f"{whose}: the prompt or its beginning was cut away: {text[:200]}"))


def bare_line(state: Requests, line: Line, text: str) -> Iterator[Record]:
    """A block's line without slot or task: it belongs to the last header."""
    if text.startswith("prompt eval") and "prompt_ms" in _fields(state, state.header):
        yield from finish(state, state.header)
        state.header = -1
    _part(state, line, state.header, None, text)
    # `print_timings:` of 2023 ends with the total; later builds may still tell of drafts.
    if line.label == "print_timings" and text.startswith("total time"):
        yield from finish(state, state.header)


def _fields(state: Requests, task: int) -> dict[str, Any]:
    block = state.open.get(task)
    return block.fields if block else {}


def old_line(state: Requests, line: Line, text: str) -> Iterator[Record]:
    """A timing line of the 2024 form, which has its ids in the tail; the block ends with the total."""
    ids = _IDS.search(line.pairs)
    task = int(ids[2]) if ids else -1
    _part(state, line, task, int(ids[1]) if ids else None, text)
    if text.startswith("total time"):
        yield from finish(state, task)


def library_line(state: Requests, line: Line, text: str) -> Iterator[Record]:
    """A line of the library's own timings, which the server of 2023 printed after each request.

    Its `runs` leave out the first token, which comes with the prompt; those of sampling count every token.
    """
    if text.startswith("prompt eval") and "prompt_ms" in _fields(state, -1):
        yield from finish(state, -1)
    sampled = _SAMPLED.match(text)
    if sampled:
        _start(state, line, -1, None).fields["output_tokens"] = int(sampled[1])
    elif text.startswith(BLOCK):
        known = _fields(state, -1).get("output_tokens")
        _part(state, line, -1, None, text)
        fields, spent = _fields(state, -1), _EVAL.match(text)
        if spent and int(spent[2]):
            fields |= {"output_tokens": known or int(spent[2]) + 1, "tpot_ms": float(spent[1]) / int(spent[2])}
        if text.startswith("total time"):
            yield from finish(state, -1)


def _start(state: Requests, line: Line, task: int, slot: int | None) -> Block:
    known = state.open.get(task)
    if known is not None:
        return known
    fields: dict[str, Any] = {}
    if task >= 0:
        fields["task"] = task
    if slot is not None:
        fields["slot"] = slot
    if line.t is not None:
        fields["t_s"] = round(line.t, 6)
    if line.child:
        fields["child"] = line.child
    if task in state.released:
        fields |= state.released.pop(task)
        state.awaiting = task
    block = Block(line.number, line.body[:500], fields)
    state.open[task] = block
    while len(state.open) > HELD_MAX:
        state.open.pop(next(iter(state.open)))
    return block


def _rate(text: str) -> float | None:
    """A printed rate; `inf` and `nan` (nothing was timed) are none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < 1e9 else None


def _part(state: Requests, line: Line, task: int, slot: int | None, text: str) -> None:
    """One line of a block; a clipped one is counted and left out."""
    text = text.strip()
    fields: dict[str, Any] = {}
    found: re.Match[str] | None
    if text.startswith("prompt eval"):
        found = _PROMPT.match(text)
        if found:
            fields = {"prompt_ms": float(found[1]), "new_tokens": int(found[2]), "prompt_tps": _rate(found[3])}
    elif text.startswith(("eval time", "generation eval")):
        found = _EVAL.match(text)
        if found:
            spent, tokens = float(found[1]), int(found[2])
            fields = {"eval_ms": spent, "output_tokens": tokens}
            if tokens > 1:
                # The printed per-token figures divide by n up to b10068 and by n - 1 from b11434.
                fields |= {"gen_tps": _rate(found[3]), "tpot_ms": spent / (tokens - 1)}
    elif text.startswith("total time"):
        found = _TOTAL.match(text)
        if found:
            fields = {"total_ms": float(found[1])}
    elif text.startswith("draft acceptance"):
        found = _ACCEPT.match(text)
        if found:
            fields = _acceptance(found)
    elif text.startswith("acc per pos"):
        found = _PER_POSITION.match(text)
        if found:
            fields = _positions(found[1])
    else:
        found = _GRAPHS.match(text)
    if found is None:
        _clip(state, line)
        return
    if task not in state.open and not fields:
        return
    block = _start(state, line, task, slot)
    block.fields.update({name: value for name, value in fields.items() if value is not None})


def _acceptance(found: re.Match[str]) -> dict[str, Any]:
    """accept_len counts the bonus token; steps = accepted / (accept_len - 1) where the print is fine enough."""
    accepted, drafted = int(found[2]), int(found[3])
    fields: dict[str, Any] = {"accepted": accepted, "drafted": drafted, "accept_rate_printed": float(found[1])}
    if drafted > 0:
        fields["accept_rate"] = accepted / drafted
    if found[4]:
        length = float(found[4])
        fields["accept_len"] = length
        more = length - 1
        if accepted and more > 0 and accepted * 0.005 / more**2 < 0.5:
            fields["steps"] = round(accepted / more)
    if found[5]:
        fields |= _positions(found[5])
    return fields


def _positions(text: str) -> dict[str, Any]:
    values = [float(part) for part in text.replace(" ", "").split(",") if re.fullmatch(r"[01]\.\d+", part)]
    return {"per_position": values} if values and len(values) == text.count(",") + 1 else {}


def _progress(state: Requests, line: Line, task: int, slot: int, text: str) -> Iterator[Record]:
    ids = {"task": task, "slot": slot}
    found = _PROGRESS.match(text)
    if found:
        # tg is over the request so far, tg_3s over the last three seconds.
        yield record(line, "decode", {"gen_tps": float(found[3] or found[2]), "decoded": int(found[1]), **ids})
        return
    share = _SHARE.search(text)
    if share and text.startswith("prompt processing"):
        done, rate = _PREFILLED.search(text), _PREFILL_TPS.search(text)
        fields: dict[str, Any] = {"progress": float(share[1]), **ids}
        if done:
            fields["prefilled"] = int(done[1] or done[2])
        if rate:
            fields["prompt_tps"] = float(rate[1])
        yield record(line, "prefill", fields)
    elif text.startswith(("n_decoded =", "n_gen =", "prompt processing,", "prompt processing progress,")):
        _clip(state, line)


def _clip(state: Requests, line: Line) -> None:
    """Count a clipped line, the first few hundred by number."""
    if len(state.clipped) < HELD_MAX:
        state.clipped.append(line.number)


def _prompt(state: Requests, line: Line, task: int, text: str) -> None:
    known = state.prompts.setdefault(task, {})
    if len(state.prompts) > HELD_MAX:
        state.prompts.pop(next(iter(state.prompts)))
    found = _NEW.match(text)
    if found:
        known["prompt_tokens"] = int(found[2])
        if state.slot_context is None:
            state.slot_context = int(found[1]), line.number
        return
    found = _CACHED.match(text)
    if found:
        # Told again for every later batch of a long prompt: only the first is the cache's share.
        known.setdefault("cached_tokens", int(found[1] or found[2] or 0))


def _release(state: Requests, line: Line, task: int, slot: int, text: str) -> Iterator[Record]:
    found = _RELEASE.match(text)
    if found is None:
        _clip(state, line)
    elif task in state.open or -1 in state.open:
        block = state.open.get(task)
        if block is None:
            block = state.open[task] = state.open.pop(-1)
            block.fields |= {"task": task, "slot": slot}
        block.fields |= {"context_tokens": int(found[1]), "truncated": found[2] == "1"}
    else:
        state.released[task] = {"context_tokens": int(found[1]), "truncated": found[2] == "1"}
        if len(state.released) > HELD_MAX:
            state.released.pop(next(iter(state.released)))
        return
    yield from finish(state, task)


def finish(state: Requests, task: int) -> Iterator[Record]:
    """The block of this task as a record, if there is one."""
    if state.awaiting == task:
        state.awaiting = None
    prompt = state.prompts.pop(task, {})
    block = state.open.pop(task, None)
    if block is None or not (block.fields.keys() & {"prompt_ms", "eval_ms", "total_ms", "drafted"}):
        return
    fields = {**prompt, **block.fields}
    state.finished += 1
    state.drafted += fields.get("drafted", 0)
    yield Record(block.line, "request", fields, text=block.text)


def _left_behind(state: Requests, slot: int) -> Iterator[Record]:
    """Blocks of this slot whose release the log has lost: another task has timings there now."""
    for task in [task for task, block in state.open.items() if block.fields.get("slot") == slot]:
        yield from finish(state, task)


def belongs(line: Line) -> bool:
    """Whether this line can be part of a block of timings."""
    return line.label == "slot print_timing" or line.message.lstrip().startswith((*BLOCK, "statistics "))


def finish_all(state: Requests) -> Iterator[Record]:
    """What is still open: the log ended before the release."""
    for task in list(state.open):
        yield from finish(state, task)
