"""What a panel takes together, in words: so many runs of so many seeds, so long each."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from skyhop.study.plan import Study


def pooled_runs(
    what: str,
    counts: Iterable[int],
    frame: pl.DataFrame,
    study: Study,
    interval: str = ", with the mean's 95 % interval",
) -> str:
    """Say over how many runs means go.

    Args:
        what: what is one of several, such as "bar".
        counts: how many runs are behind each.
        frame: the rows of all of them.
        study: whose runs they are.
        interval: what is shown besides where there is more than one run.
    """
    runs = _range(list(counts), "run")
    alone = "" if runs == "1 run" else interval
    return f"each {what}: {runs}{_of(frame, _duration(study))}{alone}"


def pooled_samples(
    what: str, bin_width: str | None, rows: Iterable[pl.DataFrame], durations_s: Iterable[float]
) -> str:
    """Say of which samples a curve or a box is.

    Args:
        what: what is one of several, such as "curve".
        bin_width: over how long means were taken, if they were.
        rows: the rows, run and flow, behind each.
        durations_s: how long the runs lasted.
    """
    frames = list(rows)
    flows = _range([frame.select("run", "flow").unique().height for frame in frames], "flow")
    runs = _range([frame.get_column("run").n_unique() for frame in frames], "run")
    lengths = sorted({f"{duration_s:.3g}" for duration_s in durations_s}, key=float)
    length = " to ".join(dict.fromkeys((lengths[0], lengths[-1]))) + " s" if lengths else ""
    means = f" (means over {bin_width})" if bin_width else ""
    of_flows = runs if flows.split()[:-1] == runs.split()[:-1] else f"{flows} in {runs}"
    return f"each {what}: all samples{means} of {of_flows}{_of(pl.concat(frames), length)}"


def _of(frame: pl.DataFrame, length: str) -> str:
    seeds = frame.get_column("seed").n_unique()
    parts = [f"{seeds} seeds"] if seeds > 1 else []
    parts += [f"{length} each"] if length else []
    return f" ({', '.join(parts)})" if parts else ""


def _range(counts: list[int], what: str) -> str:
    least, most = min(counts, default=0), max(counts, default=0)
    numbers = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    return f"{numbers} {what}{'' if most == 1 else 's'}"


def _duration(study: Study) -> str:
    """Return how long each run lasts, empty where that varies or stands elsewhere."""
    if any("run.duration" in setting for setting in _settings(study)):
        return ""
    run = study.base.get("run")
    return str(run["duration"]) if isinstance(run, dict) and "duration" in run else ""


def _settings(study: Study) -> list[str]:
    """Return the keys that the axes set."""
    keys = [axis.key for axis in study.file.axis if axis.key]
    points = [point for axis in study.file.axis for point in (axis.points or {}).values()]
    return [*keys, *(key for point in points for key in point)]
