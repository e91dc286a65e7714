"""What is where in the demo: sites, hops, addresses; and how long things take.

Per site: host -- LAN -- terminal == emulated link == PoP. The three PoPs meet at the operator's
first hop, from where it goes over a second one and a hop of the Internet to the node that serves.
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
"""A hop of the Internet, and where the owner's own traffic comes from."""
SERVER = "203.0.113.10"
SERVER_NODE = "ams-1"
OWNERS_PORT = 8443
LAN, WAN_DEVICE = "lan0", "wan0"
LINK = "skyhop0"
"""What `skyhop live` calls its devices."""
FIRST_PORT, LAST_PORT = 5201, 5300
"""Where runs serve: as agents do where a policy says nothing else."""


@dataclass(frozen=True)
class Site:
    """A volunteer's place."""

    number: int
    name: str
    city: str
    pop_city: str
    latitude_deg: float
    longitude_deg: float

    @property
    def host(self) -> str:
        """Its host's address."""
        return f"192.168.{self.number}.2"

    @property
    def router(self) -> str:
        """Its terminal's, towards the host."""
        return f"192.168.{self.number}.1"


SITES = (
    Site(1, "bcn-1", "Barcelona, ES", "Madrid, ES", 41.4, 2.2),
    Site(2, "ldn-1", "London, GB", "London, GB", 51.5, -0.1),
    Site(3, "edh-1", "Edinburgh, GB", "London, GB", 55.9, -3.2),
)
SCHEDULED, TRIGGERED, PREEMPTED = SITES
"""Which site each part of the story is about."""


@dataclass(frozen=True)
class Lengths:
    """How long things take, in seconds."""

    scheduled_s: float = 20.0
    triggered_s: float = 12.0
    preempted_s: float = 30.0
    owner_s: float = 8.0
    idle_s: float = 5.0
    """How long the owner is silent until experiments may go on."""
    again_s: float = 15.0
    """How much later what made room is tried again."""
    period_s: float = 30.0
    """From one rise of the second site's round-trip time to the next."""
    raised_s: float = 10.0
    waits_for_again: bool = True


WHOLE = Lengths()
QUICK = Lengths(
    scheduled_s=10.0,
    triggered_s=8.0,
    preempted_s=30.0,
    owner_s=4.0,
    period_s=12.0,
    raised_s=5.0,
    waits_for_again=False,
)
TERMINALS_PHASE_S, LINKS_PHASE_S = 0.6, 0.1
"""When in a UTC second terminals' seconds and links begin. Agents ask at the beginning of each, and
a terminal knows of its second once the last probe of it has come back: 0.23 s after its end while
the round-trip time is raised. What changes in the middle of a terminal's second is known 0.9 s
later; what changes right before its end shows too little in it, and is known 1.5 s later."""
RAISED = "160 ms"
USUAL = "16 ms"
_DURATION_S = 1800.0
"""How long the round-trip time keeps rising and falling, for those who look at the page."""


def rises_s(lengths: Lengths) -> list[float]:
    """Return when the second site's round-trip time rises, from its link's begin."""
    count = int(_DURATION_S / lengths.period_s)
    return [lengths.period_s * number for number in range(1, count)]


def scenario(site: Site, lengths: Lengths) -> str:
    """Return the scenario of a site's link."""
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
    """Return the settings of a site's agent, whose link is a scenario's."""
    begins = dt.datetime.fromtimestamp(begins_ns / 1e9, dt.UTC).isoformat()
    return f"[orbit]\npath = {json.dumps(str(scenario))}\nbegins = {begins}\n"
