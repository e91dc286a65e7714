"""`skyhop policy`: learned congestion controls, which are cards with networks."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from skyhop.cli.options import Json, Scenario, Sets, group
from skyhop.cli.terminal import print_note, print_rows

if TYPE_CHECKING:
    from skyhop.gym.training import Progress

app = group(
    "Begin and check a policy: a card that says what a network sees of a connection, and what its "
    'output means. Flows take it with cc = "policy" and policy = "FILE.toml".\n\n'
    "Example: skyhop policy new orca.toml --from orca"
)


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the cards that come with skyhop, and which have their weights with them.

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
        str, typer.Option("--from", metavar="NAME", help="One of skyhop policy list.")
    ] = "astraea",
) -> None:
    """Write a card that comes with skyhop, to put a network beside it or to change it.

    Example: skyhop policy new mine.toml --from orca
    """
    from skyhop import _core
    from skyhop.data.files import write_file
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
    network = file.with_name(tomllib.loads(cards[source])["network"]["file"])
    weights = _core.policy_network(source)
    if weights is None:
        print_note(f"{file}: written; its network is to be {network}")
        return
    if not network.exists():
        write_file(network, weights)
    print_note(f"{file}: written, with its network, {network}")


@app.command()
def check(
    card: Annotated[
        str, typer.Argument(metavar="CARD", help="A file, or one of skyhop policy list.")
    ],
    as_json: Json = False,
) -> None:
    """Check a card with its network: that both fit, and that the network can be run.

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
        typer.Option(metavar="NAME", help="What connections choose; by default as the file."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Decide for this machine's connections that choose the card, until Ctrl-C or SIGTERM.

    The kernel offers one more congestion control, NAME, in all network namespaces, and nothing else
    changes: programs choose it with setsockopt(TCP_CONGESTION) (iperf3 -C NAME), routes with
    congctl NAME. When it ends, however it does, the name is gone, and connections that have it go
    on with the base algorithm, CUBIC.

    In the end it prints how many connections there were, how many decisions, and how long each took
    from the report in the kernel on. Needs root, as skyhop cc load does.

    Example: sudo skyhop policy serve skyhop-leo
    """
    from skyhop import _core
    from skyhop.cli.stopping import stop_on_signals

    stop_on_signals()
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


Source = Annotated[
    Path,
    typer.Argument(
        metavar="FILE_OR_DIR",
        help="A checkpoint of TensorFlow (its .index, or the directory of a model) or PyTorch.",
    ),
]


@app.command()
def convert(
    source: Source,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE.onnx", help="The network to write.")
    ],
    card: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Whose network it is, one of skyhop policy list."),
    ] = None,
    activation: Annotated[
        Literal["relu", "tanh", "leaky-relu"] | None,
        typer.Option(help="Instead of --card: what follows each layer but the last."),
    ] = None,
    last: Annotated[
        Literal["tanh", "none"], typer.Option(help="What follows the last layer.")
    ] = "none",
    slope: Annotated[
        float | None,
        typer.Option(help="Of leaky-relu below 0; by default TensorFlow's 0.2, PyTorch's 0.01."),
    ] = None,
) -> None:
    """Convert a published checkpoint into the ONNX network of its card.

    Neither TensorFlow nor PyTorch is needed, and nothing in the checkpoint is run. A network of
    dense layers that has no card here converts with --activation.

    Example: skyhop policy convert Orca/models --card orca -o orca.onnx
    """
    from skyhop.data.files import write_file
    from skyhop.errors import InputError
    from skyhop.policies import NETWORKS, Activation, open_checkpoint, plain

    _check_options(card, activation, last, slope)
    if output.suffix != ".onnx":
        raise InputError(f"{output}: expected a name that ends with .onnx")
    if output.exists():
        raise InputError(f"{output}: is there already: give another name")
    checkpoint = open_checkpoint(source)
    if card is not None:
        network = NETWORKS[card](checkpoint, _inputs(card))
    elif activation is not None:
        after = Activation(last) if last != "none" else None
        network = plain(checkpoint, Activation(activation, slope), after)
    write_file(output, network.onnx())
    print_note(f"{output}: written: {network}")


def _check_options(
    card: str | None, activation: str | None, last: str, slope: float | None
) -> None:
    from skyhop.errors import InputError
    from skyhop.policies import NETWORKS

    if (card is None) == (activation is None):
        raise InputError("policy convert: expected either --card or --activation")
    if card is not None and card not in NETWORKS:
        raise InputError(f"--card {card}: expected one of {', '.join(NETWORKS)}")
    if card is not None and (last != "none" or slope is not None):
        raise InputError(f"--card {card}: says what follows its layers: leave --last and --slope")
    if slope is not None and activation != "leaky-relu":
        raise InputError(f"--slope {slope}: is for --activation leaky-relu")


def _inputs(name: str) -> int:
    """Return how many numbers the network of a card sees."""
    from skyhop import _core

    observation = tomllib.loads(dict(_core.policy_cards())[name])["observation"]
    return len(observation["features"]) * int(observation["steps"])


@app.command()
def train(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The card.")],
    world: Annotated[
        list[Path],
        typer.Option(metavar="WORLD.toml", help="A world; of several each has as many decisions."),
    ],
    reward: Annotated[
        str, typer.Option(metavar="NAME", help="One of skyhop policy rewards.")
    ] = "leo",
    steps: Annotated[
        int, typer.Option(min=1, help="Decisions of all flows, after which it is over.")
    ] = 4_000_000,
    seed: Annotated[int, typer.Option(min=0, help="Of weights and worlds.")] = 1,
    places: Annotated[
        int, typer.Option(min=1, max=4096, help="Episodes that go on side by side.")
    ] = 120,
    hidden: Annotated[
        str, typer.Option(metavar="N,N,…", help="Sizes of the network's hidden layers.")
    ] = "64,64",
    sets: Sets = None,
) -> None:
    """Train the network of a card over drawn scenarios, and write it where the card has it.

    Beside it stands the learning curve, in CSV. Ctrl-C ends the training with the network as it
    is. The same seed on the same machine comes to the same weights. docs/training.md says what
    worlds are. Needs what skyhop[train] installs.

    Example: skyhop policy train mine.toml --world leo.toml --world geo.toml --steps 1000000
    """
    from skyhop.data.files import write_file
    from skyhop.errors import InputError
    from skyhop.gym.training import Plan, network_file, train
    from skyhop.gym.world import Worlds, read_world

    sizes = [int(text) if text.isdecimal() else 0 for text in hidden.split(",")]
    if not all(1 <= size <= _MOST_HIDDEN for size in sizes):
        raise InputError(f"--hidden {hidden}: expected sizes from 1 to {_MOST_HIDDEN}: 64,64")
    onnx = network_file(file)
    curve = onnx.with_suffix(".csv")
    for written in (onnx, curve):
        if written.exists():
            raise InputError(f"{written}: is there already: move it away first")
    plan = Plan(steps=steps, seed=seed, places=places, hidden=sizes)
    worlds: Worlds = [read_world(one, sets or ()) for one in world]
    trained = train(worlds, file, reward, plan, tell=_tell)
    write_file(onnx, trained.network.onnx())
    write_file(curve, trained.curve_csv().encode())
    print_note(f"{onnx}: written: {trained.network}; how it learned is in {curve}")


_MOST_HIDDEN = 4096


def _tell(progress: Progress) -> None:
    print_note(
        f"{progress.turns:,} decisions in {progress.wall_s:.0f} s: mean reward "
        f"{progress.mean_reward:.3f}, {100 * progress.share:.0f} % of the links, queues of "
        f"{1e3 * progress.queue_s:.0f} ms"
    )


@app.command()
def rewards(as_json: Json = False) -> None:
    """List what agents may be rewarded for.

    Example: skyhop policy rewards
    """
    from skyhop import _core

    rows = [{"name": name, "for": about} for name, about in _core.list_rewards()]
    print_rows(rows, as_json=as_json)


@app.command()
def look(
    card: Annotated[
        str, typer.Argument(metavar="CARD", help="A file, or one of skyhop policy list.")
    ],
    scenario: Scenario,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FIGURE", help="A PNG, SVG or PDF file.")
    ],
    flow: Annotated[int, typer.Option(min=0, help="The [[flow]] that it decides for.")] = 0,
    sets: Sets = None,
) -> None:
    """Draw what a policy saw of a simulated connection, what it decided, and what came of it.

    Example: skyhop policy look skyhop-leo announced-handovers -o look.png
    """
    from skyhop.data.figure_files import figure_kind
    from skyhop.figures.decisions import decisions_figure
    from skyhop.gym.looking import look as look_at

    figure_kind(output)
    looked = look_at(card, scenario, flow=flow, sets=sets or ())
    decisions_figure(looked, output)
    print_note(f"{output}: {len(looked.said):,} decisions")
