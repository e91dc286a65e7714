"""Trained models: read from their directories and evaluated with numpy alone."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from skyhop.data.arrays import BoolArray, FloatArray, IntArray
from skyhop.errors import InputError, RunError
from skyhop.predict import cards
from skyhop.predict.baselines import BASELINES
from skyhop.predict.cards import Card, Comparison, Measures
from skyhop.predict.change import absolute
from skyhop.predict.measures import errors_of
from skyhop.predict.models import ModelKind, Predictor, kinds
from skyhop.predict.split import GAP_S
from skyhop.predict.windows import SECOND_NS, Features, Windows, features_of, windows_of

if TYPE_CHECKING:
    import polars as pl

    from skyhop.predict.sources import Data

_LARGEST_FILE = 200 << 20


@dataclass(frozen=True)
class Evaluation:
    """Predictions for one horizon, with the true values.

    Attributes:
        horizon_s: the horizon in seconds.
        end_ns: ends of the predicted seconds, shape (n,).
        truth: true values, shape (n,).
        predicted: predictions of the model, shape (n,).
        baselines: predictions of each baseline, shape (n,).
        has_grid: whether a second contains a moment of the 15 s grid, shape (n,).
    """

    horizon_s: int
    end_ns: IntArray
    truth: FloatArray
    predicted: FloatArray
    baselines: Mapping[str, FloatArray]
    has_grid: BoolArray

    def block(self, number: int, count: int) -> Evaluation:
        """Return the part `number` (from 0) of `count` equal parts in the order of time."""
        first, last = (len(self.truth) * edge // count for edge in (number, number + 1))
        part = slice(first, last)
        return replace(
            self, end_ns=self.end_ns[part], truth=self.truth[part], predicted=self.predicted[part],
            baselines={name: found[part] for name, found in self.baselines.items()},
            has_grid=self.has_grid[part],
        )  # fmt: skip

    def comparison(self, *, grid_only: bool = False) -> Comparison:
        """Return the errors of model and baselines.

        Args:
            grid_only: count only seconds that contain a moment of the grid.
        """
        counted = self.has_grid if grid_only else np.ones(len(self.truth), dtype=bool)

        def measured(predicted: FloatArray) -> Measures:
            return Measures.of(errors_of(self.truth[counted], predicted[counted]))

        return Comparison(
            model=measured(self.predicted),
            baselines={name: measured(found) for name, found in self.baselines.items()},
        )


class Model:
    """Trained model in a directory.

    Args:
        directory: directory of the model's card and files, or the card in it.

    Raises:
        InputError: there is no model, or it is damaged.
        RunError: the card cannot be read.

    Attributes:
        directory: directory of the model.
        card: card of the model.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory.parent if directory.name == cards.FILE else directory
        self.card: Card = cards.read_card(self.directory / cards.FILE)
        if self.card.model not in kinds():
            raise InputError(
                f"{self.directory}: is a model of the kind {self.card.model}, which this skyhop "
                f"does not know; it knows {', '.join(kinds())}"
            )
        self._predictors: dict[int, Predictor] = {}

    @property
    def horizons(self) -> list[int]:
        """Horizons of the model in seconds, shortest first."""
        return sorted(each.horizon_s for each in self.card.horizons)

    @cached_property
    def features(self) -> Features:
        """Features that the model uses."""
        card = self.card
        return Features(
            card.target, card.column, tuple(card.past), tuple(card.beside), tuple(card.features)
        )

    def predict(self, windows: Windows) -> FloatArray:
        """Return a prediction per window, at least 0, shape (n,).

        Raises:
            InputError: the model lacks the horizon of the windows, or its file is damaged.
            RunError: the file cannot be read.
        """
        predictor = self.load(windows.horizon_s)
        with np.errstate(over="ignore", invalid="ignore"):
            found = predictor(windows)
        # Latencies and rates are not negative.
        return np.maximum(np.nan_to_num(found, nan=0.0, posinf=np.finfo(np.float64).max), 0.0)

    def load(self, horizon_s: int) -> Predictor:
        """Return the predictor for a horizon; its file is read only once.

        Raises:
            InputError: the model has no such horizon, or its file is damaged or too large.
            RunError: the file cannot be read.
        """
        if horizon_s not in self._predictors:
            self._predictors[horizon_s] = self._read(horizon_s)
        return self._predictors[horizon_s]

    def test(self, data: Data) -> list[Evaluation]:
        """Evaluate the model on data, for each of its horizons.

        Seconds that the model was trained on, and seconds within `GAP_S` of these, are left out.

        Raises:
            InputError: the data lack features of the model, or are too short.
        """
        self.check_has_features(data.frame)
        tested = [
            evaluate(self.predict, self.unseen(data.frame, windows))
            for horizon_s in self.horizons
            for windows in [windows_of(data.frame, self.features, horizon_s)]
        ]
        if not any(len(each.truth) for each in tested):
            raise InputError(
                "the data have no window that the model was not trained on: give other or longer "
                "data"
            )
        return tested

    def unseen(self, frame: pl.DataFrame, windows: Windows) -> Windows:
        """Return the windows whose predicted second is outside the node's training time."""
        parts = {part.node: part for part in self.card.parts}
        names = frame["node"].unique(maintain_order=True).to_list()
        is_unseen = np.ones(len(windows), dtype=bool)
        for number, name in enumerate(names):
            if name in parts:
                part, gap_ns = parts[name], GAP_S * SECOND_NS
                is_apart = (windows.end_ns >= part.test_ns + gap_ns) | (
                    windows.end_ns < part.first_ns - gap_ns
                )
                is_unseen &= is_apart | (windows.nodes != number)
        return windows.select(is_unseen)

    def check_has_features(self, frame: pl.DataFrame, what: str = "these data") -> None:
        """Check that a frame has values for all features; `what` names the data in the message.

        Raises:
            InputError: a feature is missing.
        """
        wanted, card = self.features, self.card
        has = features_of(frame, card.target, card.column, card.features)
        lacking = [
            name
            for name in (*wanted.past, *wanted.covariates)
            if name not in (*has.past, *has.covariates)
            or (name in frame.columns and frame[name].null_count() == frame.height)
        ]
        if lacking:
            raise InputError(
                f"{self.directory}: the model is given {', '.join(lacking[:5])}"
                f"{' and others' if len(lacking) > 5 else ''}, which {what} do not have: train "  # noqa: PLR2004
                "one with --features that they have"
            )

    def _read(self, horizon_s: int) -> Predictor:
        found = [each for each in self.card.horizons if each.horizon_s == horizon_s]
        if not found:
            raise InputError(
                f"{self.directory}: the model has no horizon of {horizon_s} s; it has "
                f"{', '.join(map(str, self.horizons))}"
            )
        file = self.directory / found[0].file
        try:
            with file.open("rb") as stream:
                content = stream.read(_LARGEST_FILE + 1)
        except OSError as error:
            raise RunError(f"{file}: cannot read: {error.strerror}") from None
        if len(content) > _LARGEST_FILE:
            raise InputError(
                f"{file}: is larger than {_LARGEST_FILE >> 20} MB: train a smaller one"
            )
        if hashlib.sha256(content).hexdigest() != found[0].sha256:
            raise InputError(f"{file}: does not match the digest in its card: train it again")
        kind, columns, covariates = self.card.model, len(self.card.past), len(self.card.beside)
        try:
            return read_predictor(
                kinds()[kind], content, columns, covariates, found[0].last_at_most
            )
        except InputError as error:
            raise InputError(f"{file}: {error}") from None


def read_predictor(
    kind: ModelKind, content: bytes, columns: int, covariates: int, last_at_most: float | None
) -> Predictor:
    """Return the predictor of values in a model's file.

    Args:
        kind: kind of the model.
        content: content of the file.
        columns: number of past columns.
        covariates: number of covariates of the windows to predict.
        last_at_most: limit of the last value if the model predicts changes, otherwise None.

    Raises:
        InputError: the file is damaged, or has other numbers of columns or covariates.
    """
    if last_at_most is None:
        return kind.read(content, columns, covariates)
    return absolute(kind.read(content, columns, covariates + 1), last_at_most)


def load_model(place: str | Path) -> Model:
    """Return the model of a directory, or of the card in it.

    Raises:
        InputError: there is no model, or it is damaged.
        RunError: the card cannot be read.
    """
    return Model(Path(place))


def evaluate(predict: Predictor, windows: Windows) -> Evaluation:
    """Evaluate a predictor and the baselines on windows whose truth is known."""
    return Evaluation(
        horizon_s=windows.horizon_s,
        end_ns=windows.end_ns,
        truth=windows.truth,
        predicted=predict(windows) if len(windows) else np.zeros(0),
        baselines={name: baseline(windows) for name, baseline in BASELINES.items()},
        has_grid=windows.has_grid,
    )


def nearest_horizon(horizons: Sequence[int], wanted_s: int) -> int:
    """Return the horizon nearest to `wanted_s`; if two are equally near, the longer one."""
    return min(horizons, key=lambda each: (abs(each - wanted_s), -each))
