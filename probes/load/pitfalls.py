"""What is wrong with requests can be told before they are sent: a refusal, a cut output, a prompt kept in a cache.

Pure. A pitfall that would spoil every figure stops the point; one that only bends some is told and the point goes on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from probes.events import RequestDone

TOOL = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What all engines take for the name of a tool; some refuse others without a word in their log."""
LETTERS_A_TOKEN = 8
"""No ordinary text has more letters a token, so that a prompt has at least this share of its letters in tokens."""


@dataclass(frozen=True, slots=True)
class Pitfall:
    """One line for the person; `fatal`: sending would measure nothing."""

    text: str
    fatal: bool = False


def pitfalls(
    entries: Sequence[Mapping[str, Any]],
    known: Iterable[RequestDone],
    *,
    context: int | None,
    rejects_long: bool,
    cache: str | None,
    restart: int,
) -> list[Pitfall]:
    """What is wrong with these requests of a job.

    `known`: requests of this run that ended, for the length of a prompt and for what this start has seen already.
    `context`: most tokens of prompt and output together; `rejects_long`: whether the server refuses a request that
    asks for more (else it cuts the output). `cache`: what turns its prefix cache off, None where there is none.
    """
    done = [r for r in known if r.prompt_tokens is not None]
    lengths = {r.prompt_hash: r.prompt_tokens for r in done if r.prompt_tokens is not None}
    found = [*_tools(entries)]
    if context is not None:
        found += _too_long(entries, lengths, context, rejects_long=rejects_long)
    if cache is not None:
        seen = {r.prompt_hash for r in done if r.restart == restart}
        again = [e for e in entries if e.get("prompt_hash") in seen and not e.get("warmup")]
        if again:
            found.append(
                Pitfall(
                    f"{len(again)} of {len(entries)} prompts were sent to this start before and nothing turned its "
                    f"prefix cache off: their TTFT may be the cache's; {cache} turns it off"
                )
            )
    return found


def _tools(entries: Sequence[Mapping[str, Any]]) -> list[Pitfall]:
    """Tool names that a server would refuse, each once."""
    bad: dict[str, None] = {}
    for entry in entries:
        tools = entry["body"].get("tools")
        for tool in tools if isinstance(tools, list) else ():
            function = tool.get("function") if isinstance(tool, Mapping) else None
            name = function.get("name") if isinstance(function, Mapping) else None
            if not isinstance(name, str) or not TOOL.fullmatch(name):
                bad[repr(name)[:80]] = None
    return [
        Pitfall(f"tool name {name}: servers refuse it; legal are 1 to 64 of A-Z a-z 0-9 _ -", fatal=True)
        for name in bad
    ]


def _too_long(
    entries: Sequence[Mapping[str, Any]], lengths: Mapping[str, int], context: int, *, rejects_long: bool
) -> list[Pitfall]:
    """The request that asks for most beyond the context, in one line with how many others do."""
    beyond: list[tuple[int, Mapping[str, Any], int, bool]] = []
    for entry in entries:
        asked = entry["body"].get("max_tokens")
        asked = asked if isinstance(asked, int) and not isinstance(asked, bool) else 0
        exact = lengths.get(entry.get("prompt_hash", ""))
        prompt = least_tokens(entry["body"]) if exact is None else exact
        if prompt + asked > context:
            beyond.append((prompt + asked, entry, prompt, exact is not None))
    if not beyond:
        return []
    _, entry, prompt, exact_known = max(beyond, key=lambda b: b[0])
    asked = entry["body"].get("max_tokens") or 0
    length = f"{prompt:,}" if exact_known else f"at least {prompt:,}"
    what = f"{entry['prompt_id']} has {length} tokens and asks for {asked:,}, the context is {context:,}"
    others = f" (and {len(beyond) - 1} more)" if len(beyond) > 1 else ""
    if prompt >= context:
        return [Pitfall(f"{what}{others}: the prompt alone does not fit; raise the context", fatal=True)]
    room = max(1, context - prompt)
    if rejects_long:
        return [Pitfall(f"{what}{others}: the server would refuse it; lower max_tokens to {room:,}", fatal=True)]
    most = "" if exact_known else " at most"
    return [Pitfall(f"{what}{others}: its output is cut after{most} {room:,}")]


def least_tokens(body: Mapping[str, Any]) -> int:
    """So many tokens has the prompt of this chat body at least: never too many for ordinary text."""
    letters = 0
    messages = body.get("messages")
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, Mapping) else None
        letters += len(content) if isinstance(content, str) else 0
    return letters // LETTERS_A_TOKEN
