"""Interface of trainers, one per kind of predictor."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

from skyhop.errors import InputError
from skyhop.install import how_to_install
from skyhop.predict.change import limit_of, relative
from skyhop.predict.model import read_predictor
from skyhop.predict.models import Predictor, kinds
from skyhop.predict.training import Predicts
from skyhop.predict.windows import Windows


@dataclass(frozen=True)
class Trained:
    """Result of training a model for one horizon."""

    content: bytes
    """Content of the model's file."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Details for the card: chosen parameters, number of steps, errors in the check part."""


@dataclass(frozen=True)
class Trainer:
    """Trainer of a kind of predictor.

    Attributes:
        kind: name of the kind in `skyhop.predict.models`.
        libraries: modules that training needs; reading a model needs none of them.
        train: trains a model on the training part and the check part, with a seed.
        differences: whether the kind itself decides on differencing, and is given values only.
    """

    kind: str
    libraries: tuple[str, ...]
    train: Callable[[Windows, Windows, int], Trained]
    differences: bool = False


@dataclass(frozen=True)
class TrainedPredictor:
    """Model of one horizon, as trained and as read from its file."""

    made: Trained
    last_at_most: float | None
    """Largest last value that counts if the model predicts changes; None if it predicts values."""
    predict: Predictor
    """Predictor of values of at least 0."""


def train_predictor(
    trainer: Trainer, fit: Windows, check: Windows, seed: int, *, predicts: Predicts
) -> TrainedPredictor:
    """Train a model of changes or of values, and read it as users do."""
    limit = limit_of(fit) if predicts == "change" and not trainer.differences else None
    parts = (fit, check) if limit is None else (relative(fit, limit), relative(check, limit))
    made = trainer.train(*parts, seed)
    read = read_predictor(
        kinds()[trainer.kind], made.content, fit.past.shape[2], fit.covariates.shape[1], limit
    )
    return TrainedPredictor(made, limit, lambda windows: np.maximum(read(windows), 0.0))


def library(name: str) -> ModuleType:
    """Import a module that training needs.

    Raises:
        InputError: the module is not installed; the message has the command to install it.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        missing = name.partition(".")[0]
        raise InputError(
            f"training needs {missing}, which is not installed: "
            f"run {how_to_install('skyhop-lab[predict]')}"
        ) from None


def check_libraries(trainer: Trainer) -> None:
    """Check that the libraries for training are installed; raise an InputError if not."""
    for name in trainer.libraries:
        library(name)
