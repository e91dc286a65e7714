"""`skyhop policy`: learned congestion controls, each a policy card with a neural network."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skyhop.cli.options import Json, group
from skyhop.cli.terminal import print_note, print_rows

if TYPE_CHECKING:
    pass

app = group(
    "Create, check, train and serve policies. A policy card describes the inputs of a neural "
    'network and the meaning of its output. Flows use it with cc = "policy" and '
    'policy = "FILE.toml".\n\n'
    "Example: skyhop policy new orca.toml --from orca"
)


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the policy cards that come with skyhop, and whether their weights are included.

    Example: skyhop policy list --json
    """
    from skyhop import _core

    cards = [(name, tomllib.loads(text)) for name, text in _core.policy_cards()]
    rows = [
        {
            "name": name,
            "sees": f"{len(card['observation']['features'])} x {card['observation']['steps']}",
            "weights": "here" if _core.policy_network(name) else "its authors'",
            "about": card["about"],
        }
        for name, card in cards
    ]
    print_rows(rows, as_json=as_json)


@app.command()
def new(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The card to write.")],
    source: Annotated[
        str, typer.Option("--from", metavar="NAME", help="A card of skyhop policy list.")
    ] = "astraea",
) -> None:
    """Copy one of skyhop's policy cards to a file, to change it or to use it with your own network.

    Example: skyhop policy new mine.toml --from orca
    """
    from skyhop import _core
    from skyhop.data.files import write_file
    from skyhop.data.near_names import did_you_mean
    from skyhop.errors import InputError

    cards = dict(_core.policy_cards())
    if source not in cards:
        hint = did_you_mean(source, cards)
        raise InputError(f"--from {source}: no such card{hint}; expected one of {', '.join(cards)}")
    if file.suffix != ".toml":
        raise InputError(f"{file}: expected a name that ends with .toml")
    try:
        with file.open("x", encoding="utf-8") as written:
            written.write(cards[source])
    except FileExistsError:
        raise InputError(f"{file}: exists already: give another name") from None
    network = file.with_name(tomllib.loads(cards[source])["network"]["file"])
    weights = _core.policy_network(source)
    if weights is None:
        print_note(f"{file}: written; it expects its network in {network}")
        return
    if not network.exists():
        write_file(network, weights)
    print_note(f"{file}: written, with its network {network}")


@app.command()
def check(
    card: Annotated[
        str, typer.Argument(metavar="CARD", help="A file, or one of skyhop policy list.")
    ],
    as_json: Json = False,
) -> None:
    """Check that a card fits its network, and that the network can be executed.

    Example: skyhop policy check orca.toml
    """
    from skyhop import _core

    title, features, steps, digests = _core.check_policy(card)
    row = {
        "title": title,
        "features": len(features),
        "steps": steps,
        "numbers": len(features) * steps,
        "files": ", ".join(Path(name).name for name in digests),
    }
    print_rows([row], as_json=as_json)


@app.command()
def serve(
    card: Annotated[
        str, typer.Argument(metavar="CARD", help="A file, or one of skyhop policy list.")
    ],
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Name that connections select; default: the name of the file."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Serve a policy to connections of this machine, until Ctrl-C or SIGTERM.

    Meanwhile the kernel offers a further congestion control NAME in all network namespaces; nothing
    else changes. Programs select it with setsockopt(TCP_CONGESTION) (iperf3 -C NAME), routes with
    congctl NAME. When the command ends for whatever reason, the name disappears, and connections
    that use it continue with the base algorithm, CUBIC.

    At the end, the command prints the numbers of connections and decisions, and the latency of
    decisions, measured from the kernel's report on. It needs root, as skyhop cc load does.

    Example: sudo skyhop policy serve skyhop-leo
    """
    from skyhop import _core
    from skyhop.cli.stopping import until_signal

    with until_signal():
        served = _core.serve_policy(card, name, print_note)
        row = {
            "connections": served.connections,
            "decisions": served.decisions,
            "latency_p50_us": _rounded(served.latency_p50_us),
            "latency_p99_us": _rounded(served.latency_p99_us),
            "clamped": served.clamped,
            "not_a_number": served.not_a_number,
        }
        print_rows([row], as_json=as_json)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
