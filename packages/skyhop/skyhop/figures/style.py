"""Layout of figures: widths, axes, legends and files.

Figures are made without pyplot, so they keep no global state and need no display. A figure is
drawn for the width at which it is shown: on a page, or in one or two columns of a paper.
"""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from skyhop.analysis.timeline import GREY
from skyhop.data.figure_files import FigureKind, FigureWidth, figure_kind
from skyhop.data.files import write_files
from skyhop.errors import InputError

DPI = 140
"""Pixels per inch of a PNG for a page; a PNG for a paper has `PAPER_DPI`."""

PAPER_DPI = 300

_LEAST_IN_LEGEND = 12.0
"""Least area of a dot in a legend, in square points."""

_LEGEND_LETTERS = 40
"""Line length in letters to which entries of legends are wrapped."""

_LETTER = 0.55
"""Mean ratio of a letter's width to the font size."""

AXIS_COLOUR = "#BBBBBB"
SHARES = ([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
"""Ticks of an axis of shares, and their labels."""

MARKERS = {
    "circle": "o", "square": "s", "triangle": "^", "diamond": "D", "down": "v", "pentagon": "p",
    "plus": "P", "left": "<", "right": ">", "star": "*", "cross": "X", "hexagon": "H",
}  # fmt: skip
"""Matplotlib's marker for each name that view models use."""


@dataclass(frozen=True)
class Layout:
    """Layout of figures of one width."""

    width_in: float
    scale: float
    """Scale of fonts and strokes, 1 on a page."""
    height: float
    """Scale of the axes' heights, 1 on a page."""
    dpi: int
    is_narrow: bool
    """Whether there is no room next to axes: legends go above axes, and axes below each other."""

    def letters(self, points: float) -> int:
        """Return how many letters of a font size (points) fit into the width of a figure."""
        return int(self.width_in * 72 / (_LETTER * points * self.scale))


LAYOUTS: Mapping[FigureWidth, Layout] = {
    "page": Layout(11.0, 1.0, 1.0, DPI, is_narrow=False),
    "two-column": Layout(7.16, 0.85, 0.75, PAPER_DPI, is_narrow=False),
    "one-column": Layout(3.5, 0.8, 0.62, PAPER_DPI, is_narrow=True),
}
"""Layout for each width; column widths are those of IEEE's journals and conferences."""


class Sheet(Figure):
    """Matplotlib figure with the layout for its width."""

    def __init__(self, height_in: float, width: FigureWidth, share: float = 1.0) -> None:
        """Make a figure of this height (on a page) and this share of the width (unless narrow)."""
        layout = LAYOUTS[width]
        wide_in = layout.width_in * (1.0 if layout.is_narrow else share)
        super().__init__(figsize=(wide_in, height_in * layout.height), layout="constrained")
        self._agg = FigureCanvasAgg(self)
        self.laid_out = layout
        self.note_in = 0.0
        """Height of the note below the axes in inches."""

    def _repr_png_(self) -> bytes:
        """Return a PNG of the figure; notebooks call this, so that they show it without pyplot."""
        return png_bytes(self)

    def pixels(self) -> npt.NDArray[np.uint8]:
        """Return RGB values of the figure at 100 pixels per inch, shape (height, width, 3)."""
        for text in self.findobj(Text):
            text.set_parse_math(False)
        with rc_context(FIGURE_STYLE):
            self._agg.draw()  # type: ignore[no-untyped-call]
        return np.array(self._agg.buffer_rgba())[:, :, :3]  # type: ignore[no-untyped-call]

    def grow(self, more_in: float) -> None:
        """Add height (inches) for titles, legends or notes outside the axes."""
        self.set_figheight(self.get_figheight() + more_in)


def sheet_of(artist: Artist) -> Sheet:
    """Return the figure that contains an artist."""
    figure = artist.figure.figure if artist.figure is not None else None
    assert isinstance(figure, Sheet), "all figures of this package are sheets"
    return figure


def pt(artist: Artist, points: float) -> float:
    """Return the size (points) of a font or stroke, scaled for the figure's width."""
    return points * sheet_of(artist).laid_out.scale


def new_figure(
    height_in: float,
    ratios: Sequence[float],
    width: FigureWidth = "page",
    *,
    shared: int | None = None,
) -> tuple[Sheet, list[Axes]]:
    """Make a white figure with one column of axes.

    Args:
        height_in: height on a page in inches.
        ratios: relative heights of the axes.
        width: target of the figure: a page, or one or two columns of a paper.
        shared: number of axes, from the top, that share one time axis; by default all.
    """
    with rc_context(FIGURE_STYLE):
        figure = Sheet(height_in, width)
        grid = figure.add_gridspec(len(ratios), 1, height_ratios=list(ratios))
        axes = [figure.add_subplot(grid[0])]
        for row in range(1, len(ratios)):
            first = axes[0] if shared is None or row < shared else None
            axes.append(figure.add_subplot(grid[row], sharex=first))
    for ax in axes:
        dress(ax)
    for ax in axes[: (len(axes) if shared is None else shared) - 1]:
        ax.tick_params(labelbottom=False)
    return figure, axes


def title_figure(figure: Sheet, title: str) -> None:
    """Write a title above the figure, wrapped to its width."""
    lines = textwrap.wrap(title, figure.laid_out.letters(11))
    figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=11 * figure.laid_out.scale)
    figure.grow(0.19 * figure.laid_out.scale * (len(lines) - 1))


def note_figure(figure: Sheet, note: str) -> None:
    """Write a note below the figure, wrapped to its width; nothing for an empty note."""
    if not note:
        return
    lines = textwrap.wrap(note, figure.laid_out.letters(8))
    figure.supxlabel("\n".join(lines), x=0.99, ha="right", color=GREY,
                     fontsize=8 * figure.laid_out.scale)  # fmt: skip
    figure.note_in = 0.16 * figure.laid_out.scale * len(lines)
    figure.grow(figure.note_in)


def shape_figure(figure: Sheet, height_in: float | None, *, footer: bool) -> Sheet:
    """Set the height of a drawn figure, and remove the note below it without `footer`.

    Raises:
        InputError: the height (inches) has no room for the figure's axes.
    """
    if not footer:
        figure.supxlabel("")
        figure.grow(-figure.note_in)
        figure.note_in = 0.0
    if height_in is None:
        return figure
    figure.set_figheight(height_in)
    with warnings.catch_warnings(record=True) as said, rc_context(FIGURE_STYLE):
        warnings.simplefilter("always")
        figure.draw_without_rendering()
    if any("axes sizes collapsed" in str(warning.message) for warning in said):
        raise InputError(
            f"a height of {height_in:g} in is too small for the figure's {len(figure.axes)} axes: "
            "make it higher, or draw one panel"
        )
    return figure


def title_axes(ax: Axes, title: str, points: float = 9.5, **placed: Any) -> None:
    """Write a title above axes, wrapped to their width."""
    across = ax.get_subplotspec()
    columns = across.get_gridspec().ncols if across is not None else 1
    lines = textwrap.wrap(title, sheet_of(ax).laid_out.letters(points) * 4 // 5 // columns)
    ax.set_title("\n".join(lines), fontsize=pt(ax, points), **{"loc": "left", **placed})


def dress(ax: Axes) -> None:
    """Give the axes a light grid and no frame."""
    ax.grid(visible=True, color="#E6E6E6", linewidth=pt(ax, 0.6))
    ax.set_axisbelow(True)
    ax.tick_params(length=3, color=AXIS_COLOUR, labelsize=pt(ax, 9))
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(AXIS_COLOUR)


def label_x(ax: Axes, what: str) -> None:
    """Label the x axis."""
    ax.set_xlabel(what, fontsize=pt(ax, 9))


def label_y(
    ax: Axes, what: str, unit: str, *, is_count: bool = False, is_log: bool = False
) -> None:
    """Label the y axis with quantity and unit; `is_count` for counts, which need no decimals."""
    ax.set_ylabel(f"{what}\n({unit})" if unit else what, fontsize=pt(ax, 9))
    if is_log:
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=7))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
        ax.yaxis.set_minor_locator(NullLocator())
        return
    ax.yaxis.set_major_locator(MaxNLocator(nbins=5, min_n_ticks=3, integer=is_count))


def label_time(ax: Axes, end_s: float) -> None:
    """Label the x axis as time, from 0 to `end_s`."""
    ax.set_xlim(0, end_s if end_s > 0 else 1)
    label_x(ax, "time since the start (s)")


def add_legend(ax: Axes, known: set[str] | None = None) -> None:
    """Put a legend where it covers no data: right of the axes, or above them if narrow.

    Args:
        ax: the axes.
        known: labels that legends of axes above contain already. A narrow figure does not repeat
            these labels. The labels of this legend are added to the set.
    """
    handles, labels = ax.get_legend_handles_labels()
    labels = [textwrap.fill(label, _LEGEND_LETTERS) for label in labels]
    layout = sheet_of(ax).laid_out
    if known is not None and layout.is_narrow:
        named = [(h, text) for h, text in zip(handles, labels, strict=True) if text not in known]
        handles, labels = [h for h, _ in named], [text for _, text in named]
        known.update(labels)
    if not handles:
        return
    place = _above(ax, labels) if layout.is_narrow else _right()
    legend = ax.legend(handles, labels, frameon=False, fontsize=pt(ax, 8.5), borderaxespad=0,
                       **place)  # fmt: skip
    for handle in legend.legend_handles:
        # Very small dots are visible only in large numbers: enlarge them in the legend.
        if isinstance(handle, PathCollection):
            handle.set_sizes(np.maximum(handle.get_sizes(), _LEAST_IN_LEGEND))


def _right() -> dict[str, Any]:
    return {
        "loc": "upper left",
        "bbox_to_anchor": (1.005, 1.03),
        "handlelength": 2.0,
        "labelspacing": 0.35,
    }


def _above(ax: Axes, labels: Sequence[str]) -> dict[str, Any]:
    """Return the position of a legend in rows above the axes, and make room for it."""
    sheet = sheet_of(ax)
    # The handle and gaps of an entry are about as wide as seven letters.
    room, entry = sheet.laid_out.letters(8.5) - 12, max(map(len, labels)) + 7
    columns = min(max(room // entry, 1), len(labels))
    rows = -(-len(labels) // columns)
    sheet.grow(0.15 * rows)
    return {
        "loc": "lower left",
        # Polar axes have the names of directions around them, which need room.
        "bbox_to_anchor": (-0.01, 1.1 if ax.name == "polar" else 1.02),
        "ncols": columns,
        "handlelength": 1.8,
        "handletextpad": 0.5,
        "columnspacing": 1.0,
        "labelspacing": 0.25,
        "borderpad": 0.1,
    }


def png_bytes(figure: Figure) -> bytes:
    """Return the figure as a PNG."""
    return figure_bytes(figure, "png")


def figure_bytes(figure: Figure, kind: FigureKind, dpi: int | None = None) -> bytes:
    """Return the content of a figure's file; the same figure always gives the same bytes.

    Args:
        figure: the figure.
        kind: format of the file.
        dpi: pixels per inch of a PNG; by default those of the figure's layout.
    """
    for text in figure.findobj(Text):
        # Do not interpret names given by users as formulas.
        text.set_parse_math(False)
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    dpi = dpi or (figure.laid_out.dpi if isinstance(figure, Sheet) else DPI)
    buffer = io.BytesIO()
    laid_out = _laid_out(figure, dpi) if kind == "png" else nullcontext()
    with rc_context({**FIGURE_STYLE, "svg.hashsalt": "skyhop"}), laid_out:
        figure.savefig(buffer, format=kind, dpi=dpi, facecolor="white", metadata=undated.get(kind))
    return buffer.getvalue()


@contextmanager
def _laid_out(figure: Figure, dpi: int) -> Iterator[None]:
    """Lay out a figure before savefig, which would draw the whole figure once more to do so."""
    engine, before = figure.get_layout_engine(), figure.get_dpi()
    figure.set_dpi(dpi)
    if engine is not None:
        engine.execute(figure)
    figure.set_layout_engine(None)
    try:
        yield
    finally:
        figure.set_layout_engine(engine)
        figure.set_dpi(before)


def save(figure: Figure, output: Path | str) -> Path:
    """Write a figure atomically, in the format of the suffix; return the path.

    Raises:
        InputError: the name does not end in .png, .svg or .pdf, or its directory does not exist.
        RunError: the file cannot be written.
    """
    output = Path(output)
    content = figure_bytes(figure, figure_kind(output))
    write_files(output.parent, {output.name: content})
    return output


FIGURE_STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "path.simplify": True,
    "agg.path.chunksize": 20000,
    "text.parse_math": False,
    # Text in a PDF stays text, in TrueType fonts, which publishers accept.
    "pdf.fonttype": 42,
}
