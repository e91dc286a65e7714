"""Telemetry as a path: what was measured becomes what the simulator replays.

Latency and loss of seconds are written as probes, twenty a second as a terminal's drop rates have
it, and read by the importer of measured round trips (`skyhop path import --format csv`), whose
rules then hold.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from skyhop.errors import InputError
from skyhop.telemetry.fields import TIME
from skyhop.telemetry.gaps import SECOND_NS

if TYPE_CHECKING:
    import polars as pl

    from skyhop.data.paths import Path as MeasuredPath

LATENCIES = {"probe_rtt_ms": "probe_loss", "pop_ping_latency_ms": "pop_ping_drop_rate"}
"""Fields that a path can be made of, and their losses; the first that is known counts."""
FIELDS = (*LATENCIES, *LATENCIES.values())
PER_SECOND = 20
LONGEST_S = 1_000_000 // PER_SECOND
"""The importer takes a million probes."""
_MOST_UNKNOWN = 0.1


def path_of(
    frame: pl.DataFrame,
    field: str | None = None,
    *,
    from_: str | None = None,
    to: str | None = None,
) -> tuple[MeasuredPath, str, int]:
    """Return the path that telemetry of one node tells.

    Args:
        frame: of `Store.read`, without a step, with `FIELDS`.
        field: the latency to take; by default the first of `LATENCIES` that is known.
        from_: the end that probed, for the path's header.
        to: the other end.

    Returns:
        The path, the field, and how many seconds were not known: they were taken to be as the
        second before.

    Raises:
        InputError: there is no such latency, it is of several nodes, too long, or more than a tenth
            of its seconds is not known.
    """
    from skyhop.data.files import Scratch
    from skyhop.data.paths import import_path

    if frame["node"].n_unique() > 1:
        raise InputError("a path is of one terminal: name one with --node")
    field = field or _first_known(frame)
    if field not in LATENCIES:
        raise InputError(f'--field: expected {" or ".join(LATENCIES)}, not "{field}"')
    seconds = _seconds(frame, field)
    unknown = seconds["unknown"].sum()
    if seconds.height > LONGEST_S:
        raise InputError(
            f"{seconds.height:,} s are too long for a path: give {LONGEST_S:,} s or less with "
            "--from and --to"
        )
    if unknown > _MOST_UNKNOWN * seconds.height:
        raise InputError(
            f"{field}: {unknown:,} of {seconds.height:,} s are not known: choose other times"
        )
    with Scratch() as directory:
        file = directory / "telemetry.csv"
        _write(seconds, file)
        return import_path(file, "csv", from_=from_, to=to), field, int(unknown)


def _first_known(frame: pl.DataFrame) -> str:
    for name in LATENCIES:
        if frame[name].null_count() < frame.height:
            return name
    raise InputError(f"there is no {' and no '.join(LATENCIES)} in these times")


def _seconds(frame: pl.DataFrame, field: str) -> pl.DataFrame:
    """Return every second from the first known to the last: its end, latency and loss."""
    import polars as pl

    end = (-(-pl.col(TIME) // SECOND_NS) * SECOND_NS).alias("end_ns")
    latency, loss = pl.col(field), pl.col(LATENCIES[field])
    known = (
        frame.filter(latency.is_not_null() | (loss >= 1))
        .group_by(end)
        .agg(rtt_ms=latency.mean(), loss=loss.mean().fill_null(0.0).clip(0, 1))
        .sort("end_ns")
    )
    if known["rtt_ms"].drop_nulls().is_empty():
        raise InputError(f"there is no {field} in these times")
    ends = known["end_ns"]
    first, last = ends.item(0), ends.item(-1)
    if (last - first) // SECOND_NS > 10 * LONGEST_S:
        raise InputError("the times are years apart: give fewer with --from and --to")
    every = pl.DataFrame({"end_ns": pl.int_range(first, last + 1, SECOND_NS, eager=True)})
    return (
        every.join(known, on="end_ns", how="left", maintain_order="left")
        .with_columns(unknown=pl.col("loss").is_null())
        .with_columns(
            pl.col("loss").fill_null(0.0),
            # Of a second in which all was lost the latency is not needed.
            pl.col("rtt_ms").forward_fill().backward_fill(),
        )
    )


def _write(seconds: pl.DataFrame, file: Path) -> None:
    """Write a second's probes, those that were lost spread evenly among them."""
    import polars as pl

    place = pl.int_range(PER_SECOND).implode()
    lost = (pl.col("loss") * PER_SECOND).round()
    probes = (
        seconds.with_columns(place=place, lost=lost)
        .explode("place")
        .with_columns(
            is_lost=((pl.col("place") + 1) * pl.col("lost") / PER_SECOND).floor()
            > (pl.col("place") * pl.col("lost") / PER_SECOND).floor()
        )
    )
    sent_ns = (
        pl.col("end_ns") - SECOND_NS + (2 * pl.col("place") + 1) * (SECOND_NS // (2 * PER_SECOND))
    )
    probes.select(
        sent_ns=sent_ns,
        rtt_ms=pl.when(pl.col("is_lost")).then(None).otherwise(pl.col("rtt_ms")),
    ).write_csv(file)
