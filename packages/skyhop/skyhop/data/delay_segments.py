"""One-way delay of a path by segment (user links, ISLs, gateway links, fibre), as in T3P Fig. 3."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from skyhop.data.paths import Path

COLUMNS = ("user_link_ns", "isl_ns", "gateway_link_ns", "fibre_ns")


def delay_segments(path: Path) -> pl.DataFrame:
    """Return the one-way delay of each segment in ns, one row per frame; null without a path.

    `user_link_ns` is the delay between the ends and their satellites, `isl_ns` between satellites,
    `gateway_link_ns` between satellites and gateways, and `fibre_ns` on the ground. These columns
    add up to `delay_ns`. A measured path has no hops: all of its rows are null.
    """
    satellites = path.header["satellites"]
    frames = path.frames
    hops = zip(frames["nodes"].to_list(), frames["hop_delay_ns"].to_list(), strict=True)
    rows = [_segments(nodes, delays_ns, satellites) for nodes, delays_ns in hops]
    columns = {
        name: pl.Series([None if row is None else row[index] for row in rows], dtype=pl.Int64)
        for index, name in enumerate(COLUMNS)
    }
    return pl.DataFrame({"t_ns": frames["t_ns"], **columns})


def _segments(nodes: list[int], delays_ns: list[int], satellites: int) -> list[int] | None:
    if not nodes:
        return None
    sums_ns = [0] * len(COLUMNS)
    for a, b, delay_ns in zip(nodes, nodes[1:], delays_ns, strict=False):
        sums_ns[_segment(a, b, satellites)] += delay_ns
    return sums_ns


def _segment(a: int, b: int, satellites: int) -> int:
    """Return the index of the column that the hop between nodes `a` and `b` belongs to.

    Ids of the ends are negative, ids of satellites are below `satellites`, other ids are sites.
    """
    in_space = [0 <= node < satellites for node in (a, b)]
    if all(in_space):
        return 1
    if not any(in_space):
        return 3
    return 0 if min(a, b) < 0 else 2
