"""The ledger of requests on the wire, in lines: what each asks for, and what they hold or will hold of the pool."""

from __future__ import annotations

from rich.text import Text

from probes import engines
from probes.events import Capacity
from probes.session import Frame
from probes.stats.ledger import Claim, Entry, Pool
from tui.widgets import ink


def in_flight(frame: Frame, most: int) -> list[Text]:
    """The requests on the wire, oldest first as they are admitted, and what they hold or will hold together.

    A request: prompt and effective output in tokens, then pages of the pool. An engine that promises whole outputs has
    them set aside; on another they are what it grows to. ≥ where the prompt's length is not known yet.
    """
    sent = frame.in_flight
    capacity = frame.capacity or Capacity()
    pool = Pool.of(capacity)
    entries = [Entry(s.max_tokens or None, s.prompt_tokens) for s in sent]
    out = []
    if pool is not None and len(sent) > 1:
        claims = sum((pool.claim(e) for e in entries), Claim(0, 0))
        verb = "hold" if reserves(frame, capacity) else "grow to"
        over = claims.low > pool.pages
        text = f"  {len(sent)} on the wire {verb} {_pages(claims, pool)} of {pool.pages:,}"
        out.append(Text(text, style=f"bold {ink.WARN}" if over else ink.WARN))
    shown = list(zip(sent, entries, strict=True))[: max(1, most - len(out))]
    for request, entry in shown:
        prompt, output = ink.figure(entry.prompt_tokens, ",d"), entry.max_tokens
        output = pool.output(entry) if pool is not None else output
        held = "" if pool is None else f" · {_pages(pool.claim(entry), pool)}"
        name = ink.pad(ink.safe(request.category), 12)
        out.append(Text(f"  … {name} {prompt}+{ink.figure(output, ',d')} tok{held}", style=ink.WARN))
    if len(sent) > len(shown):
        out.append(Text(f"  … and {len(sent) - len(shown)} more on the wire", style=ink.WARN))
    return out


def reserves(frame: Frame, capacity: Capacity) -> bool | None:
    """Whether admission promises whole outputs here, as the log or else the engine says."""
    if capacity.reserving is not None or frame.run is None:
        return capacity.reserving
    return engines.engine(frame.run.engine).reserving


def _pages(claim: Claim, pool: Pool) -> str:
    """Pages of a claim; tokens where the pool has no pages."""
    least = "" if claim.high == claim.low else "≥"
    return f"{least}{claim.low:,} {'pages' if pool.page_tokens > 1 else 'tokens'}"
