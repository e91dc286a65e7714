"""Interface of the kinds of models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from skyhop.data.arrays import FloatArray
from skyhop.predict.windows import Windows

Predictor: TypeAlias = Callable[[Windows], FloatArray]
"""Function that returns a prediction per window, shape (n,)."""


@dataclass(frozen=True)
class ModelKind:
    """Kind of model: a function that reads its files.

    Attributes:
        name: name in commands and cards.
        description: description in one line.
        suffix: suffix of the model's files.
        read: returns the predictor for a file's content, given the numbers of past columns and of
            covariates; raises InputError if the file is damaged or has other numbers of these.
    """

    name: str
    description: str
    suffix: str
    read: Callable[[bytes, int, int], Predictor]
