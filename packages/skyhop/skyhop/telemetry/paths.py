"""Conversion of measured telemetry to a path that the simulator can replay.

The latency and loss of each second are written as twenty probes (the resolution of a terminal's
drop rates). The probes are imported as by `skyhop path import --format csv`, with the same rules.
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
"""Latency fields from which a path can be made, with their loss fields, preferred ones first."""
FIELDS = (*LATENCIES, *LATENCIES.values())
PER_SECOND = 20
LONGEST_S = 1_000_000 // PER_SECOND
"""Longest telemetry in seconds; the importer accepts a million probes."""
_MOST_UNKNOWN = 0.1


def path_from_telemetry(
    frame: pl.DataFrame,
    field: str | None = None,
    *,
    from_: str | None = None,
    to: str | None = None,
) -> tuple[MeasuredPath, str, int]:
    """Return the path that telemetry of one node describes.

    Args:
        frame: result of `Store.read`, without a step, with `FIELDS`.
        field: the latency to use; by default the first of `LATENCIES` that has values.
        from_: name of the end that sent the probes, for the path's header.
        to: name of the other end, for the path's header.

    Returns:
        The path; the latency field; the number of unknown seconds, which repeat the preceding one.

    Raises:
        InputError: there is no such latency, the frame has several nodes or is too long, or more
            than a tenth of its seconds is unknown.
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
    """Return a row for every second from the first to the last known one.

    Columns: end of the second, latency, loss, and `unknown`.
    """
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
            # This also fills seconds whose probes were all lost; their latency is not used.
            pl.col("rtt_ms").forward_fill().backward_fill(),
        )
    )


def _write(seconds: pl.DataFrame, file: Path) -> None:
    """Write the probes of all seconds as CSV; lost probes are spread evenly over a second."""
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
