"""`skyhop app`: applications of flows and their scenario keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from skyhop.cli import completion
from skyhop.cli.options import Json, group
from skyhop.cli.terminal import print_note, print_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

app = group(
    "Applications of flows: list them, and show the keys of one.\n\nExample: skyhop app show page"
)


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the applications of flows.

    Example: skyhop app list
    """
    print_applications(as_json=as_json)
    if not as_json:
        print_note("skyhop app show NAME lists the keys of an application")


def print_applications(*, as_json: bool) -> None:
    """Print name, description and source of all applications."""
    from skyhop import _core

    rows = [
        {"name": entry.name, "description": entry.description, "source": entry.source}
        for entry in _core.list_apps()
    ]
    print_rows(rows, as_json=as_json)


@app.command()
def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="An application of skyhop app list.",
            autocompletion=completion.applications,
        ),
    ],
    as_json: Json = False,
) -> None:
    """Show the keys of an application, with their defaults and units.

    Example: skyhop app show call
    """
    print_rows([dict(key) for key in _keys_of(name)], as_json=as_json)


def _keys_of(name: str) -> Iterator[Mapping[str, Any]]:
    """Yield name, default and description of each key of an application's scenario table."""
    import json

    from skyhop import _core
    from skyhop.errors import InputError

    if all(entry.name != name for entry in _core.list_apps()):
        raise InputError(f"no application {name!r}: see skyhop app list")
    definitions = json.loads(_core.scenario_schema())["$defs"]
    variants = [*definitions["App"]["oneOf"], *definitions["Flow"]["oneOf"]]
    found = next(one for one in variants if one["properties"]["kind"].get("const") == name)
    keys = found | definitions.get(found.get("$ref", "").rpartition("/")[2], {})
    required = keys.get("required", ())
    for key, says in keys.get("properties", {}).items():
        if key == "kind":
            continue
        default = "must be given" if key in required else _as_toml(says.get("default"))
        yield {"key": key, "default": default, "meaning": _one_line(says["description"])}


def _as_toml(value: Any) -> str:
    """Return a default as TOML, as in a scenario; "" for None."""
    if value is None:
        return ""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_as_toml(of)}" for key, of in value.items()) + " }"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _one_line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")
