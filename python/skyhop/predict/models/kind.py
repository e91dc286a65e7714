"""What every kind of model offers."""

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
"""Returns a prediction per window, shape (n,)."""


@dataclass(frozen=True)
class Trained:
    """What training leaves."""

    content: bytes
    """The file that it is read from again."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """For the card: what was chosen, and how far training went."""


@dataclass(frozen=True)
class Kind:
    """A kind of model.

    Attributes:
        name: what commands and cards call it.
        what: in a line.
        suffix: of its file.
        libraries: modules that training needs, none of which reading does.
        train: makes one of the training and the check part, with a seed.
        read: makes a predictor of a file's content, for windows with so many columns of the past
            and so many features beside; raises InputError where it is damaged or of others.
    """

    name: str
    what: str
    suffix: str
    libraries: tuple[str, ...]
    train: Callable[[Windows, Windows, int], Trained]
    read: Callable[[bytes, int, int], Predictor]


def library(name: str) -> ModuleType:
    """Return a module that training needs.

    Raises:
        InputError: it is not installed; the message names the command that does it.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        missing = name.partition(".")[0]
        raise InputError(f"training needs {missing}, which is not installed: {INSTALL}") from None


def check_libraries(kind: Kind) -> None:
    """Raise an InputError where a model of this kind cannot be trained here."""
    for name in kind.libraries:
        library(name)
