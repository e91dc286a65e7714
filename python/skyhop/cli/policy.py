"""`skyhop policy`: learned congestion controls, which are cards with networks."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated

import typer

from skyhop.cli.options import Json, group
from skyhop.cli.terminal import print_note, print_rows

app = group(
    "Begin and check a policy: a card that says what a network sees of a connection, and what its "
    'output means. Flows take it with cc = "policy" and policy = "FILE.toml".\n\n'
    "Example: skyhop policy new orca.toml --from orca"
)


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the cards that come with skyhop; their weights are their authors'.

    Example: skyhop policy list --json
    """
    from skyhop import _core

    cards = [(name, tomllib.loads(text)) for name, text in _core.policy_cards()]
    rows = [
        {
            "name": name,
            "title": card["title"],
            "sees": f"{len(card['observation']['features'])} x {card['observation']['steps']}",
            "about": card["about"],
            "licence": card["licence"],
        }
        for name, card in cards
    ]
    print_rows(rows, as_json=as_json)


@app.command()
def new(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The card to write.")],
    source: Annotated[
        str, typer.Option("--from", metavar="NAME", help="One of skyhop policy list.")
    ] = "astraea",
) -> None:
    """Write a card that comes with skyhop, to put a network beside it or to change it.

    Example: skyhop policy new mine.toml --from orca
    """
    from skyhop import _core
    from skyhop.errors import InputError

    cards = dict(_core.policy_cards())
    if source not in cards:
        raise InputError(f"--from {source}: expected one of {', '.join(cards)}")
    if file.suffix != ".toml":
        raise InputError(f"{file}: expected a name that ends with .toml")
    try:
        with file.open("x", encoding="utf-8") as written:
            written.write(cards[source])
    except FileExistsError:
        raise InputError(f"{file}: is there already: give another name") from None
    network = tomllib.loads(cards[source])["network"]["file"]
    print_note(f"{file}: written; its network is to be {file.with_name(network)}")


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The card.")],
    as_json: Json = False,
) -> None:
    """Check a card with its network: that both fit, and that the network can be run.

    Example: skyhop policy check orca.toml
    """
    from skyhop import _core

    title, features, steps, digests = _core.check_policy(str(file))
    row = {
        "title": title,
        "features": len(features),
        "steps": steps,
        "numbers": len(features) * steps,
        "files": ", ".join(Path(name).name for name in digests),
    }
    print_rows([row], as_json=as_json)
