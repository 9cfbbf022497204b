"""Log lines and status replies of the simulated SGLang, in the shapes of 0.5.20. Writes text only; decides nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from probes.sim._sglang_args import Plan
from probes.sim.core import Ask, Core, Step
from probes.sim.front import BadStartError, World

VERSION = "0.5.20"


def line(world: World, at: float, words: str, rank: str = "") -> str:
    """With its stamp and rank."""
    stamp = f"{world.stamp(at, '%Y-%m-%d %H:%M:%S')}.{world.millis(at):03d}"
    return f"[{stamp}{' ' + rank if rank else ''}] {words}"


def rank(world: World) -> str:
    """The first rank's name; a single rank has none."""
    return "TP0" if world.table.memory.get("ranks", 1) > 1 else ""


def boot(p: Plan, world: World) -> Iterable[tuple[float, str]]:
    """The start, line by line."""
    m, b = world.table.memory, world.table.boot
    pace = world.noise.pace(world.seed, world.nth + 1000)
    total, loaded = b["total_s"] * pace, b["weights_s"] * pace
    first = rank(world)

    def say(at: float, words: str, who: str = first) -> tuple[float, str]:
        return at, line(world, at, words, who)

    yield say(0.5, f"server_args=ServerArgs({arguments(p)})", "")
    if p.reset:
        yield say(0.6, f"Max running requests is reset to {48} for speculative decoding. You can override this by "
                  "explicitly setting --max-running-requests.", "")  # fmt: skip
    free = m["total_gb"] - 1.5
    yield say(2.0, f"Load weight begin. avail mem={free:.2f} GB")
    if world.fault == "oom-boot":
        yield say(loaded, "Scheduler hit an exception: Traceback (most recent call last):")
        lacks = f"GPU 0 has a total capacity of {m['total_gb']:.2f} GiB of which 1.01 GiB is free."
        raise BadStartError([
            f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.75 GiB. {lacks}",
            line(world, loaded, "SIGQUIT received. signum=None, frame=None. It usually means one child failed."),
        ], -9)  # fmt: skip
    free -= m["weights_gb"]
    yield say(loaded, f"Load weight end. elapsed={loaded - 2:.2f} s, type=SimulatedForCausalLM, "
              f"avail mem={free:.2f} GB, mem usage={m['weights_gb']:.2f} GB.")  # fmt: skip
    yield say(loaded, "Using KV cache dtype: torch.bfloat16")
    if p.capped:
        yield say(loaded + 0.1, f"max_running_requests is capped to {p.lanes} by the mamba state cache "
                  f"(max_mamba_cache_size={p.states}, {p.states_each} state slots per request). To raise it: increase "
                  "--mamba-full-memory-ratio or --max-mamba-cache-size, or halve the state size with "
                  "--mamba-ssm-dtype bfloat16.")  # fmt: skip
    if p.states is not None:
        base, draft = m["state_gb"] * (p.states + 1), m["state_gb"] * (p.lanes + 1) * (p.depth + 1)
        more = f" intermediate_ssm_state_cache size: {draft:.2f}GB intermediate_conv_window_cache size: 0.01GB "
        yield say(loaded + 0.2, f"Mamba Cache is allocated. max_mamba_cache_size: {p.states}, conv_state size: 0.05GB, "
                  f"ssm_state size: {base:.2f}GB{more if p.depth else ''}")  # fmt: skip
    half = p.kv_gb / 2
    yield say(loaded + 0.3, f"KV Cache is allocated. dtype: torch.bfloat16, #tokens: {p.kv_tokens}, "
              f"K size: {half:.2f} GB, V size: {half:.2f} GB")  # fmt: skip
    yield say(loaded + 0.4, f"Memory pool end. avail mem={p.free_gb + m.get('graphs_gb', 1.0):.2f} GB")
    kind = "RadixCache" if p.radix else "ChunkCache"
    yield say(loaded + 0.5, f"Tree cache initialized: source=default impl={kind} hybrid_swa=False "
              f"hybrid_ssm={p.states is not None}")  # fmt: skip
    if p.algorithm == "DSPARK":
        yield say(loaded + 0.6, f"Initialized DSpark draft runner. attention_backend=triton, gamma={p.depth}, "
                  f"verify_num_draft_tokens={p.depth + 1}, query_token_num={p.depth + 1}")  # fmt: skip
    sizes = [n for n in (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256) if n <= max(p.lanes, 1)]
    what = "target verify" if p.depth else "target decode"
    yield say(loaded + 1, f"Capture {what} CUDA graph begin. backend=full, num_tokens_per_req={p.depth + 1}, "
              f"bs={sizes}, avail mem={p.free_gb + m.get('graphs_gb', 1.0):.2f} GB")  # fmt: skip
    yield say(total - 3, f"Capture {what} CUDA graph end. elapsed={total - 4 - loaded:.2f} s, "
              f"mem usage={m.get('graphs_gb', 1.0):.2f} GB, avail mem={p.free_gb:.2f} GB")  # fmt: skip
    yield say(total - 2, f"max_total_num_tokens={p.kv_tokens}, chunked_prefill_size={p.chunk}, "
              f"max_prefill_tokens=16384, max_running_requests={p.lanes}, context_len={p.context}, "
              f"available_gpu_mem={p.free_gb:.2f} GB")  # fmt: skip
    yield say(total, "The server is fired up and ready to roll!", "")


def arguments(p: Plan) -> str:
    """The arguments as the engine prints them."""
    return ", ".join(f"{name}={value!r}" for name, value in resolved(p).items())


def resolved(p: Plan) -> dict[str, Any]:
    """The arguments after the engine's own defaults."""
    args = {**p.args, "tp_size": p.args["tp_size"] or 1, "dp_size": p.args["dp_size"] or 1}
    args |= {"context_length": p.context, "chunked_prefill_size": p.chunk, "speculative_algorithm": p.algorithm}
    args["schedule_conservativeness"] = (
        1.0 if args["schedule_conservativeness"] is None else args["schedule_conservativeness"]
    )
    if p.depth:
        args |= {"speculative_num_draft_tokens": p.depth + 1}
        if p.algorithm == "DSPARK":
            args |= {"speculative_dspark_block_size": p.depth, "speculative_eagle_topk": 1, "speculative_num_steps": 1}
    if p.reset:
        args["max_running_requests"] = p.lanes
    return args


def server_info(p: Plan) -> dict[str, Any]:
    """`/server_info`: requested values at the top, effective ones inside."""
    inner = {
        "effective_max_running_requests_per_dp": p.lanes,
        "memory_usage": {"weight": 0.0, "kvcache": round(p.kv_gb, 2), "token_capacity": p.kv_tokens},
    }
    return {**resolved(p), "tp": p.args["tp_size"] or 1, "version": VERSION, "internal_states": [inner]}


def load(p: Plan, core: Core, used: int) -> dict[str, Any]:
    """`/v1/loads`, one rank."""
    return {
        "dp_rank": 0, "num_running_reqs": len(core.running), "num_waiting_reqs": len(core.queue),
        "num_used_tokens": used, "max_total_num_tokens": p.kv_tokens, "max_running_requests": p.lanes,
        "token_usage": round(used / p.kv_tokens, 4),
    }  # fmt: skip


def metrics(p: Plan, core: Core, used: int, states: int, totals: Mapping[str, int], model: str) -> str:
    """Prometheus text."""
    labels = f'{{engine_type="unified",model_name="{model}",pp_rank="0",tp_rank="0"}}'
    kv = used / p.kv_tokens
    state = states / p.states if p.states else 0.0
    values: dict[str, float] = {
        "num_running_reqs": len(core.running), "num_queue_reqs": len(core.queue), "num_used_tokens": used,
        "token_usage": max(kv, state), "full_token_usage": kv, "mamba_usage": state, "mamba_used_tokens": states,
        "max_total_num_tokens": p.kv_tokens, "spec_num_draft_tokens": p.depth + 1 if p.depth else 0,
        "generation_tokens_total": totals["made"], "prompt_tokens_total": totals["prompt"],
        "num_requests_total": totals["requests"], "num_retracted_requests_total": totals["retracted"],
    }  # fmt: skip
    if p.depth and totals["verify"]:
        values["spec_accept_length"] = totals["made"] / totals["verify"]
        values["spec_verify_calls_total"] = totals["verify"]
    return "".join(f"sglang:{name}{labels} {value:g}\n" for name, value in values.items())


def details(ask: Ask, body: Mapping[str, Any]) -> dict[str, Any]:
    """Draft counts of one request, where they were asked for and there were any."""
    if not ask.drafted or not (body.get("return_spec_tokens_details") or body.get("return_meta_info")):
        return {}
    more = [*ask.positions, 0]
    histogram = [ask.rounds - more[0], *(more[i] - more[i + 1] for i in range(len(ask.positions)))]
    found = {
        "spec_verify_ct": ask.rounds, "spec_num_correct_drafts": ask.accepted,
        "spec_num_proposed_drafts": ask.drafted, "spec_correct_drafts_histogram": histogram,
    }  # fmt: skip
    return {"sglext": {"spec_tokens_details": found}}


def crash(kind: str, p: Plan) -> list[str]:
    """Last words; a star marks lines with a stamp."""
    why = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
    if kind == "oom":
        why = ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.75 GiB. GPU 1 has a total capacity of "
               f"287.98 GiB of which {max(p.free_gb, 0.0):.2f} GiB is free.")  # fmt: skip
    return [
        "*Scheduler hit an exception: Traceback (most recent call last):",
        '  File "<site>/sglang/srt/managers/scheduler.py", line 2974, in run_scheduler_process',
        "    scheduler.event_loop_overlap()",
        why,
        "",
        "*SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
    ]


class Log:
    """Lines about batches: every prefill, and one decode line each so many steps."""

    def __init__(self, p: Plan, world: World) -> None:
        self._p, self._world = p, world
        self._every = p.args["decode_log_interval"] or 40
        self._rank = rank(world)
        self._steps = 0
        self._tokens = 0
        self._rows = 0
        self._since: float | None = None
        self._prefill_at = 0.0

    def _say(self, core: Core, words: str) -> None:
        self._world.log(core.at, line(self._world, core.at, words, self._rank))

    def _usage(self, used: int, states: int, *, decode: bool) -> str:
        p = self._p
        share = used / p.kv_tokens
        if p.states is None:
            return f"#token: {used}, token usage: {share:.2f}" if decode else f"token usage: {share:.2f}"
        state = f"mamba usage: {states / p.states:.2f}"
        if decode:
            return f"#full token: {used}, full token usage: {share:.2f}, mamba num: {states}, {state}"
        return f"full token usage: {share:.2f}, {state}"

    def prefilled(self, core: Core, step: Step, used: int, states: int, pending: int) -> None:
        """One prefill batch."""
        tokens = sum(n for _, n in step.prefill)
        new = sum(1 for a, n in step.prefill if a.computed - n <= a.cached or a.made == 1)
        cached = sum(a.cached for a, n in step.prefill if a.computed - n <= a.cached)
        running = sum(1 for a in core.running if a.decoding and all(a is not b for b, _ in step.prefill))
        speed = tokens / max(core.at - self._prefill_at, 1e-6)
        self._prefill_at = core.at
        self._say(core, f"Prefill batch, #new-seq: {new}, #new-token: {tokens}, #cached-token: {cached}, "
                  f"{self._usage(used, states, decode=False)}, #running-req: {running}, #queue-req: {len(core.queue)}, "
                  f"#pending-token: {pending}, cuda graph: False, input throughput (token/s): {speed:.2f}")  # fmt: skip

    def decoded(self, core: Core, step: Step, used: int, states: int) -> None:
        """One decode step; a line each `--decode-log-interval` steps."""
        p = self._p
        if self._since is None:
            self._since = core.at - step.seconds
        self._steps += 1
        self._tokens += step.tokens
        self._rows += len(step.rows)
        if self._steps < self._every:
            return
        length = self._tokens / self._rows
        spec = f", accept len: {length:.2f}, accept rate: {(length - 1) / p.depth:.2f}" if p.depth else ""
        speed = self._tokens / max(core.at - self._since, 1e-6)
        pools = self._usage(used, states, decode=True)
        self._say(core, f"Decode batch, #running-req: {len(step.rows)}, {pools}{spec}, cuda graph: True, "
                  f"gen throughput (token/s): {speed:.2f}, #queue-req: {len(core.queue)}")  # fmt: skip
        self._steps = self._tokens = self._rows = 0
        self._since = core.at

    def retracted(self, core: Core, count: int, before: float, after: float) -> None:
        """Requests were put back."""
        gained = "" if self._p.states is None else f"#mamba_num_gained: {count * self._p.held_each}, "
        self._say(core, f"KV cache pool is full. Retract requests. #retracted_reqs: {count}, #new_tokens_gained: "
                  f"{count * 512}, {gained}#new_token_ratio: {before:.4f} -> {after:.4f}")  # fmt: skip
