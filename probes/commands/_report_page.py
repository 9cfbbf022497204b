"""A run as one HTML page that needs nothing else: no script, no font, no picture, no network.

Every text that came from a log, a model, a server or a preset passes `safe`.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from probes import __version__
from probes.commands import _run_view as view
from probes.commands._report_charts import chart, legend, safe, series
from probes.history import Account
from probes.stats import chances, tails

STYLE = """
:root{--ink:#16191d;--dim:#5c6670;--paper:#fff;--rule:#d5dade;--soft:#f4f6f7;--bad:#a11b1b;
--k0:#0072b2;--k1:#b34700;--k2:#00785a;--k3:#9a3c78;--k4:#7a5c00;--k5:#444;--k6:#0891a8;--k7:#6a4fc4}
@media (prefers-color-scheme:dark){:root{--ink:#e4e8eb;--dim:#98a3ad;--paper:#14171a;--rule:#353c43;--soft:#1d2226;
--bad:#ff8a80;--k0:#5ab4f0;--k1:#ff9d5c;--k2:#4fd1a5;--k3:#e79bcb;--k4:#e6c84f;--k5:#c5c5c5;--k6:#5fd6e8;--k7:#b3a1ff}}
@media print{:root{--ink:#000;--dim:#444;--paper:#fff;--rule:#bbb;--soft:#fff;--bad:#900;
--k0:#0072b2;--k1:#b34700;--k2:#00785a;--k3:#9a3c78;--k4:#7a5c00;--k5:#444;--k6:#0891a8;--k7:#6a4fc4}
figure,tr{break-inside:avoid}body{margin:0;max-width:none;font-size:11px}
.wide{overflow:visible}th{white-space:normal!important}th,td{padding:.1rem .35rem!important}
table{font-size:9.5px}h2{break-after:avoid}}
*{box-sizing:border-box}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1180px;margin:2rem auto;
padding:0 1rem;}
pre,li,p,h1,.long{overflow-wrap:anywhere}
h1{font-size:1.5rem;line-height:1.3;margin:.2rem 0}h2{font-size:1.05rem;margin:2rem 0 .5rem}
p{margin:.3rem 0}.dim{color:var(--dim)}.bad{color:var(--bad)}
.sim{border:2px solid var(--bad);color:var(--bad);font-weight:700;padding:.4rem .8rem;margin:0 0 1rem}
.state{font-weight:700;letter-spacing:.04em}
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.2rem .7rem;text-align:right;border-bottom:1px solid var(--rule);vertical-align:top}
th{color:var(--dim);font-weight:600;border-bottom-width:2px;white-space:nowrap}
td.t,th.t{text-align:left}tr.pick td{background:var(--soft);font-weight:600}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(330px,1fr));gap:1rem}
figure{margin:0}figcaption{font-weight:600}svg{max-width:100%;height:auto}
.legend .key{margin-right:1.2rem;white-space:nowrap}.legend svg{vertical-align:middle;margin-right:.4rem}
.grid{stroke:var(--rule);fill:none}.tick{font-size:11px;fill:var(--dim)}
.line{fill:none;stroke-width:1.8;stroke:var(--k)}.dot{fill:var(--k);opacity:.45}.mark{stroke:var(--k);stroke-width:1.5}
.full{fill:var(--k)}.hollow{fill:var(--paper)}
pre{white-space:pre-wrap;background:var(--soft);padding:.6rem .8rem;font-size:13px}
""" + "".join(f".k{i}{{--k:var(--k{i})}}" for i in range(8))

FOOT = (
    '<p class="dim">Written by draftdial {} on {}. n counts prompts of one kind; restarts and repeats of a prompt are '
    "not counted as n.</p>"
)
CHARTS = (
    ("accept_rate", "Accept rate", 1.0, "%"),
    ("decode_tps", "Decode speed, tok/s", None, ""),
    ("tpot_ms", "Time per output token, ms", None, ""),
    ("ttft_ms", "Time to first token, ms", None, ""),
    ("step_ms", "Time of a step, ms", None, ""),
)


def page(run: Account) -> str:
    """The whole page."""
    state, sentence = view.verdict(run.result)
    simulated = bool(run.result.get("simulated") or (run.began and run.began.simulated))
    parts = [
        '<p class="sim">SIMULATED: no figure on this page was measured on a server.</p>' if simulated else "",
        f'<p class="state">{safe(state)}</p><h1>{safe(sentence or "Nothing was measured to its end.", 800)}</h1>',
        *(f'<p class="dim">{safe(text)}</p>' for text in view.head(run)),
        "" if run.stored or not run.result else '<p class="dim">Computed from load.jsonl for this page.</p>',
        _guards(run.result),
        _failed(run.result),
        *(_sweep(run) if "cells" in run.result else _lines("Result", view.result(run))),
        _starts(run),
        _memory(run),
        *_lines("Requests", view.outcomes(run)),
        *_lines("Capacity", view.capacity(run)),
        *_lines("Ceiling", view.ceiling(run)),
        _fingerprint(run),
        *_lines("Notices", view.notices(run)),
        FOOT.format(safe(__version__), time.strftime("%Y-%m-%d %H:%M")),
    ]
    title = f"{'SIMULATED · ' if simulated else ''}{run.name} · {state}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{safe(title)}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body></html>\n"
    )


def _section(title: str, body: str) -> str:
    return f"<section><h2>{safe(title)}</h2>{body}</section>" if body else ""


def _lines(title: str, texts: Sequence[str]) -> list[str]:
    body = "\n".join(safe(text, 1200) for text in texts)
    return [_section(title, f"<pre>{body}</pre>")] if texts else []


def _table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], text: int = 1, picks: frozenset[int] = frozenset()
) -> str:
    """A table of safe cells; the first `text` columns are words, the others figures; rows in `picks` stand out."""

    def cells(row: Sequence[str], tag: str) -> str:
        return "".join(f"<{tag}{' class=t' if i < text else ''}>{c}</{tag}>" for i, c in enumerate(row))

    body = "".join(f"<tr{' class=pick' if i in picks else ''}>{cells(row, 'td')}</tr>" for i, row in enumerate(rows))
    return f'<div class="wide"><table><thead><tr>{cells(heads, "th")}</tr></thead><tbody>{body}</tbody></table></div>'


def _number(value: Any, spec: str) -> str:
    """A figure, or a dash; a value of the wrong kind is shown as it is."""
    if value is None:
        return "—"
    try:
        return format(value, spec)
    except (TypeError, ValueError):
        return safe(value, 40)


def _guards(result: Mapping[str, Any]) -> str:
    details = result.get("flag_details") or {}
    rows = [
        f"<li><b>{safe(n)}</b>: {safe('; '.join(details.get(n) or []), 1200)}</li>" for n in result.get("flags") or []
    ]
    return _section("What speaks against these figures", f"<ul>{''.join(rows)}</ul>" if rows else "")


def _failed(result: Mapping[str, Any]) -> str:
    rows = [f"<li>{safe(', '.join(f'{k} {v}' for k, v in p.items()))}</li>" for p in result.get("failed_points") or []]
    return _section("Points that are missing", f'<ul class="bad">{"".join(rows)}</ul>' if rows else "")


def _sweep(run: Account) -> list[str]:
    """Regret, charts and cells."""
    result = run.result
    cells = [c for c in result.get("cells") or [] if c.get("requests") or c.get("outcomes")]
    names = [str(c) for c in result.get("categories") or []]
    bad = [d for d in result.get("unverified") or [] if isinstance(d, int)]
    dial = run.began.dial if run.began else "draft depth"
    figures = []
    for key, title, top, unit in CHARTS:
        shown = [*cells, *(result.get("predicted") or [])] if key == "accept_rate" else cells
        if drawn := chart(title, series(shown, key, bad), names, top=top, unit=unit, dial=dial):
            figures.append(f"<figure><figcaption>{safe(title)}</figcaption>{drawn}</figure>")
    note = '<p class="dim">Small dots: single requests. Hollow: a guard speaks against it, or it was predicted.</p>'
    charts = f'{legend(names)}<div class="charts">{"".join(figures)}</div>{note}' if figures else ""
    sure = _lines("How sure that is", chances.lines(result))
    slow = _lines("Time to first token", tails.lines(result))
    return [_regret(result), *sure, _section("By depth and kind of text", charts), _cells(cells), *slow]


def _regret(result: Mapping[str, Any]) -> str:
    losses, picks = result.get("regret") or {}, result.get("picks") or {}
    names = [str(c) for c in result.get("categories") or [] if any(c in row for row in losses.values())]
    if not names:
        return ""
    rows: list[list[str]] = []
    marked: set[int] = set()
    chosen = (result.get("verdict") or {}).get("depth")
    for depth, row in sorted(losses.items(), key=lambda item: int(item[0])):
        rules = [name for name in ("minimax", "median", "mean") if picks.get(name) == int(depth)]
        if chosen == int(depth):
            marked.add(len(rows))
        figures = [_number(row.get(name), ".1%") for name in (*names, "worst")]
        rows.append([safe(depth), *figures, safe(", ".join(rules) or "")])
    heads = ["depth", *(safe(n) for n in names), "worst", "would be chosen by"]
    return _section("Loss against each kind's own best depth", _table(heads, rows, picks=frozenset(marked)))


def _cells(cells: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for c in cells:
        speeds = c.get("decode_tps") or []
        shown = ", ".join(_number(v, ".1f") for v in speeds[:8]) + (", …" if len(speeds) > 8 else "")
        ended = ", ".join(f"{n} {k}" for k, n in (c.get("outcomes") or {}).items())
        rows.append([
            safe(c.get("depth")), safe(c.get("category")), safe(c.get("state") or ""), safe(c.get("n")),
            _number(c.get("accept_rate"), ".1%"), _number(c.get("accept_len"), ".2f"), shown or "—",
            ("≈ " if c.get("approximate") else "") + _number(c.get("tpot_ms"), ".2f"),
            _number(c.get("ttft_ms"), ".1f"), _number(c.get("step_ms"), ".2f"), safe(ended),
        ])  # fmt: skip
    heads = ("depth", "kind of text", "state", "n", "accept rate", "accept length", "tok/s", "TPOT ms", "TTFT ms",
             "step ms", "requests")  # fmt: skip
    return _section("Figures", _table(heads, rows, 3) if rows else "")


def _starts(run: Account) -> str:
    rows = []
    for s in run.starts:
        proven = {True: "proven", False: "NOT proven", None: "not read back"}[s.proven]
        why = "; ".join(s.notes) if not s.proven else ""
        ended = f"{s.reason} → {s.hint}" if s.reason and s.hint else s.reason or ""
        rows.append([
            str(s.restart), safe("—" if s.depth is None else s.depth), _number(s.boot_s, ".2f"), proven,
            f'<span class="long">{safe("; ".join(t for t in (why, ended) if t), 600)}</span>',
        ])  # fmt: skip
    heads = ("start", "depth", "boot s", "flags in force", "what was said")
    lines = "\n".join(f"{s.restart}: {safe(shlex.join(s.argv), 3000)}" for s in run.starts if s.argv)
    commands = f"<p class=dim>Commands, secrets masked</p><pre>{lines}</pre>" if lines else ""
    return _section("Starts of the server", _table(heads, rows, 5) + commands if rows else "")


def _memory(run: Account) -> str:
    rows = [[safe(m.phase), view.size(m.used), view.size(m.free), view.size(m.rss), str(m.samples)] for m in run.memory]
    last = view.memory(run)[-1:] if rows else []
    heads = ("phase", "most used on a GPU", "least free on it", "server's resident memory", "samples")
    told = "".join(f"<p>{safe(text)}</p>" for text in last)
    return _section("Memory, high water by phase", _table(heads, rows) + told if rows else "")


def _fingerprint(run: Account) -> str:
    from probes import fingerprint

    found = run.description.get("fingerprint")
    if not isinstance(found, Mapping):
        return _section("Measured with", "<p>No fingerprint was recorded: this run can't be compared.</p>")
    rows = [[safe(name), safe(fingerprint.brief(value), 800)] for name, value in found.items()]
    guesses = "".join(f"<li>{safe(text)}</li>" for text in fingerprint.guesses(found))
    return _section("Measured with", _table(("what", "value"), rows, 2) + (f"<ul>{guesses}</ul>" if guesses else ""))
