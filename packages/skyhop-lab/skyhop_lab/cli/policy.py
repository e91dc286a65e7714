"""Commands of `skyhop policy` that make policies: convert, train, rewards, look."""

from __future__ import annotations

import tomllib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from skyhop.cli.figures import Footer, Height, Width, figure_file
from skyhop.cli.options import Json, Scenario, Sets
from skyhop.cli.terminal import print_note, print_rows

if TYPE_CHECKING:
    from skyhop_lab.gym.training import Progress

Source = Annotated[
    Path,
    typer.Argument(
        metavar="TENSORS.npz", help="Tensors of a checkpoint, from export_checkpoint.py."
    ),
]


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
    """Convert the tensors of a published checkpoint into the ONNX network of its card.

    The script export_checkpoint.py writes the tensors where TensorFlow or PyTorch is installed
    (skyhop docs policies). A network of dense layers without a card in skyhop can be converted with
    --activation. The command needs the extra convert of skyhop-lab (skyhop docs lab).

    Example: skyhop policy convert orca.npz --card orca -o orca.onnx
    """
    from skyhop.data.files import write_file
    from skyhop.errors import InputError
    from skyhop_lab.policies import NETWORKS, Activation, open_checkpoint, plain_network

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
    from skyhop_lab.policies import NETWORKS

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

    The learning curve is written as CSV in the same directory. Ctrl-C or SIGTERM ends the training
    and keeps the network trained so far. The same seed on the same machine gives the same weights.
    skyhop docs training explains worlds. The command needs the extra train of skyhop-lab (skyhop
    docs lab).

    Example: skyhop policy train mine.toml --world leo.toml --world geo.toml --steps 1000000
    """
    from skyhop.cli.stopping import stop_on_signals
    from skyhop.data.files import write_file
    from skyhop.errors import InputError
    from skyhop_lab.gym.training import TrainingPlan, network_file, train
    from skyhop_lab.gym.world import Worlds, read_world

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
    stop_on_signals()
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


def rewards(as_json: Json = False) -> None:
    """List the reward functions for training.

    Example: skyhop policy rewards
    """
    from skyhop import _core

    rows = [{"name": name, "for": about} for name, about in _core.list_rewards()]
    print_rows(rows, as_json=as_json)


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
    width: Width = "page",
    height: Height = None,
    footer: Footer = True,
) -> None:
    """Draw the inputs, decisions and results of a policy over a simulated connection.

    Example: skyhop policy look skyhop-leo announced-handovers -o look.png
    """
    from skyhop_lab.gym.decision_log import log_decisions
    from skyhop_lab.gym.decisions_figure import decisions_figure

    figure = figure_file(output, width, height, footer=footer)
    log = log_decisions(card, scenario, flow=flow, sets=sets or ())
    figure.write(partial(decisions_figure, log))
    print_note(f"{len(log.outputs):,} decisions")
