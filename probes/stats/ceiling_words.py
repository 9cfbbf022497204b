"""What to say about a ceiling: the headline, the experiment that separates the rivals, and the knob to turn."""

from __future__ import annotations

from collections.abc import Sequence

from probes.events import Verdict

HEADLINES: dict[Verdict, str] = {
    "kv_pool": "The KV pool holds requests back.",
    "lanes": "The number of lanes holds requests back.",
    "state_pool": "The pool of recurrent states holds requests back.",
    "prefill": "Computing prompts holds requests back.",
    "admission_delay": "The engine delays admission although there is room.",
    "client": "The client is the limit.",
    "none": "Nothing held requests back.",
    "unknown": "What held requests back can't be told from this.",
}

EXPERIMENTS: dict[Verdict, str] = {
    "kv_pool": (
        "Halve the tokens that requests really use (prompt or output): the wait should vanish; changing "
        "max_tokens alone changes nothing."
    ),
    "lanes": "Halve max_tokens: the wait should stay; allow one more lane: one more should run.",
    "state_pool": (
        "Run once without speculation, or with a smaller draft: each request needs fewer state slots and more "
        "should run."
    ),
    "prefill": "Send the same load with prompts an eighth as long: the wait should vanish.",
    "admission_delay": "Switch the delay off (or lower the reserve for future output): running should rise at once.",
    "client": "Run a second client beside the first: if more run, the client was the limit.",
    "none": "Send more requests at once until something waits.",
    "unknown": (
        "Keep one load steady for a minute, then halve max_tokens, then allow one more lane: whichever moves the "
        "queue is the limit."
    ),
}
RESERVING_KV = (
    "Halve max_tokens: the wait should vanish, because the whole output is promised at admission; more lanes "
    "should change nothing."
)
ESTIMATING_KV = (
    "Halve max_tokens: less should wait, because the next request needs room for all of its own at once and a part of "
    "what the others may still put out is set aside; more lanes should change nothing."
)
LANES_OR_KV = (
    "Halve max_tokens (or the prompts): if the wait stays, it is the lanes; then allow one more lane: one more "
    "should run."
)
LANES_OR_STATE = (
    "Raise the number of lanes and keep the state slots as they are: if more run, it was the lanes; if not, the "
    "state pool."
)

PAUSING_KV = "Raise --kv-capacity, take a smaller --kv-dtype, or send less at once; more lanes would not help."
"""Where admission promises no output, asking for less of it frees no page."""

ADVICE: dict[Verdict, dict[str, str]] = {
    "kv_pool": {
        "ninfer": ("Lower max_tokens, raise --kv-capacity, or take a smaller --kv-dtype; more lanes would not help."),
        "sglang": (
            "Make the pool larger (--mem-fraction-static, a smaller --kv-cache-dtype after an accuracy check) or "
            "requests shorter, max_tokens too; if requests are put back, raise --schedule-conservativeness, and if the "
            "pool stays half empty meanwhile, lower it."
        ),
        "vllm": (
            "Make the pool larger (--gpu-memory-utilization, --kv-cache-dtype fp8 after an accuracy check, a "
            "smaller draft) or lower --max-num-seqs to what the pool carries; preemptions are only in /metrics "
            "(vllm:num_preemptions_total)."
        ),
        "llamacpp": (
            "Raise -c, or lower -np so that each request gets more of it; where all slots share one pool "
            "(kv_unified), -no-kvu keeps a full one from starving the others."
        ),
        "": "Make the pool larger or requests shorter.",
    },
    "lanes": {
        "ninfer": "Raise --max-concurrency by one; it costs state memory and shrinks an automatic pool.",
        "sglang": (
            "Raise --max-running-requests (48 is only the default under speculation) and the largest graph batch "
            "with it."
        ),
        "vllm": "Raise --max-num-seqs, and --max-num-batched-tokens with it if speculation drafts for every request.",
        "llamacpp": "Raise -np, and -c with it, since each slot takes its share.",
        "": "Raise the number of requests that may run at once.",
    },
    "state_pool": {
        "sglang": (
            "Raise --max-mamba-cache-size or --mamba-full-memory-ratio, take --mamba-ssm-dtype bfloat16 after an "
            "accuracy check, or draft fewer tokens."
        ),
        "": "Give recurrent states more memory, or draft fewer tokens.",
    },
    "prefill": {
        "ninfer": "One prompt is computed at a time: raise --prefill-chunk, send shorter prompts or share prefixes.",
        "sglang": (
            "It passes by itself; a larger --chunked-prefill-size shortens it, at the cost of pauses in decoding."
        ),
        "vllm": "Raise --max-num-batched-tokens, or accept it: it passes once the prompts are in.",
        "": "Raise the tokens a step may prefill, or send shorter prompts.",
    },
    "admission_delay": {
        "sglang": (
            "Look at --enable-prefill-delayer and --min-free-slots-delay; try --schedule-conservativeness 0.3 if "
            "outputs end well before max_tokens."
        ),
        "": "Look for a setting that delays or batches admission.",
    },
    "client": {"": "Raise the client's concurrency, or run a second client."},
    "none": {"": "There is room for more load."},
    "unknown": {"": "Add what is missing, or run the experiment; don't turn a knob on this alone."},
}


def headline(verdict: Verdict, rivals: Sequence[Verdict]) -> str:
    """One short sentence."""
    if verdict == "unknown" and len(set(rivals)) == 1:
        return f"Not proven; perhaps {rivals[0]}."
    if verdict == "unknown" and rivals:
        return f"Undecided between {' and '.join(dict.fromkeys(rivals))}."
    return HEADLINES[verdict]


def experiment(verdict: Verdict, rivals: Sequence[Verdict], engine: str, reserving: bool | None) -> str:
    """What to change so that the answer becomes certain."""
    both = {verdict, *rivals}
    if {"lanes", "state_pool"} <= both:
        return LANES_OR_STATE
    if verdict == "kv_pool":
        if engine == "sglang" and not reserving:
            return ESTIMATING_KV
        return RESERVING_KV if reserving else EXPERIMENTS["kv_pool"]
    if verdict == "unknown" and {"lanes", "kv_pool"} <= both:
        return LANES_OR_KV
    if verdict == "unknown" and "admission_delay" in both:
        return EXPERIMENTS["admission_delay"]
    return EXPERIMENTS[verdict]


def advice(verdict: Verdict, engine: str, reserving: bool | None) -> str:
    """Which knob to turn, in the engine's own words."""
    if verdict == "kv_pool" and engine == "ninfer" and reserving is False:
        return PAUSING_KV
    return ADVICE[verdict].get(engine, ADVICE[verdict][""])
