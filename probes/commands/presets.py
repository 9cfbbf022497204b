"""`draftdial presets`: the presets that can be named."""

from __future__ import annotations

import json

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def command(*, as_json: bool) -> None:
    """List the presets that can be named, with what each is for."""
    from probes import preset as presets
    from probes.recipe import Refused

    for name, path in presets.listing().items():
        row: dict[str, object] = {"name": name, "path": str(path)}
        try:
            recipe = presets.load(str(path))
            row |= {
                "engine": recipe.engine,
                "title": recipe.title,
                "dial": recipe.dial.kind,
                "depths": recipe.dial.values,
            }
            text = f"{name:<26} {recipe.engine:<9} {recipe.title}"
        except Refused as problem:
            row["problem"] = str(problem)
            text = f"{name:<26} unusable: {problem}"
        print(json.dumps(row) if as_json else text)
