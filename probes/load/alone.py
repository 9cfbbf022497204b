"""Load without a lab: options become a job, its records go to a file, and a summary goes to stderr."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from probes.events import RequestDone, RequestSent
from probes.load.ask import ask
from probes.load.facts import median
from probes.load.jobs import Order, build, carry_out, line, secret_headers, write_all
from probes.load.plan import bare_recipe, chat_body, entry
from probes.load.prompts import WARMUP, Prompt, load, select
from probes.load.wire import target
from probes.recipe import Refused


def pairs(values: Sequence[str]) -> dict[str, str]:
    """`HEADER=VARIABLE` options as a mapping. Raises `Refused`."""
    found = {}
    for value in values:
        name, mark, variable = value.partition("=")
        if not mark or not name or not variable:
            raise Refused(f"--header-env {value!r}: want HEADER=VARIABLE, the value stays in the environment")
        found[name] = variable
    return found


def chosen(path: str | None, categories: str | None) -> list[Prompt]:
    """All prompts of the categories, taking turns, as many as the shortest category has."""
    prompts = load(path)
    wanted = [name.strip() for name in categories.split(",")] if categories else list(prompts)
    for name in wanted:
        if name not in prompts:
            raise Refused(f"--categories: {name!r} is not among {', '.join(prompts)}")
    return select(prompts, wanted, min(len(prompts[name]) for name in wanted))


def order(options: Mapping[str, Any], model: str) -> Order:
    """The job that the options describe: the prompts in their order, from the start again when `n` is larger."""
    prompts = chosen(options["prompts"], options["categories"])
    engine = None if options["engine"] == "generic" else options["engine"]
    labels = {key: options[key] for key in ("depth", "restart", "block")}
    entries = []

    def add(name: str, prompt: Prompt, limit: int, *, warm: bool) -> None:
        body = chat_body(prompt, model, limit, options["temperature"], options["seed"])
        if engine is not None:
            from probes import engines

            body = engines.engine(engine).request(body, bare_recipe(engine, model), options["depth"])
        entries.append(entry(name, prompt, body, {**labels, "warmup": warm}))

    for place in range(options["warmup"]):
        add(f"warmup-{place + 1}", WARMUP, min(32, options["max_tokens"]), warm=True)
    for place in range(options["n"]):
        lap, index = divmod(place, len(prompts))
        prompt = prompts[index]
        add(prompt.id if lap == 0 else f"{prompt.id}.{lap + 1}", prompt, options["max_tokens"], warm=False)
    return msgspec.convert(
        {
            "url": options["url"],
            "requests": entries,
            "concurrency": options["concurrency"],
            "timeout_s": options["timeout"],
            "retries": options["retries"],
            "engine": engine,
            "header_env": pairs(options["header_env"]),
        },
        Order,
    )


async def first_model(url: str, header_env: Mapping[str, str], timeout_s: float = 3.0) -> str | None:
    """What the server calls its first model; None when it doesn't say, which many don't mind."""
    path = target(url).path.removesuffix("/chat/completions") + "/models"
    try:
        status, body = await ask(url, path, secret_headers(header_env), timeout_s)
        name = msgspec.json.decode(body)["data"][0]["id"]
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, LookupError, TypeError):
        return None
    return name if status == 200 and isinstance(name, str) else None


async def load_alone(options: Mapping[str, Any], fd: int, tell: Callable[[str], None]) -> bool:
    """Send the load and write each record as it comes. True when at least one request came out `ok`."""
    header_env = pairs(options["header_env"])
    model = options["model"] or await first_model(options["url"], header_env) or "default"
    job = build(order(options, model))
    records: list[RequestDone] = []

    def emit(fact: RequestSent | RequestDone) -> None:
        if isinstance(fact, RequestDone):
            write_all(fd, line(fact))
            records.append(replace(fact, text="", raw={}))

    await carry_out(job, emit, [])
    for text in summary(records):
        tell(text)
    return any(record.outcome == "ok" for record in records)


async def own_error(concurrency: int) -> str:
    """The client's own error at this concurrency, in words."""
    from probes.load.selftest import bias, stub

    async with stub() as url:
        await bias(url, 1, 2, 4)
        found = await bias(url, concurrency, max(20, concurrency * 2), 32)
    return found.sentence()


def summary(records: Sequence[RequestDone]) -> list[str]:
    """What was sent and what became of it, with n beside each figure; warm-up requests are left out."""
    counted = [record for record in records if not record.warmup]
    outcomes = Counter(record.outcome for record in counted)
    lines = [f"{len(counted)} requests: " + ", ".join(f"{n} {name}" for name, n in outcomes.most_common())]
    good = [record for record in counted if record.outcome == "ok"]
    for title, values, mark in (
        ("TTFT", [r.ttft_ms for r in good if r.ttft_ms is not None], ""),
        ("TPOT", [r.tpot_ms for r in good if r.tpot_ms is not None],
         "" if all(r.tpot_exact for r in good if r.tpot_ms is not None) else "≈ "),
    ):  # fmt: skip
        if len(values) > 2:
            lines.append(f"{title} {mark}{median(values):.2f} ms (median of n={len(values)})")
        elif values:
            lines.append(f"{title} {mark}{' and '.join(f'{value:.2f}' for value in values)} ms (n={len(values)})")
    first_error = next((record for record in counted if record.error), None)
    if first_error is not None:
        lines.append(f"{first_error.id}: {first_error.outcome}: {first_error.error}")
    return lines
