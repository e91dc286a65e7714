"""Conversion of measured telemetry to a path that the simulator can replay.

The latency and loss of each second are written as twenty probes (the resolution of a terminal's
drop rates). The probes are imported as by `skyhop path import --format csv`, with the same rules.
Outages whose times the terminal states are those of the path; the losses and the latency of their
seconds are not used. Capacities are the path's rates.
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
OUTAGE = "outage_s"
CAPACITIES = {"down": "downlink_capacity_bps", "up": "uplink_capacity_bps"}
FIELDS = (*LATENCIES, *LATENCIES.values(), OUTAGE, *CAPACITIES.values())
PER_SECOND = 20
LONGEST_S = 1_000_000 // PER_SECOND
"""Longest telemetry in seconds; the importer accepts a million probes."""
_MOST_UNKNOWN = 0.1
_MOSTLY_LOST = 0.5
"""Loss from which on a second's latency is that of the few pings around an outage."""
_NEAR_NS = SECOND_NS // 2
"""Time around an outage within which losses count as part of it."""


def path_from_telemetry(
    frame: pl.DataFrame,
    field: str | None = None,
    *,
    from_: str | None = None,
    to: str | None = None,
    direction: str = "down",
    rtt: str | None = None,
) -> tuple[MeasuredPath, str, int]:
    """Return the path that telemetry of one node describes.

    Args:
        frame: result of `Store.read`, without a step, with `FIELDS`.
        field: the latency to use; by default the first of `LATENCIES` that has values.
        from_: name of the end that sent the probes, for the path's header.
        to: name of the other end, for the path's header.
        direction: direction from `from_` to `to`, with "down" the terminal is at `to`; its capacity
            is the path's rate, if the telemetry has it.
        rtt: round-trip time of telemetry without a latency.

    Returns:
        The path; the latency field, or the capacity if there is no latency; the number of unknown
        seconds, which repeat the preceding one.

    Raises:
        InputError: there is neither such a latency nor a capacity, the frame has several nodes or
            is too long, or more than a tenth of its seconds is unknown.
    """
    from skyhop.data.files import Scratch
    from skyhop.data.paths import import_path

    if frame["node"].n_unique() > 1:
        raise InputError("a path is of one terminal: name one with --node")
    if direction not in CAPACITIES:
        raise InputError(f'--direction: expected down or up, not "{direction}"')
    capacity = CAPACITIES[direction]
    options = {"direction": direction} | ({} if rtt is None else {"rtt": rtt})
    with Scratch() as directory:
        file = directory / "telemetry.csv"
        if field is None and not _has(frame, *LATENCIES) and _has(frame, capacity):
            _write_rates(frame, capacity, file)
            return import_path(file, "csv", from_=from_, to=to, **options), capacity, 0
        field = field or _first_known(frame)
        if field not in LATENCIES:
            raise InputError(f'--field: expected {" or ".join(LATENCIES)}, not "{field}"')
        outages = _outages(frame)
        seconds = _seconds(frame, field, outages, capacity)
        _write(seconds, file)
        listed = " ".join(f"{begin}-{end}" for begin, end in outages)
        path = import_path(file, "csv", from_=from_, to=to, outages=listed, **options)
        return path, field, int(seconds["unknown"].sum())


def _has(frame: pl.DataFrame, *names: str) -> bool:
    """Return whether a frame has a value of one of these columns."""
    return any(name in frame and frame[name].null_count() < frame.height for name in names)


def _outages(frame: pl.DataFrame) -> list[tuple[int, int]]:
    """Return the begins and ends of the outages that the terminal stated, in ns, disjoint."""
    if not _has(frame, OUTAGE):
        return []
    rows = frame.drop_nulls(OUTAGE).sort(TIME)
    found: list[tuple[int, int]] = []
    for end_ns, length_s in zip(rows[TIME].to_list(), rows[OUTAGE].to_list(), strict=True):
        begin_ns = end_ns - round(length_s * SECOND_NS)
        while found and begin_ns <= found[-1][1]:
            begin_ns = min(begin_ns, found.pop()[0])
        if begin_ns < end_ns:
            found.append((begin_ns, end_ns))
    return found


def _first_known(frame: pl.DataFrame) -> str:
    for name in LATENCIES:
        if frame[name].null_count() < frame.height:
            return name
    raise InputError(f"there is no {' and no '.join(LATENCIES)} in these times")


def _seconds(
    frame: pl.DataFrame, field: str, outages: list[tuple[int, int]], capacity: str
) -> pl.DataFrame:
    """Return a row for every second from the first to the last known one.

    Columns: end of the second, latency, loss, `unknown`, and the rate if it is known.
    """
    import polars as pl

    end = (-(-pl.col(TIME) // SECOND_NS) * SECOND_NS).alias("end_ns")
    latency, loss = pl.col(field), pl.col(LATENCIES[field])
    rate = [pl.col(capacity).mean().alias("rate_bps")] if _has(frame, capacity) else []
    known = (
        frame.filter(latency.is_not_null() | (loss >= 1))
        .group_by(end)
        .agg(rtt_ms=latency.mean(), loss=loss.mean().fill_null(0.0).clip(0, 1))
        .sort("end_ns")
    )
    every = _every_second(known["end_ns"], field)
    seconds = every.join(known, on="end_ns", how="left", maintain_order="left").with_columns(
        unknown=pl.col("loss").is_null() & ~_inside(every["end_ns"], outages)
    )
    if rate:
        rates = frame.group_by(end).agg(rate)
        seconds = seconds.join(rates, on="end_ns", how="left", maintain_order="left")
    in_outage = _inside(every["end_ns"], outages)
    base = pl.when(in_outage | (pl.col("loss") >= _MOSTLY_LOST)).then(None)
    seconds = seconds.with_columns(
        loss=pl.when(in_outage).then(0.0).otherwise(pl.col("loss").fill_null(0.0)),
        rtt_ms=base.otherwise(pl.col("rtt_ms")),
    )
    if seconds["rtt_ms"].drop_nulls().is_empty():
        raise InputError(f"there is no {field} in these times")
    _check_known(seconds, field)
    # This also fills seconds whose probes were all lost; their latency is not used.
    return seconds.with_columns(pl.col("rtt_ms").forward_fill().backward_fill())


def _every_second(ends: pl.Series, field: str) -> pl.DataFrame:
    """Return the ends of all seconds from the first to the last of `ends`."""
    import polars as pl

    if ends.is_empty():
        raise InputError(f"there is no {field} in these times")
    first, last = ends.item(0), ends.item(-1)
    if (last - first) // SECOND_NS > 10 * LONGEST_S:
        raise InputError("the times are years apart: give fewer with --from and --to")
    return pl.DataFrame({"end_ns": pl.int_range(first, last + 1, SECOND_NS, eager=True)})


def _inside(ends: pl.Series, outages: list[tuple[int, int]]) -> pl.Series:
    """Return for each second, given by its end, whether an outage touches it."""
    import numpy as np
    import polars as pl

    found, ends_ns = np.zeros(len(ends), bool), ends.to_numpy()
    for begin_ns, end_ns in outages:
        low = np.searchsorted(ends_ns, begin_ns - _NEAR_NS, side="right")
        high = np.searchsorted(ends_ns, end_ns + _NEAR_NS + SECOND_NS)
        found[low:high] = True
    return pl.Series(found)


def _check_known(seconds: pl.DataFrame, field: str) -> None:
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


def _write_rates(frame: pl.DataFrame, capacity: str, file: Path) -> None:
    """Write the capacity of each second as CSV, with the begin of the second."""
    import polars as pl

    begin = (pl.col(TIME) - SECOND_NS).alias(TIME)
    frame.drop_nulls(capacity).select(begin, rate_bps=pl.col(capacity)).write_csv(file)


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
    rate = ["rate_bps"] if "rate_bps" in probes.columns else []
    probes.select(
        *rate,
        sent_ns=sent_ns,
        rtt_ms=pl.when(pl.col("is_lost")).then(None).otherwise(pl.col("rtt_ms")),
    ).write_csv(file)
