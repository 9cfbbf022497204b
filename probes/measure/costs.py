"""What a start and a request of a preset took last time, from the runs of the store: the price of a plan."""

from __future__ import annotations

from probes import store


def costs(preset: str) -> tuple[float | None, float | None]:
    """Seconds of a boot and of a request, from the latest run of the preset; None when there is none. Reads files.

    Runs that provoked a ceiling don't count: their requests are as long as the server bears. A simulated engine's
    seconds are its own, not those of the clock.
    """
    for run in reversed(store.listing()):
        result = run.result() or {}
        if result.get("what") == "ceiling" or not result.get("boot_s"):
            continue
        if (run.description().get("recipe") or {}).get("name") == preset:
            boots = sorted(result["boot_s"])
            requests = [r.done - r.sent for r in run.requests() if r.done is not None and not r.warmup]
            return boots[len(boots) // 2], sum(requests) / len(requests) if requests else None
    return None, None
