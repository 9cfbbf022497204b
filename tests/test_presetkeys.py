from __future__ import annotations

import pytest

from probes import preset
from probes.recipe import Refused

GOOD = """\
engine: llamacpp
binary: llama-server
model: m.gguf
dial: {kind: ngram-mod, values: 0-4}
"""


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("flags: {--foo: .nan}", "flags.--foo: must be a text, a number, true"),
        ("flags: {--foo: []}", "flags.--foo: must be a text, a number, true"),
        ("flags: {--foo: 2024-01-01}", "flags.--foo: must be a text, a number, true"),
        ("flags: {--: 1}", "flags.--: a flag starts with '-'"),
        ("env: {A: [1]}", "env.A: must be a text or a number"),
        ("env: {A: yes}", "env.A: must be a text or a number; put quotes"),
        ("env: {A: null}", "env.A: must be a text or a number"),
        ("env: {'A=B': 1}", "env.A=B: is no name of an environment variable"),
        ("env: {'': 1}", "is no name of an environment variable"),
        ("env: {<<: {A: 1}}", "env.<<: is no name of an environment variable"),
        ("host: http://127.0.0.1", "host: must be a name or an address alone"),
        ("host: '127.0.0.1:80'", "host: must be a name or an address alone"),
        ("host: '[::1]'", "host: must be a name or an address alone"),
        ("host: -x", "host: must be a name or an address alone"),
        ("port: '8000'", "port: must be auto or a whole number from 1 to 65535"),
        ("port: true", "port: must be auto or a whole number from 1 to 65535"),
        ("workload: {categories: [code, code]}", "workload.categories[1]: is named twice"),
        ("workload: {extra: {a: 2024-01-01}}", "workload.extra.a: must be what JSON can say"),
        ("workload: {extra: {a: [.inf]}}", "workload.extra.a: must be what JSON can say"),
        ("workload: {extra: {a: {1: 2}}}", "workload.extra.a: must be what JSON can say"),
        ("workload: {extra: {a: 99999999999999999999999}}", "workload.extra.a: must be what JSON can say"),
        ("workload: {extra: {stream: false}}", "workload.extra.stream: is set by the measurement"),
        ("simulated: true", "simulated: only binary '@sim' is simulated: must be false"),
        ("simulation: {speed: 2}", "simulation: is only for binary: '@sim'"),
        ("launcher_options: []", "launcher_options: must be a mapping"),
        ("launcher_options: {image: x}", "launcher_options: launcher_options without a launcher"),
        ("launcher: docker", "launcher: launcher docker needs launcher_options.image"),
        ("limits: {boot_s: .inf}", "limits.boot_s: must be a number from 0.1 to 86400"),
    ],
)
def test_a_key_that_cannot_be_is_refused_at_its_place(line: str, complaint: str) -> None:
    with pytest.raises(Refused) as caught:
        preset.parse(GOOD + line + "\n", "x.yaml")
    assert str(caught.value).startswith("x.yaml:5: ")
    assert complaint in str(caught.value)


def test_a_model_is_no_option() -> None:
    with pytest.raises(Refused, match=r"x.yaml:3: model: must be a path or a name, not the option '--help'"):
        preset.parse(GOOD.replace("m.gguf", "--help"), "x.yaml")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "::1", "fe80::1%eth0", "localhost", "my-host.example.org"])
def test_addresses(host: str) -> None:
    assert preset.parse(GOOD + f"host: '{host}'\n", "x.yaml").host == host


def test_what_is_odd_and_fine() -> None:
    text = GOOD + "env: {A: 1, B: 0.5, CUDA_VISIBLE_DEVICES: '0,1', C: ''}\n"
    text += "flags: {--a: [1, b], -c: true, --d: '$(id)'}\n"
    recipe = preset.parse(text + "workload: {extra: {seed: 7, stop: [x], 1: {a: [null, true]}}}\n", "x.yaml")
    assert recipe.env == {"A": "1", "B": "0.5", "CUDA_VISIBLE_DEVICES": "0,1", "C": ""}
    assert recipe.flags == {"--a": [1, "b"], "-c": True, "--d": "$(id)"}
    assert recipe.workload.extra == {"seed": 7, "stop": ["x"], "1": {"a": [None, True]}}
