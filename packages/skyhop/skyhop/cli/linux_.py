"""`skyhop linux`: run a scenario on a kernel of the user's choice, in virtual time."""

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

The kernel is a process (User-Mode Linux) whose clock stands still during computation. The flows of
the scenario use that kernel's TCP; timing is exact on a busy machine, and results are reproducible
to the last bit. "skyhop linux kernel build 6.12" builds the distribution's kernel, --source your
own tree. No privileges are needed.

Examples:

  skyhop linux kernel build 6.12

  skyhop linux scenario.toml -o runs/cubic

  skyhop linux scenario.toml -o runs/patched --kernel mine --set flow.0.cc=bbr
"""

KERNEL_HELP = "Build, list and remove the kernels that scenarios run on."


class RunUnlessNamed(TyperGroup):
    """Command group with the default subcommand `run`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert `run` if the first word is no subcommand."""
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
        typer.Argument(
            metavar="[-- PROGRAM ...]", help="A program to run over the path instead of TCP flows."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="The run directory.")
    ] = None,
    sets: Sets = None,
    kernel: Annotated[
        str | None,
        typer.Option(
            "--kernel", metavar="NAME", help="Kernel to run on; default: the last built one."
        ),
    ] = None,
    server_cmd: Annotated[
        str | None,
        typer.Option(
            "--server-cmd", metavar="COMMAND", help="Server command, started first at the far end."
        ),
    ] = None,
    cc: Annotated[
        str | None,
        typer.Option(
            "--cc", metavar="NAME", help="The program's congestion control (default: cubic)."
        ),
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
            print_result(stop.run, as_json=as_json, as_csv=as_csv, has_program=True)
        raise
    print_result(result, as_json=as_json, as_csv=as_csv, has_program=bool(program))
    if guest := result.info.get("guest"):
        print_note(f"on {result.info['kernel']} (kernel {guest['name']}, of {guest['source']})")
    print_whereabouts(result, output)


def _offer_to_build(scenario: Path, sets: Sequence[str]) -> None:
    """Offer to build a kernel if none is built, none is named, and a terminal is attached."""
    from skyhop import linux
    from skyhop.data.scenarios import load_scenario

    if linux.built() or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    # Load the scenario first, so that its errors are reported before the long build.
    if linux.kernel_of(load_scenario(scenario, sets)) is not None:
        return
    question = f"no kernel is built; build Linux {linux.DEFAULT_KERNEL} now (about ten minutes)?"
    if typer.confirm(question, default=True, err=True):
        _build(linux.DEFAULT_KERNEL, None, ())


@kernels.command("build")
def build_(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Kernel version; with --source, any name.")
    ],
    source: Annotated[
        Path | None, typer.Option("--source", metavar="DIR", help="Your own kernel source tree.")
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="KEY=VALUE", help="A kernel option (repeatable)."),
    ] = None,
) -> None:
    """Build a kernel, which takes about ten minutes on two cores."""
    stop_on_signals()
    _build(name, source, config or ())


def _build(name: str, source: Path | None, options: Sequence[str]) -> None:
    from skyhop.linux import build

    with progress_bar("building") as bar:
        kernel = build(name, source=source, options=options, progress=bar)
    print_note(f"{kernel.name}: Linux {kernel.release}, HZ {kernel.hz}, of {kernel.source}")


@kernels.command("list")
def list_(as_json: Json = False) -> None:
    """List the kernels that are built."""
    from skyhop.linux import DEFAULT_KERNEL, built, damaged, repair_hint

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
        print_note(f"{directory}: is damaged; {repair_hint(name)}")
    if not rows:
        print_note(
            f"no kernel is built; skyhop linux kernel build {DEFAULT_KERNEL} takes some ten minutes"
        )


@kernels.command("remove")
def remove_(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the kernel.")],
) -> None:
    """Remove a kernel that was built."""
    from skyhop.linux import remove

    remove(name)
