"""Writer of start times for uploads in studies of triggers: triggered and random start times.

Such a study has an axis `path`, an axis `how` ("triggered", "random"), and an axis `start` whose
values are in a CSV file with the study's name. This command writes that file. For each path it
emulates a terminal's telemetry and evaluates triggers on it like agents do, once with the study's
trigger and once with random times. For real telemetry, `skyhop testbed trigger test` prints the
times (docs/testbed/t3p.md); the study of a terminal's own rates gets its times in the same way.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Annotated

import polars as pl
import typer

from skyhop import predict
from skyhop.cli.terminal import print_note
from skyhop.data.paths import Path, path
from skyhop.data.toml import toml_value
from skyhop.study.file import StudyFile, read_study_file
from skyhop.telemetry.fields import TIME
from skyhop_lab.dish.path_feed import PathFeed
from skyhop_testbed.triggers.evaluate import Trigger
from skyhop_testbed.triggers.replay import replay
from validation import ROOT, measured_paths

LATENCY, DROP = "pop_ping_latency_ms", "pop_ping_drop_rate"
TRIGGER = f"{LATENCY} >= 2 * before_avg({LATENCY}, 5 s)"
"""Trigger of T3P's Figure 7: the latency doubles within 5 s."""
LAG_S = 1
"""Time in s from a sample to the start of a program, about the same as for agents."""
LENGTH_S = 60
SECOND_NS = 10**9


@dataclass(frozen=True)
class RandomStarts:
    """Trigger expression and seed for a study's random starts."""

    expression: str
    seed: int = 1


STUDIES = {
    "t3p-fig7": RandomStarts("random(6 /h)"),
    "t3p-measured-fig7": RandomStarts("random(60 /h)"),
}


RATE = "downlink_throughput_bps"
LOADED = f"before_avg({RATE}, 10 s) > 20000000"
"""Condition on a terminal's telemetry that a flow filled its downlink in the 10 s before."""
TERMINAL_STUDY = "t3p-terminal-fig7"


def main(
    names: Annotated[list[str] | None, typer.Argument(help=f"{', '.join(STUDIES)}; or all")] = None,
) -> None:
    """Write the files of the named studies, or of all studies."""
    measured_paths.make()
    for name in names or (*STUDIES, TERMINAL_STUDY):
        if name == TERMINAL_STUDY:
            write_of_terminal(measured_paths.PLACE / "terminal-seconds.parquet")
        else:
            write(name, STUDIES[name])


def write(name: str, random: RandomStarts) -> None:
    """Write the starts of a study, next to its file."""
    file = read_study_file(ROOT / "studies" / f"{name}.toml")
    with (ROOT / "studies" / f"{name}.csv").open("w", encoding="utf-8", newline="") as target:
        rows = csv.writer(target, lineterminator="\n")
        rows.writerow(["path", "how", "start", "flow.0.start", "flow.0.stop"])
        for label, over in paths(file):
            telemetry = telemetry_of(over)
            starts = {
                how: list(starts_s(expression, telemetry, random.seed))
                for how, expression in (("triggered", TRIGGER), ("random", random.expression))
            }
            counts = ", ".join(f"{len(found)} {how}" for how, found in starts.items())
            print_note(f"{name}, {label}: {counts} in {telemetry.height:,} s")
            # Without triggered uploads there is nothing to compare random uploads with.
            for how, found in starts.items() if starts["triggered"] else ():
                rows.writerows(
                    [label, how, start_s, f"{start_s} s", f"{start_s + LENGTH_S} s"]
                    for start_s in found
                )


def write_of_terminal(frame: FilePath) -> None:
    """Write the times of a terminal's telemetry at which a trigger fires, and random ones."""
    seconds = predict.read_data([frame]).frame
    with (ROOT / "studies" / f"{TERMINAL_STUDY}.csv").open("w", encoding="utf-8", newline="") as f:
        rows = csv.writer(f, lineterminator="\n")
        rows.writerow(["how", "start", "at"])
        for how, expression in (("triggered", TRIGGER), ("random", "random(60 /h)")):
            rows.writerows([how, at_s, f"{at_s} s"] for at_s in times_loaded_s(expression, seconds))


def times_loaded_s(expression: str, seconds: pl.DataFrame) -> Iterator[int]:
    """Yield times in s from the first second at which an expression fires while a flow runs.

    The flow has filled the downlink before; 10 s of telemetry follow.
    """
    known = seconds.rename({"latency_ms": LATENCY, "rx_bps": RATE})
    first_ns, ends = known[TIME][0] - SECOND_NS, set(known[TIME].to_list())
    trigger = Trigger(f"{expression} and {LOADED}", cooldown_s=10, seed=1)
    for firing in replay(trigger, known).firings:
        if firing.at_ns + 10 * SECOND_NS in ends:
            yield (firing.at_ns - first_ns) // SECOND_NS


def paths(file: StudyFile) -> Iterator[tuple[str, Path]]:
    """Yield label and path for each point of a study's axis `path`."""
    (axis,) = (axis for axis in file.axis if axis.name == "path")
    for label, sets in (axis.points or {}).items():
        keyed = [f"{key}={toml_value(value)}" for key, value in sets.items()]
        yield label, path(scenario=file.scenario, sets=keyed)


def telemetry_of(over: Path) -> pl.DataFrame:
    """Return the telemetry of a terminal at the path's end, with one row per second."""
    feed = PathFeed(over)
    seconds = [feed.second(index) for index in range(feed.duration_s)]
    return pl.DataFrame(
        {
            TIME: [index * SECOND_NS for index in range(1, len(seconds) + 1)],
            LATENCY: [second.latency_ms for second in seconds],
            DROP: [second.drop_rate for second in seconds],
        },
        schema={TIME: pl.Int64, LATENCY: pl.Float64, DROP: pl.Float64},
    )


def starts_s(expression: str, telemetry: pl.DataFrame, seed: int) -> Iterator[int]:
    """Yield the start times in s of those uploads that end before the telemetry does."""
    trigger = Trigger(expression, cooldown_s=LENGTH_S, seed=seed)
    for firing in replay(trigger, telemetry).firings:
        start_s = firing.at_ns // SECOND_NS + LAG_S
        # The last second of a measurement may be incomplete.
        if start_s + LENGTH_S < telemetry.height:
            yield start_s
