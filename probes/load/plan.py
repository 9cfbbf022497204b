"""The requests of a measurement, the same prompts in the same order for every arm. Pure and light: no sockets, no loop.

A job is a plain JSON object, so that it can be handed to the load process as one line.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

from probes import engines
from probes.events import RequestDone
from probes.load.prompts import WARMUP, Prompt, load, select
from probes.recipe import Dial, Recipe

BURST_CHARS = 6e6
"""Letters that all prompts of a burst may have together: they travel as one line."""
WAVES = 40
"""Requests planned for each stream of a burst: it is cut long before they are all sent."""


def chat_body(prompt: Prompt, model_id: str, max_tokens: int, temperature: float, seed: int | None) -> dict[str, Any]:
    """A streaming chat completion that ends with its usage."""
    body: dict[str, Any] = {
        "model": model_id,
        "messages": [{"role": "user", "content": prompt.text}],
        "max_tokens": max_tokens,
        "temperature": temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if seed is not None:
        body["seed"] = seed
    return body


def plan_requests(
    recipe: Recipe,
    depth: int | None,
    restart: int,
    block: int,
    model_id: str,
    seed: int | None,
    *,
    warmups: int = 1,
    offset: int = 0,
) -> list[dict[str, Any]]:
    """The requests of one block at one depth: `warmups` flagged ones first, then the recipe's workload.

    Categories take turns (code, story, translation, structured, code, …), so that a drift of the machine meets all
    alike. `offset` prompts of each category are passed over, so that later blocks bring new content; the list starts
    anew at its end. Raises `Refused` when the workload asks for more prompts than there are.
    """
    work = recipe.workload
    engine = engines.engine(recipe.engine)
    prompts = {name: turned(texts, offset) for name, texts in load(work.prompts_file).items()}
    chosen = select(prompts, work.categories, work.prompts_per_category)
    found: list[dict[str, Any]] = []
    for warm, prompt in [*((True, WARMUP) for _ in range(warmups)), *((False, prompt) for prompt in chosen)]:
        body = chat_body(prompt, model_id, work.max_tokens, work.temperature, seed)
        body |= work.extra
        if warm:
            body["max_tokens"] = min(work.max_tokens, 32)
        labels = {"depth": depth, "restart": restart, "block": block, "warmup": warm}
        labels["step_drafts"] = engine.step_drafts(recipe, depth)
        name = f"r{restart}-b{block}-{prompt.id}" + (f"-{len(found) + 1}" if warm and warmups > 1 else "")
        found.append(entry(name, prompt, engine.request(body, recipe, depth), labels))
    return found


WORDS = ("amber", "basin", "cedar", "delta", "ember", "fjord", "grove", "inlet", "kelp", "lagoon", "meadow", "oasis")
FILLER_CHARS = 4.2
"""Letters that one token of such a text stands for, about."""
NEVER_ENDS = frozenset({"vllm", "llamacpp"})
"""Engines on which a request may say that it must not end by itself, without being admitted by other rules for it."""


def plan_burst(
    recipe: Recipe, burst: Any, depth: int | None, restart: int, block: int, model_id: str
) -> list[dict[str, Any]]:
    """Requests that only fill the server: prompts of a given length that share no beginning, in any number of waves."""
    engine = engines.engine(recipe.engine)
    found: list[dict[str, Any]] = []
    size = burst.streams * burst.prompt_tokens * FILLER_CHARS
    for n in range(burst.streams * max(1, min(WAVES, int(BURST_CHARS / size)))):
        chance = random.Random(f"burst/{restart}/{block}/{n}")
        ask = f"{chance.getrandbits(40):x}: count upwards in words from {n + 1}, one number a line, and never stop."
        room = int(burst.prompt_tokens * FILLER_CHARS) - len(ask)
        filler = " ".join(chance.choices(WORDS, k=max(0, room // 6))) if room > 6 else ""
        prompt = Prompt(f"burst-{n + 1}", "burst", f"{ask} {filler}".strip())
        body = chat_body(prompt, model_id, burst.max_tokens, recipe.workload.temperature, None)
        body |= recipe.workload.extra
        if recipe.engine in NEVER_ENDS:
            body["ignore_eos"] = True
        labels = {"depth": depth, "restart": restart, "block": block, "warmup": False}
        found.append(entry(f"r{restart}-b{block}-{prompt.id}", prompt, engine.request(body, recipe, depth), labels))
    return found


def turned(prompts: list[Prompt], offset: int) -> list[Prompt]:
    """The list from its `offset`-th on, around its end."""
    start = offset % len(prompts)
    return prompts[start:] + prompts[:start]


def entry(name: str, prompt: Prompt, body: Mapping[str, Any], labels: Mapping[str, Any]) -> dict[str, Any]:
    """One request of a job."""
    return {
        "id": name,
        "prompt_id": prompt.id,
        "prompt_hash": prompt.hash,
        "category": prompt.category,
        "max_tokens": body.get("max_tokens", 0),
        "body": dict(body),
        **labels,
    }


def plan_job(
    recipe: Recipe,
    url: str,
    requests: list[dict[str, Any]],
    *,
    concurrency: int | None = None,
    known: Iterable[RequestDone] = (),
) -> dict[str, Any]:
    """The job that sends these requests to the server at `url` (scheme, host and port).

    `known`: requests that ended, for the length of prompts that the server has counted before.
    """
    lengths = {r.prompt_hash: r.prompt_tokens for r in known if r.prompt_tokens is not None}
    requests = [{**r, "prompt_tokens": lengths.get(str(r.get("prompt_hash")))} for r in requests]
    return {
        "url": url,
        "engine": recipe.engine,
        "concurrency": concurrency or recipe.workload.concurrency,
        "bearer_env": recipe.api_key_env,
        "timeout_s": recipe.limits.request_s / recipe.speed,
        "requests": requests,
    }


def bare_recipe(engine: str, model: str) -> Recipe:
    """A recipe that names only an engine and a model, for load without a preset."""
    return Recipe(name="load", engine=engine, binary="", model=model, dial=Dial(kind="", values=(0,)))
