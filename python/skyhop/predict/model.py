"""A trained model: read from its directory with numpy alone, and asked."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from skyhop.data.arrays import BoolArray, FloatArray, IntArray
from skyhop.errors import InputError, RunError
from skyhop.predict import cards
from skyhop.predict.baselines import BASELINES
from skyhop.predict.cards import Card, Compared, Measures
from skyhop.predict.measures import errors_of
from skyhop.predict.models import Predictor, kinds
from skyhop.predict.split import GAP_S
from skyhop.predict.windows import SECOND_NS, Features, Windows, features_of, windows_of

if TYPE_CHECKING:
    import polars as pl

    from skyhop.predict.sources import Data

_LARGEST_FILE = 200 << 20


@dataclass(frozen=True)
class Outcome:
    """Predictions of one horizon beside what came.

    Attributes:
        horizon_s: how far ahead.
        end_ns: ends of the seconds, shape (n,).
        truth: what came, shape (n,).
        predicted: by the model, shape (n,).
        baselines: by each baseline, shape (n,).
        has_grid: which seconds hold a moment of the grid, shape (n,).
    """

    horizon_s: int
    end_ns: IntArray
    truth: FloatArray
    predicted: FloatArray
    baselines: Mapping[str, FloatArray]
    has_grid: BoolArray

    def compared(self, *, of_grid: bool = False) -> Compared:
        """Return the errors of model and baselines, of seconds with a moment of the grid or all."""
        chosen = self.has_grid if of_grid else np.ones(len(self.truth), dtype=bool)

        def measured(predicted: FloatArray) -> Measures:
            return Measures.of(errors_of(self.truth[chosen], predicted[chosen]))

        return Compared(
            model=measured(self.predicted),
            baselines={name: measured(found) for name, found in self.baselines.items()},
        )


class Model:
    """A model as it was saved.

    Args:
        directory: where its card and files are.

    Raises:
        InputError: there is none, or it is damaged.
        RunError: it cannot be read.

    Attributes:
        directory: where it is.
        card: its card.
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
        """The horizons that it predicts, in s, shortest first."""
        return sorted(each.horizon_s for each in self.card.horizons)

    @cached_property
    def features(self) -> Features:
        """What it is given."""
        card = self.card
        return Features(
            card.target, card.column, tuple(card.past), tuple(card.beside), tuple(card.features)
        )

    def predict(self, windows: Windows) -> FloatArray:
        """Return a prediction per window of one of its horizons, never below 0, shape (n,).

        Raises:
            InputError: it has no such horizon, or the file of it is damaged.
            RunError: the file cannot be read.
        """
        predictor = self.load(windows.horizon_s)
        with np.errstate(over="ignore", invalid="ignore"):
            found = predictor(windows)
        # Neither times nor rates are negative.
        return np.maximum(np.nan_to_num(found, nan=0.0, posinf=np.finfo(np.float64).max), 0.0)

    def load(self, horizon_s: int) -> Predictor:
        """Read the file of a horizon, once.

        Raises:
            InputError: it has no such horizon, or the file of it is damaged or too large.
            RunError: the file cannot be read.
        """
        if horizon_s not in self._predictors:
            self._predictors[horizon_s] = self._read(horizon_s)
        return self._predictors[horizon_s]

    def test(self, data: Data) -> list[Outcome]:
        """Return predictions beside what came, a horizon each.

        Seconds that the model has been trained on, and those too near to them, are left out.

        Raises:
            InputError: the data lack what the model is given, or are too short.
        """
        self.check_has_features(data.frame)
        tested = [
            outcome_of(self.predict, self.unseen(data.frame, windows))
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
        """Return the windows that are not of the time of the same node that it was trained on."""
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
        return windows.chosen(is_unseen)

    def check_has_features(self, frame: pl.DataFrame, what: str = "these data") -> None:
        """Check that a frame knows what the model is given; `what` it is of, for the message.

        Raises:
            InputError: it does not.
        """
        wanted, card = self.features, self.card
        has = features_of(frame, card.target, card.column, card.features)
        lacking = [
            name
            for name in (*wanted.past, *wanted.beside)
            if name not in (*has.past, *has.beside)
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
            raise InputError(f"{file}: is not the file that its card is of: train the model again")
        try:
            return kinds()[self.card.model].read(
                content, len(self.card.past), len(self.card.beside)
            )
        except InputError as error:
            raise InputError(f"{file}: {error}") from None


def load_model(place: str | Path) -> Model:
    """Return the model of a directory, or of the card in it.

    Raises:
        InputError: there is none, or it is damaged.
        RunError: it cannot be read.
    """
    return Model(Path(place))


def outcome_of(predict: Predictor, windows: Windows) -> Outcome:
    """Return what a predictor and the baselines make of windows whose truth is known."""
    return Outcome(
        horizon_s=windows.horizon_s,
        end_ns=windows.end_ns,
        truth=windows.truth,
        predicted=predict(windows) if len(windows) else np.zeros(0),
        baselines={name: baseline(windows) for name, baseline in BASELINES.items()},
        has_grid=windows.has_grid,
    )


def nearest_horizon(horizons: Sequence[int], wanted_s: int) -> int:
    """Return the horizon that is nearest to a wanted one, the longer of two."""
    return min(horizons, key=lambda each: (abs(each - wanted_s), -each))
