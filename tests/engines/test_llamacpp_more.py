"""Lines of llama-server that a capacity or a failure turns on: caps, lost boots, dropped caches, routers."""

from __future__ import annotations

import pytest

from probes.engines._llamacpp_lines import sniff
from probes.engines._llamacpp_log import Reader
from probes.engines._llamacpp_trouble import failure
from probes.events import Record
from probes.reading import Log


def read(lines: list[str]) -> tuple[Reader, list[Record]]:
    reader = Reader()
    found: list[Record] = []
    for number, text in enumerate(lines, 1):
        found.extend(reader.feed(number, text))
    return reader, found + list(reader.close())


def stamped(*messages: str, level: str = "I") -> list[str]:
    return [f"0.00.{n:03}.000 {level} {text}" for n, text in enumerate(messages)]


SLOTS = "srv    load_model: initializing, n_slots = 4, n_ctx_slot = {}, kv_unified = '{}'"


@pytest.mark.parametrize(
    "cap",
    [
        "srv    load_model: capping per-slot context (8192) to --kv-unified-per-slot (2048)",
        "srv    load_model: the slot context (8192) exceeds the training context of the model (2048) - capping",
    ],
)
def test_a_cap_on_a_slot_is_not_the_size_of_the_shared_pool(cap: str) -> None:
    reader, _ = read(stamped(cap, SLOTS.format(2048, "true")))
    assert (reader.capacity.kv_pool_tokens, reader.capacity.max_context) == (8192, 2048)
    assert "up to 2,048 of it" in reader.capacity.explain[0]
    assert any("capping" in warn.text for warn in reader.warnings)


def test_slots_with_a_share_each_hold_no_more_than_the_cap_lets_them() -> None:
    cap = "srv    load_model: the slot context (8192) exceeds the training context of the model (2048) - capping"
    cache = "llama_kv_cache: size =  192.00 MiB (  8192 cells,  24 layers,  4/4 seqs), K (f16):   96.00 MiB"
    reader, _ = read(stamped(cache, cap, SLOTS.format(2048, "false")))
    assert reader.capacity.kv_pool_tokens == 4 * 2048
    assert not any("cache holds" in warn.text for warn in reader.warnings)


def test_a_single_slot_has_the_whole_pool() -> None:
    reader, _ = read(["Available slots:", " -> Slot 0 - max context: 6860"])
    assert (reader.capacity.lanes, reader.capacity.kv_pool_tokens) == (1, 6860)


def test_a_context_without_slots_tells_the_pool_alone() -> None:
    reader, _ = read(["llama_new_context_with_model: n_ctx      = 2048", "llama_new_context_with_model: n_batch = 512"])
    assert (reader.capacity.lanes, reader.capacity.kv_pool_tokens) == (None, 2048)


def test_a_log_without_its_boot_tells_the_slot_by_its_prompts() -> None:
    prompt = "slot   operator(): id  0 | task 7 | new prompt, n_ctx_slot = 4096, n_keep = 4, task.n_tokens = 2277"
    reader, _ = read([prompt])
    assert (reader.capacity.max_context, reader.capacity.kv_pool_tokens) == (4096, None)
    assert reader.capacity.lines["max_context"] == 1


def test_stamped_lines_of_builds_that_start_in_init_are_read() -> None:
    reader, _ = read(stamped("srv          init: initializing, n_slots = 2, n_ctx_slot = 512, kv_unified = 'false'"))
    assert (reader.capacity.lanes, reader.capacity.kv_pool_tokens) == (2, 1024)


def test_json_of_2024_may_begin_with_its_function() -> None:
    lines = [
        '{"function":"initialize","level":"INFO","line":444,"msg":"initializing slots","n_slots":2,"timestamp":17}',
        '{"function":"initialize","level":"INFO","line":456,"msg":"new slot","n_ctx_slot":128,"slot_id":0}',
        '{"function":"initialize","level":"INFO","line":456,"msg":"new slot","n_ctx_slot":128,"slot_id":1}',
    ]
    reader, _ = read(lines)
    assert (reader.capacity.lanes, reader.capacity.max_context) == (2, 128)


def test_a_draft_model_of_2024_is_not_the_target() -> None:
    def context(tokens: int, size: str) -> list[str]:
        name = "llama_new_context_with_model"
        return [
            f"{name}: n_seq_max     = 1",
            f"{name}: n_ctx         = {tokens}",
            f"llama_kv_cache_init:      ROCm0 KV buffer size = {size} MiB",
            f"{name}: KV self size  = {size} MiB, K (f16): 1.00 MiB, V (f16): 1.00 MiB",
        ]

    lines = [
        *context(16384, "4096.00"),
        "srv    load_model: loading draft model '/m/d.gguf'",
        *context(4096, "144.00"),
        "srv          init: initializing slots, n_slots = 1",
        "slot         init: id  0 | task -1 | new slot n_ctx_slot = 16384",
    ]
    reader, _ = read(lines)
    assert (reader.capacity.kv_pool_tokens, reader.capacity.max_context) == (16384, 16384)
    assert reader.capacity.kv_bytes == 4096 << 20
    assert any("144 MiB" in text for text in reader.capacity.explain)
    assert not reader.warnings


def test_timings_of_the_library_are_a_request_whose_runs_leave_out_the_first_token() -> None:
    name = "llama_print_timings"
    lines = [
        f"{name}:        load time =    8317.76 ms",
        f"{name}:      sample time =     107.35 ms /   396 runs   (    0.27 ms per token,  3688.73 tokens per second)",
        f"{name}: prompt eval time =     444.18 ms /   800 tokens (    0.56 ms per token,  1801.07 tokens per second)",
        f"{name}:        eval time =    5922.50 ms /   395 runs   (   14.99 ms per token,    66.69 tokens per second)",
        f"{name}:       total time =    6636.47 ms",
    ]
    reader, records = read(lines * 2)
    assert [r.kind for r in records] == ["request", "request"]
    fields = records[0].fields
    assert (fields["output_tokens"], fields["new_tokens"], fields["total_ms"]) == (396, 800, 6636.47)
    assert fields["tpot_ms"] == pytest.approx(5922.5 / 395)
    assert not reader.warnings


# ------------------------------------------------------------------------------------------------------ a full pool

NO_ROOM = "decode: failed to find a memory slot for batch of size 64"
PURGED = "srv  try_clear_id: purging slot 0 with 900 tokens"
CLEARED = "slot prompt_clear: id  0 | task -1 | clearing prompt with 900 tokens"
ENDED = "Context size has been exceeded."
NEW_SLOTS = SLOTS.format(512, "true")


def retry(size: int) -> str:
    return f"srv  update_slots: failed to find free space in the KV cache, retrying, n_batch = {size}"


def test_dropping_an_idle_slots_cache_is_no_full_pool() -> None:
    lines = stamped(NEW_SLOTS, NO_ROOM, PURGED, CLEARED, retry(64), "srv  update_slots: all slots are idle", level="W")
    reader, records = read(lines)
    assert [r for r in records if r.kind == "error"] == []
    assert ["1 idle slot had cached" in warn.text for warn in reader.warnings if warn.line == 2] == [True]


def test_a_pool_that_stays_full_after_that_is_one_incident() -> None:
    lines = stamped(NEW_SLOTS, NO_ROOM, PURGED, CLEARED, retry(64), NO_ROOM, retry(32), "srv  x: on", level="W")
    (record,) = [r for r in read(lines)[1] if r.kind == "error"]
    assert (record.line, record.fields["retries"], record.fields.get("failed")) == (2, 2, None)
    assert "-no-kvu" in record.fields["hint"]


def test_requests_ended_by_a_full_pool_are_one_incident_whatever_line_comes_first() -> None:
    lines = [
        *stamped(NEW_SLOTS),
        *stamped(NO_ROOM, retry(64), level="W"),
        *stamped(f"srv    send_error: task id = 61, error: {ENDED}", level="E"),
        *stamped("slot      release: id  2 | task 61 | stop processing: n_tokens = 35, truncated = 0"),
        *stamped(f"srv    send_error: task id = 64, error: {ENDED}", level="E"),
        *stamped(f"srv  update_slots: decode() failed: {ENDED}", level="E"),
    ]
    records = read(lines)[1]
    (record,) = [r for r in records if r.kind == "error"]
    assert (record.line, record.fields["failed"], record.fields["tasks"]) == (2, True, [61, 64])
    log = Log()
    log.feed(lines)
    log.close()
    ceiling = log.reading().ceiling
    assert (ceiling.verdict, ceiling.confidence) == ("kv_pool", "medium")


def test_the_cure_names_one_pool_for_all_slots_only_where_there_is_one() -> None:
    old = ["update_slots : failed to find free space in the KV cache, retrying with smaller n_batch = 1"]
    (record,) = read(old)[1]
    assert record.fields["pool_exhausted"] is True
    assert "-no-kvu" not in record.fields["hint"]


# ----------------------------------------------------------------------------------------- requests that are refused

REFUSED = [
    ("input (596 tokens) is too large to process. increase the physical batch size (current batch size: 512)",
     "reject", "-ub", (596, 512)),
    ("input is too large to process, please increase the physical batch size", "reject", "-ub", (None, None)),
    ("input (9000 tokens) is larger than the max context size (8192 tokens). skipping", "reject", "-c", (9000, 8192)),
    ("Failed to initialize samplers: failed to parse grammar", "reject", "grammar", (None, None)),
    ("Compute error.", "error", "lines above", (None, None)),
    ("Invalid input batch.", "error", "--no-cache-prompt", (None, None)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "cure", "numbers"), REFUSED)
def test_a_refused_request_has_its_reason_its_numbers_and_a_cure(
    text: str, kind: str, cure: str, numbers: tuple[int | None, int | None]
) -> None:
    (record,) = read(stamped(f"srv    send_error: task id = 12, error: {text}", level="E"))[1]
    assert (record.kind, record.fields["task"]) == (kind, 12)
    assert cure in record.fields["hint"]
    assert (record.fields.get("prompt_tokens"), record.fields.get("limit_tokens")) == numbers


def test_the_end_of_a_prompt_is_no_clipped_line() -> None:
    done = "slot update_slots: id  0 | task 0 | prompt processing done, n_tokens = 1053, batch.n_tokens = 4"
    cut = "slot update_slots: id  0 | task 0 | prompt processing progress, n_tokens = 10"
    assert not read([done])[0].warnings
    assert [warn.line for warn in read([done, cut])[0].warnings] == [2]


def test_a_context_shift_of_2024_is_told() -> None:
    reader, _ = read(["slot 0: context shift - n_keep = 0, n_left = 6858, n_discard = 3429"])
    assert ["cut away" in warn.text for warn in reader.warnings] == [True]


# ------------------------------------------------------------------------------------------------------- other troubles


def test_a_projector_that_does_not_fit_is_not_a_wrong_model_path() -> None:
    lines = [
        "clip_init: failed to load model '/m/mmproj.gguf': load_hparams: unknown projector type: newkind",
        "mtmd_init_from_file: error: Failed to load CLIP model from /m/mmproj.gguf",
        "srv    load_model: failed to load multimodal model, '/m/mmproj.gguf'",
        "main: exiting due to model loading error",
    ]
    records = [r for r in read(["main: loading model", *lines])[1] if r.kind == "error"]
    assert records[0].fields["reason"] == "unknown projector type newkind"
    assert "--mmproj" in records[0].fields["hint"]
    assert failure(lines, 1)[0] == "unknown projector type newkind"


def test_a_fit_that_was_not_wanted_is_no_trouble() -> None:
    text = "common_fit_params: failed to fit params to free device memory: n_gpu_layers already set by user"
    assert [r for r in read(stamped(text, level="W"))[1] if r.kind in {"error", "oom"}] == []
    assert any("failed to fit" in warn.text for warn in read(stamped(text, level="W"))[0].warnings)


def test_a_device_out_of_memory_on_metal_is_out_of_memory() -> None:
    lines = [
        "ggml_metal_synchronize: error: command buffer 0 failed with status 5",
        "error: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
    ]
    assert "oom" in [r.kind for r in read(lines)[1]]


def test_a_path_of_windows_stays_whole_in_an_assertion() -> None:
    text = "D:\\a\\tools\\server.cpp:3797: GGML_ASSERT(!slot.prompt.tokens.has_x) failed"
    (record,) = read([text])[1]
    assert (record.kind, record.fields["reason"]) == ("crash", text)


def test_ctrl_c_echoed_by_a_terminal_does_not_hide_the_end() -> None:
    lines = ["main: model loaded", "^C^Csrv    operator(): operator(): cleaning up before exit..."]
    assert [(r.line, r.kind) for r in read(lines)[1]] == [(1, "ready"), (2, "exit")]


def test_a_router_tells_whose_capacity_it_is_and_which_model_died() -> None:
    def child(port: int, context: int) -> str:
        return f"[{port}] 0.01.000.000 I {SLOTS.format(context, 'false').replace('n_slots = 4', 'n_slots = 1')}"

    died = "0.09.000.000 I srv    operator(): instance name=b/m:Q4 exited with status {}"
    one, _ = read([child(40001, 1024)])
    assert not any("router" in text for text in one.capacity.explain)
    reader, records = read([child(40001, 1024), child(40002, 2048), died.format(0), died.format(139)])
    assert reader.capacity.kv_pool_tokens == 2048
    assert "[40002]" in reader.capacity.explain[0]
    told = [(r.line, r.kind, r.fields["reason"]) for r in records if r.kind == "error"]
    assert told == [(4, "error", "model instance b/m:Q4 exited with status 139")]


@pytest.mark.parametrize(
    "line",
    [
        "Jun 09 10:29:22 host llama-server[10]: [34605] 440.59.380.434 E   current device: 0, in function f",
        '[38957] cmd_child_to_router:state:{"state":"loading","payload":{"value":0.5}}',
        "/src/ggml/src/ggml-cuda/ggml-cuda.cu:103: CUDA error",
    ],
)
def test_one_line_of_the_server_is_known_by_its_stamp_or_its_source(line: str) -> None:
    assert sniff([line]) > 0.8


def test_other_numbers_with_dots_are_no_stamp() -> None:
    assert sniff(["2026-11-30 10:00:00.123 I something", "host 10.20.300.400 I am", "1.2.3 E flat"]) == 0


@pytest.mark.parametrize(
    "last",
    [
        "update_slots : failed to decode the batch, n_batch = 1, ret = 1",
        "srv  update_slots: failed to decode the batch: KV cache is full - try more, i = 0, n_batch = 1, ret = 1",
    ],
)
def test_older_builds_that_give_up_a_batch_end_every_request(last: str) -> None:
    first = "update_slots : failed to find free space in the KV cache, retrying with smaller n_batch = 1"
    _, (record,) = read([first, last])
    assert (record.kind, record.fields["failed"]) == ("error", True)
    assert "ended" in record.fields["reason"]


def test_a_server_of_2024_that_leaves_its_main_loop_has_crashed() -> None:
    _, records = read(
        [
            "[1704891429] update_slots : failed to decode the batch, n_batch = 1, ret = 1",
            "[1704891429] unexpected error in llama server update_slots - exiting main loop",
        ]
    )
    assert [record.kind for record in records] == ["error", "crash"]


def test_a_model_that_the_router_killed_is_told() -> None:
    line = "srv    operator(): force-killing model instance name=small-model after 10 seconds timeout"
    _, (record,) = read(stamped(line, level="W"))
    assert record.kind == "error"
    assert "small-model did not stop within 10 seconds" in record.fields["reason"]
    assert "--models-max" in record.fields["hint"]


@pytest.mark.parametrize(
    ("unified", "streams", "said"), [("true", 1, "one pool for all slots"), ("false", 2, "in equal shares")]
)
def test_a_cache_without_slots_is_told_in_words(unified: str, streams: int, said: str) -> None:
    reader, _ = read(
        [
            f"llama_context: kv_unified    = {unified}",
            f"llama_kv_cache: size =   64.00 MiB (  4096 cells,  16 layers,  2/{streams} seqs), K (f16):   32.00 MiB",
        ]
    )
    assert reader.capacity.kv_pool_tokens == 4096 * streams
    assert said in reader.capacity.explain[0]


def test_a_slot_line_glued_to_the_next_is_read() -> None:
    glued = (
        "slot         init: id  0 | task -1 | new slot n_ctx_slot = 2048          slot        reset: id  0 | task -1 |"
    )
    reader, _ = read(["srv          init: initializing slots, n_slots = 1", glued])
    assert (reader.capacity.lanes, reader.capacity.max_context) == (1, 2048)


def test_a_full_context_that_must_not_shift_has_a_cure() -> None:
    _, (record,) = read(["srv    send_error: task id = 9, error: context shift is disabled"])
    assert "--context-shift" in record.fields["hint"]
