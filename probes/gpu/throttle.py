"""Why a GPU is slower than it could be: driver bits to words, and how much of a run they cover.

Only reasons that are throttling get a name; an idle GPU or application clocks are not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from probes.events import MemorySample, RequestDone

POWER_CAP = "power cap"
HARDWARE_SLOWDOWN = "hardware slowdown"
THERMAL_SOFTWARE = "thermal (software)"
THERMAL_HARDWARE = "thermal (hardware)"
POWER_BRAKE = "power brake"
THERMAL_SOCKET = "thermal (socket)"
THERMAL_VR = "thermal (voltage regulator)"
THERMAL_HBM = "thermal (HBM)"
PROCHOT = "thermal (prochot)"
CURRENT_LIMIT = "current limit"
UNNAMED = "throttled (reason not told)"

NVML_BITS: tuple[tuple[int, str], ...] = (
    (0x4, POWER_CAP),
    (0x8, HARDWARE_SLOWDOWN),
    (0x20, THERMAL_SOFTWARE),
    (0x40, THERMAL_HARDWARE),
    (0x80, POWER_BRAKE),
)
"""NVML clocks event reasons that are throttling (nvml.h, `nvmlClocksEventReason*`)."""

AMD_BITS: tuple[tuple[int, str], ...] = (
    (0x0000_0000_0000_FFFF, POWER_CAP),
    (0x0000_0000_FFFF_0000, CURRENT_LIMIT),
    (0x0000_FFFF_0000_0000, THERMAL_HARDWARE),
)
"""`indep_throttle_status` of amdgpu's gpu_metrics: bits 0-15 power, 16-31 current, 32-47 temperature."""

HARMFUL = frozenset(
    {
        HARDWARE_SLOWDOWN, THERMAL_SOFTWARE, THERMAL_HARDWARE, POWER_BRAKE, THERMAL_SOCKET, THERMAL_VR, THERMAL_HBM,
        PROCHOT,
    }
)  # fmt: skip
"""Reasons that make a measurement unfit for a verdict; a power cap is normal under load."""

HARMFUL_SHARE = 0.05
"""A run that is harmfully throttled for more of its time than this is kept, marked, and excluded from verdicts."""

MEASURED = frozenset({"probe", "load"})
"""Phases in which requests are timed; a GPU that is slowed while a server boots spoils nothing."""


def named(mask: int | None, bits: tuple[tuple[int, str], ...]) -> tuple[str, ...]:
    """The names of the throttling bits set in `mask`; () when none is set or the driver does not say."""
    if mask is None:
        return ()
    return tuple(name for bit, name in bits if mask & bit)


def shares(samples: Iterable[MemorySample]) -> dict[str, float]:
    """For each reason seen: the share of samples (0..1) in which at least one GPU gave it. {} without GPU samples."""
    counts: dict[str, int] = {}
    total = 0
    for sample in samples:
        if not sample.gpus:
            continue
        total += 1
        for reason in {reason for gpu in sample.gpus for reason in gpu.throttle}:
            counts[reason] = counts.get(reason, 0) + 1
    return {reason: count / total for reason, count in sorted(counts.items())}


def harmful_share(samples: Iterable[MemorySample]) -> float | None:
    """Share of samples (0..1) in which a GPU was slowed by heat or a brake; None without GPU samples."""
    harmed = [any(HARMFUL.intersection(gpu.throttle) for gpu in sample.gpus) for sample in samples if sample.gpus]
    return sum(harmed) / len(harmed) if harmed else None


class Slowed:
    """Counts, start by start, the samples that were taken while requests ran, and those with a GPU slowed harmfully."""

    def __init__(self) -> None:
        self._seen: Counter[int] = Counter()
        self._harmed: Counter[int] = Counter()

    def see(self, event: object) -> None:
        """Take a fact; only samples with GPUs, taken while something was measured, count."""
        if isinstance(event, MemorySample) and event.phase in MEASURED and event.gpus:
            self._seen[event.restart] += 1
            self._harmed[event.restart] += bool(harmful_share([event]))

    def by_restart(self) -> dict[int, float]:
        """Restart -> share of its measured time, 0..1."""
        return {restart: self._harmed[restart] / seen for restart, seen in self._seen.items()}

    def by_depth(self, requests: Iterable[RequestDone]) -> dict[int, float]:
        """Depth -> share over all starts that served it, as the requests tell them."""
        served = {(r.depth, r.restart) for r in requests if r.depth is not None and r.restart in self._seen}
        seen, harmed = Counter[int](), Counter[int]()
        for depth, restart in served:
            assert depth is not None  # noqa: S101  (left out above)
            seen[depth] += self._seen[restart]
            harmed[depth] += self._harmed[restart]
        return {depth: harmed[depth] / count for depth, count in seen.items()}
