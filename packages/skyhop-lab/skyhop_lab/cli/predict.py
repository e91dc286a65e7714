"""`skyhop predict`: models that predict latency and throughput."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skyhop.cli.figures import Footer, Height, Width, figure_file_or_none
from skyhop.cli.options import Json, group
from skyhop.cli.terminal import print_note

if TYPE_CHECKING:
    from skyhop.predict import Data, Model, Options
    from skyhop.predict.cards import BetterBaseline, Card, Comparison, HorizonCard, Measures

app = group(
    "Predict latency and throughput of the next seconds: train models, test them against "
    "baselines, show them. skyhop docs prediction explains them."
)

TRAIN_HELP = """\
Train models, and test them on later data.

DATA are run directories, path files, telemetry directories, or files of measurements in a format of
skyhop telemetry import. The first 80 % of each node's seconds are for training, the rest for the
test, with a gap of 60 s in between. Every model is compared with baselines that need no training;
its card and the printed table show by which measures a baseline is better. Training needs the
extra predict of skyhop-lab (skyhop docs lab).

Examples:

  skyhop predict train victoria_1.csv.gz --model xgboost -o models

  skyhop predict train kept --target throughput --model all --horizon 1-30 -o models
"""
TEST_HELP = """\
Test a model on data, and compare its errors with those of the baselines.

Data that the model was trained on are left out, by node and time. No training library is needed.

With --retrain, a candidate of the same kind is trained after each period, on the --sliding length
of data before the last period. The candidate replaces the model if its mean absolute error in the
last period is lower. A prediction never uses data of its own or a later time. Retraining needs the
extra predict of skyhop-lab (skyhop docs lab).

Examples:

  skyhop predict test models/xgboost victoria_2.csv.gz

  skyhop predict test models/xgboost lagos.csv.gz --retrain "10 min"
"""
SHOW_HELP = """\
Show a model's card. With data and -o, also draw a figure: predicted and true values over time,
against each other, and the distribution of the errors.

Examples:

  skyhop predict show models/xgboost

  skyhop predict show models/xgboost victoria_2.csv.gz -o predicted.png
"""
FRAME_HELP = """\
Write the data frame for training: one row per second and node, as Parquet.

Example:

  skyhop predict frame kept --place "48.43,-123.37" --elements starlink.tle -o frame.parquet
"""

DataFiles = Annotated[
    list[Path], typer.Argument(metavar="DATA...", help="Runs, paths, telemetry or measurements.")
]
ModelPlace = Annotated[Path, typer.Argument(metavar="MODEL", help="Directory of a model.")]
Direction = Annotated[
    str, typer.Option(help="Direction of the throughput: down or up.", metavar="DIRECTION")
]
PerSecond = Annotated[
    str,
    typer.Option(
        metavar="WHICH",
        help="Statistic of a second's round trips that is its latency: median, mean or first.",
    ),
]
Place = Annotated[
    str | None,
    typer.Option(metavar="PLACE", help='Location of the terminal: a city, or "lat,lon[,alt_m]".'),
]
Elements = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Element sets of that time, or a constellation: add features of visible satellites.",
    ),
]
Output = Annotated[
    Path, typer.Option("-o", "--output", metavar="DIR", help="Directory for the models.")
]


@app.command("train", help=TRAIN_HELP)
def train(
    files: DataFiles,
    output: Output,
    target: Annotated[
        str, typer.Option(help="Quantity to predict: latency or throughput.")
    ] = "latency",
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Kind of model: arima, lstm, xgboost or all; repeatable."
        ),
    ] = None,
    horizon: Annotated[
        str, typer.Option(metavar="SECONDS", help="Prediction horizons: 1, or 1,5,10, or 1-30.")
    ] = "1",
    features: Annotated[
        str,
        typer.Option(
            metavar="GROUPS",
            help="Feature groups: usual, published, or, separated by commas, some of history, "
            "position, dish, satellites, obstruction, hour, timestamp, grid, serving.",
        ),
    ] = "usual",
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 1,
    train_share: Annotated[
        float,
        typer.Option(help="Share of each node's seconds for training; the rest is test data."),
    ] = 0.8,
    predicts: Annotated[
        str,
        typer.Option(
            metavar="WHAT",
            help="What trees and networks predict: the change from the last value, or the value.",
        ),
    ] = "change",
    direction: Direction = "down",
    per_second: PerSecond = "median",
    place: Place = None,
    elements: Elements = None,
    as_json: Json = False,
) -> None:
    """Train models and print their errors."""
    from skyhop import predict
    from skyhop.predict.training import Plan
    from skyhop_lab.predict.kinds import trainers
    from skyhop_lab.predict.training import train as train_models

    chosen = model or ["xgboost"]
    names = list(trainers()) if "all" in chosen else chosen
    plan = Plan(
        target=target,  # type: ignore[arg-type]
        horizons=_horizons(horizon),
        groups=_groups(features),
        seed=seed,
        train_share=train_share,
        predicts=predicts,  # type: ignore[arg-type]
    )
    plan.check()
    options = _options(direction, per_second, place, elements)
    data = predict.read_data(files, options)
    models = train_models(data, names, output, plan, report=print_note)
    if as_json:
        print(json.dumps([each.card.model_dump(mode="json", by_alias=True) for each in models],
                         indent=2, ensure_ascii=False))  # fmt: skip
        return
    _print_trained(models)
    for each in models:
        print_note(f"model: {each.directory}")


@app.command("test", help=TEST_HELP)
def try_model(
    model: ModelPlace,
    files: DataFiles,
    retrain: Annotated[
        str | None,
        typer.Option(
            metavar="EVERY",
            help='Retrain the model after each period of this length, such as "1 h".',
        ),
    ] = None,
    sliding: Annotated[
        str, typer.Option(metavar="TIME", help="With --retrain: length of the past to train on.")
    ] = "24 h",
    place: Place = None,
    elements: Elements = None,
    as_json: Json = False,
) -> None:
    """Test a model and print its errors."""
    from skyhop import predict

    loaded = predict.load_model(model)
    data = _data_for(loaded, files, place, elements)
    if retrain is not None:
        _test_retrained(loaded, data, retrain, sliding, as_json=as_json)
        return
    pairs = [
        (each.horizon_s, each.comparison(), each.comparison(grid_only=True))
        for each in loaded.test(data)
        if len(each.truth)
    ]
    if as_json:
        print(json.dumps([
            {"horizon_s": horizon_s, "all_seconds": whole.model_dump(),
             "grid_seconds": grid.model_dump()}
            for horizon_s, whole, grid in pairs
        ], indent=2, ensure_ascii=False))  # fmt: skip
        return
    from skyhop.predict.cards import better_baselines

    card = loaded.card
    whole_rows = [(horizon_s, card.model, whole) for horizon_s, whole, _ in pairs]
    grid_rows = [(horizon_s, card.model, grid) for horizon_s, _, grid in pairs]
    _print_compared(whole_rows, card, f"{_quantity(card)}, all seconds")
    _print_compared(grid_rows, card, f"{_quantity(card)}, seconds with a moment of the grid")
    for horizon_s, whole, _ in pairs:
        _print_worse(card.model, horizon_s, better_baselines(whole))


def _test_retrained(model: Model, data: Data, every: str, sliding: str, *, as_json: bool) -> None:
    """Print the errors of a model with periodic retraining, and of the model without it."""
    from skyhop_lab.predict.retraining import walk_forward

    card = model.card
    found = walk_forward(
        model, data, _whole_s(every, "--retrain"), _whole_s(sliding, "--sliding"), print_note
    )
    if as_json:
        print(json.dumps([
            {"horizon_s": each.once.horizon_s, "periods": each.periods, "trained": each.trained,
             "kept": each.kept, "once": each.once.comparison().model_dump(),
             "retrained": each.retrained.comparison().model_dump()}
            for each in found
        ], indent=2, ensure_ascii=False))  # fmt: skip
        return
    rows = []
    for each in found:
        horizon_s, once, again = (
            each.once.horizon_s,
            each.once.comparison(),
            each.retrained.comparison(),
        )
        rows += [(horizon_s, f"{card.model}, trained once", once),
                 (horizon_s, f"{card.model}, every {every}", again)]  # fmt: skip
    _print_compared(rows, card, f"{_quantity(card)}, all seconds")
    for each in found:
        print(
            f"{each.once.horizon_s} s ahead: {each.periods} periods of {every}; "
            f"{each.trained} candidates trained, {each.kept} kept"
            + ("" if each.trained else ": too few seconds without gaps in --sliding or a period")
        )


def _whole_s(text: str, option: str) -> int:
    from skyhop import _core

    return int(_core.duration_s(option, text))


@app.command("show", help=SHOW_HELP)
def show(
    model: ModelPlace,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[DATA...]", help="Test data for the figure."),
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FIGURE", help="Figure to write: PNG, SVG or PDF."),
    ] = None,
    horizon: Annotated[
        int | None,
        typer.Option(metavar="SECONDS", help="Horizon of the figure; default: the shortest."),
    ] = None,
    width: Width = "page",
    height: Height = None,
    footer: Footer = True,
    place: Place = None,
    elements: Elements = None,
    as_json: Json = False,
) -> None:
    """Show a model's card, and draw a figure of a test."""
    from skyhop import predict
    from skyhop.errors import InputError

    wanted = figure_file_or_none(figure, width, height, footer=footer)
    if (figure is None) != (not files):
        raise InputError("a figure needs data and -o FIGURE: give both, or neither")
    loaded = predict.load_model(model)
    if horizon is not None and horizon not in loaded.horizons:
        raise InputError(f"--horizon: the model has {', '.join(map(str, loaded.horizons))}")
    if as_json:
        print(loaded.card.text().decode(), end="")
    else:
        _print_card(loaded)
    if wanted is not None:
        from skyhop.analysis.prediction import prediction_view
        from skyhop.figures.prediction import prediction_figure

        found = loaded.test(_data_for(loaded, files or [], place, elements))
        chosen = next(t for t in found if horizon in (None, t.horizon_s) and len(t.truth))
        wanted.write(partial(prediction_figure, prediction_view(loaded.card, chosen)))


@app.command("frame", help=FRAME_HELP)
def frame(
    files: DataFiles,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="A Parquet file.")],
    direction: Direction = "down",
    per_second: PerSecond = "median",
    place: Place = None,
    elements: Elements = None,
) -> None:
    """Write the data frame for training."""
    from skyhop import predict
    from skyhop.errors import InputError

    if output.suffix != ".parquet":
        raise InputError(f"-o: {output}: expected a name that ends in .parquet")
    data = predict.read_data(files, _options(direction, per_second, place, elements))
    predict.write_frame(data.frame, output)
    known = [n for n in data.frame.columns if data.frame[n].null_count() < data.frame.height]
    print_note(f"{output}: {data.frame.height:,} seconds; {', '.join(known)}")


def _horizons(text: str) -> list[int]:
    from skyhop.errors import InputError

    found: list[int] = []
    try:
        for part in text.split(","):
            first, dash, last = part.partition("-")
            found += range(int(first), int(last if dash else first) + 1) if len(part) < 8 else [0]  # noqa: PLR2004
    except ValueError:
        found = []
    if not found:
        raise InputError(f'--horizon: expected seconds such as 1, 1,5,10 or 1-30, not "{text}"')
    return found


def _groups(text: str) -> Sequence[str]:
    from skyhop.predict.windows import PUBLISHED, USUAL

    named = {"usual": USUAL, "published": PUBLISHED}
    return named.get(text) or tuple(dict.fromkeys(name.strip() for name in text.split(",")))


def _options(direction: str, per_second: str, place: str | None, elements: str | None) -> Options:
    from skyhop.data.places import find_place
    from skyhop.errors import InputError
    from skyhop.predict import Options

    if direction not in ("down", "up"):
        raise InputError(f'--direction: expected down or up, not "{direction}"')
    if per_second not in ("median", "mean", "first"):
        raise InputError(f'--per-second: expected median, mean or first, not "{per_second}"')
    found = None if place is None else find_place(place)
    where = None if found is None else (
        found.latitude_deg, found.longitude_deg, found.altitude_m
    )  # fmt: skip
    return Options(direction, per_second, where, elements)  # type: ignore[arg-type]


def _data_for(model: Model, files: Sequence[Path], place: str | None, elements: str | None) -> Data:
    from skyhop.predict import read_data

    card = model.card
    return read_data(files, _options(card.direction, card.per_second, place, elements))


# --- output ---


def _print_trained(models: Sequence[Model]) -> None:
    """Print the errors of all models and of the baselines, by horizon."""
    card = models[0].card
    for is_grid, title in ((False, "all seconds"), (True, "seconds with a moment of the grid")):
        rows = [
            (horizon.horizon_s, each.card.model, _comparison(horizon, is_grid=is_grid))
            for horizon_s in models[0].horizons
            for each in models
            for horizon in each.card.horizons
            if horizon.horizon_s == horizon_s
        ]
        _print_compared(rows, card, f"{_quantity(card)}, test part, {title}")
    for each in models:
        for horizon in each.card.horizons:
            _print_worse(each.card.model, horizon.horizon_s, horizon.worse)
    for note in card.notes:
        print(f"note: {note}")


def _comparison(horizon: HorizonCard, *, is_grid: bool) -> Comparison:
    return horizon.grid_seconds if is_grid else horizon.all_seconds


def _quantity(card: Card) -> str:
    way = "" if card.target == "latency" else f", {card.direction}"
    return f"{card.target}{way}"


def _print_compared(rows: Sequence[tuple[int, str, Comparison]], card: Card, title: str) -> None:
    from skyhop.cli.terminal import print_rows

    table = []
    for place, (horizon_s, name, compared) in enumerate(rows):
        table.append(_row(horizon_s, name, compared.model, card))
        is_last = place + 1 == len(rows) or rows[place + 1][0] != horizon_s
        if is_last:
            # All models of a horizon are tested on the same data: print the baselines once.
            table += [_row(horizon_s, n, m, card) for n, m in compared.baselines.items()]
    print_rows(table, as_json=False, title=title)


def _row(horizon_s: int, name: str, errors: Measures, card: Card) -> dict[str, Any]:
    scale, unit = (1.0, "ms") if card.target == "latency" else (1e-6, "Mbit/s")

    def shown(value: float | None, digits: int = 2, factor: float = 1.0) -> float | None:
        return None if value is None else round(value * factor, digits)

    return {
        "ahead (s)": horizon_s,
        "predictor": name,
        "seconds": errors.seconds,
        "not 0": errors.nonzero_seconds,
        "MAPE (%)": shown(errors.mape_pct),
        f"RMSE ({unit})": shown(errors.rmse, 3, scale),
        f"MAE ({unit})": shown(errors.mae, 3, scale),
        "within 5 % (%)": shown(errors.within_5_pct, 1),
        "within 10 % (%)": shown(errors.within_10_pct, 1),
        "weighted APE (%)": shown(errors.weighted_ape_pct),
        "APE p50 (%)": shown(errors.ape_p50_pct),
        "APE p95 (%)": shown(errors.ape_p95_pct),
        "APE p99 (%)": shown(errors.ape_p99_pct),
    }


_NAMES = {
    "mape_pct": "MAPE", "weighted_ape_pct": "weighted APE", "rmse": "RMSE", "mae": "MAE",
    "within_5_pct": "within 5 %", "within_10_pct": "within 10 %", "ape_p50_pct": "APE p50",
    "ape_p95_pct": "APE p95", "ape_p99_pct": "APE p99",
}  # fmt: skip


def _print_worse(model: str, horizon_s: int, worse: Sequence[BetterBaseline]) -> None:
    """Print the error measures by which a model is worse than the best baseline."""
    by_baseline: dict[str, list[str]] = {}
    for each in worse:
        by_baseline.setdefault(each.baseline, []).append(_NAMES.get(each.measure, each.measure))
    said = "; ".join(f"{name} by {', '.join(which)}" for name, which in by_baseline.items())
    if said:
        print(f"{model}, {horizon_s} s ahead, is worse than: {said}")
    else:
        print(f"{model}, {horizon_s} s ahead, is better than every baseline by every measure")


def _print_card(model: Model) -> None:
    card = model.card
    for name, text in _facts(card):
        print(f"{name + ':':<11}{text}")
    rows = [(h.horizon_s, card.model, h.all_seconds) for h in card.horizons]
    _print_compared(rows, card, f"{_quantity(card)}, test part, all seconds")
    for horizon in card.horizons:
        _print_worse(card.model, horizon.horizon_s, horizon.worse)


def _facts(card: Card) -> Iterator[tuple[str, str]]:
    yield "model", f"{card.model}, skyhop {card.skyhop}, seed {card.seed}"
    is_change = any(each.last_at_most is not None for each in card.horizons)
    how = ", as the change from the last value" if is_change else ""
    yield "target", f"{card.column} in {card.unit}{how}"
    yield "features", f"{', '.join(card.features)} ({', '.join([*card.past, *card.beside][:12])})"
    for source in card.sources:
        yield "data", f"{source.name} ({source.kind}), {source.seconds:,} s, {source.sha256[:12]}"
    share = f"{100 * card.train_share:g} % of the time"
    yield "split", f"{share} to train, the rest to test, {card.gap_s} s between"
    for name, version in card.libraries.items():
        yield "made with", f"{name} {version}"
    for note in card.notes:
        yield "note", note
