"""What the verdict and the ceiling rest on: sentences, all numbers, and log lines to jump to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from probes.session import Frame
from probes.stats import chances, tails
from probes.stats.points import between, words
from tui.panels._cells import OTHERS, SETTLED, cells, conclusion, kind, mean
from tui.widgets import ink
from tui.widgets.ceiling import verdict

FLAGS = 3
"""Sentences of a flag that are shown; one a prompt would hide the numbers."""
HEAD = Text("depth category       n accept  length tok/s       TPOT ms  TTFT ms  step ms", style="dim")


class Why(ModalScreen[int | None]):
    """Gives the number of the log line to jump to, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,y", "dismiss(None)", "close")]

    def __init__(self, frame: Frame) -> None:
        super().__init__()
        self._frame = frame

    def compose(self) -> ComposeResult:
        """A list: lines that name a log line can be entered."""
        with Vertical(classes="sheet") as box:
            box.border_title = "Why · enter on a log line jumps to it · escape closes"
            yield OptionList(*self._options(), markup=False)

    def _options(self) -> list[Option]:
        out = [Option(text) for text in self._numbers()]
        out += [Option(Text(" ")), Option(Text("Ceiling", style="bold"))]
        out.append(Option(verdict(self._frame)))
        ceiling = self._frame.ceiling
        if ceiling is not None:
            for said in (ceiling.experiment, ceiling.advice):
                if said:
                    out.append(Option(Text(f"→ {ink.safe(said)}")))
            if ceiling.rivals:
                out.append(Option(Text(f"could also be: {', '.join(ceiling.rivals)}", style="dim")))
            out += [self._line(e.line, e.text) for e in ceiling.evidence]
        out += [Option(text) for text in self._flags()]
        out += [Option(text) for text in self._apart(self._frame.result or {})]
        out += self._capacity()
        return out

    def _numbers(self) -> list[Text]:
        """Verdict, flags and every cell."""
        result = self._frame.result or {}
        out = [Text("Verdict", style="bold")]
        if not result:
            return [*out, Text("nothing measured yet", style="dim")]
        out.append(Text(conclusion(result)))
        if other := OTHERS.get(kind(result) or ""):
            return [*out, Text(other, style="dim")]
        for name in result.get("flags") or []:
            details = (result.get("flag_details") or {}).get(name) or [""]
            out += [Text(f"! {name}: {ink.safe(said)}", style=ink.WARN) for said in details[:FLAGS]]
            if len(details) > FLAGS:
                out.append(Text(f"! {name}: and {len(details) - FLAGS} more", style=ink.WARN))
        out += [Text(" "), HEAD]
        for c in cells(self._frame):
            speeds = c.get("decode_tps") or []
            both = (
                " ".join(f"{v:.1f}" for v in speeds)
                if len(speeds) <= 2
                else f"{mean(c, 'decode_tps'):.1f} of {len(speeds)}"
            )
            about = "≈" if c.get("approximate") else ""
            row = (
                f"{c['depth']:>5} {ink.pad(ink.safe(c['category']), 12)} {c.get('n', 0):>3} "
                f"{ink.figure(c.get('accept_rate'), '.1%'):>6} {ink.figure(c.get('accept_len'), '.2f'):>7} {both:<11} "
                f"{about + ink.figure(c.get('tpot_ms'), '.2f'):>8} {ink.figure(c.get('ttft_ms')):>8} "
                f"{ink.figure(c.get('step_ms'), '.2f'):>8}"
            )
            bad = {k: v for k, v in (c.get("outcomes") or {}).items() if k != "ok"}
            row += f"  {', '.join(f'{v} {k}' for k, v in bad.items())}" if bad else ""
            out.append(Text(row, style="" if c.get("state") in SETTLED else "dim"))
        return out

    def _flags(self) -> list[Text]:
        """Each flag that was asked for, beside what the server says is in force."""
        flags = self._frame.flags
        if flags is None or not (flags.asked or flags.notes):
            return []
        out = [Text(" "), Text("Flags asked, and in force", style="bold")]
        for name, asked in flags.asked.items():
            told = flags.in_force.get(name)
            line = f"{ink.safe(name, 30)}: {ink.safe(asked, 60)} · {ink.NONE if told is None else ink.safe(told, 60)}"
            out.append(Text(line, style="" if told == asked else ink.WARN))
        return [*out, *(Text(f"! {ink.safe(note)}", style=ink.WARN) for note in flags.notes)]

    def _apart(self, result: Mapping[str, Any]) -> list[Text]:
        """What sets the pick apart from its rivals, half by half; then the slow end of the first tokens."""
        out = []
        found, picks = cells(self._frame), result.get("picks") or {}
        lead = (result.get("decision") or {}).get("leading", picks.get("minimax"))
        for rival in dict.fromkeys(p for p in picks.values() if p not in {None, lead}):
            if lead is not None and (said := words(between(found, int(rival), int(lead)))):
                out += [Text(" "), *(Text(ink.safe(line), style="dim" if i else "") for i, line in enumerate(said))]
        for told in (chances.lines(result), tails.lines(result)):
            out += [Text(" "), *(Text(ink.safe(line), style="dim") for line in told)] if told else []
        return out

    def _capacity(self) -> list[Option]:
        """What the server said it can hold, each with its line."""
        out = [Option(Text(" ")), Option(Text("Capacity", style="bold"))]
        capacity = self._frame.capacity
        if capacity is None:
            return [*out, Option(Text("the server has not said what it can hold", style="dim"))]
        out += [Option(Text(ink.safe(t))) for t in capacity.explain]
        by_line: dict[int, list[str]] = {}
        for name, line in capacity.lines.items():
            by_line.setdefault(line, []).append(name)
        out += [self._line(line, ", ".join(names)) for line, names in sorted(by_line.items())]
        out += [self._line(w.line, w.text) for w in self._frame.warnings if w.line]
        return out

    @staticmethod
    def _line(number: int, text: str) -> Option:
        if number <= 0:
            return Option(Text("            ").append(ink.safe(text)))
        return Option(
            Text(f"log {number:>6}  ", style=ink.HOT).append(ink.safe(text), style="not bold"),
            id=f"{number}:{id(text)}",
        )

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Jump to the line."""
        if event.option.id:
            self.dismiss(int(event.option.id.partition(":")[0]))
