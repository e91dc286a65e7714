"""`skyhop linux`: a scenario on a kernel of the user's choice, in virtual time."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from skyhop.cli.options import Csv, Force, ForceSize, Json, Scenario, Sets, group, with_size
from skyhop.cli.runs import check_form, print_result, print_whereabouts
from skyhop.cli.stopping import stop_on_signals
from skyhop.cli.terminal import print_note, print_rows
from skyhop.data.progress import progress_bar

HELP = """\
Run a scenario on a Linux kernel of your choice, in virtual time.

The kernel is a process (User-Mode Linux) whose clock stands still while anything computes: what a
scenario's flows do is that kernel's TCP, punctual on a busy machine, and the same to the last bit
whenever it is run. Any kernel: "skyhop linux kernel build 6.12" builds the distribution's, with
--source a tree of yours. No rights are needed.

Examples:

  skyhop linux kernel build 6.12

  skyhop linux scenario.toml -o runs/cubic

  skyhop linux scenario.toml -o runs/patched --kernel mine --set flow.0.cc=bbr
"""

KERNEL_HELP = "Build, list and remove the kernels that scenarios run on."


class RunUnlessNamed(TyperGroup):
    """A group whose first word may be left out: it is `run` then."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert `run` where no subcommand is named."""
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["run", *args]
        return list(super().parse_args(ctx, args))


app = typer.Typer(
    cls=RunUnlessNamed,
    help=HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
kernels = group(KERNEL_HELP)
app.add_typer(kernels, name="kernel")


@app.command("run", help=HELP)
def run(
    scenario: Scenario,
    program: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- PROGRAM ...]", help="A program to run instead of TCP flows."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="The run directory.")
    ] = None,
    sets: Sets = None,
    kernel: Annotated[
        str | None,
        typer.Option("--kernel", metavar="NAME", help="The one built last where not given."),
    ] = None,
    server_cmd: Annotated[
        str | None,
        typer.Option("--server-cmd", metavar="COMMAND", help="Run at the far end, first."),
    ] = None,
    cc: Annotated[
        str | None,
        typer.Option("--cc", metavar="NAME", help="A program's congestion control (cubic)."),
    ] = None,
    force: Force = False,
    force_size: ForceSize = False,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Run a scenario in a guest."""
    from skyhop import linux
    from skyhop.engines import Program
    from skyhop.errors import InputError, ProgramError

    check_form(as_json=as_json, as_csv=as_csv)
    if not program and (server_cmd or cc):
        raise InputError(
            "--server-cmd and --cc need a program: add it after --, for example "
            "-- iperf3 -c {server}"
        )
    stop_on_signals()
    whole_sets = with_size(sets, force_size=force_size)
    if kernel is None:
        _offer_to_build(scenario, whole_sets)
    try:
        result = linux.run(
            scenario,
            output,
            sets=whole_sets,
            kernel=kernel,
            program=Program(program, server_cmd) if program else None,
            cc=cc,
            force=force,
        )
    except ProgramError as stop:
        if output is not None:
            print_result(stop.run, as_json=as_json, as_csv=as_csv, beside_program=True)
        raise
    print_result(result, as_json=as_json, as_csv=as_csv, beside_program=bool(program))
    if guest := result.info.get("guest"):
        print_note(f"on {result.info['kernel']} (kernel {guest['name']}, of {guest['source']})")
    print_whereabouts(result, output)


def _offer_to_build(scenario: Path, sets: Sequence[str]) -> None:
    """Ask whether to build the first kernel, where any would do and there is somebody to ask."""
    from skyhop import linux
    from skyhop.data.scenarios import load_scenario

    if linux.built() or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    # What is wrong with it is said before minutes go by.
    if linux.kernel_of(load_scenario(scenario, sets)) is not None:
        return
    question = f"no kernel is built; build Linux {linux.USUAL} now (some ten minutes)?"
    if typer.confirm(question, default=True, err=True):
        _build(linux.USUAL, None, ())


@kernels.command("build")
def build_(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A version, or with --source any name.")
    ],
    source: Annotated[
        Path | None, typer.Option("--source", metavar="DIR", help="A tree of yours.")
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="KEY=VALUE", help="A kernel option (repeatable)."),
    ] = None,
) -> None:
    """Build a kernel: some ten minutes on two cores."""
    stop_on_signals()
    _build(name, source, config or ())


def _build(name: str, source: Path | None, options: Sequence[str]) -> None:
    from skyhop.linux import build

    with progress_bar("building") as bar:
        kernel = build(name, source=source, options=options, progress=bar)
    print_note(f"{kernel.name}: Linux {kernel.release}, HZ {kernel.hz}, of {kernel.source}")


@kernels.command("list")
def list_(as_json: Json = False) -> None:
    """List the kernels that are there."""
    from skyhop.linux import USUAL, built, damaged, how_to_mend

    rows = [
        {
            "name": kernel.name,
            "release": kernel.release,
            "hz": kernel.hz,
            "source": kernel.source,
            "options": " ".join(kernel.options),
        }
        for kernel in built()
    ]
    print_rows(rows, as_json=as_json)
    for directory, name in damaged().items():
        print_note(f"{directory}: is damaged; {how_to_mend(name)}")
    if not rows:
        print_note(f"no kernel is built; skyhop linux kernel build {USUAL} takes some ten minutes")


@kernels.command("remove")
def remove_(name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """Remove a kernel."""
    from skyhop.linux import remove

    remove(name)
