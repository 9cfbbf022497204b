"""Keys that servers ask for: named by the environment variable that holds them, and never written anywhere."""

from __future__ import annotations

import os

from probes.recipe import Refused


def bearer(variable: str | None) -> dict[str, str]:
    """The header that carries the key in this environment variable; no header without a variable.

    Raises `Refused` where the environment has no such variable, or a value that no header can hold.
    """
    if variable is None:
        return {}
    value = os.environ.get(variable, "").strip()
    if not value:
        raise Refused(f"api_key_env: the environment has no variable {variable!r}, or it is empty")
    if not value.isascii() or not value.isprintable():
        raise Refused(f"api_key_env: what {variable} holds is no key: a header can't carry it")
    return {"Authorization": f"Bearer {value}"}
