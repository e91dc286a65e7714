"""Table I of SaTCP: San Diego to New York over bent pipes, for a whole orbit of LeoEM's path."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import skyhop

ORBIT_S = 5731
RATE_MBPS = 150

SAN_DIEGO, NEW_YORK = "32.881,-117.237", "40.845,-73.932"


@dataclass(frozen=True)
class Sender:
    """Sender in one row of the table."""

    name: str
    published_mbps: float | None
    """Goodput in the paper; `None` for senders that are not in the paper."""
    flow: dict[str, Any]
    signal: dict[str, str]


def reported(lead: str) -> dict[str, str]:
    """Return overrides for announcements like the paper's: `lead` early, with Figure 4's errors."""
    return {"source": "path", "lead": lead, "error": "report-timing"}


SENDERS = (
    Sender("CUBIC", 34.3, {"cc": "cubic"}, {}),
    Sender("SaTCP, hold 0.3 s", 59.8, {"cc": "satcp", "satcp": {"hold": "0.3 s"}}, reported("0 s")),
    Sender(
        "SaTCP, hold 0.9 s", 123.4, {"cc": "satcp", "satcp": {"hold": "0.9 s"}}, reported("0.3 s")
    ),
    Sender(
        "SaTCP, hold 1.3 s", 138.1, {"cc": "satcp", "satcp": {"hold": "1.3 s"}}, reported("0.5 s")
    ),
    Sender("BBR", 136.7, {"cc": "bbr"}, {}),
    Sender("SatPipe", None, {"cc": "satpipe"}, {"source": "path", "lead": "0.5 s"}),
)


def simulate(sender: Sender, gateways: Path) -> dict[str, Any]:
    """Simulate a sender; return its flow's summary."""
    run = skyhop.sim(
        {
            "path": {
                "constellation": "leoem-starlink",
                "compat": "leoem",
                "relay": "bent-pipe",
                "from": SAN_DIEGO,
                "to": NEW_YORK,
                "gateways": str(gateways),
            },
            "link": {"rate": f"{RATE_MBPS} Mbit/s", "queue": "5 MB"},
            "flow": [sender.flow],
            "signal": sender.signal,
            "run": {"duration": f"{ORBIT_S} s", "sample": "1 s"},
        }
    )
    flow: dict[str, Any] = run.summary["flows"][0]
    return flow


def table(executor: Executor, gateways: Path) -> str:
    """Return the rows of the table."""
    waiting = [(sender, executor.submit(simulate, sender, gateways)) for sender in SENDERS]
    flows = [(sender, run.result()) for sender, run in waiting]
    cubic_bps = flows[0][1]["goodput_bps"]
    published_cubic = SENDERS[0].published_mbps
    lines = []
    for sender, flow in flows:
        published = sender.published_mbps
        theirs, times = "-", "-"
        if published is not None and published_cubic is not None:
            theirs, times = f"{published:.1f}", f"{published / published_cubic:.2f}"
        lines.append(
            f"| {sender.name} | {theirs} | {flow['goodput_bps'] / 1e6:.1f} "
            f"| {flow['goodput_bps'] / (RATE_MBPS * 1e4):.1f} % | {times} "
            f"| {flow['goodput_bps'] / cubic_bps:.2f} | {flow['srtt_mean_us'] / 1e3:.1f} "
            f"| {flow['retransmits']:,} |"
        )
    return "\n".join(lines)
