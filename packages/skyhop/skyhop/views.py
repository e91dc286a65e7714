"""Views of data: a figure, and HTML for notebooks.

Data do not know how they are drawn. The package's `__init__` names the function that draws each
view of each type, and the function's module is imported when a view is first shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol

PROVIDERS: dict[str, str] = {}
"""Full name of the function that draws a view, by type and view: "Run.plot"."""


class Drawing(Protocol):
    """Matplotlib figure, which notebooks show as a picture (`skyhop.figures.Sheet`)."""

    @property
    def axes(self) -> Sequence[Any]:
        """Matplotlib axes of the figure's panels, from top to bottom."""

    def savefig(self, fname: Any, **options: Any) -> None:
        """Write the figure to a file, as matplotlib does it."""

    def _repr_png_(self) -> bytes: ...


def plot(subject: object, **options: object) -> Drawing:
    """Draw the figure of an object; `options` are those of the function that draws it."""
    drawing: Drawing = _view(subject, "plot", options)
    return drawing


def html(subject: object) -> str:
    """Return an object as HTML for a notebook."""
    text: str = _view(subject, "html", {})
    return text


def _view(subject: object, view: str, options: dict[str, object]) -> Any:
    names = (f"{kind.__name__}.{view}" for kind in type(subject).__mro__)
    module, _, function = next(PROVIDERS[name] for name in names if name in PROVIDERS).rpartition(
        "."
    )
    return getattr(import_module(module), function)(subject, **options)
