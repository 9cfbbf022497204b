"""llama-server's command line, counters, replies, flags in force and failed starts."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.engines import Engine, engine
from probes.engines._llamacpp_flags import canonical, flags_of
from probes.engines._llamacpp_knobs import KNOBS, NEGATED
from probes.engines.llamacpp import ENGINE
from probes.events import Record
from probes.recipe import Dial, Recipe, Refused, Workload

ALWAYS = ["-lv", "4", "--metrics", "--sse-ping-interval", "1"]


def preset(kind: str = "draft-simple", **more: Any) -> Recipe:
    dial_flags = more.pop("dial_flags", {"-md": "d.gguf"} if kind == "draft-simple" else {})
    return Recipe(
        name="x", engine="llamacpp", binary="llama-server", model="m.gguf",
        dial=Dial(kind, (0, 4), flags=dial_flags), flags=more.pop("flags", {"-c": 2048, "-np": 1}), **more,
    )  # fmt: skip


def test_is_an_engine() -> None:
    found: object = engine("llamacpp")
    assert found is ENGINE
    assert isinstance(found, Engine)
    assert ENGINE.ready_path() == "/health"


# ------------------------------------------------------------------------------------------------- argv


@pytest.mark.parametrize(
    ("kind", "depth", "dial_flags", "words"),
    [
        ("draft-simple", 0, {"-md": "d.gguf"}, "--spec-type none"),
        ("draft-simple", 4, {"-md": "d.gguf"}, "--spec-type draft-simple -md d.gguf --spec-draft-n-max 4"),
        ("draft-eagle3", 2, {"-md": "e.gguf"}, "--spec-type draft-eagle3 -md e.gguf --spec-draft-n-max 2"),
        ("draft-mtp", 3, {}, "--spec-type draft-mtp --spec-draft-n-max 3"),
        (
            "ngram-simple", 3, {"--spec-ngram-simple-size-n": 3},
            "--spec-type ngram-simple --spec-ngram-simple-size-n 3 --spec-ngram-simple-size-m 3",
        ),
        ("ngram-map-k", 8, {}, "--spec-type ngram-map-k --spec-ngram-map-k-size-m 8"),
        ("ngram-mod", 16, {}, "--spec-type ngram-mod --spec-ngram-mod-n-max 16"),
        ("ngram-cache", 8, {}, "--spec-type ngram-cache"),
        (
            "draft-simple,ngram-map-k", 2, {"-md": "d.gguf"},
            "--spec-type draft-simple,ngram-map-k -md d.gguf --spec-draft-n-max 2",
        ),
        ("draft-max", 5, {"-md": "d.gguf"}, "-md d.gguf --draft-max 5"),
        ("draft-max", 0, {"-md": "d.gguf"}, ""),
    ],
)  # fmt: skip
def test_argv_of_a_depth(kind: str, depth: int, dial_flags: Mapping[str, Any], words: str) -> None:
    argv = ENGINE.command(preset(kind, dial_flags=dial_flags), {}, depth, 8123)
    head = ["llama-server", "-m", "m.gguf", "--host", "127.0.0.1", "--port", "8123", "-c", "2048", "-np", "1"]
    assert argv == [*head, *words.split(), *ALWAYS]


@given(st.sampled_from(["draft-simple", "draft-mtp", "ngram-simple", "ngram-mod"]), st.integers(0, 40))
def test_depth_0_is_never_a_length_of_0(kind: str, depth: int) -> None:
    legal = ENGINE.dial_range(preset(kind).dial) or (1, depth)
    if depth and not legal[0] <= depth <= legal[1]:
        with pytest.raises(Refused):
            ENGINE.command(preset(kind), {}, depth, 1)
        return
    argv = ENGINE.command(preset(kind), {}, depth, 1)
    told = flags_of(argv)
    assert (told["--spec-type"] == "none") == (depth == 0)
    lengths = [v for k, v in told.items() if k.endswith(("-n-max", "-size-m"))]
    assert lengths == ([str(depth)] if depth else [])


def test_without_a_dial_the_flags_speak() -> None:
    recipe = preset(flags={"--spec-type": "draft-mtp", "-md": "d.gguf"})
    assert ENGINE.command(recipe, {}, None, 1)[7:] == ["--spec-type", "draft-mtp", "-md", "d.gguf", *ALWAYS]


def test_the_preset_may_say_otherwise() -> None:
    flags = {
        "--verbosity": 5,
        "--sse-ping-interval": 30,
        "--metrics": True,
        "-hf": "org/model",
        "-ot": ["a=CPU", "b=CPU"],
    }
    argv = ENGINE.command(preset(flags=flags), {}, 0, 1)
    assert argv.count("--metrics") == 1
    assert "-lv" not in argv
    assert "-m" not in argv
    assert [argv[i + 1] for i, word in enumerate(argv) if word == "-ot"] == ["a=CPU", "b=CPU"]
    assert flags_of(argv)["--sse-ping-interval"] == "30"


def test_a_knob_replaces_a_flag_of_any_spelling() -> None:
    recipe = preset(flags={"--parallel": 1, "-no-kvu": True, "-c": 512})
    argv = ENGINE.command(recipe, {"parallel": 4, "kv_unified": True, "ctx": 4096, "mmap": False}, 0, 1)
    told = flags_of(argv)
    assert (told["--parallel"], told["--ctx-size"], told["--kv-unified"]) == ("4", "4096", True)
    assert [word for word in argv if canonical(word) in {"--parallel", "--kv-unified", "--ctx-size"}] == [
        "-np", "-kvu", "-c",
    ]  # fmt: skip
    assert "--no-mmap" in argv


def test_settings_of_the_preset_are_starting_values() -> None:
    recipe = preset(settings={"batch": 256, "ubatch": 128})
    assert flags_of(ENGINE.command(recipe, {"batch": 512}, 0, 1))["--batch-size"] == "512"


def test_speculation_knobs_are_left_out_at_depth_0() -> None:
    assert not [w for w in ENGINE.command(preset(), {"draft_p_min": 0.5}, 0, 1) if w.startswith("--spec-draft")]
    assert "--spec-draft-p-min" in ENGINE.command(preset(), {"draft_p_min": 0.5}, 2, 1)


@pytest.mark.parametrize(
    ("recipe", "settings", "depth", "said"),
    [
        (preset("ngram-simple"), {}, 8, "legal 12..1024 or 0, nearest 12"),
        (preset("ngram-simple"), {"ngram_size_n": 4}, 3, "size-m >= size-n"),
        (preset("ngram-mod"), {}, 2000, "1..1024 or 0 for none; nearest 1024"),
        (preset("ngram-cache"), {}, 4, "nearest 8"),
        (preset(dial_flags={}), {}, 2, "needs a draft model"),
        (preset(), {}, -1, "nearest 0"),
        (preset("medusa"), {}, 1, "draft-simple, draft-eagle3"),
        (preset(flags={"--spec-type": "none"}), {}, 1, "set by the dial"),
        (preset(flags={"--port": 1}), {}, 1, "`port:` of the preset"),
        (preset(flags={"--model-draft": "d.gguf"}), {}, 0, "belongs in `dial.flags`"),
        (preset(flags={"--draft-max": 4}), {}, 0, "has removed --draft-max"),
        (preset(), {"ubatch": 4096}, 0, "nearest 2048"),
        (preset(), {"poll": 101}, 0, "legal 0..100, nearest 100"),
        (preset(), {"cache_type_k": "q9"}, 0, "legal: f32, f16"),
        (preset(), {"kv_unified": "yes"}, 0, "true or false"),
        (preset(), {"parallel": 1.5}, 0, "a whole number"),
        (preset(), {"cache_type_v": "q8_0", "flash_attn": "off"}, 0, "needs flash attention"),
        (preset(), {"nonsense": 1}, 0, "no knob 'nonsense'"),
    ],
)
def test_refuses_with_the_rule_and_what_is_legal(
    recipe: Recipe, settings: Mapping[str, Any], depth: int, said: str
) -> None:
    with pytest.raises(Refused, match=re.escape(said)) as caught:
        ENGINE.command(recipe, settings, depth, 1)
    assert "\n" not in str(caught.value)


def test_dial_ranges() -> None:
    assert ENGINE.dial_range(Dial("draft-simple", (0, 1))) is None
    assert ENGINE.dial_range(Dial("ngram-simple", (0, 4), flags={"--spec-ngram-simple-size-n": 4})) == (4, 1024)
    assert ENGINE.dial_range(Dial("ngram-mod", (0, 4))) == (1, 1024)


@pytest.mark.llama
def test_the_real_server_knows_every_knob() -> None:
    binary = Path(__file__).resolve().parents[2] / ".venv" / "bin" / "llama-server-vulkan"
    if not binary.exists():
        pytest.skip("the demo's server is installed elsewhere")
    out = subprocess.run([str(binary), "--help"], capture_output=True, text=True, timeout=60, check=False).stdout
    words = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", out))
    assert [knob.flag for knob in KNOBS if knob.flag not in words] == []
    assert [flag for flag in NEGATED.values() if flag not in words] == []


# ------------------------------------------------------------------------------------------------- HTTP


def test_metrics_in_canonical_names() -> None:
    found = ENGINE.metrics(
        "# TYPE llamacpp:prompt_tokens_total counter\nllamacpp:prompt_tokens_total 111\n"
        "llamacpp:predicted_tokens_seconds 22.5\nllamacpp:requests_processing 2\nllamacpp:requests_deferred 3\n"
        "llamacpp:tokens_predicted 120\nllamacpp:n_busy_slots_per_decode nan\nllamacpp:kv_cache_usage_ratio 0.25\n"
        "llamacpp:spec_decode_num_draft_tokens_total 81\n"
        'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 7\n'
        'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 9\nother_metric 5\n'
    )
    assert found == {
        "total_prompt_tokens": 111, "lifetime_gen_tps": 22.5, "running": 2, "waiting": 3, "total_output_tokens": 120,
        "kv_usage": 0.25, "total_drafted": 81, "total_accepted_per_position": [9, 7],
    }  # fmt: skip


TIMINGS = {
    "cache_n": 0, "prompt_n": 37, "prompt_ms": 961.631, "predicted_n": 40, "predicted_ms": 1874.173,
    "predicted_per_token_ms": 46.854325, "draft_n": 31, "draft_n_accepted": 29,
}  # fmt: skip


def test_reply_divides_by_tokens_after_the_first() -> None:
    found = ENGINE.reply({"timings": TIMINGS, "usage": {"completion_tokens": 40}})
    assert found == {
        "drafted": 31, "accepted": 29, "cached_tokens": 0, "server_ttft_ms": 961.631,
        "server_tpot_ms": pytest.approx(1874.173 / 39),
    }  # fmt: skip


def test_reply_without_drafts_or_timings_says_nothing_of_them() -> None:
    plain = {k: v for k, v in TIMINGS.items() if not k.startswith("draft")}
    assert not {"drafted", "accepted"} & set(ENGINE.reply({"timings": plain}))
    assert ENGINE.reply({"usage": {"prompt_tokens_details": {"cached_tokens": 5}}}) == {"cached_tokens": 5}
    assert ENGINE.reply({"timings": {**TIMINGS, "predicted_n": 1}}).get("server_tpot_ms") is None


@given(st.dictionaries(st.sampled_from(list(TIMINGS)), st.none() | st.integers() | st.floats() | st.text(max_size=3)))
def test_reply_survives_any_timings(timings: dict[str, Any]) -> None:
    found = ENGINE.reply({"timings": timings, "usage": None})
    assert all(value is not None for value in found.values())


def test_request_asks_for_timings_and_no_cache() -> None:
    recipe = preset(workload=Workload(extra={"seed": 5}))
    sent = ENGINE.request({"stream": True, "messages": []}, recipe, 2)
    assert (sent["cache_prompt"], sent["timings_per_token"], sent["seed"]) == (False, True, 5)
    assert sent["stream_options"] == {"include_usage": True}
    assert "stream_options" not in ENGINE.request({"stream": False}, recipe, 0)


# ------------------------------------------------------------------------------------------------- flags in force


def replies(**change: Any) -> dict[str, Any]:
    slot = {"id": 0, "n_ctx": 2048, "speculative": change.pop("speculative", True)}
    props: dict[str, Any] = {
        "total_slots": 1,
        "model_path": "m.gguf",
        "default_generation_settings": {"n_ctx": 2048},
    } | change
    return {"/props": props, "/slots": [slot] * props["total_slots"], "/v1/models": {}}


def boots(depth: int, kind: str = "draft-simple") -> list[Record]:
    return [Record(1, "boot", {"spec_type": kind}), Record(2, "boot", {"spec_type": kind, "depth": depth})]


def test_flags_in_force_are_proven() -> None:
    found = ENGINE.in_force(preset(), {}, 4, replies(), boots(4))
    assert (found.proven, found.notes, found.asked["depth"]) == (True, (), 4)
    off = ENGINE.in_force(preset(), {}, 0, replies(speculative=False), [])
    assert (off.proven, off.in_force["depth"]) == (True, 0)


@pytest.mark.parametrize(
    ("depth", "told", "records", "note"),
    [
        (4, replies(), boots(3), "depth: asked 4, in force 3"),
        (4, replies(), [], "depth: asked 4, the server does not say"),
        (4, replies(speculative=False), boots(4), "speculative: asked True, in force False"),
        (0, replies(), boots(4), "speculative: asked False, in force True"),
        (4, replies(model_path="old.gguf"), boots(4), "model: asked m.gguf, in force old.gguf"),
        (4, replies(total_slots=2), boots(4), "lanes: asked 1, in force 2"),
        (4, replies(default_generation_settings={"n_ctx": 1024}), boots(4), "ctx: asked 2048, in force 1024"),
        (4, {}, boots(4), "ctx: asked 2048, the server does not say"),
    ],
)
def test_flags_that_did_not_take_are_named(depth: int, told: dict[str, Any], records: list[Record], note: str) -> None:
    found = ENGINE.in_force(preset(), {}, depth, told, records)
    assert not found.proven
    assert note in found.notes


def test_context_rounded_up_is_noted_and_proven() -> None:
    recipe = preset(flags={"-c": 300, "-np": 1})
    found = ENGINE.in_force(recipe, {}, 0, replies(speculative=False, default_generation_settings={"n_ctx": 512}), [])
    assert found.proven
    assert found.notes == ("ctx: asked 300, rounded up to 512 (multiples of 256 cells)",)


# ------------------------------------------------------------------------------------------------- failed starts


@pytest.mark.parametrize(
    ("lines", "code", "reason", "hint"),
    [
        (["error: invalid argument: --no-such-flag"], 1, "error: invalid argument: --no-such-flag", "does not know"),
        (
            ['error while handling argument "-ctk": Unsupported cache type: q9', "usage:", "-ctk,  --cache-type-k"],
            1, 'error while handling argument "-ctk": Unsupported cache type: q9', "value of -ctk",
        ),
        (
            ['error while handling argument "--draft-max": the argument has been removed. use --spec-draft-n-max or x'],
            1, "error while handling argument", "use --spec-draft-n-max",
        ),
        (
            ["0.00.005.980 E srv         start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8232",
             "0.00.006.066 E srv  llama_server: exiting due to HTTP server error"],
            1, "could not bind", "choose another port",
        ),
        (
            ["0.00.037.881 E gguf_init_from_file: failed to open GGUF file 'missing.gguf' (No such file or directory)",
             "0.00.038.015 E srv    load_model: failed to load model, 'missing.gguf'"],
            1, "model file missing.gguf can't be opened", "check the path",
        ),
        (
            ["3.02.199.202 E ggml_cuda: allocating 4480.00 MiB on device 3: cudaMalloc failed: out of memory",
             "3.02.199.205 E llama_kv_cache_init: failed to allocate buffer for kv cache",
             "3.02.792.354 E srv  load_model: failed to load model, 'x.gguf'"],
            1, "allocating 4480.00 MiB on device 3", "lower -c",
        ),
        (
            ["1.06.520.077 E ggml_cuda: allocating 51748.72 MiB on device 1: cudaMalloc failed: out of memory",
             "1.06.520.107 W sched_reserve: compute buffer allocation failed, retrying without pipeline parallelism"],
            -9, "SIGKILL", "out-of-memory killer",
        ),
        (
            ["0.00.241.343 W srv load_model: [spec] failed to measure MTP context memory: failed to create x",
             "0.00.667.332 E common_speculative_init_result: failed to create MTP context",
             "0.00.668.072 E srv  llama_server: exiting due to model loading error"],
            1, "no MTP head", "another kind",
        ),
        (["x.cpp:2232: GGML_ASSERT(n_outputs_max <= cparams.n_outputs_max) failed"], -6, "n-max 0", "--spec-type none"),
        ([], -11, "segmentation fault", "no draft model"),
        ([], 132, "illegal instruction", "another CPU"),
    ],
)  # fmt: skip
def test_a_failed_start_has_its_first_cause(lines: list[str], code: int, reason: str, hint: str) -> None:
    found = ENGINE.failure(lines, code)
    assert found[0] is not None
    assert found[1] is not None
    assert reason in found[0]
    assert hint in found[1]


def test_nothing_recognised_is_said_so() -> None:
    assert ENGINE.failure(["hello"], 1) == (None, None)


@given(st.lists(st.text(max_size=120), max_size=12), st.none() | st.integers(-70, 300))
def test_any_failure_is_survived(lines: list[str], code: int | None) -> None:
    reason, _ = ENGINE.failure(lines, code)
    assert reason is None or "\n" not in reason
