"""Interface of the kinds of models."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, TypeAlias

from skyhop.data.arrays import FloatArray
from skyhop.errors import InputError
from skyhop.predict.windows import Windows

INSTALL = "pip install 'skyhop[predict]'"

Predictor: TypeAlias = Callable[[Windows], FloatArray]
"""Function that returns a prediction per window, shape (n,)."""


@dataclass(frozen=True)
class Trained:
    """Result of training a model for one horizon."""

    content: bytes
    """Content of the model's file."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Details for the card: chosen parameters, number of steps, errors in the check part."""


@dataclass(frozen=True)
class ModelKind:
    """Kind of model: functions that train a model and that read its files.

    Attributes:
        name: name in commands and cards.
        description: description in one line.
        suffix: suffix of the model's files.
        libraries: modules that training needs; reading a model needs none of them.
        train: trains a model on the training part and the check part, with a seed.
        read: returns the predictor for a file's content, given the numbers of past columns and of
            covariates; raises InputError if the file is damaged or has other numbers of these.
    """

    name: str
    description: str
    suffix: str
    libraries: tuple[str, ...]
    train: Callable[[Windows, Windows, int], Trained]
    read: Callable[[bytes, int, int], Predictor]


def library(name: str) -> ModuleType:
    """Import a module that training needs.

    Raises:
        InputError: the module is not installed; the message has the command to install it.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        missing = name.partition(".")[0]
        raise InputError(f"training needs {missing}, which is not installed: {INSTALL}") from None


def check_libraries(kind: ModelKind) -> None:
    """Check that the libraries for training are installed; raise an InputError if not."""
    for name in kind.libraries:
        library(name)
