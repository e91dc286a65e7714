"""View model of the figure of portraits: panels of curves, of each input in its colour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from skyhop.analysis.portrait import Portraits
from skyhop.analysis.portrait_curves import Curve
from skyhop.analysis.styles import style_of_index
from skyhop.analysis.timeline import LIGHT_GREY, Stroke, no_panel


@dataclass(frozen=True)
class PanelCurve:
    """Curve of one input in a panel."""

    label: str
    curve: Curve
    stroke: Stroke


@dataclass(frozen=True)
class PortraitPanel:
    """Panel with one quantity of each input that tells it."""

    name: str
    """Name of the panel, for the choice of a single one."""
    x: str
    y: str
    """Title of the y axis; `x` is that of the x axis, both with their units."""
    curves: Sequence[PanelCurve]
    is_log_x: bool = False
    is_log_y: bool = False
    is_share: bool = False
    """Whether y is a share from 0 to 1."""
    is_step: bool = False
    """Whether a curve has a step half way between two points."""
    mark_at: float | None = None
    """Place on the x axis of a line that shows the mark."""
    least_x: float | None = None
    """Least x to show; None for all."""


@dataclass(frozen=True)
class PortraitFigure:
    """Panels of portraits, in pairs that stand side by side on a wide figure."""

    title: str
    labels: Sequence[str]
    """Labels of the curves, in the order of the legend."""
    panels: Sequence[PortraitPanel]
    note: str


@dataclass(frozen=True)
class _Kind:
    """Panel before it has curves."""

    key: str
    name: str
    x: str
    y: str
    is_log_x: bool = False
    is_log_y: bool = False
    is_share: bool = False
    around: bool = False
    least_x: float | None = None


_REFERENCE = "reference logs"
_FROM_MARK = "time from the mark (s)"
_SHARE = "share of the answers"


def _of_direction(way: str) -> Iterator[_Kind]:
    yield _Kind(f"{way}_rate", f"{way}: rate", f"{way}: rate (Mbit/s)", "share of the steps",
                is_share=True)  # fmt: skip
    yield _Kind(f"{way}_slots", f"{way}: slots", "slots later",
                f"{way}: correlation\nof slot means")  # fmt: skip
    yield _Kind(f"{way}_loss_around", f"{way}: loss", _FROM_MARK, f"{way}: loss\n(%)", around=True)
    yield _Kind(f"{way}_rate_around", f"{way}: rate around", _FROM_MARK, f"{way}: rate\n(Mbit/s)",
                around=True)  # fmt: skip
    yield _Kind(f"{way}_delay_around", f"{way}: delay", _FROM_MARK,
                f"{way}: one-way\ndelay (ms)", around=True)  # fmt: skip


_KINDS = (
    _Kind("rtt", "round trips", "round trip (ms)", _SHARE, is_log_x=True, is_share=True),
    _Kind("excess", "excess", "excess over the slot's floor (ms)", "share above",
          is_log_x=True, is_log_y=True, least_x=1.0),
    _Kind("memory", "memory", "lag (ms)", "autocorrelation\nof the excess", is_log_x=True),
    _Kind("rtt_around", "round trips around", _FROM_MARK, "mean round trip\n(ms)", around=True),
    *(kind for pair in zip(_of_direction("up"), _of_direction("down"), strict=True)
      for kind in pair),
    _Kind("spread", "spread", "length of the bins (ms)", "sd over mean\nof the packets",
          is_log_x=True),
    _Kind("spectrum", "spectrum", "frequency (Hz)", "power over the\nmedian around",
          is_log_y=True),
)  # fmt: skip


def portrait_figure(shown: Portraits, panel: str | None = None) -> PortraitFigure:
    """Return the figure of portraits.

    Args:
        shown: the portraits; reference logs are grey.
        panel: name of a panel to show alone; by default all.

    Raises:
        InputError: there is no such panel.
    """
    panels = [made for kind in _KINDS if (made := _panel(kind, shown)).curves]
    if panel is not None:
        names = [one.name for one in panels]
        if panel not in names:
            raise no_panel(panel, names)
        panels = [one for one in panels if one.name == panel]
    labels = [*(one.name for one in shown.portraits), *([_REFERENCE] if shown.references else [])]
    inputs = ", ".join(one.name for one in shown.portraits)
    grids = [f"{one.name}: {one.grid.text}" for one in shown.portraits]
    return PortraitFigure(f"Access link: {inputs}", labels, panels, "; ".join(grids))


def _panel(kind: _Kind, shown: Portraits) -> PortraitPanel:
    drawn = [(_REFERENCE, one, Stroke(LIGHT_GREY, 1.0)) for one in shown.references]
    for place, one in enumerate(shown.portraits):
        style = style_of_index(place)
        drawn.append((one.name, one, Stroke(style.colour, 1.4, style.dash, 0.95)))
    curves = [
        PanelCurve(label, one.curves[kind.key], stroke)
        for label, one, stroke in drawn
        if kind.key in one.curves
    ]
    return PortraitPanel(
        kind.name, kind.x, kind.y, curves, kind.is_log_x, kind.is_log_y, kind.is_share,
        is_step=kind.around, mark_at=0.0 if kind.around else None,
        least_x=kind.least_x,
    )  # fmt: skip
