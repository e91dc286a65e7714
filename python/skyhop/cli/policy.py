"""`skyhop policy`: learned congestion controls, each a policy card with a neural network."""

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
        help="Checkpoint of TensorFlow (its .index file or model directory) or PyTorch.",
    ),
]


@app.command()
def convert(
    source: Source,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE.onnx", help="ONNX file to write.")
    ],
    card: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Card of the network, from skyhop policy list."),
    ] = None,
    activation: Annotated[
        Literal["relu", "tanh", "leaky-relu"] | None,
        typer.Option(help="Instead of --card: activation after each layer except the last."),
    ] = None,
    last: Annotated[
        Literal["tanh", "none"], typer.Option(help="Activation after the last layer.")
    ] = "none",
    slope: Annotated[
        float | None,
        typer.Option(help="Slope of leaky-relu below 0; default: TensorFlow 0.2, PyTorch 0.01."),
    ] = None,
) -> None:
    """Convert a published checkpoint into the ONNX network of its card.

    Needs neither TensorFlow nor PyTorch, and executes no code of the checkpoint. A network of
    dense layers without a card in skyhop can be converted with --activation.

    Example: skyhop policy convert Orca/models --card orca -o orca.onnx
    """
    from skyhop.data.files import write_file
    from skyhop.errors import InputError
    from skyhop.policies import NETWORKS, Activation, open_checkpoint, plain_network

    _check_options(card, activation, last, slope)
    if output.suffix != ".onnx":
        raise InputError(f"{output}: expected a name that ends with .onnx")
    if output.exists():
        raise InputError(f"{output}: exists already: give another name")
    checkpoint = open_checkpoint(source)
    if card is not None:
        network = NETWORKS[card](checkpoint, _inputs(card))
    elif activation is not None:
        after = Activation(last) if last != "none" else None
        network = plain_network(checkpoint, Activation(activation, slope), after)
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
        raise InputError(
            f"--card {card}: the card defines the activations: leave out --last and --slope"
        )
    if slope is not None and activation != "leaky-relu":
        raise InputError(f"--slope {slope}: only --activation leaky-relu has a slope")


def _inputs(name: str) -> int:
    """Return the number of inputs of a card's network."""
    from skyhop import _core

    observation = tomllib.loads(dict(_core.policy_cards())[name])["observation"]
    return len(observation["features"]) * int(observation["steps"])


@app.command()
def train(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="Policy card to train.")],
    world: Annotated[
        list[Path],
        typer.Option(
            metavar="WORLD.toml",
            help="World file (repeatable); all worlds get the same number of decisions.",
        ),
    ],
    reward: Annotated[
        str, typer.Option(metavar="NAME", help="Reward function of skyhop policy rewards.")
    ] = "leo",
    steps: Annotated[
        int, typer.Option(min=1, help="Total number of decisions of all flows.")
    ] = 4_000_000,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the initial weights and of the scenarios.")
    ] = 1,
    places: Annotated[
        int, typer.Option(min=1, max=4096, help="Number of concurrent episodes.")
    ] = 120,
    hidden: Annotated[
        str, typer.Option(metavar="N,N,…", help="Sizes of the network's hidden layers.")
    ] = "64,64",
    sets: Sets = None,
) -> None:
    """Train the network of a card on random scenarios, and write it to the file named in the card.

    The learning curve is written as CSV in the same directory. Ctrl-C ends the training and keeps
    the network trained so far. The same seed on the same machine gives the same weights. skyhop
    docs training explains worlds. Needs pip install 'skyhop[train]'.

    Example: skyhop policy train mine.toml --world leo.toml --world geo.toml --steps 1000000
    """
    from skyhop.data.files import write_file
    from skyhop.errors import InputError
    from skyhop.gym.training import TrainingPlan, network_file, train
    from skyhop.gym.world import Worlds, read_world

    sizes = [int(text) if text.isdecimal() else 0 for text in hidden.split(",")]
    if not all(1 <= size <= _MOST_HIDDEN for size in sizes):
        raise InputError(f"--hidden {hidden}: expected sizes from 1 to {_MOST_HIDDEN}: 64,64")
    onnx = network_file(file)
    curve = onnx.with_suffix(".csv")
    for written in (onnx, curve):
        if written.exists():
            raise InputError(f"{written}: exists already: move it away first")
    plan = TrainingPlan(steps=steps, seed=seed, slots=places, hidden=sizes)
    worlds: Worlds = [read_world(one, sets or ()) for one in world]
    trained = train(worlds, file, reward, plan, on_progress=_print_progress)
    write_file(onnx, trained.network.onnx())
    write_file(curve, trained.curve_csv().encode())
    print_note(f"{onnx}: written: {trained.network}; learning curve: {curve}")


_MOST_HIDDEN = 4096


def _print_progress(progress: Progress) -> None:
    print_note(
        f"{progress.turns:,} decisions in {progress.wall_s:.0f} s: mean reward "
        f"{progress.mean_reward:.3f}, {100 * progress.share:.0f} % of the links, queues of "
        f"{1e3 * progress.queue_s:.0f} ms"
    )


@app.command()
def rewards(as_json: Json = False) -> None:
    """List the reward functions for training.

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
    flow: Annotated[
        int, typer.Option(min=0, help="Number of the [[flow]] that uses the policy, from 0.")
    ] = 0,
    sets: Sets = None,
) -> None:
    """Draw the inputs, decisions and results of a policy over a simulated connection.

    Example: skyhop policy look skyhop-leo announced-handovers -o look.png
    """
    from skyhop.data.figure_files import figure_kind
    from skyhop.figures.decisions import decisions_figure
    from skyhop.gym.decision_log import log_decisions

    figure_kind(output)
    log = log_decisions(card, scenario, flow=flow, sets=sets or ())
    decisions_figure(log, output)
    print_note(f"{output}: {len(log.outputs):,} decisions")
