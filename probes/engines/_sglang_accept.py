"""Which SGLang versions a log can be from, and what its printed `accept rate` therefore means.

`accept rate` has meant three things: accept_len / (steps + 1) until 0.5.4, accept_len / D until 0.5.10 (both count the
bonus token), and (accept_len - 1) / (D - 1) since 0.5.11, D being the verify window. Only the last is
accepted/drafted. Versions are told from features of the lines; nothing in a log names its version.
"""

from __future__ import annotations

from typing import Any, Final

VERSIONS: Final = (
    "0.3", "0.4.0", "0.4.1", "0.4.2", "0.4.3", "0.4.5", "0.4.6", "0.4.7", "0.4.8", "0.4.9", "0.4.10", "0.5.0", "0.5.2",
    "0.5.3", "0.5.3.post3", "0.5.4", "0.5.4.post1", "0.5.5", "0.5.8", "0.5.9", "0.5.10", "0.5.11", "0.5.12", "0.5.13",
    "0.5.14", "0.5.16", "0.5.17", "0.5.19", "0.5.20", "0.5.22", "0.5.23",
)  # fmt: skip
_INDEX = {version: i for i, version in enumerate(VERSIONS)}
_DRAFT_ONLY = _INDEX["0.5.11"]
_HALF = 0.005
"""Lengths and rates are printed with two decimals."""
_WIDEST = 64

SINCE: Final[dict[str, str]] = {
    "accept len": "0.4.1",
    "accept rate": "0.5.3.post3",
    "#pending-token": "0.5.11",
    "#full token": "0.4.9",
    "mamba num": "0.5.4",
    "mamba usage": "0.5.4",
    "cap len": "0.5.16",
    "block accept len": "0.5.16",
    "est uncap acc len": "0.5.16",
    "#optimistic-req": "0.5.16",
    "#bootstrap-req": "0.5.12",
    "#replay-token": "0.5.22",
    "#unbootstrapped-req": "0.4.6",
    "pre-allocated usage": "0.4.6",
}
UNTIL: Final[dict[str, str]] = {
    "cache hit rate": "0.4.1",
    "largest-len": "0.4.5",
    "#unbootstrapped-req": "0.5.2",
    "#transferring-req": "0.5.2",
}


class Era:
    """The versions that a log can be from, narrowed by each feature seen. Contradictions (forks) are ignored."""

    def __init__(self) -> None:
        self._low = 0
        self._high = len(VERSIONS) - 1
        self._seen: set[str] = set()

    def since(self, version: str) -> None:
        """The log has something that came with `version`."""
        index = _INDEX[version]
        if self._low < index <= self._high:
            self._low = index

    def until(self, version: str) -> None:
        """The log has something that was last there in `version`."""
        index = _INDEX[version]
        if self._low <= index < self._high:
            self._high = index

    def feature(self, name: str) -> None:
        """A label of a batch line was seen."""
        if name not in self._seen:
            self._seen.add(name)
            if name in SINCE:
                self.since(SINCE[name])
            if name in UNTIL:
                self.until(UNTIL[name])

    def shape(self, kind: str, names: list[str], after: str, *, closed: bool) -> None:
        """Tell from the form of one whole batch line. `after`: the character or bracket behind "batch"."""
        for name in names:
            if name not in self._seen:
                self.feature(name)
        graph = any(name.endswith(" graph") for name in names)
        if after == ".":
            self.until("0.5.3.post3")
        elif after == "[":
            self.since("0.5.4")
        else:
            self.since("0.5.4.post1")
        if kind == "decode":
            if graph:
                self.since("0.4.6")
            if names[-1] == "#queue-req" and after != ".":
                if closed:
                    self.until("0.5.8")
                else:
                    self.since("0.5.9")
        elif graph:
            if names[-1].endswith(" graph") and "input throughput (token/s)" in names:
                self.since("0.5.9")
                self.until("0.5.9")
            elif names[-1] == "input throughput (token/s)":
                self.since("0.5.10")
                if "#pending-token" not in names:
                    self.until("0.5.10")

    @property
    def dialect(self) -> str | None:
        """The range in words, e.g. `0.5.11+` or `0.4.3-0.5.3`; None when nothing is known."""
        low, high, last = self._low, self._high, len(VERSIONS) - 1
        if low == 0 and high == last:
            return None
        if low == high:
            return VERSIONS[low]
        if high == last:
            return f"{VERSIONS[low]}+"
        return f"<={VERSIONS[high]}" if low == 0 else f"{VERSIONS[low]}-{VERSIONS[high]}"

    @property
    def draft_only(self) -> bool | None:
        """Whether the printed rate leaves out the bonus token; None: it can't be told from the version."""
        if self._low >= _DRAFT_ONLY:
            return True
        return False if self._high < _DRAFT_ONLY else None


class Acceptance:
    """Accepted/drafted of each decode line, from the verify window D: told by the flags, or by the lines themselves."""

    def __init__(self) -> None:
        self.window: int | None = None
        """D as the start's own lines say; None: they don't."""
        self.steps: int | None = None
        self.adaptive = False
        self.asked = False
        """Whether the start's flags ask for speculation."""
        self._unspeculated = 0
        self._disagreed = False
        self._plain: set[int] | None = None
        self._bonus: set[int] | None = None
        self._told: int | None = None

    def add(self, fields: dict[str, Any], draft_only: bool | None) -> str | None:
        """Put `accept_rate` to a decode line's fields where it is certain; a warning when something is off, once."""
        length = fields.get("accept_len")
        if length is None:
            self._unspeculated += self.asked and "clipped" not in fields
            if self._unspeculated != 3:
                return None
            self._unspeculated += 1
            return "speculation is asked for, but decode lines show no accept length"
        printed = fields.get("accept_rate_printed")
        rate = self.rate(length, printed, draft_only=draft_only)
        if rate is not None:
            fields["accept_rate"] = rate
        if printed is None or (rate is not None and -0.0101 <= printed - rate <= 0.0101):
            return None
        if self._disagreed or not self._disagrees(length, printed):
            return None
        self._disagreed = True
        return (
            f"the printed accept rate {printed:.2f} at accept length {length:.2f} fits no known version with a draft "
            f"window of {self.window}: a fork, or another window"
        )

    def _disagrees(self, length: float, printed: float) -> bool:
        """Whether a printed rate fits neither meaning under the window that the flags tell."""
        if self.adaptive or self.window is None or self.window < 2:
            return False
        steps = self.steps or self.window - 1
        meanings = ((length - 1) / (self.window - 1), length / self.window, length / (steps + 1))
        return all(abs(printed - meaning) > 0.0101 for meaning in meanings)

    def rate(self, length: float, printed: float | None, *, draft_only: bool | None) -> float | None:
        """accepted/drafted in 0..1 of a line with this accept length and printed rate; None: not certain."""
        if self.adaptive:
            return None  # the printed rate divides by the configured window while the real one varies
        if self.window is not None:
            rate = (length - 1) / (self.window - 1) if self.window > 1 else 2.0
            return max(0.0, rate) if rate <= 1.0 else None
        if printed is None:
            return None
        window = self._infer(length, printed, draft_only)
        if window is not None:
            return max(0.0, (length - 1) / (window - 1))
        return printed if draft_only or (self._plain and not self._bonus) else None

    def _infer(self, length: float, printed: float, draft_only: bool | None) -> int | None:
        """The only window under which all lines so far make sense; None while there are several or none."""
        if self._told is not None:
            rate, fuller = (length - 1) / (self._told - 1), length / self._told
            expected = (rate,) if draft_only else (fuller,) if draft_only is False else (rate, fuller)
            if any(abs(printed - e) <= 0.0101 for e in expected):
                return self._told
            self._told = None  # another server, or a window that varies: start over
            self._plain = self._bonus = None
        if printed < 0.01:
            return None
        plain = set() if draft_only is False else _windows(length - 1, printed, 1)
        bonus = set() if draft_only else _windows(length, printed, 0)
        both = (
            plain if self._plain is None else plain & self._plain,
            bonus if self._bonus is None else bonus & self._bonus,
        )
        self._plain, self._bonus = both if any(both) else (plain, bonus)
        windows = self._plain | self._bonus
        if len(windows) == 1:
            self._told = next(iter(windows))
        return self._told


def _windows(tokens: float, rate: float, bonus: int) -> set[int]:
    """Windows D = bonus + n with tokens / n = rate, within what rounding to two decimals allows."""
    low = (tokens - _HALF) / (rate + _HALF)
    high = (tokens + _HALF) / max(rate - _HALF, 1e-6)
    first = max(1, int(low) - 1)
    return {
        n + bonus
        for n in range(first, min(_WIDEST, int(high) + 2))
        if low - 1e-9 <= n <= high + 1e-9 and n + bonus >= 2 and n + _HALF >= tokens
    }
