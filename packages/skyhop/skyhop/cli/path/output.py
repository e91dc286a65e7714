"""Options and output of commands that write a path file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skyhop.cli.terminal import print_note

if TYPE_CHECKING:
    from skyhop.cli.figures import FigureFile

Output = Annotated[
    Path, typer.Option("-o", "--output", metavar="FILE", help="Path file to write (Parquet).")
]


def finish(trace: Any, output: Path, plot: FigureFile | None, panel: str | None) -> None:
    """Write the path file and its figure, or one panel of it; print a summary of the path."""
    trace.write(output)
    print_note(_description(trace, output))
    if plot is not None:
        from skyhop.figures import path_figure

        plot.write(lambda width: path_figure(trace, width=width, panel=panel))


def _description(trace: Any, output: Path) -> str:
    import numpy as np

    frames = trace.frames
    begins_ns = frames["t_ns"].to_numpy()
    held_ns = np.diff(begins_ns, append=max(trace.header["duration_ns"], begins_ns[-1] + 1))
    rtt_ns = (frames["delay_ns"] + frames["delay_back_ns"]).to_numpy()
    known = ~np.isnan(rtt_ns)
    rtt_ms = np.average(rtt_ns[known], weights=held_ns[known]) / 1e6
    kinds = [event["kind"] for events in frames["events"].to_list() for event in events]
    counted = ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds))) or "none"
    return f"{output}: {frames.height} frames, mean base RTT {rtt_ms:.1f} ms, events: {counted}"
