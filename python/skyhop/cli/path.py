"""`skyhop path`: compute or import the path between two places."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from skyhop.cli.terminal import print_note, progress_bar

_COMPUTE_HELP = """\
Compute the path between two places over a constellation, and write it to a path file.

Give the places here, or a scenario file with a [path]; options override the file.

Examples:

  skyhop path --from "San Diego" --to "New York" --relay bent-pipe --duration "1 h" -o sd-ny.parquet --plot sd-ny.png

  skyhop path scenario.toml -o path.parquet

  skyhop path import sd-ny.log --format leoem -o path.parquet   (see skyhop path import --help)
"""  # noqa: E501

_IMPORT_HELP = """\
Read another tool's log as a path file.

Example:

  skyhop path import SD_NY_15_BP.log.gz --format leoem -o sd-ny.parquet --plot sd-ny.png
"""


class ComputeUnlessNamed(TyperGroup):
    """A group whose first word may be left out: it is `compute` then."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert `compute` where no subcommand is named."""
        if not args or args[0] not in self.commands:
            args = ["compute", *args]
        return list(super().parse_args(ctx, args))


app = typer.Typer(
    cls=ComputeUnlessNamed,
    help="Compute or import the path between two places.",
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Output = Annotated[
    Path, typer.Option("-o", "--output", metavar="FILE", help="The path file to write (Parquet).")
]
Plot = Annotated[
    Path | None,
    typer.Option("--plot", metavar="PNG", help="Also draw delay, hops and events to this file."),
]


@app.command("compute", help=_COMPUTE_HELP)
def compute(
    output: Output,
    scenario: Annotated[
        Path | None, typer.Argument(metavar="[SCENARIO.toml]", help="A scenario file.")
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="PLACE", help='One end: a city, or "lat,lon[,alt_m]".'),
    ] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="PLACE", help="The other end.")] = None,
    duration: Annotated[
        str | None, typer.Option(metavar="TIME", help='How much time to cover, such as "1 h".')
    ] = None,
    relay: Annotated[str | None, typer.Option(help="isl or bent-pipe.")] = None,
    constellation: Annotated[
        str | None, typer.Option(metavar="NAME", help="See skyhop list constellations.")
    ] = None,
    handover: Annotated[
        str | None, typer.Option(metavar="POLICY", help="See skyhop list handovers.")
    ] = None,
    outage: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help='leoem, none, or a time such as "80 ms".'),
    ] = None,
    during_outage: Annotated[str | None, typer.Option(help="drop or hold.")] = None,
    start: Annotated[str | None, typer.Option(metavar="UTC", help="When the path begins.")] = None,
    step: Annotated[
        str | None, typer.Option(metavar="TIME", help="The time between frames.")
    ] = None,
    gateways: Annotated[
        str | None, typer.Option(metavar="LIST", help="See skyhop list sites; or a CSV file.")
    ] = None,
    compat: Annotated[
        str | None, typer.Option(help="none, or leoem to follow that tool's habits.")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="constellation, fixed or trace.")] = None,
    rtt: Annotated[
        str | None, typer.Option(metavar="TIME", help="For --kind fixed: the round trip.")
    ] = None,
    file: Annotated[
        str | None, typer.Option(metavar="FILE", help="For --kind trace: a path file.")
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the scenario."),
    ] = None,
    plot: Plot = None,
) -> None:
    """Compute a path."""
    import skyhop
    from skyhop.errors import InputError

    keys = {
        "relay": relay,
        "constellation": constellation,
        "handover": handover,
        "outage": outage,
        "during_outage": during_outage,
        "start": start,
        "step": step,
        "gateways": gateways,
        "compat": compat,
        "kind": kind,
        "rtt": rtt,
        "file": file,
    }
    given = {key: value for key, value in keys.items() if value is not None}
    if scenario is None and from_ is None and to is None and not given and not sets:
        raise InputError("nothing to compute: give --from and --to, or a scenario file")
    _check_plot(plot)
    with progress_bar("computing the path") as progress:
        trace = skyhop.path(
            from_,
            to,
            scenario=scenario,
            sets=sets or [],
            duration=duration,
            progress=progress,
            **given,
        )
    _finish(trace, output, plot)


@app.command("import", help=_IMPORT_HELP)
def import_(
    file: Annotated[Path, typer.Argument(help="The log, plain or gzipped.")],
    log_format: Annotated[str, typer.Option("--format", metavar="FORMAT", help="leoem.")],
    output: Output,
    plot: Plot = None,
) -> None:
    """Import a log."""
    import skyhop

    _check_plot(plot)
    _finish(skyhop.import_path(file, log_format), output, plot)


def _check_plot(plot: Path | None) -> None:
    """Find a wrong name before the work rather than after it."""
    from skyhop.errors import InputError

    if plot is None:
        return
    if plot.suffix.lower() != ".png":
        raise InputError(f"{plot}: figures are written as PNG: give a name that ends in .png")
    if not plot.parent.is_dir():
        raise InputError(f"{plot.parent}: there is no such directory: create it first")


def _finish(trace: Any, output: Path, plot: Path | None) -> None:
    trace.write(output)
    print_note(_description(trace, output))
    if plot is not None:
        from skyhop.plot import path_figure

        path_figure(output, plot)
        print_note(f"figure: {plot}")


def _description(trace: Any, output: Path) -> str:
    import pyarrow.compute as pc

    frames = trace.frames
    delay_ms = pc.mean(pc.add(frames["delay_ns"], frames["delay_back_ns"])).as_py() / 1e6
    kinds = pc.struct_field(pc.list_flatten(frames["events"]), "kind").to_pylist()
    counted = ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds))) or "none"
    return f"{output}: {frames.num_rows} frames, mean base RTT {delay_ms:.1f} ms, events: {counted}"
