"""`skyhop video`: play films over paths."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skyhop.cli.figures import Footer, Height, PanelName, Plot, Width, figure_file_or_none
from skyhop.cli.options import Json, group

if TYPE_CHECKING:
    import polars as pl

    from skyhop import _core
    from skyhop.analysis.timeline import Timeline
    from skyhop.video.playing import PlaybackOptions, Sessions

app = group("Play films over paths: in virtual time over a rate, or in a browser over a live run.")

_PLAY = """\
Play a film over a path's rate in virtual time, with one or more bitrate controllers.

The path file must have a rate, such as one of measured throughput (skyhop path import). The results
of each controller are printed, with the best possible QoE (at most). See "skyhop list controllers",
"skyhop list films" and "skyhop list qoes". To play a film over TCP, use the application dash of a
flow: "skyhop app show dash".

mpc-l and mpc-o use the true future rate. With --predicted they use the predictions of a throughput
model (skyhop predict train), with --relative-sd and --mean-error the true rate with errors.

Examples:

  skyhop video play drive.parquet --film six-tracks --controller robust-mpc --controller bola

  skyhop video play drive.parquet --every "6 min" -o sessions.parquet --plot first.png

  skyhop video play drive.parquet --controller mpc-l --predicted models/xgboost --every "6 min"
"""

_TABLES = (".parquet", ".csv")

_ORACLE = "oracle"

Film = Annotated[
    str,
    typer.Option("--film", metavar="NAME|FILE", help="A film (skyhop list films), or a film file."),
]
Top = Annotated[
    str | None, typer.Option("--top", metavar="RATE", help="Bitrate of the film's top track.")
]
Qoe = Annotated[str, typer.Option("--qoe", metavar="NAME", help="QoE function (skyhop list qoes).")]


@app.command("play", help=_PLAY)
def play(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Path file with a rate.")],
    controller: Annotated[
        list[str] | None,
        typer.Option(
            "--controller",
            metavar="NAME",
            help="Bitrate controller (skyhop list controllers); repeatable.",
        ),
    ] = None,
    film: Film = "pensieve",
    top: Top = None,
    qoe: Qoe = "pensieve-linear",
    sessions: Annotated[
        int | None,
        typer.Option(
            "--sessions",
            min=1,
            max=1_000_000,
            help="Number of sessions, with evenly spaced starts.",
        ),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(
            "--every", metavar="TIME", help="Instead of --sessions: time between their starts."
        ),
    ] = None,
    predicted: Annotated[
        str,
        typer.Option(
            "--predicted",
            metavar="MODEL|oracle",
            help="Predictor of the rate: directory of a model, or oracle (true rates).",
        ),
    ] = _ORACLE,
    relative_sd: Annotated[
        float | None,
        typer.Option(
            "--relative-sd",
            min=0.0,
            max=10.0,
            help="Relative standard deviation of the oracle's errors.",
        ),
    ] = None,
    mean_error: Annotated[
        float | None,
        typer.Option(
            "--mean-error", min=-0.99, max=10.0, help="Relative mean error of the oracle."
        ),
    ] = None,
    compat: Annotated[
        str,
        typer.Option(
            "--compat", metavar="none|pensieve", help="Player whose behaviour to reproduce."
        ),
    ] = "none",
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Seed of the controllers' random numbers.")
    ] = 1,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="File for a table of all chunks: .parquet or .csv.",
        ),
    ] = None,
    plot: Plot = None,
    panel: PanelName = None,
    width: Width = "page",
    height: Height = None,
    footer: Footer = True,
    as_json: Json = False,
) -> None:
    """Play a film over a path's rate in virtual time."""
    from skyhop.data.paths import read_path
    from skyhop.errors import InputError
    from skyhop.video import playing

    if sessions is not None and every is not None:
        raise InputError("expected either --sessions or --every")
    if output is not None and output.suffix not in _TABLES:
        raise InputError(f"{output}: expected a name that ends with {' or '.join(_TABLES)}")
    figure = figure_file_or_none(plot, width, height, footer=footer)
    if predicted != _ORACLE and (relative_sd, mean_error) != (None, None):
        raise InputError("--relative-sd and --mean-error are for the oracle: leave out --predicted")
    manner = playing.PlaybackOptions(
        film, top, qoe, relative_sd=relative_sd, mean_error=mean_error, compat=compat
    )
    measured = read_path(path)
    trace = playing.rate_trace(measured, str(path))
    predictions = None
    if predicted != _ORACLE:
        predictions = playing.predict_rates(measured, trace, predicted, manner)
    offsets = playing.offsets_s(trace, sessions, every)
    played = {
        name: playing.play(trace, name, manner, offsets=offsets, seed=seed, predictions=predictions)
        for name in dict.fromkeys(controller or ["robust-mpc"])
    }
    best = playing.optimum(trace, manner, offsets=offsets)
    _print(played, best.mean(), qoe, as_json=as_json)
    if output is not None:
        _write(played, output)
    if figure is not None:
        timeline = _timeline_of_first(played, trace, manner, float(offsets[0]))
        timeline = timeline if panel is None else timeline.with_one_panel(panel)
        from skyhop.figures.timeline import draw_timeline

        figure.write(partial(draw_timeline, timeline))


def _print(played: dict[str, Sessions], best: float, qoe: str, *, as_json: bool) -> None:
    from skyhop.analysis.statistics import bootstrap_interval
    from skyhop.cli.tables import Cells, print_table
    from skyhop.cli.terminal import print_rows

    rows = [
        {
            "controller": name,
            "sessions": len(of.sessions),
            "bitrate_mbps": _mean(of.sessions, "mean_bitrate_bps") / 1e6,
            "startup_s": _mean(of.sessions, "startup_ns") / 1e9,
            "stall_s": _mean(of.sessions, "stall_ns") / 1e9,
            "stalls": _mean(of.sessions, "stalls"),
            "switches": _mean(of.sessions, "switches"),
            "qoe": _mean(of.sessions, "qoe"),
            "qoe_low": (interval := bootstrap_interval(of.sessions["qoe"].to_numpy())).low,
            "qoe_high": interval.high,
            "qoe_bound": best,
        }
        for name, of in played.items()
    ]
    if as_json:
        print_rows(rows, as_json=True)
        return
    titles = {
        "sessions": ("sessions", "", ",.0f"), "bitrate_mbps": ("bitrate", "Mbit/s", ".2f"),
        "startup_s": ("start-up", "s", ".2f"), "stall_s": ("stalled", "s", ".2f"),
        "stalls": ("stalls", "", ".1f"), "switches": ("switches", "", ".1f"),
        "qoe": (f"QoE ({qoe})", "per chunk", ".3f"), "qoe_low": ("from", "95 %", ".3f"),
        "qoe_high": ("to", "95 %", ".3f"), "qoe_bound": ("at most", "", ".3f"),
    }  # fmt: skip
    columns = [Cells("controller", "", [str(row["controller"]) for row in rows], numeric=False)]
    for key, (title, unit, form) in titles.items():
        columns.append(Cells(title, unit, [_text(row[key], form) for row in rows]))
    print_table(columns)


def _text(value: object, form: str) -> str:
    return "-" if value is None else format(value, form)


def _mean(frame: pl.DataFrame, column: str) -> float:
    return float(frame[column].to_numpy().mean())


def _write(played: dict[str, Sessions], output: Path) -> None:
    import io

    import polars as pl

    from skyhop.data.files import write_file

    frames = [
        of.chunks.select(pl.lit(name).alias("controller"), pl.all()) for name, of in played.items()
    ]
    whole, content = pl.concat(frames), io.BytesIO()
    if output.suffix == ".parquet":
        whole.write_parquet(content)
    else:
        whole.write_csv(content)
    write_file(output, content.getvalue())


def _timeline_of_first(
    played: dict[str, Sessions],
    trace: _core.RateTrace,
    manner: PlaybackOptions,
    offset_s: float,
) -> Timeline:
    """Return the timeline of each controller's first session, and of the path's rate."""
    import numpy as np
    import polars as pl

    from skyhop.analysis.film_timeline import session_timeline
    from skyhop.video.playing import film_series

    first = pl.col("session") == 0
    films = {name: film_series(of.chunks.filter(first)) for name, of in played.items()}
    at_s = np.arange(0.0, max(1.0, *(film.end_s for film in films.values())))
    mbps = np.array([trace.mean_bps(offset_s + t, offset_s + t + 1) for t in at_s]) / 1e6
    title = f"{manner.read_film().name}: {', '.join(films)}"
    return session_timeline(title, films, (at_s, mbps))
