"""The verdict in plain words, for a tired person who knows no statistics. Plain Python over `result.json`.

Says what to do first, then why, then how sure; no symbol, no term of art, and never more certainty than there is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["verdict_sentence", "why"]

WIDE = 0.10
"""Beyond this many points a range is more honest than a middle."""


def verdict_sentence(
    verdict: Mapping[str, Any], decision: Mapping[str, Any] | None, depths: Sequence[int], incumbent: int | None
) -> str:
    """One or two sentences for the bottom line. `decision` is the result's, None when nothing could be compared."""
    state, more = verdict["state"], verdict.get("needs_requests")
    if state == "NO_CLAIM":
        if not depths:
            return "Nothing can be said yet: no depth was measured with every kind of text."
        if len(depths) == 1:
            return f"Nothing to compare: only depth {depths[0]} can be judged so far."
        need = f" About {_count(more)} more would be a start." if more else ""
        return f"Nothing can be said yet: a single prompt of a kind shows what it did, not what is usual.{need}"
    if state == "NOTHING_TO_CHOOSE":
        if decision is None:
            return "Nothing to choose."
        stay = (
            f" Stay at depth {incumbent}." if incumbent in depths else " Take the smallest; it needs the least memory."
        )
        within = f"{decision['tolerance']:.0%}"
        return f"Nothing to choose: all measured depths are equally good to within {within}.{stay}"
    if decision is None:
        return "Undecided."
    if state == "PICK":
        return _pick(verdict["depth"], decision, incumbent)
    return _undecided(decision, more, incumbent)


def _pick(depth: int, decision: Mapping[str, Any], incumbent: int | None) -> str:
    """Sentences for a pick."""
    low, middle, high = decision["cost_90"][str(depth)]
    what = f"Stay at depth {depth}" if depth == incumbent else f"Use depth {depth}"
    wide, rest = high - low > WIDE, " No measured depth is a clearly better compromise."
    if middle < 0.005:
        worst = f" At the very worst one loses {high:.0%}." if high >= 0.01 else ""
        return f"{what}: no kind of text runs noticeably faster at another measured depth.{worst}"
    if wide:
        much = f"somewhere between {low:.0%} and {high:.0%}"
    else:
        much = f"about {middle:.0%}" + (f", {high:.0%} at the very most" if high - middle >= 0.005 else "")
    if decision["objective"] == "weighted":
        return f"{what}: on your mix of texts it gives away {much}.{rest}"
    against = "against its own best depth"
    if wide:
        return f"{what}: the kind of text it suits least loses {much} {against}.{rest}"
    head, _, tail = much.partition(",")
    return f"{what}: the kind of text it suits least loses {head} {against}{',' if tail else ''}{tail}.{rest}"


def _undecided(decision: Mapping[str, Any], more: int | None, incumbent: int | None) -> str:
    """Sentences for an abstention."""
    stay = f" Until then stay at depth {incumbent}." if incumbent is not None else ""
    if decision.get("incoherent"):
        return (
            "Undecided: what was accepted at different depths does not fit together, as if the texts had been different"
            f" ones. More prompts of each kind are needed, not more repeats.{stay}"
        )
    if decision.get("unconfirmed"):
        need = f"{_count(more)} there would" if more else "More requests there would"
        return (
            f"Depth {decision['leading']} looks best, but too little was run at it to be sure: {need} confirm it.{stay}"
        )
    ranked = sorted(decision["p_best"].items(), key=lambda kv: (-kv[1], int(kv[0])))
    rivals = [(int(d), p) for d, p in ranked if p >= 0.1][:3] or [(int(ranked[0][0]), ranked[0][1])]
    names = " and ".join(f"depth {d} ({_chances(p)})" for d, p in rivals[:2])
    if len(rivals) == 3:
        names = (
            ", ".join(f"depth {d} ({_chances(p)})" for d, p in rivals[:2])
            + f" and depth {rivals[2][0]} ({_chances(rivals[2][1])})"
        )
    head = f"Undecided between {names}" if len(rivals) > 1 else f"Not yet sure of {names}"
    need = (
        f"; about {_count(more)} more should settle it." if more else "; they are too close for more requests to help."
    )
    return f"{head}{need}{stay}"


def why(result: Mapping[str, Any]) -> list[str]:
    """Why this pick (or none), a handful of plain sentences, from a sweep's result."""
    verdict, decision = result["verdict"], result.get("decision")
    lines = [verdict["sentence"]]
    if decision is None:
        return lines + _missing(result)
    regret = result["regret"]
    depth = verdict["depth"] if verdict["depth"] is not None else decision["leading"]
    row = {c: v for c, v in regret.get(str(depth), {}).items() if c in result["categories"] and v is not None}
    if row:
        hurt = max(row, key=lambda c: row[c])
        if row[hurt] >= 0.005:
            best = _best_depth(regret, hurt)
            lines.append(
                f"At depth {depth} {hurt} came out {row[hurt]:.0%} slower than at its best depth ({best});"
                " every other kind of text lost less."
            )
        else:
            lines.append(f"At depth {depth} every kind of text ran at, or next to, its fastest.")
    lines += _halves(decision, depth) + _rules_of_thumb(result, depth) + _missing(result)
    texts = sum(c["n"] for c in result["cells"] if c["depth"] == depth)
    lines.append(
        f"This rests on {texts} different prompts at depth {depth}; repeating the same prompt would add nothing,"
        " since it gives the same text."
    )
    return lines


def _halves(decision: Mapping[str, Any], depth: int) -> list[str]:
    """Speed is tokens a step over time a step: what the next deeper depth would gain and cost."""
    steps, lengths = decision.get("step_ms"), decision.get("accept_len")
    if not steps or not lengths or str(depth) not in steps:
        return []
    deeper = sorted(int(d) for d in steps if int(d) > depth)
    here = sum(v[str(depth)] for v in lengths.values()) / len(lengths)
    text = f"At depth {depth} a step takes {steps[str(depth)]:.1f} ms and yields {here:.2f} tokens on average."
    if not deeper:
        return [text]
    there = sum(v[str(deeper[0])] for v in lengths.values()) / len(lengths)
    longer, gain = steps[str(deeper[0])] / steps[str(depth)] - 1, there / here - 1
    return [
        f"{text} Depth {deeper[0]} yields {_signed(gain)} tokens a step and each step takes {_signed(longer)} time."
    ]


def _rules_of_thumb(result: Mapping[str, Any], depth: int) -> list[str]:
    """How the pick differs from what averages would say, since a switch may look like a loss on an average."""
    picks = result["picks"]
    other = {k: v for k, v in (("mean", picks["mean"]), ("middle value", picks["median"])) if v not in {None, depth}}
    if not other:
        return []
    if len(set(other.values())) < len(other):
        said = f"The mean and the middle value of all runs favour depth {picks['mean']}"
    else:
        each = " and ".join(f"the {k} of all runs favours depth {v}" for k, v in other.items())
        said = each[0].upper() + each[1:]
    return [f"{said}: averages hide the kind of text that loses most, so they do not decide here."]


def _missing(result: Mapping[str, Any]) -> list[str]:
    """Depths that could not take part, by name."""
    lines = []
    if result["unmeasured"]["depths"]:
        lines.append(f"Not measured with every kind of text, so not judged: {_depths(result['unmeasured']['depths'])}.")
    if result["unverified"]:
        lines.append(f"Not judged, since the setting could not be proven in force: {_depths(result['unverified'])}.")
    return lines


def _best_depth(regret: Mapping[str, Mapping[str, Any]], category: str) -> int:
    """The measured depth where a category ran fastest."""
    return min(
        (int(d) for d, row in regret.items() if row.get(category) is not None), key=lambda d: regret[str(d)][category]
    )


def _chances(p: float) -> str:
    """A probability as people say it."""
    return f"{round(10 * p)} chances in 10" if 0.1 <= p <= 0.95 else f"{p:.0%} likely"


def _signed(share: float) -> str:
    """More or less, in words."""
    return f"{abs(share):.0%} {'more' if share >= 0 else 'less'}"


def _count(n: int) -> str:
    """Requests, with the plural right."""
    return f"{n} request" if n == 1 else f"{n} requests"


def _depths(values: Sequence[int]) -> str:
    """Depths by name."""
    return ("depth " if len(values) == 1 else "depths ") + ", ".join(map(str, values))
