"""Queues with a known cause on the simulated engines, without a process or a clock, and what the live diagnosis says.

`python -m benchmarks.ceiling_scenes` prints the confusion table. The same scenes are tests (tests/sim).
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from probes import engines
from probes.diagnosis import Diagnosis
from probes.events import CapacityRead, Ceiling, LogRecords, Record, RequestDone, RequestSent
from probes.sim import tables
from probes.sim.__main__ import build
from probes.sim.core import Ask
from probes.sim.draft import CHARS_A_TOKEN, Noise
from probes.sim.front import BadStartError, World
from probes.sim.wire import Answer, Asked

TABLES = {"ninfer": "ninfer-5090", "sglang": "sglang-k3", "vllm": "vllm-8b", "llamacpp": "llamacpp-8b"}
LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class Scene:
    """A server, a load, and what holds it back by construction. Several truths: any of them is right.

    `streams` requests are kept in flight, unless `spread` seconds part their starts; `asked`: what the client meant to
    keep in flight. `words`: lengths of prompts in tokens, taken in turn; `tokens`: output limits likewise.
    """

    name: str
    dialect: str
    argv: str
    streams: int
    tokens: tuple[int, ...]
    truth: tuple[str, ...]
    words: tuple[int, ...] = (60,)
    seconds: float = 60.0
    asked: int | None = None
    memory: Mapping[str, float] = field(default_factory=dict)
    spread: float = 0.02


def _n(name: str, argv: str, streams: int, tokens: int | tuple[int, ...], *truth: str, **more: Any) -> Scene:
    base = "m.ninfer --kv-dtype int8 --spec mtp --draft-tokens 3 "
    return Scene(f"ninfer: {name}", "ninfer", base + argv, streams, _many(tokens), truth, **more)


def _s(name: str, argv: str, streams: int, tokens: int | tuple[int, ...], *truth: str, **more: Any) -> Scene:
    spec = "" if "--plain" in argv else "--speculative-algorithm DSPARK --speculative-dspark-block-size 3 "
    base = f"--model-path m --tp 8 --enable-metrics --decode-log-interval 10 --mem-fraction-static 0.92 {spec}"
    return Scene(f"sglang: {name}", "sglang", base + argv.replace("--plain", ""), streams, _many(tokens), truth, **more)


def _v(name: str, argv: str, streams: int, tokens: int | tuple[int, ...], *truth: str, **more: Any) -> Scene:
    base = "serve m --max-model-len 8192 --no-enable-prefix-caching --disable-uvicorn-access-log "
    return Scene(f"vllm: {name}", "vllm", base + argv, streams, _many(tokens), truth, **{"seconds": 90.0, **more})


def _l(name: str, argv: str, streams: int, tokens: int | tuple[int, ...], *truth: str, **more: Any) -> Scene:
    return Scene(f"llamacpp: {name}", "llamacpp", "-m m --metrics -lv 4 " + argv, streams, _many(tokens), truth, **more)


def _many(tokens: int | tuple[int, ...]) -> tuple[int, ...]:
    return tokens if isinstance(tokens, tuple) else (tokens,)


POOL = "--max-context 224000 --kv-capacity 224000 "
OFF = "--disable-radix-cache --min-free-slots-delay 1 "
SCENES: tuple[Scene, ...] = (
    _n("three of 100,000 on three lanes", POOL + "--max-concurrency 3", 3, 100_000, "kv_pool"),
    _n("four of 1,200 on three lanes", POOL + "--max-concurrency 3", 4, 1_200, "lanes"),
    _n("four of 60,000 on eight lanes", POOL + "--max-concurrency 8", 4, 60_000, "kv_pool"),
    _n("two of 150,000 on two lanes", POOL + "--max-concurrency 2", 2, 150_000, "kv_pool"),
    _n("six of 400 on two lanes", POOL + "--max-concurrency 2", 6, 400, "lanes"),
    _n("twelve of 3,000 on eight lanes", POOL + "--max-concurrency 8", 12, 3_000, "lanes"),
    _n("prompts of 30,000 one at a time", "--max-context 40000 --kv-capacity 280000 --max-concurrency 8", 8, 300,
       "prefill", words=(30_000,), seconds=50.0),
    _n("two on three lanes", POOL + "--max-concurrency 3", 2, 1_200, "none"),
    _n("three of eight asked for", POOL + "--max-concurrency 8", 3, 4_000, "client", asked=8),
    _n("the pool and the lanes at once", POOL + "--max-concurrency 3", 4, 74_000, "lanes", "kv_pool"),
    _n("a log that does not tell the lanes", POOL + "--max-concurrency 3 --no-prefix-reuse", 4, 1_200, "lanes"),
    _n("a small one behind a large one", POOL + "--max-concurrency 4", 4, (150_000, 150_000, 500, 500), "kv_pool"),
    _s("48 by default, with as many states", OFF, 60, 400, "lanes", "state_pool"),
    _s("states for 8 of 96", "--max-running-requests 96 --max-mamba-cache-size 40 --min-free-slots-delay 1", 12, 400,
       "state_pool"),
    _s("states for 12 of 64", "--max-running-requests 64 --max-mamba-cache-size 64 --min-free-slots-delay 1", 20, 400,
       "state_pool"),
    _s("16 slots, states for 200", OFF + "--max-running-requests 16 --max-mamba-cache-size 200", 24, 400, "lanes"),
    _s("8 slots without speculation", OFF + "--plain --max-running-requests 8", 14, 400, "lanes"),
    _s("8 slots of a model without states", OFF + "--max-running-requests 8", 14, 400, "lanes",
       memory={"hybrid": 0}),
    _s("a pool of 60,000 and prompts of 4,000", OFF + "--max-total-tokens 60000", 24, 1_000, "kv_pool",
       words=(4_000,)),
    _s("a pool of 60,000 without states", OFF + "--max-total-tokens 60000", 24, 1_000, "kv_pool", words=(3_000,),
       memory={"hybrid": 0}),
    _s("output that is set aside", OFF + "--max-total-tokens 40000", 20, 4_000, "kv_pool", words=(200,)),
    _s("requests put back", OFF + "--max-total-tokens 24000 --schedule-conservativeness 0.1", 30, 2_500, "kv_pool",
       words=(400,), seconds=120.0),
    _s("prompts of 16,000 back to back", OFF + "--max-running-requests 96 --max-mamba-cache-size 200", 90, 64,
       "prefill", words=(16_000,)),
    _s("waits until 24 slots are free", "--disable-radix-cache --max-running-requests 48 --max-mamba-cache-size 200 "
       "--min-free-slots-delay 24", 60, (200, 300, 400, 500), "admission_delay", "lanes", seconds=90.0),
    _s("the few free slots of the family", "--disable-radix-cache --max-running-requests 48 --max-mamba-cache-size 200",
       60, (200, 300, 400, 500), "lanes", "admission_delay", seconds=90.0),
    _s("eight on 48", OFF, 8, 400, "none"),
    _s("eight of forty asked for", OFF, 8, 2_000, "client", asked=40),
    _v("eight on four lanes", "--max-num-seqs 4", 8, 1_200, "lanes"),
    _v("24 on 16 lanes", "--max-num-seqs 16", 24, 1_200, "lanes"),
    _v("a pool of 9,600 in use", "--max-num-seqs 64 --num-gpu-blocks-override 600", 24, 1_000, "kv_pool"),
    _v("a pool of 20,000 and prompts of 3,000", "--max-num-seqs 64 --num-gpu-blocks-override 1250", 20, 400, "kv_pool",
       words=(3_000,)),
    _v("a budget of 512 tokens a step", "--max-num-seqs 256 --max-num-batched-tokens 512", 64, 64, "prefill",
       words=(6_000,), seconds=60.0),
    _v("two on 16 lanes", "--max-num-seqs 16", 2, 1_200, "none"),
    _v("four of 32 asked for", "--max-num-seqs 64", 4, 3_000, "client", asked=32),
    _v("lanes and pool near each other", "--max-num-seqs 8 --num-gpu-blocks-override 520", 12, 900, "lanes", "kv_pool"),
    _l("five on two slots", "-c 16384 -np 2", 5, 1_200, "lanes"),
    _l("six on four slots", "-c 32768 -np 4", 6, 1_200, "lanes"),
    _l("eight on a shared pool of 4,096", "-c 4096 -np 8 -kvu", 8, 1_500, "kv_pool", seconds=40.0),
    _l("deferred aloud", "-c 16384 -np 2 -lv 5", 4, 1_200, "lanes"),
    _l("two on four slots", "-c 32768 -np 4", 2, 1_200, "none"),
    _l("one of six asked for", "-c 32768 -np 8", 1, 3_000, "client", asked=6),
)  # fmt: skip


class Stage:
    """One scene under way: a simulated engine in simulated seconds, closed-loop clients, the live diagnosis."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        engine = engines.engine(scene.dialect)
        self.engine = engine
        self.reader = engine.reader()
        self.lines: list[str] = []
        self.read = 0
        table = tables.load(TABLES[scene.dialect])
        table = dataclasses.replace(table, memory={**table.memory, **scene.memory})
        world = World(table, Noise(), "1", 0, lambda _at, text: self.lines.append(text), 1.7e9)
        self.front = build(scene.dialect, scene.argv.split(), world)
        self.diagnosis = Diagnosis(engine)
        self.diagnosis.begin(1, scene.asked)
        self.sent = 0
        self.served = 0

    def run(self) -> Ceiling:
        """From the start to the verdict."""
        core, at = self.front.core, 0.0
        for at, line in self.front.boot():
            self.front.world.log(at, line)
        core.at = at
        self.front.ready(at)
        for n in range(self.scene.streams):
            core.when(at + 0.5 + n * self.scene.spread, self.send)
        end = at + self.scene.seconds
        while at < end:
            at += LOOK_S
            core.advance(at)
            self.look()
        return self.diagnosis.so_far()

    def look(self) -> None:
        """Read the log and the metrics, as the bench does once a second."""
        found: list[Record] = []
        for number in range(self.read, len(self.lines)):
            found += self.reader.feed(number + 1, self.lines[number])
        self.read = len(self.lines)
        self.diagnosis.see(LogRecords(1, tuple(found)))
        self.diagnosis.see(CapacityRead(1, self.reader.capacity))
        reply = self.front.get(Asked("GET", "/metrics", {}, b""))
        if reply.status == 200 and (fields := self.engine.metrics(str(reply.body))):
            self.diagnosis.metrics(fields)

    def send(self) -> None:
        """One request of a client that sends its next one when this has ended."""
        scene, number = self.scene, self.sent
        self.sent += 1
        words, tokens = scene.words[number % len(scene.words)], scene.tokens[number % len(scene.tokens)]
        text = f"{number:06d} ".ljust(int(words * CHARS_A_TOKEN), "x")
        model = getattr(self.front, "model", "m")
        body = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": tokens, "stream": True}
        if scene.dialect in {"vllm", "llamacpp"}:
            body["ignore_eos"] = True
        chat = self.front.chat(Asked("POST", "/v1/chat/completions", {}, json.dumps(body).encode()))
        if isinstance(chat, Answer):
            raise TypeError(f"{scene.name}: refused: {chat.body}")
        name, core = f"r{number}", self.front.core
        self.diagnosis.see(RequestSent(name, core.at, name, "burst", tokens, 1))

        def over(ask: Ask, at: float) -> None:
            self.served += ask.outcome in {"stop", "length"}
            self.front.over(chat, at)
            self.diagnosis.see(
                RequestDone(name, name, "", "burst", None, 1, 0, "ok", ask.arrived, prompt_tokens=ask.prompt)
            )
            core.when(at + 0.01, self.send)

        chat.ask.over = over
        core.submit(chat.ask, core.at)
        core.when(core.at, lambda: None if chat.ask.ended else self.front.started(chat))


def judge(scene: Scene) -> Ceiling:
    """The live diagnosis of a scene."""
    return Stage(scene).run()


def right(scene: Scene, found: Ceiling) -> str:
    """`right`, `open` (unknown, or a truth among the rivals only) or `wrong`."""
    if found.verdict in scene.truth:
        return "right"
    return "open" if found.verdict == "unknown" else "wrong"


def table(rows: Sequence[tuple[Scene, Ceiling]]) -> str:
    """Truth by verdict, counted; high confidence in brackets."""
    verdicts = ["kv_pool", "lanes", "state_pool", "prefill", "admission_delay", "client", "none", "unknown"]
    counts: Counter[tuple[str, str]] = Counter()
    high: Counter[tuple[str, str]] = Counter()
    for scene, found in rows:
        truth = scene.truth[0] if len(scene.truth) == 1 else "/".join(scene.truth)
        counts[truth, found.verdict] += 1
        high[truth, found.verdict] += found.confidence == "high"
    truths = sorted({t for t, _ in counts}, key=lambda t: ("/" in t, t))
    lines = [f"{'truth':<24}" + "".join(f"{v:>17}" for v in verdicts)]
    for truth in truths:
        cells = [f"{counts[truth, v]} ({high[truth, v]})" if counts[truth, v] else "·" for v in verdicts]
        lines.append(f"{truth:<24}" + "".join(f"{c:>17}" for c in cells))
    return "\n".join(lines)


def main() -> int:
    """Every scene, then the table; 1 when a wrong verdict was sure of itself."""
    rows, bad = [], 0
    for scene in SCENES:
        if len(sys.argv) > 1 and sys.argv[1] not in scene.name:
            continue
        try:
            found = judge(scene)
        except BadStartError as problem:
            raise SystemExit(f"{scene.name}: {problem.lines[-1]}") from None
        rows.append((scene, found))
        how = right(scene, found)
        bad += how == "wrong" and found.confidence == "high"
        rivals = f" rivals {','.join(found.rivals)}" if found.rivals else ""
        print(f"{how:<6} {scene.name:<52} {'/'.join(scene.truth):<22} -> {found.verdict} ({found.confidence}){rivals}")
        if how != "right":
            print(f"       {found.sentence}")
    print("\ncounts, of which with high confidence in brackets\n")
    print(table(rows))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
