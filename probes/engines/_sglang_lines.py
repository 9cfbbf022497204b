"""What single SGLang log lines say: stamp and ranks, the pairs of a batch line, the arguments of a start.

Everything is read by its label, never by position. This file knows no history: what a value means in which version is
decided elsewhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from operator import call
from typing import Any, Final

from probes.events import Rank

GIB: Final = 2**30
"""Every "GB" that this engine prints is 2**30 bytes."""

STAMP = re.compile(r"\[\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d", re.ASCII)
_HEAD = re.compile(
    r"(?:(?P<date>\d{4}-\d\d-\d\d)[ T])?(?:(?P<time>\d\d:\d\d:\d\d)(?:[.,](?P<part>\d{1,6}))?)?"
    r"(?P<ranks>(?: ?[A-Z][A-Z_]{1,11}\d{1,6}){0,8}| ?gpu(?:_id)?=\d{1,4})\]\s{0,8}\Z",
    re.ASCII,
)
_LOOSE = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?!\d)", re.ASCII)
_RANK = re.compile(r"([A-Z][A-Z_]*|gpu(?:_id)?=)(\d{1,6})", re.ASCII)
_LEADING = re.compile(r"-?\d{1,18}(?:\.\d{1,9})?(?=[^\d.,%]|\Z)", re.ASCII)
_GRAPH = re.compile(r"[a-z]{2,8} graph", re.ASCII)

INT, FLOAT, PERCENT, BOOL, SKIP = range(5)
Form = tuple[Callable[[str, int], re.Match[str] | None], tuple[str, ...], tuple[Callable[[str], Any], ...]]
"""A form of line: what matches it, and for each value that it captures its field and how to read it."""

NAMES: Final[dict[str, tuple[str, int]]] = {
    "#running-req": ("running", INT),
    "#queue-req": ("waiting", INT),
    "#token": ("kv_used_tokens", INT),
    "#full token": ("kv_used_tokens", INT),
    "#gpu token": ("kv_used_tokens", INT),
    "token usage": ("kv_usage", FLOAT),
    "full token usage": ("kv_usage", FLOAT),
    "gpu token usage": ("kv_usage", FLOAT),
    "#cpu token": ("host_used_tokens", INT),
    "cpu token usage": ("host_usage", FLOAT),
    "#swa token": ("swa_used_tokens", INT),
    "swa token usage": ("swa_usage", FLOAT),
    "mamba num": ("state_slots_used", INT),
    "mamba usage": ("state_usage", FLOAT),
    "accept len": ("accept_len", FLOAT),
    "accept rate": ("accept_rate_printed", FLOAT),
    "cap len": ("cap_len", FLOAT),
    "block accept len": ("block_accept_len", FLOAT),
    "est uncap acc len": ("uncapped_accept_len", SKIP),
    "gen throughput (token/s)": ("gen_tps", FLOAT),
    "input throughput (token/s)": ("prompt_tps", FLOAT),
    "#new-seq": ("new_seqs", INT),
    "#new-token": ("new_tokens", INT),
    "#cached-token": ("cached_tokens", INT),
    "#pending-token": ("pending_tokens", INT),
    "#replay-token": ("replay_tokens", INT),
    "cache hit rate": ("cache_hit_rate", PERCENT),
    "pre-allocated usage": ("preallocated_usage", FLOAT),
    "#prealloc-req": ("prealloc_reqs", INT),
    "#transfer-req": ("transfer_reqs", INT),
    "#transferring-req": ("transfer_reqs", INT),
    "#inflight-req": ("inflight_reqs", INT),
    "#bootstrap-req": ("bootstrap_reqs", INT),
    "#unbootstrapped-req": ("bootstrap_reqs", INT),
    "#optimistic-req": ("optimistic_reqs", INT),
    "#retracted-req": ("retracted_queue", INT),
    "waiting-image-req": ("waiting_images", INT),
    "#waiting-image-req": ("waiting_images", INT),
    "fwd occupancy": ("forward_occupancy", PERCENT),
    "gap_latency": ("", SKIP),
    "largest-len": ("", SKIP),
    "est. prefill TFLOPS/s (per GPU)": ("", SKIP),
    "est. decode TFLOPS/s (per GPU)": ("", SKIP),
    "est. read BW (GB/s per GPU)": ("", SKIP),
    "est. write BW (GB/s per GPU)": ("", SKIP),
} | {f"{device} graph": ("graph", BOOL) for device in ("cuda", "npu", "cpu", "musa", "hpu", "xpu", "hip")}

ENDS: Final = frozenset(
    {"#queue-req", "fwd occupancy", "input throughput (token/s)", "est. write BW (GB/s per GPU)", "largest-len"}
)
"""Names that a batch line may end with: an integer behind another name at the end of a line may be cut off."""


def from_json(text: str) -> str:
    """The line inside a JSON object of Python's logging (`asctime`, `message`), as it would be printed plainly."""
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(found, dict) or not isinstance(found.get("message"), str):
        return text
    message: str = found["message"]
    stamp = found.get("asctime")
    return f"[{stamp}] {message}" if isinstance(stamp, str) and not STAMP.match(message) else message


class Heads:
    """Reads what stands before a message: stamp and ranks. Remembers the last ones: thousands of lines share them."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str | None, Rank | None]] = {}
        self._ranks: dict[str, Rank | None] = {}

    def read(self, head: str) -> tuple[str | None, Rank | None]:
        """The ISO stamp and the rank of a head like `[2026-03-14 04:59:11 DP0 TP3] `; None for what it lacks."""
        known = self._known.get(head)
        if known is None:
            if len(self._known) > 512:
                self._known.clear()
            known = self._known[head] = self._parse(head)
        return known

    def _parse(self, head: str) -> tuple[str | None, Rank | None]:
        found = _HEAD.search(head[: head.rfind("]") + 1][-100:])  # a level or a module may stand behind the bracket
        if found is None:
            loose = _LOOSE.search(head[:100])
            return (f"{loose[1]}T{loose[2]}", None) if loose else (None, None)
        at = None
        if found["time"]:
            at = f"{found['date']}T{found['time']}" if found["date"] else found["time"]
            if found["part"]:
                at += "." + found["part"]
        tokens = found["ranks"]
        if tokens not in self._ranks:
            if len(self._ranks) > 4096:
                self._ranks.clear()
            ranks = {n if n.isupper() else "TP": int(v) for n, v in _RANK.findall(tokens)}
            self._ranks[tokens] = ranks or None
        return at, self._ranks[tokens]


class Pairs:
    """The pairs of one batch line: `fields` in canonical names, in order of `names`; what could not be trusted."""

    __slots__ = ("closed", "damaged", "fields", "names")

    def __init__(self, body: str, usual_end: str | None) -> None:
        body = body.rstrip()
        self.closed = body.endswith(",")
        self.fields: dict[str, Any] = {}
        self.names: list[str] = []
        self.damaged: list[str] = []
        pieces = (body[:-1] if self.closed else body).split(", ")
        for piece in pieces:
            self._piece(piece)
        if not self.closed:
            self._torn(pieces[-1], usual_end)

    def _piece(self, piece: str) -> None:
        name, _, value = piece.partition(": ")
        known = NAMES.get(name)
        if known is None:
            self._unknown(name, value, piece)
            return
        self.names.append(name)
        field, kind = known
        if kind == INT:
            if value.isdecimal() and len(value) < 19:
                self._set(field, int(value), name)
                return
        elif kind == FLOAT:
            if value.replace(".", "", 1).isdecimal() and len(value) < 19:
                self._set(field, float(value), name)
                return
        elif kind == BOOL:
            if value in ("True", "False"):
                self._set(field, value == "True", name)
                return
        elif kind == SKIP:
            return
        self._odd(field, kind, name, value)

    def _set(self, field: str, value: Any, name: str) -> None:
        if self.fields.setdefault(field, value) != value:
            self.damaged.append(name)  # the same label twice with two values: two lines run into one

    def _odd(self, field: str, kind: int, name: str, value: str) -> None:
        """A value that isn't a plain number: a percentage, a number with something stuck behind it, or a torn one."""
        if kind == PERCENT:
            number = value.removesuffix("%")
            if number != value and len(number) < 9 and number.replace(".", "", 1).isdecimal():
                self._set(field, float(number) / 100, name)
                return
        elif kind == BOOL:
            for word in ("True", "False"):
                if value.startswith(word):
                    self._set(field, word == "True", name)
                    return
        elif (found := _LEADING.match(value)) and found[0] != value and ("." in found[0]) == (kind == FLOAT):
            self._set(field, float(found[0]) if kind == FLOAT else int(found[0]), name)
            return
        self.damaged.append(name)

    def _unknown(self, name: str, value: str, piece: str) -> None:
        if _GRAPH.fullmatch(name) and value in ("True", "False"):
            self._set("graph", value == "True", name)
            self.names.append(name)
        elif not (piece.endswith("]") and ":" not in piece):  # the second half of an interval `[lo, hi]`
            self.damaged.append(name[:60])

    def _torn(self, piece: str, usual_end: str | None) -> None:
        """Takes back a last value that may be cut in the middle of its digits."""
        name, _, value = piece.partition(": ")
        field, kind = NAMES.get(name, ("", SKIP))
        if field not in self.fields or self.names[-1] != name or not value.replace(".", "", 1).isdecimal():
            return
        whole = value[-3:-2] == "." if kind == FLOAT else name == (usual_end or name) and name in ENDS
        if not whole:
            del self.fields[field]
            self.damaged.append(name)


_VALUES: Final[dict[int, str]] = {
    INT: r"(\d{1,18})",
    FLOAT: r"(\d{1,12}\.\d\d)",
    PERCENT: r"(\d{1,3}\.\d{1,2})%",
    BOOL: "(True|False)",
    SKIP: r"[^,\[]{0,40}(?:\[[^\]]{0,40}\])?",
}
_SHAPES = 16


def _share(value: str) -> float:
    return float(value) / 100


_TRUE = {"True": True, "False": False}.__getitem__
_READ: Final[dict[int, Callable[[str], Any]]] = {INT: int, FLOAT: float, PERCENT: _share, BOOL: _TRUE}


class Shapes:
    """Remembers the forms of whole batch lines, so that the next line of the same form is read by one expression.

    A line that fits none exactly is left to `Pairs`: what it might have lost is a question for the careful way.
    """

    def __init__(self) -> None:
        self._known: dict[str, list[Form]] = {}
        self._learned: set[tuple[Any, ...]] = set()

    def read(self, kind: str, text: str, begin: int) -> dict[str, Any] | None:
        """The fields of a line of a known form, or None."""
        for fits, names, reads in self._known.get(kind, ()):
            found = fits(text, begin)
            if found is not None:
                return dict(zip(names, map(call, reads, found.groups()), strict=True))
        return None

    def learn(self, kind: str, pairs: Pairs) -> bool:
        """Remember the form of a line that was read whole; whether it is a new one."""
        form = (kind, pairs.closed, *pairs.names)
        known = self._known.setdefault(kind, [])
        fields = [NAMES.get(name, ("graph", BOOL)) for name in pairs.names]
        canonical = [field for field, how in fields if how != SKIP]
        if form in self._learned or len(known) >= _SHAPES or len(set(canonical)) < len(canonical):
            return False
        self._learned.add(form)
        parts = (f"{re.escape(name)}: {_VALUES[how]}" for name, (_, how) in zip(pairs.names, fields, strict=True))
        pattern = re.compile(", ".join(parts) + (r",\s{0,8}" if pairs.closed else r"\s{0,8}"), re.ASCII)
        told = [(field, _READ[how]) for field, how in fields if how != SKIP]
        known.append((pattern.fullmatch, tuple(field for field, _ in told), tuple(read for _, read in told)))
        return True


# ------------------------------------------------------------------------------------------- the arguments of a start

_ARG = re.compile(
    r"(\w{1,80})=(?:'((?:[^'\\]|\\.)*+)'|\"((?:[^\"\\]|\\.)*+)\"|(\[[^\]]*+\]|\{[^}]*+\}|[^,()]*+))(?:, ?|\)|\Z)"
)
_SECRET = re.compile(r"(\w*(?:api_key|token|password|secret)\w*=)(?:'[^']*+'|\"[^\"]*+\"|[^,)\s]+)")

KEPT: Final = frozenset(
    {
        "model_path", "served_model_name", "max_running_requests", "max_queued_requests", "max_total_tokens",
        "mem_fraction_static", "chunked_prefill_size", "max_prefill_tokens", "schedule_policy",
        "schedule_conservativeness", "page_size", "swa_full_tokens_ratio", "context_length", "kv_cache_dtype",
        "tp_size", "pp_size", "dp_size", "ep_size", "attn_dp_size", "enable_dp_attention", "disable_radix_cache",
        "disable_overlap_schedule", "enable_mixed_chunk", "enable_prefill_delayer", "prefill_delayer_max_delay_passes",
        "min_free_slots_delay", "num_continuous_decode_steps", "pp_max_micro_batch_size", "decode_log_interval",
        "disaggregation_mode", "enable_unified_memory", "enable_hisparse", "disable_cuda_graph", "cuda_graph_max_bs",
        "cuda_graph_max_bs_decode", "max_mamba_cache_size", "mamba_full_memory_ratio", "mamba_ssm_dtype",
        "mamba_scheduler_strategy", "mamba_radix_cache_strategy", "speculative_algorithm",
        "speculative_draft_model_path", "speculative_num_steps", "speculative_eagle_topk",
        "speculative_num_draft_tokens", "speculative_dspark_block_size", "speculative_dflash_block_size",
        "speculative_adaptive", "speculative_accept_threshold_single", "speculative_accept_threshold_acc",
        "attention_backend", "version", "port", "enable_metrics",
    }
)  # fmt: skip
"""Arguments worth keeping as extras of a boot record, under the engine's own names."""


def arguments(text: str) -> dict[str, Any]:
    """The kept arguments of a `server_args=ServerArgs(…)` line; those printed as None are left out."""
    start = text.find("ServerArgs(")
    if start < 0:
        return {}
    found: dict[str, Any] = {}
    for match in _ARG.finditer(text, start + len("ServerArgs(")):
        if match[1] in KEPT:
            quoted = match[2] if match[2] is not None else match[3]
            value = quoted if quoted is not None else _scalar(match[4])
            if value is not None:
                found[match[1]] = value
    return found


def _scalar(word: str) -> Any:
    """A Python literal as printed: None, booleans and numbers; other text stays text."""
    if word in ("None", ""):
        return None
    if word in ("True", "False"):
        return word == "True"
    try:
        value = int(word) if word.lstrip("-").isdecimal() else float(word)
    except ValueError:
        return word
    return value if abs(value) < 1e18 else word


def without_secrets(text: str) -> str:
    """The same line with the values of keys, tokens and passwords starred out."""
    return _SECRET.sub(r"\1***", text)


def number(fields: Mapping[str, Any], name: str) -> float | None:
    """A field as a number, or None: it is absent, or a word."""
    value = fields.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
