"""Log lines and metrics of the simulated llama-server, as build 10068 prints them. Writes text, decides nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from probes.sim._llamacpp_args import Options
from probes.sim.core import Ask, Core
from probes.sim.front import BadStartError, World


def line(at: float, words: str, level: str = "I") -> str:
    """With its time since the start and its level."""
    micros = int(at * 1_000_000)
    stamp = f"{micros // 60_000_000}.{micros // 1_000_000 % 60:02d}.{micros // 1000 % 1000:03d}.{micros % 1000:03d}"
    return f"{stamp} {level} {words}"


def boot(o: Options, world: World) -> Iterable[tuple[float, str]]:
    """The start, line by line; how much of it is told depends on the verbosity."""
    b, m = world.table.boot, world.table.memory
    pace = world.noise.pace(world.seed, world.nth + 1000)
    total, loaded = b["total_s"] * pace, b["weights_s"] * pace
    deep = o.verbosity >= 4

    def say(at: float, words: str, level: str = "I") -> tuple[float, str]:
        return at, line(at, words, level)

    about = "cmn  common_param: common_params_print_info:"
    yield say(0.016, f"{about} build 10068 (571d0d5) with GNU 11.4.0 for Linux x86_64")
    yield say(0.016, f"{about} verbosity = {o.verbosity} (adjust with the `-lv N` CLI arg)")
    yield say(0.023, "srv         start: binding port with default address family")
    yield say(0.024, f"srv    load_model: loading model '{o.model}'")
    if world.fault == "oom-boot":
        yield say(loaded, "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4685.00 MiB on device 0: cudaMalloc "
                  "failed: out of memory", "E")  # fmt: skip
        yield say(loaded, "llama_model_load: error loading model: unable to allocate CUDA0 buffer", "E")
        yield say(loaded, f"srv    load_model: failed to load model, '{o.model}'", "E")
        raise BadStartError([line(loaded, "srv  llama_server: exiting due to model loading error", "E")])
    if deep:
        size = m["kv_mib_per_1k"] * o.cells / 1000
        yield say(loaded, f"load_tensors:        CUDA0 model buffer size =  {m['weights_mib']:.2f} MiB")
        yield say(loaded, f"llama_context: n_seq_max     = {o.slots}")
        yield say(loaded, f"llama_context: n_ctx         = {o.cells}")
        yield say(loaded, f"llama_context: n_ctx_seq     = {o.per_slot}")
        yield say(loaded, f"llama_context: n_batch       = {o.batch}")
        yield say(loaded, f"llama_context: kv_unified    = {'true' if o.unified else 'false'}")
        yield say(loaded, f"llama_kv_cache:      CUDA0 KV buffer size = {size:8.2f} MiB")
        streams = 1 if o.unified else o.slots
        yield say(loaded, f"llama_kv_cache: size = {size:7.2f} MiB ({o.cells // streams:6d} cells,  32 layers,  "
                  f"{o.slots}/{streams} seqs), K ({o.cache}): {size / 2:7.2f} MiB, V ({o.cache}): {size / 2:7.2f} "
                  "MiB")  # fmt: skip
    if o.auto:
        yield say(loaded, "srv  llama_server: n_parallel is set to auto, using n_parallel = 4 and kv_unified = "
                  f"{'true' if o.unified else 'false'}")  # fmt: skip
    kind = "true" if o.unified else "false"
    slots = f"n_slots = {o.slots}, n_ctx_slot = {o.per_slot}, kv_unified = '{kind}'"
    yield say(total - 0.3, f"srv    load_model: initializing, {slots}")
    if deep and o.depth:
        yield say(total - 0.3, f"spec common_specu: adding speculative implementation '{o.spec}'")
        if o.spec.startswith("draft"):
            yield say(total - 0.3, f"spec common_specu: - n_max={o.depth}, n_min=0, p_min=0.000000")
        else:
            yield say(total - 0.3, f"spec common_specu: - size_n=3, size_m={o.depth}, min_hits=1")
        yield say(total - 0.2, "srv    load_model: speculative decoding context initialized")
    elif deep:
        yield say(total - 0.3, "spec common_specu: no implementations specified for speculative decoding")
    for slot in range(o.slots):
        yield say(total - 0.1, f"slot   load_model: id {slot:>2} | task -1 | new slot, n_ctx = {o.per_slot}")
    yield say(total, "srv  llama_server: model loaded")
    yield say(total, f"srv  llama_server: listening on http://{o.host}:{o.port}")
    yield say(total, "srv  update_slots: all slots are idle")


def taken(slot: int, task: int, o: Options, ask: Ask) -> list[str]:
    """A slot takes a request."""
    head = f"id {slot:>2} | task"
    return [
        f"slot get_availabl: {head} -1 | selected slot by LRU, t_last = -1",
        f"slot launch_slot_: {head} {task} | processing task, is_child = 0",
        (
            f"slot   operator(): {head} {task} | new prompt, n_ctx_slot = {o.per_slot}, n_keep = 0, "
            f"task.n_tokens = {ask.prompt}"
        ),
        f"slot   operator(): {head} {task} | cached n_tokens = {ask.cached}, memory_seq_rm [{ask.cached}, end)",
    ]


def exhausted(batch: int) -> Iterable[tuple[str, str]]:
    """No room for a batch, however small it is cut."""
    size = max(1, batch)
    while True:
        yield f"decode: failed to find a memory slot for batch of size {size}", "W"
        if size == 1:
            break
        size //= 2
        why = "failed to find free space in the KV cache, retrying with smaller batch size"
        yield f"srv        decode: {why}, off = 0, n_batch = {size}, ret = 1", "W"
    yield "srv        decode: Context size has been exceeded. off = 0, n_batch = 1, ret = 1", "E"


def spell(ms: float, tokens: int) -> str:
    """A time over tokens, as the server writes it."""
    speed = 1000 * tokens / max(ms, 1e-3)
    return f"{ms:10.2f} ms / {tokens:5d} tokens ({ms / tokens:8.2f} ms per token, {speed:8.2f} tokens per second)"


def ended(slot: int, task: int, ask: Ask) -> list[str]:
    """Timings and acceptance of a request that had a slot."""
    if slot < 0:
        return []
    head = f"id {slot:>2} | task {task} |"
    found = []
    if ask.first is not None and ask.outcome in {"stop", "length"}:
        prompt = 1000 * (ask.first - (ask.admitted or ask.first))
        spent = 1000 * ((ask.ended or ask.first) - ask.first)
        fresh, made = max(ask.prompt - ask.cached, 1), max(ask.made, 1)
        found += [
            f"slot print_timing: {head} prompt eval time = {spell(prompt, fresh)}",
            f"slot print_timing: {head}        eval time = {spell(spent, made)}",
            f"slot print_timing: {head}       total time = {prompt + spent:10.2f} ms / {fresh + made:5d} tokens",
        ]
        if ask.drafted:
            length = 1 + ask.accepted / ask.rounds
            shares = ", ".join(f"{n / ask.rounds:.3f}" for n in ask.positions)
            counts = f"({ask.accepted:5d} accepted / {ask.drafted:5d} generated)"
            share = f"{ask.accepted / ask.drafted:.5f}"
            found += [
                f"slot print_timing: {head} draft acceptance = {share} {counts}, mean len = {length:5.2f}",
                f"slot print_timing: {head}      acc per pos = ({shares})",
            ]
    return [*found, f"slot      release: {head} stop processing: n_tokens = {ask.context}, truncated = 0"]


def crash(kind: str) -> list[str]:
    """Last words."""
    if kind == "oom":
        where = "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 1024.00 MiB on device 0"
        return [
            f"{where}: cudaMalloc failed: out of memory",
            "ggml-cuda.cu:97: CUDA error",
        ]
    return ["llama-context.cpp:1462: GGML_ASSERT(n_outputs_max <= cparams.n_outputs_max) failed"]


def metrics(core: Core, counts: Mapping[str, int]) -> str:
    """Prometheus text; there is no gauge of the pool."""
    values = {
        "prompt_tokens_total": counts["prompt"], "tokens_predicted_total": counts["made"],
        "n_decode_total": counts["decodes"], "requests_processing": len(core.running),
        "requests_deferred": len(core.queue), "spec_decode_num_draft_tokens_total": counts["drafted"],
        "spec_decode_num_accepted_tokens_total": counts["accepted"], "spec_decode_num_drafts_total": counts["drafts"],
    }  # fmt: skip
    return "".join(f"llamacpp:{name} {value}\n" for name, value in values.items())
