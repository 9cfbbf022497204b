"""Log lines, metrics and request figures of the simulated vLLM 0.32. Writes text only; decides nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from probes.sim._vllm_args import Plan
from probes.sim.core import Ask, Core, Step
from probes.sim.front import BadStartError, World

VERSION = "0.32.0"
INTERVAL = 10.0
"""Seconds between two lines of figures."""


def line(world: World, at: float, words: str, where: str = "loggers.py:271", level: str = "INFO") -> str:
    """A line of the API server."""
    return f"(APIServer pid=4700) {level} {world.stamp(at, '%m-%d %H:%M:%S')} [{where}] {words}"


def engine(world: World, at: float, words: str, where: str, level: str = "INFO") -> str:
    """A line of the engine's process."""
    return f"(EngineCore pid=4711) {level} {world.stamp(at, '%m-%d %H:%M:%S')} [{where}] {words}"


def boot(p: Plan, world: World, host: str, port: int) -> Iterable[tuple[float, str]]:
    """The start, line by line."""
    m, b = world.table.memory, world.table.boot
    pace = world.noise.pace(world.seed, world.nth + 1000)
    total, loaded = b["total_s"] * pace, b["weights_s"] * pace

    def api(at: float, words: str, where: str) -> tuple[float, str]:
        return at, line(world, at, words, where)

    def core(at: float, words: str, where: str) -> tuple[float, str]:
        return at, engine(world, at, words, where)

    yield api(1, f"non-default args: {p.echo}", "utils.py:233")
    yield api(1.1, "Resolved architecture: LlamaForCausalLM", "model.py:555")
    yield api(1.1, f"Using max model len {p.context}", "model.py:1680")
    yield api(1.2, f"Chunked prefill is enabled with max_num_batched_tokens={p.batch}.", "scheduler.py:239")
    spec = "None"
    if p.spec:
        inner = f"method={p.spec.get('method')!r}, model={p.spec.get('model')!r}, num_spec_tokens={p.depth}"
        spec = f"SpeculativeConfig({inner})"
    rest = (
        f"max_seq_len={p.context}, tensor_parallel_size={p.args['tensor_parallel_size'] or 1}, "
        f"kv_cache_dtype={p.args['kv_cache_dtype'] or 'auto'}, enforce_eager={bool(p.args['enforce_eager'])}, "
        f"enable_prefix_caching={p.caching}, enable_chunked_prefill=True"
    )
    yield core(3, f"Initializing a V1 LLM engine (v{VERSION}) with config: model={p.args['model_tag']!r}, "
               f"speculative_config={spec}, tokenizer={p.args['model_tag']!r}, {rest}", "core.py:109")  # fmt: skip
    yield core(4, f"Starting to load model {p.args['model_tag']}...", "gpu_model_runner.py:4777")
    if world.fault == "oom-boot":
        raise BadStartError([
            engine(world, loaded, "EngineCore failed to start.", "core.py:1100", "ERROR"),
            engine(world, loaded, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 0 has a "
                   "total capacity of 79.11 GiB of which 1.01 GiB is free.", "core.py:1100", "ERROR"),
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
        ])  # fmt: skip
    took = f"{m['weights_gib']:.2f} GiB memory and {loaded:.6f} seconds"
    yield core(loaded + 4, f"Model loading took {took}", "gpu_model_runner.py:4879")
    yield core(total - 12, "torch.compile took 18.21 s in total", "monitor.py:53")
    yield core(total - 10, f"Available KV cache memory: {p.kv_gib:.2f} GiB", "gpu_worker.py:436")
    tokens = p.blocks * p.block
    yield core(total - 10, f"GPU KV cache size: {tokens:,} tokens, Maximum concurrency for {p.context:,} tokens per "
               f"request: {tokens / p.context:.2f}x", "kv_cache_utils.py:1708")  # fmt: skip
    yield core(total - 5, "Graph capturing finished in 5 secs, took 0.51 GiB", "gpu_model_runner.py:6133")
    yield core(total - 4, "init engine (profile, create kv cache, warmup model) took 33.90 s (compilation: 18.21 s)",
               "core.py:299")  # fmt: skip
    yield api(total - 1, f"Starting vLLM server on http://{host}:{port}", "api_server.py:602")
    for words in ("Started server process [4700]", "Waiting for application startup.", "Application startup complete."):
        yield total, f"(APIServer pid=4700) INFO:     {words}"


def crash(world: World, at: float, kind: str) -> list[str]:
    """Last words."""
    why = "RuntimeError: CUDA error: an illegal memory access was encountered"
    if kind == "oom":
        why = ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 0 has a total capacity of "
               "79.11 GiB of which 1.01 GiB is free.")  # fmt: skip
    return [
        engine(world, at, "EngineCore encountered a fatal error.", "core.py:1150", "ERROR"),
        engine(world, at, "Traceback (most recent call last):", "core.py:1150", "ERROR"),
        engine(world, at, why, "core.py:1150", "ERROR"),
        line(world, at, "AsyncLLM output_handler failed.", "async_llm.py:720", "ERROR"),
    ]


@dataclass(slots=True)
class Counts:
    """Everything counted since the start, and since the last line of figures."""

    prompt: int = 0
    made: int = 0
    drafts: int = 0
    drafted: int = 0
    accepted: int = 0
    positions: list[int] = field(default_factory=list)
    preempted: int = 0
    steps: int = 0
    row_steps: int = 0
    row_s: float = 0.0
    requests: int = 0
    ttft_s: float = 0.0
    queue_s: float = 0.0
    last: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0)
    last_positions: list[int] = field(default_factory=list)
    _before: dict[str, tuple[int, int, list[int]]] = field(default_factory=dict)

    def step(self, step: Step) -> None:
        """Count a step."""
        self.steps += 1
        self.prompt += sum(n for _, n in step.prefill)
        self.made += step.tokens + sum(1 for ask, _ in step.prefill if ask.decoding and ask.made)
        self.row_steps += len(step.rows)
        self.row_s += step.seconds * len(step.rows)
        if not step.depth:
            return
        self.positions = self.positions or [0] * step.depth
        for ask in step.rows:
            accepted, _, places = self._before.get(ask.name, (0, 0, []))
            self.drafts += 1
            self.drafted += step.depth
            self.accepted += ask.accepted - accepted
            for place, count in enumerate(ask.positions):
                self.positions[place] += count - (places[place] if places else 0)
            self._before[ask.name] = (ask.accepted, 0, list(ask.positions))

    def ended(self, ask: Ask) -> None:
        """Count a request that ended well."""
        self._before.pop(ask.name, None)
        self.requests += 1
        self.ttft_s += (ask.first or ask.arrived) - ask.arrived
        self.queue_s += (ask.admitted or ask.arrived) - ask.arrived

    def lines(self, core: Core, usage: float, every: float) -> tuple[list[str], bool]:
        """The lines of one interval, and whether nothing happened in it."""
        now = (self.prompt, self.made, self.drafts, self.drafted, self.accepted)
        prompt, made, drafts, drafted, accepted = (a - b for a, b in zip(now, self.last, strict=True))
        before = self.last_positions or [0] * len(self.positions)
        places = [a - b for a, b in zip(self.positions, before, strict=True)]
        self.last, self.last_positions = now, list(self.positions)
        speeds = f"Avg prompt throughput: {prompt / every:.1f} tokens/s, Avg generation throughput: {made / every:.1f}"
        counts = f"Running: {len(core.running)} reqs, Waiting: {len(core.queue)} reqs"
        found = [f"Engine 000: {speeds} tokens/s, {counts}, GPU KV cache usage: {usage:.1%}"]
        if drafts:
            shares = ", ".join(f"{count / drafts:.3f}" for count in places)
            found.append(
                f"SpecDecoding metrics: Mean acceptance length: {1 + accepted / drafts:.2f}, Accepted throughput: "
                f"{accepted / every:.2f} tokens/s, Drafted throughput: {drafted / every:.2f} tokens/s, Accepted: "
                f"{accepted} tokens, Drafted: {drafted} tokens, Per-position acceptance rate: {shares}, "
                f"Avg Draft acceptance rate: {accepted / drafted:.1%}"
            )
        return found, not (prompt or made or core.running or core.queue)


def request_metrics(p: Plan, ask: Ask) -> dict[str, Any]:
    """The `metrics` object of one request, as the flags ask for it."""
    found: dict[str, Any] = {}
    if p.args["enable_per_request_metrics"]:
        first, admitted = ask.first or ask.arrived, ask.admitted or ask.arrived
        end = ask.ended or first
        each = 1000 * (end - first) / max(ask.made - 1, 1)
        found |= {"time_to_first_token_ms": 1000 * (first - admitted), "queue_time_ms": 1000 * (admitted - ask.arrived),
                  "generation_time_ms": 1000 * (end - first), "mean_itl_ms": each}  # fmt: skip
    if p.args["per_request_spec_decode_metrics"] and p.depth:
        more = [*ask.positions, 0]
        histogram = [ask.rounds - more[0], *(more[i] - more[i + 1] for i in range(len(ask.positions)))]
        found["speculative_decoding"] = {
            "num_spec_steps": ask.rounds, "num_draft_tokens": ask.drafted, "num_accepted_draft_tokens": ask.accepted,
            "num_spec_tokens": p.depth, "acceptance_histogram": histogram,
        }  # fmt: skip
    return {"metrics": found} if found else {}


def metrics(p: Plan, core: Core, usage: float, counts: Counts, model: str) -> str:
    """Prometheus text."""
    labels = f'engine="0",model_name="{model}"'
    values: dict[str, float] = {
        "num_requests_running": len(core.running), "num_requests_waiting": len(core.queue),
        "kv_cache_usage_perc": usage, "num_preemptions_total": counts.preempted,
        "prompt_tokens_total": counts.prompt, "generation_tokens_total": counts.made,
        "time_to_first_token_seconds_sum": counts.ttft_s, "time_to_first_token_seconds_count": counts.requests,
        "request_queue_time_seconds_sum": counts.queue_s, "request_queue_time_seconds_count": counts.requests,
        "inter_token_latency_seconds_sum": counts.row_s, "inter_token_latency_seconds_count": counts.row_steps,
        "iteration_tokens_total_count": counts.steps, "iteration_tokens_total_sum": counts.prompt + counts.made,
    }  # fmt: skip
    if p.depth:
        values |= {
            "spec_decode_num_drafts_total": counts.drafts, "spec_decode_num_draft_tokens_total": counts.drafted,
            "spec_decode_num_accepted_tokens_total": counts.accepted,
        }  # fmt: skip
    lines = [f"vllm:{name}{{{labels}}} {float(value)}" for name, value in values.items()]
    for place, count in enumerate(counts.positions):
        name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
        lines.append(f'{name}{{{labels},position="{place}"}} {float(count)}')
    share = p.args["gpu_memory_utilization"] if p.args["gpu_memory_utilization"] is not None else 0.92
    info = (f'block_size="{p.block}",cache_dtype="{p.args["kv_cache_dtype"] or "auto"}",'
            f'enable_prefix_caching="{p.caching}",gpu_memory_utilization="{share}",kv_cache_memory_bytes="{p.args["kv_cache_memory_bytes"]}",'
            f'kv_cache_size_tokens="{p.blocks * p.block}",num_gpu_blocks="{p.blocks}"')  # fmt: skip
    lines.append(f"vllm:cache_config_info{{{info}}} 1.0")
    return "\n".join(lines) + "\n"
