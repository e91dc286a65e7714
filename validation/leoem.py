"""LeoEM's published paths: recomputed, and as the path of senders."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any

import skyhop
from validation.pages import row
from validation.reference import required

SAN_DIEGO, NEW_YORK, SEATTLE = "32.881,-117.237", "40.845,-73.932", "47.608,-122.335"
RATE_MBPS = 150


def path_keys(from_: str, to: str, relay: str) -> dict[str, Any]:
    """Return the keys of a path that LeoEM published, as `skyhop.path` and scenarios have them."""
    return {
        "constellation": "leoem-starlink",
        "compat": "leoem",
        "relay": relay,
        "from": from_,
        "to": to,
        "gateways": str(required("leoem/ground_stations.csv")),
    }


# --- published paths ---


@dataclass(frozen=True)
class Log:
    """Published path of LeoEM, with the parameters that LeoEM computed it with."""

    name: str
    from_: str
    to: str
    relay: str
    target_percent: float


LOGS = (
    Log("SD_NY_15_ISL", SAN_DIEGO, NEW_YORK, "isl", 99),
    Log("SD_SEA_15_ISL", SAN_DIEGO, SEATTLE, "isl", 99),
    Log("SD_NY_15_BP", SAN_DIEGO, NEW_YORK, "bent-pipe", 93),
)


def log_rows() -> str:
    """Return the table's rows of all logs."""
    return "\n".join(map(log_row, LOGS))


def log_row(log: Log) -> str:
    """Return the table's row of a log: share of lines with the same nodes, and error of delays."""
    logged = skyhop.import_path(required(f"leoem/{log.name}.log.gz"), "leoem").frames
    keys = path_keys(log.from_, log.to, log.relay)
    ends = keys.pop("from"), keys.pop("to")
    started_s = time.monotonic()
    computed = skyhop.path(*ends, **keys, duration=f"{logged.height} s").frames
    took_s = time.monotonic() - started_s
    nodes = zip(computed["nodes"].to_list(), logged["nodes"].to_list(), strict=True)
    same = sum(ours == theirs for ours, theirs in nodes)
    delays = zip(computed["delay_ns"].to_list(), logged["delay_ns"].to_list(), strict=True)
    errors_us = sorted(abs(a - b) / 1e3 for a, b in delays if a is not None and b is not None)
    return row(
        log.name,
        logged.height,
        f"{100 * same / logged.height:.2f} %",
        f"{log.target_percent} %",
        f"{statistics.median(errors_us):.2f}",
        f"{errors_us[int(0.99 * len(errors_us))]:.0f}",
        f"{1e3 * took_s / logged.height:.2f}",
    )


# --- senders over the bent pipe from San Diego to New York ---


@dataclass(frozen=True)
class Sender:
    """Sender over the path: its flow, and its announcements of handovers."""

    name: str
    flow: dict[str, Any]
    signal: dict[str, str]


def bent_pipe(sender: Sender, duration_s: int, sample: str) -> dict[str, Any]:
    """Return a scenario with one flow over the path, from its first second on."""
    return {
        "path": path_keys(SAN_DIEGO, NEW_YORK, "bent-pipe"),
        "link": {"rate": f"{RATE_MBPS} Mbit/s", "queue": "5 MB"},
        "flow": [sender.flow],
        "signal": sender.signal,
        "run": {"duration": f"{duration_s} s", "sample": sample},
    }
