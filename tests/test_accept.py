"""What each engine refuses of a preset before a start, where it would have been overridden or dropped in silence."""

from __future__ import annotations

import pytest

from probes import preset
from probes.recipe import Refused

DRAFT = "--speculative-draft-model-path: d"


@pytest.mark.parametrize(
    ("engine", "dial", "more", "complaint"),
    [
        ("ninfer", "{kind: mtp, values: 0-5, flags: {--draft-tokens: 2}}", "", "--draft-tokens is what the dial sets"),
        ("ninfer", "{kind: mtp, values: 0-5, flags: {--spec: dflash}}", "", "--spec is what the dial sets"),
        (
            "vllm",
            """{kind: ngram, values: 0-2, flags: {
              --speculative-config.prompt_lookup_max: 5, --speculative-config: '{"prompt_lookup_max": 4}'}}""",
            "",
            "prompt_lookup_max is given as 5 and as 4",
        ),
        ("vllm", f"{{kind: ngram, values: 0-2, flags: {{--speculative-config: '{'[' * 5000}'}}}}", "", "is no JSON"),
        (
            "sglang",
            f"{{kind: EAGLE3, values: 0-2, flags: {{{DRAFT}}}}}",
            "flags: {--speculative-use-rejection-sampling: true, --speculative-accept-threshold-single: high}",
            "both accept thresholds at 1.0",
        ),
    ],
)
def test_what_would_be_overridden_in_silence_is_refused(engine: str, dial: str, more: str, complaint: str) -> None:
    text = f"engine: {engine}\nbinary: b\nmodel: m\ndial: {dial}\n{more}\n"
    recipe = preset.parse(text, "x.yaml")
    with pytest.raises(Refused) as caught:
        preset.accept(recipe, recipe.dial.values)
    assert complaint in str(caught.value)
