"""Plan of the demo: sites, hops and addresses, and durations.

Per site: host -- LAN -- terminal == emulated link == PoP. The three PoPs meet at the operator's
first hop; a second hop and a hop of the Internet lead to the server's node.
"""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from pathlib import Path

DISH = "192.168.100.1"
DISH_PORT = 9200
POP = "100.64.0.1"
WAN = "198.51.100.1"
"""Address of a hop in the Internet, which is also the server of the owner's traffic."""
SERVER = "203.0.113.10"
SERVER_NODE = "ams-1"
OWNERS_PORT = 8443
LAN, WAN_DEVICE = "lan0", "wan0"
LINK = "skyhop0"
"""Name of the device at each end of a link of `skyhop live`."""
FIRST_PORT, LAST_PORT = 5201, 5300
"""Range of the runs' server ports, the same as a policy's default."""


@dataclass(frozen=True)
class Site:
    """Site of a node: the host and terminal of one volunteer."""

    number: int
    name: str
    city: str
    pop_city: str
    latitude_deg: float
    longitude_deg: float

    @property
    def host(self) -> str:
        """IPv4 address of the site's host."""
        return f"192.168.{self.number}.2"

    @property
    def router(self) -> str:
        """IPv4 address of the terminal in the site's LAN."""
        return f"192.168.{self.number}.1"


SITES = (
    Site(1, "bcn-1", "Barcelona, ES", "Madrid, ES", 41.4, 2.2),
    Site(2, "ldn-1", "London, GB", "London, GB", 51.5, -0.1),
    Site(3, "edh-1", "Edinburgh, GB", "London, GB", 55.9, -3.2),
)
SCHEDULED, TRIGGERED, PREEMPTED = SITES
"""Sites of the scheduled, the triggered and the preempted experiment, in this order."""


@dataclass(frozen=True)
class Lengths:
    """Durations of the demo's parts, in seconds."""

    job_s: float = 240.0
    """Length of the first two jobs, which their runs do not use up: a run ends when its program
    does. A server's node may take a quarter of it to answer, which a busy machine needs."""
    preempted_job_s: float = 40.0
    """Length of the third job, whose run is not planned again before the preempted one's end."""
    scheduled_s: float = 8.0
    """Time in s for which the scheduled run measures."""
    triggered_s: float = 5.0
    """Time in s for which the triggered run measures."""
    preempted_s: float = 12.0
    """Time in s for which the preempted run uploads, if nothing disturbs it."""
    owner_s: float = 8.0
    idle_s: float = 5.0
    """Time in s without traffic of the owner after which experiments may go on."""
    again_s: float = 15.0
    """Delay in s before the preempted run is repeated."""
    period_s: float = 30.0
    """Time in s between two rises of the second site's RTT."""
    raised_s: float = 10.0
    waits_for_again: bool = True


FULL = Lengths()
QUICK = Lengths(
    scheduled_s=4.0,
    triggered_s=3.0,
    owner_s=4.0,
    period_s=12.0,
    raised_s=5.0,
    waits_for_again=False,
)
TERMINALS_PHASE_S, LINKS_PHASE_S = 0.6, 0.1
"""Offsets within a UTC second at which the terminals' seconds (0.6 s) and the links (0.1 s) begin.
Agents poll at the beginning of each UTC second. A terminal knows the values of its second when the
reply to its last probe has arrived: 0.23 s after the second's end while the RTT is raised. Agents
therefore learn of a change in the middle of a terminal's second 0.9 s later. A change right before
the second's end affects that second too little, and agents learn of it 1.5 s later."""
RAISED = "160 ms"
USUAL = "16 ms"
_DURATION_S = 1800.0
"""Duration of the links and of the periodic rises in s, long enough for users who watch the page.
"""


def rises_s(lengths: Lengths) -> list[float]:
    """Return the times in s since the link's beginning at which the second site's RTT rises."""
    count = int(_DURATION_S / lengths.period_s)
    return [lengths.period_s * number for number in range(1, count)]


def scenario(site: Site, lengths: Lengths) -> str:
    """Return the scenario that emulates a site's link, in TOML."""
    text = f"""\
[path]
from = "{site.city}"
to = "{site.pop_city}"
relay = "access"
outage = "starlink"

[link]
rate = "20 Mbit/s"
queue = "100 ms"

[link.back]
rate = "100 Mbit/s"
queue = "100 ms"

[run]
duration = "{_DURATION_S:g} s"
"""
    if site is not TRIGGERED:
        return text
    for rise_s in rises_s(lengths):
        text += f'\n[[change]]\nat = "{rise_s:g} s"\nrtt = "{RAISED}"\n'
        text += f'\n[[change]]\nat = "{rise_s + lengths.raised_s:g} s"\nrtt = "{USUAL}"\n'
    return text


def settings(scenario: Path, begins_ns: int) -> str:
    """Return the `agent.toml` of a site; its satellites come from the link's scenario."""
    begins = dt.datetime.fromtimestamp(begins_ns / 1e9, dt.UTC).isoformat()
    return f"[orbit]\npath = {json.dumps(str(scenario))}\nbegins = {begins}\n"
