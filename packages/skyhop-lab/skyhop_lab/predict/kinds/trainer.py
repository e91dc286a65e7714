"""Interface of trainers, one per kind of predictor."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from skyhop.errors import InputError
from skyhop.install import how_to_install
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
    """

    kind: str
    libraries: tuple[str, ...]
    train: Callable[[Windows, Windows, int], Trained]


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
