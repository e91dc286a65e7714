"""`skyhop app`: what the two ends of a flow may do, and the keys of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from skyhop.cli import completing
from skyhop.cli.options import Json, group
from skyhop.cli.terminal import print_note, print_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

app = group(
    "What the two ends of a flow do: list it, and show the keys of one.\n\n"
    "Example: skyhop app show page"
)


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the applications that flows may have.

    Example: skyhop app list
    """
    print_applications(as_json=as_json)
    if not as_json:
        print_note("skyhop app show NAME lists the keys of one")


def print_applications(*, as_json: bool) -> None:
    """Print all applications, a line each."""
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
            metavar="NAME", help="One of skyhop app list.", autocompletion=completing.applications
        ),
    ],
    as_json: Json = False,
) -> None:
    """Show the keys of an application, with their defaults and units.

    Example: skyhop app show call
    """
    print_rows([dict(key) for key in _keys_of(name)], as_json=as_json)


def _keys_of(name: str) -> Iterator[Mapping[str, Any]]:
    """Yield each key with its default and what it means; without a default it must be given."""
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
        default = "must be given" if key in required else _written(says.get("default"))
        yield {"key": key, "default": default, "meaning": _one_line(says["description"])}


def _written(value: Any) -> str:
    """Write a default as a scenario would, and nothing for none."""
    if value is None:
        return ""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_written(of)}" for key, of in value.items()) + " }"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _one_line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")
