"""LeoEM's published paths: recomputed, and as the path of SaTCP's Table I."""

from __future__ import annotations

import statistics
import time
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import skyhop
from validation.flows import first_flow
from validation.pages import row
from validation.reference import required

SAN_DIEGO, NEW_YORK, SEATTLE = "32.881,-117.237", "40.845,-73.932", "47.608,-122.335"
ORBIT_S = 5731
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
    published_mbps: float | None = None
    """Goodput in SaTCP's Table I; `None` for senders that are not in it."""


def bent_pipe(sender: Sender, duration_s: int, sample: str) -> dict[str, Any]:
    """Return a scenario with one flow over the path, from its first second on."""
    return {
        "path": path_keys(SAN_DIEGO, NEW_YORK, "bent-pipe"),
        "link": {"rate": f"{RATE_MBPS} Mbit/s", "queue": "5 MB"},
        "flow": [sender.flow],
        "signal": sender.signal,
        "run": {"duration": f"{duration_s} s", "sample": sample},
    }


def satcp(hold: str) -> dict[str, Any]:
    """Return a flow of SaTCP with its hold of the window."""
    return {"cc": "satcp", "satcp": {"hold": hold}}


def reported(lead: str) -> dict[str, str]:
    """Return overrides for announcements like the paper's: `lead` early, with Figure 4's errors."""
    return {"source": "path", "lead": lead, "error": "report-timing"}


TABLE_I = (
    Sender("CUBIC", {"cc": "cubic"}, {}, 34.3),
    Sender("SaTCP, hold 0.3 s", satcp("0.3 s"), reported("0 s"), 59.8),
    Sender("SaTCP, hold 0.9 s", satcp("0.9 s"), reported("0.3 s"), 123.4),
    Sender("SaTCP, hold 1.3 s", satcp("1.3 s"), reported("0.5 s"), 138.1),
    Sender("BBR", {"cc": "bbr"}, {}, 136.7),
    Sender("SatPipe", {"cc": "satpipe"}, {"source": "path", "lead": "0.5 s"}),
)


def satcp_table(executor: Executor) -> str:
    """Return the rows of SaTCP's Table I: a whole orbit with each sender."""
    texts = [bent_pipe(sender, ORBIT_S, "1 s") for sender in TABLE_I]
    flows = list(executor.map(first_flow, texts))
    cubic_bps, cubic_mbps = flows[0]["goodput_bps"], TABLE_I[0].published_mbps or 0.0
    lines = []
    for sender, flow in zip(TABLE_I, flows, strict=True):
        published = sender.published_mbps
        lines.append(
            row(
                sender.name,
                None if published is None else f"{published:.1f}",
                f"{flow['goodput_bps'] / 1e6:.1f}",
                f"{flow['goodput_bps'] / (RATE_MBPS * 1e4):.1f} %",
                None if published is None else f"{published / cubic_mbps:.2f}",
                f"{flow['goodput_bps'] / cubic_bps:.2f}",
                f"{flow['srtt_mean_us'] / 1e3:.1f}",
                f"{flow['retransmits']:,}",
            )
        )
    return "\n".join(lines)
