"""How figures look: their widths, axes, legends, files.

Figures are made without pyplot, so they keep no global state and need no display. A figure is
drawn for the width at which it will be seen: on a page, or in one or two columns of a paper.
"""

from __future__ import annotations

import io
import textwrap
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

DPI = 140
"""Pixels per inch of a PNG for a page; those for a column of a paper have `PAPER_DPI`."""

PAPER_DPI = 300

_LEAST_IN_LEGEND = 12.0
"""Area of a dot in square points."""

_LETTER = 0.55
"""How wide a letter is on average, in its height."""

AXIS_COLOUR = "#BBBBBB"
SHARES = ([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
"""Ticks of an axis of shares, and their labels."""

MARKERS = {
    "circle": "o", "square": "s", "triangle": "^", "diamond": "D", "down": "v", "pentagon": "p",
    "plus": "P", "left": "<", "right": ">", "star": "*", "cross": "X", "hexagon": "H",
}  # fmt: skip
"""What view models call markers, and what they are called here."""


@dataclass(frozen=True)
class Layout:
    """How a figure of some width is laid out."""

    width_in: float
    scale: float
    """How large fonts and strokes are, on a page 1."""
    height: float
    """How high axes are, on a page 1."""
    dpi: int
    is_narrow: bool
    """Whether there is no room beside the axes: legends stand above them, axes below each other."""

    def letters(self, points: float) -> int:
        """Return how many letters of that size fit into the width."""
        return int(self.width_in * 72 / (_LETTER * points * self.scale))


LAYOUTS: Mapping[FigureWidth, Layout] = {
    "page": Layout(11.0, 1.0, 1.0, DPI, is_narrow=False),
    "two-column": Layout(7.16, 0.85, 0.75, PAPER_DPI, is_narrow=False),
    "one-column": Layout(3.5, 0.8, 0.62, PAPER_DPI, is_narrow=True),
}
"""Columns are as wide as those of IEEE's journals and conferences."""


class Sheet(Figure):
    """A figure that knows how it is laid out."""

    def __init__(self, height_in: float, width: FigureWidth, share: float = 1.0) -> None:
        """Make it `height_in` high on a page, and that share of the width wide where it is wide."""
        layout = LAYOUTS[width]
        wide_in = layout.width_in * (1.0 if layout.is_narrow else share)
        super().__init__(figsize=(wide_in, height_in * layout.height), layout="constrained")
        self._agg = FigureCanvasAgg(self)
        self.laid_out = layout

    def _repr_png_(self) -> bytes:
        """Show it in a notebook, without pyplot too."""
        return png_bytes(self)

    def pixels(self) -> npt.NDArray[np.uint8]:
        """Return the figure as red, green and blue at 100 pixels per inch, (height, width, 3)."""
        for text in self.findobj(Text):
            text.set_parse_math(False)
        with rc_context(FIGURE_STYLE):
            self._agg.draw()  # type: ignore[no-untyped-call]
        return np.array(self._agg.buffer_rgba())[:, :, :3]  # type: ignore[no-untyped-call]

    def grow(self, more_in: float) -> None:
        """Make it higher, for what stands above its axes."""
        self.set_figheight(self.get_figheight() + more_in)


def sheet_of(artist: Artist) -> Sheet:
    """Return the figure that something is in."""
    figure = artist.figure.figure if artist.figure is not None else None
    assert isinstance(figure, Sheet), "made here"
    return figure


def pt(artist: Artist, points: float) -> float:
    """Return a size in points, of fonts and strokes, for the width at which it will be seen."""
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
        height_in: its height on a page.
        ratios: how high each of the axes is, compared with the others.
        width: what it is drawn for.
        shared: how many of the axes, from the top, share their time axis; by default all.
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
    """Write a title over the figure, in as many lines as it takes."""
    lines = textwrap.wrap(title, figure.laid_out.letters(11))
    figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=11 * figure.laid_out.scale)
    figure.grow(0.19 * figure.laid_out.scale * (len(lines) - 1))


def note_figure(figure: Sheet, note: str) -> None:
    """Write below the figure what must be known to read it, if anything."""
    if not note:
        return
    lines = textwrap.wrap(note, figure.laid_out.letters(8))
    figure.supxlabel("\n".join(lines), x=0.99, ha="right", color=GREY,
                     fontsize=8 * figure.laid_out.scale)  # fmt: skip
    figure.grow(0.16 * figure.laid_out.scale * len(lines))


def title_axes(ax: Axes, title: str, points: float = 9.5, **placed: Any) -> None:
    """Write a title over axes, in as many lines as it takes."""
    across = ax.get_subplotspec()
    columns = across.get_gridspec().ncols if across is not None else 1
    lines = textwrap.wrap(title, sheet_of(ax).laid_out.letters(points) * 4 // 5 // columns)
    ax.set_title("\n".join(lines), fontsize=pt(ax, points), **{"loc": "left", **placed})


def dress(ax: Axes) -> None:
    """Give the axes a light grid and no box."""
    ax.grid(visible=True, color="#E6E6E6", linewidth=pt(ax, 0.6))
    ax.set_axisbelow(True)
    ax.tick_params(length=3, color=AXIS_COLOUR, labelsize=pt(ax, 9))
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(AXIS_COLOUR)


def label_x(ax: Axes, what: str) -> None:
    """Name what the axis along the bottom is."""
    ax.set_xlabel(what, fontsize=pt(ax, 9))


def label_y(ax: Axes, what: str, unit: str, *, whole: bool = False, is_log: bool = False) -> None:
    """Name a panel and its unit; `whole` for counts, which need no decimals."""
    ax.set_ylabel(f"{what}\n({unit})" if unit else what, fontsize=pt(ax, 9))
    if is_log:
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=7))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.yaxis.set_minor_locator(NullLocator())
        return
    ax.yaxis.set_major_locator(MaxNLocator(nbins=5, min_n_ticks=3, integer=whole))


def label_time(ax: Axes, end_s: float) -> None:
    """Let time go from 0 to `end_s`, and name it."""
    ax.set_xlim(0, end_s if end_s > 0 else 1)
    label_x(ax, "time since the start (s)")


def add_legend(ax: Axes, known: set[str] | None = None) -> None:
    """Put a legend where it covers no data: right of the axes, or above them where it is narrow.

    Args:
        ax: the axes.
        known: what axes above explain already; where it is narrow they are not named again, and
            what is named here is added.
    """
    handles, labels = ax.get_legend_handles_labels()
    layout = sheet_of(ax).laid_out
    if known is not None and layout.is_narrow:
        named = [(h, text) for h, text in zip(handles, labels, strict=True) if text not in known]
        handles, labels = [h for h, _ in named], [text for _, text in named]
        known.update(labels)
    if not handles:
        return
    place = _above(ax, labels) if layout.is_narrow else _beside()
    legend = ax.legend(handles, labels, frameon=False, fontsize=pt(ax, 8.5), borderaxespad=0,
                       **place)  # fmt: skip
    for handle in legend.legend_handles:
        # The smallest dots are visible only where there are many.
        if isinstance(handle, PathCollection):
            handle.set_sizes(np.maximum(handle.get_sizes(), _LEAST_IN_LEGEND))


def _beside() -> dict[str, Any]:
    return {
        "loc": "upper left",
        "bbox_to_anchor": (1.005, 1.03),
        "handlelength": 2.0,
        "labelspacing": 0.35,
    }


def _above(ax: Axes, labels: Sequence[str]) -> dict[str, Any]:
    """Return where a legend in rows above the axes stands, and make room for it."""
    sheet = sheet_of(ax)
    # Each entry has a handle and gaps, as wide as some letters.
    room, entry = sheet.laid_out.letters(8.5) - 12, max(map(len, labels)) + 7
    columns = min(max(room // entry, 1), len(labels))
    rows = -(-len(labels) // columns)
    sheet.grow(0.15 * rows)
    return {
        "loc": "lower left",
        # A polar axis has names of directions around it.
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


def figure_bytes(figure: Figure, kind: FigureKind) -> bytes:
    """Return the figure as a file of that kind, the same bytes for the same figure."""
    for text in figure.findobj(Text):
        # What users call things is no formula.
        text.set_parse_math(False)
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    dpi = figure.laid_out.dpi if isinstance(figure, Sheet) else DPI
    buffer = io.BytesIO()
    laid_out = _laid_out(figure, dpi) if kind == "png" else nullcontext()
    with rc_context({**FIGURE_STYLE, "svg.hashsalt": "skyhop"}), laid_out:
        figure.savefig(buffer, format=kind, dpi=dpi, facecolor="white", metadata=undated.get(kind))
    return buffer.getvalue()


@contextmanager
def _laid_out(figure: Figure, dpi: int) -> Iterator[None]:
    """Lay a figure out first: to do so itself, savefig draws all of it once more."""
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
    """Write a figure as what its name ends in, whole or not at all, and return where.

    Raises:
        InputError: the name does not end in .png, .svg or .pdf, or its directory does not exist.
        RunError: it cannot be written.
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
    # Text in a PDF stays text, in fonts that publishers take.
    "pdf.fonttype": 42,
}
