"""Blots secrets out of what is shown or stored: command lines, flags, settings, bodies. It knows names, never values.

A secret is told by the name beside it (an option, a variable, a JSON key) or by a form that only keys have. Lengths
are not kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

HIDDEN = "***"
_NAME = r"api[-_]?key|access[-_]?key|token(?!s|iz)|secret|passw(?:or)?d|passphrase|credential|authorization"
SECRET_OPTION = re.compile(rf"(?i)^-.*(?:{_NAME})|^-hft$")
"""Options whose value is a secret; `-hft` is how llama-server calls `--hf-token` for short."""
_ALWAYS_VALUED = re.compile(r"(?i)(?:key|token|secret|passw(?:or)?d|passphrase|^-hft)$")
"""Of those, the ones that no bare flag is called like: the word behind them is hidden even when it begins with `-`."""
_SECRET_KEY = re.compile(rf"(?i){_NAME}")
_PARTS = (
    # A variable given on a launcher's command line, as in `--env HF_TOKEN=…`, or in an address.
    (re.compile(rf"(?i)\b(\w*(?:{_NAME})\w*)=.+", re.DOTALL), r"\1=***"),
    (re.compile(rf"""(?i)(["']\w*(?:{_NAME})\w*["']\s*:\s*)("[^"]*"?|'[^']*'?|\[[^\]]*\]?|[^\s,}}\]]+)"""), r'\1"***"'),
    (re.compile(r"(?i)\b(authorization\s*:\s*|bearer\s+)\S.*", re.DOTALL), r"\1***"),
    (re.compile(r"(://[^/\s:@]*):[^/\s@]+@"), r"\1:***@"),
    (re.compile(r"\b(?:hf_[A-Za-z0-9]{30,}|ghp_[A-Za-z0-9]{30,}|sk-[A-Za-z0-9_-]{20,})"), HIDDEN),
)


def text(value: str) -> str:
    """A text with what is a secret by its name or its form blotted out."""
    for pattern, shown in _PARTS:
        value = pattern.sub(shown, value)
    return value


def mask(argv: Sequence[str]) -> tuple[str, ...]:
    """An argv to show or store: values of options that hold secrets are masked."""
    shown: list[str] = []
    hide = valued = False
    for word in argv:
        name, equals, _ = word.partition("=")
        secret = SECRET_OPTION.match(name) is not None
        if hide and not word.startswith("--" if valued else "-"):
            shown.append(HIDDEN)
            secret = False
        else:
            shown.append(f"{name}={HIDDEN}" if secret and equals else text(word))
        hide, valued = secret and not equals, _ALWAYS_VALUED.search(name) is not None
    return tuple(shown)


def secret_name(name: str) -> bool:
    """Whether a flag, a setting or a key of this name holds a secret."""
    return SECRET_OPTION.match(f"-{name.lstrip('-')}") is not None


def masked(values: Mapping[str, Any]) -> dict[str, Any]:
    """Flags, settings or options with secrets as `***`, as they may be stored. Switches stay as they are."""
    return {str(name): _blotted(value, secret=secret_name(str(name))) for name, value in values.items()}


def _blotted(value: Any, *, secret: bool) -> Any:
    if isinstance(value, Mapping):
        return {k: _blotted(v, secret=secret or _SECRET_KEY.search(str(k)) is not None) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        if all(isinstance(v, str) for v in value) and not secret:
            return list(mask(value))
        return [_blotted(v, secret=secret) for v in value]
    if secret and value is not None and not isinstance(value, bool):
        return HIDDEN
    return text(value) if isinstance(value, str) else value
