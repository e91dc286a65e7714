"""Captions of panels: the number of runs and seeds that are aggregated, and their length."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from skyhop.analysis.tables import short_number
from skyhop.study.plan import Study


def runs_caption(
    what: str,
    counts: Iterable[int],
    frame: pl.DataFrame,
    study: Study,
    interval: str = ", with the mean's 95 % interval",
) -> str:
    """Return the caption of a panel of means over runs, such as "each bar: 10 runs (10 seeds)".

    Args:
        what: the drawn element, such as "bar".
        counts: number of runs behind each element.
        frame: rows of the dataset of all these runs.
        study: the study of the runs.
        interval: text about the drawn spread; left out if every element is from a single run.
    """
    runs = _range(list(counts), "run")
    alone = "" if runs == "1 run" else interval
    return f"each {what}: {runs}{_seeds_and_length(frame, _duration(study))}{alone}"


def samples_caption(
    what: str, bin_width: str | None, rows: Iterable[pl.DataFrame], durations_s: Iterable[float]
) -> str:
    """Return the caption of a panel of samples, whose elements are curves or boxes.

    Args:
        what: the drawn element, such as "curve".
        bin_width: length of the bins, such as "1 s"; None for samples without bins.
        rows: rows of the dataset (run, flow, seed) behind each element.
        durations_s: durations of the runs in s.
    """
    frames = list(rows)
    flows = _range([frame.select("run", "flow").unique().height for frame in frames], "flow")
    runs = _range([frame.get_column("run").n_unique() for frame in frames], "run")
    lengths_s = sorted(durations_s)
    ends = dict.fromkeys(map(short_number, (lengths_s[0], lengths_s[-1]) if lengths_s else ()))
    length = f"{' to '.join(ends)} s" if ends else ""
    means = f" (means over {bin_width})" if bin_width else ""
    of_flows = runs if flows.split()[:-1] == runs.split()[:-1] else f"{flows} in {runs}"
    suffix = _seeds_and_length(pl.concat(frames), length)
    return f"each {what}: all samples{means} of {of_flows}{suffix}"


def _seeds_and_length(frame: pl.DataFrame, length: str) -> str:
    seeds = frame.get_column("seed").n_unique()
    parts = [f"{seeds} seeds"] if seeds > 1 else []
    parts += [f"{length} each"] if length else []
    return f" ({', '.join(parts)})" if parts else ""


def _range(counts: list[int], what: str) -> str:
    least, most = min(counts, default=0), max(counts, default=0)
    numbers = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    return f"{numbers} {what}{'' if most == 1 else 's'}"


def _duration(study: Study) -> str:
    """Return the duration of a run as text; empty if an axis varies it or it is not set."""
    if any("run.duration" in setting for setting in _settings(study)):
        return ""
    run = study.base.get("run")
    return str(run["duration"]) if isinstance(run, dict) and "duration" in run else ""


def _settings(study: Study) -> list[str]:
    """Return the scenario keys that the study's axes set."""
    keys = [axis.key for axis in study.file.axis if axis.key]
    points = [point for axis in study.file.axis for point in (axis.points or {}).values()]
    return [*keys, *(key for point in points for key in point)]
