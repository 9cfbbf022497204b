"""The sweep: every depth in every block, in an order drawn from a logged seed, with the same prompts in every arm."""

from __future__ import annotations

import random
from collections.abc import Sequence

from probes.measure.steps import Measure, Plan

SEED = 20261


def order(depths: Sequence[int], block: int, seed: int = SEED) -> list[int]:
    """The order of the depths in one block: a random permutation, the same for the same seed and block.

    Two arms go AB, BA, AB, … so that a steady drift cancels.
    """
    if len(depths) == 2:
        return list(depths) if block % 2 == 0 else list(reversed(depths))
    shuffled = list(depths)
    random.Random(f"{seed}/{block}").shuffle(shuffled)
    return shuffled


def sweep(depths: Sequence[int], rounds: int, prompts: int, seed: int = SEED) -> Plan:
    """`rounds` blocks of one restart a depth; later blocks bring new prompts, since repeats are no replicates."""
    for block in range(rounds):
        for depth in order(depths, block, seed):
            yield Measure(
                depth=depth,
                block=block,
                offset=block * prompts,
                prompts=prompts,
                why=f"block {block + 1}, depth {depth}",
            )
