"""Hypatia's experiments with cross traffic: bandwidth that flows leave unused on a moving path.

Cities, pairs and links are those of Hypatia's scripts for two flows that compete and for a traffic
matrix (paper/ns3_experiments): Kuiper's first shell, all links with 10 Mbit/s and queues of 100
packets, NewReno, routes every 100 ms, 200 s; with satellites that move, and with the same
satellites standing still. As in the scripts, an interval's figure is the highest utilisation of the
lasers on the path from Rio de Janeiro to Saint Petersburg.

The command prints the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl

import skyhop
from skyhop.cli.terminal import print_note
from validation import pages

CITIES = Path(__file__).with_name("cities.csv")
TRAFFIC = {"two flows": "two.csv", "88 flows": "pairing.csv"}
"""Matrix of each experiment's flows."""

PAIR = ("Rio de Janeiro", "Saint Petersburg")
DURATION_S, INTERVAL_NS = 200, 100_000_000
SHARE = 1 / 3
"""Share of the bandwidth that is unused in an interval that counts."""

HEAD = (
    "flows", "satellites", "Mbit/s of all flows", "packets sent again",
    "intervals with a path", "of these with a third unused", "bandwidth unused on average",
)  # fmt: skip


def main() -> None:
    """Run the experiments, and print the table."""
    print(table())


def table() -> str:
    """Return the table of all experiments."""
    return pages.table(HEAD, list(rows()))


def rows() -> Iterator[tuple[str, ...]]:
    """Yield the row of each experiment."""
    for name, matrix in TRAFFIC.items():
        for moves in (False, True):
            satellites = "move" if moves else "stand still"
            print_note(f"validate: Hypatia's cross traffic, {name}, satellites {satellites}")
            run = skyhop.sim(scenario(matrix, moves=moves))
            highest, flows = highest_utilisations(run, moves=moves), run.summary["flows"]
            unused, goodputs = 1 - highest.to_numpy(), [flow["goodput_bps"] for flow in flows]
            yield (
                name,
                satellites,
                f"{sum(goodputs) / 1e6:.1f}",
                f"{sum(flow['retransmits'] for flow in flows):,}",
                f"{len(highest):,}",
                f"{(unused >= SHARE).mean():.1%}",
                f"{unused.mean():.1%}",
            )


def scenario(matrix: str, *, moves: bool) -> Mapping[str, Any]:
    """Return the scenario of an experiment."""
    link = {"rate": "10 Mbit/s", "queue": "100 packets"}
    file = str(Path(__file__).with_name(matrix))
    return {
        "network": {
            "constellation": "kuiper-630-hypatia",
            "compat": "hypatia",
            "sites": str(CITIES),
            "interval": "100 ms" if moves else "never",
            "lasers": link,
            "user_links": {"up": link, "down": link},
            "traffic": {"kind": "matrix", "file": file, "cc": "reno"},
        },
        "run": {"duration": f"{DURATION_S} s", "sample": "100 ms"},
    }


def highest_utilisations(run: skyhop.Run, *, moves: bool) -> pl.Series:
    """Return the highest utilisation of the lasers on the path, in each interval with a path."""
    rows = utilisations(run).iter_rows()
    used = {(t_ns, link, way): share for t_ns, link, way, share in rows}
    highest = []
    for number, nodes in enumerate(routes(moves=moves)):
        begin_ns = number * INTERVAL_NS
        shares = [used.get((begin_ns, *laser(a, b)), 0.0) for a, b in pairwise(nodes)]
        if shares:
            highest.append(max(shares))
    return pl.Series(highest)


def routes(*, moves: bool) -> list[list[int]]:
    """Return the satellites of the pair's path in each interval; none without a path."""
    places = pl.read_csv(CITIES).rows_by_key("name", unique=True, named=True)
    ends = [f"{places[name]['latitude_deg']},{places[name]['longitude_deg']}" for name in PAIR]
    frames = skyhop.path(
        *ends,
        constellation="kuiper-630-hypatia",
        compat="hypatia",
        relay="isl",
        step="100 ms",
        duration=f"{DURATION_S} s",
    ).frames
    every = pl.DataFrame({"t_ns": range(0, DURATION_S * 1_000_000_000, INTERVAL_NS)})
    at = every.join_asof(frames.select("t_ns", "nodes"), on="t_ns")["nodes"].to_list()
    nodes = [[node for node in one or [] if node >= 0] for one in at]
    return nodes if moves else [nodes[0]] * len(nodes)


def laser(a: int, b: int) -> tuple[str, str]:
    """Return the name of the laser between two satellites, and the direction from a to b."""
    return f"satellite {min(a, b)} - {max(a, b)}", "forward" if a < b else "back"


def utilisations(run: skyhop.Run) -> pl.DataFrame:
    """Return the utilisation of each laser in each interval, with its begin, link, direction."""
    carried = pl.col("delivered_bytes") * 8 / (10e6 * INTERVAL_NS / 1e9)
    share = carried.clip(upper_bound=1.0).alias("share")
    return run.link.select(pl.col("t_ns") - INTERVAL_NS, "link", "direction", share)


if __name__ == "__main__":
    main()
