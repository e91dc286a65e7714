"""Policy of a node's owner: what runs may do on the node.

    {"programs": ["iperf3", "ping"], "hours": ["22:00-06:00"], "networks": ["internet", "none"],
     "reach": ["dish", "192.168.1.5:8080"], "listen": ["6000-6010"], "backends": ["process"],
     "kernel": true, "data_cap_bytes_per_month": 50e9, "upload_bps": 4e6, "memory_bytes": 1e9,
     "disk_bytes": 1e9, "processes": 100, "files": 1000, "nice": 10, "ports": [5201, 5300],
     "quiet_hours": ["18:00-23:00"], "scavenger": {"rx_bps": 40e3}, "keep_days": 1,
     "results_bytes": 20e9, "free_floor_bytes": 500e6,
     "signals": ["prediction", "handover", "pop_ping_latency_ms"]}

Every key is optional. By default all programs, hours and back ends are allowed, and all networks
except the host's own; the data per month has no cap, and the kernel service is not allowed. Runs
reach the public Internet alone, and `reach` opens more (`agent.reach`). They listen on nothing,
except for a job's server on one of `ports`; `listen` names further ports. They may read all
signals but those that contain the owner's own traffic (`signals`). Hours are UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from skyhop.errors import InputError
from skyhop_testbed.executor.assignment import Limits
from skyhop_testbed.fence import check_listen, check_reach
from skyhop_testbed.job import Kernel, Run
from skyhop_testbed.privacy import shares_traffic
from skyhop_testbed.scavenger import QuietHours, Rule, parse_rule
from skyhop_testbed.schedule import ScheduledJob
from skyhop_testbed.signals import ALL, FIELDS_OF_RUNS, Signals, first_forbidden
from skyhop_testbed.words import Network, ScavengerMode, Side

_PORTS = (5201, 5300)
_KEEP_DAYS = 1.0
_UPLOAD_BPS = 4e6
_SLOWEST_BPS, _FASTEST_BPS = 1e3, 1e12
_RESULTS_BYTES, _FREE_FLOOR_BYTES = 20_000_000_000, 500_000_000
_LARGEST_PORT = 65_535
_LIMITS = ("memory_bytes", "disk_bytes", "processes", "nice", "files")


@dataclass(frozen=True)
class Policy:
    """Limits that a node's owner sets: programs, hours, networks, monthly data, sandbox limits."""

    programs: frozenset[str] | None = None
    hours: tuple[QuietHours, ...] = ()
    """Hours (UTC) in which runs may begin; empty allows all."""
    networks: frozenset[str] | None = None
    """Allowed networks; `None` allows all except the host's own."""
    reach: tuple[str, ...] = ()
    """Names, addresses and networks that runs reach in addition to the public Internet."""
    listen: tuple[str, ...] = ()
    """Ports and ranges of ports on which others reach runs."""
    backends: frozenset[str] | None = None
    has_kernel: bool = False
    has_uncounted_udp: bool = False
    """Whether runs may use UDP in the host's network where this node cannot count it."""
    month_bytes: float | None = None
    """Upper limit on the bytes of runs and agent in a month of UTC."""
    upload_bps: float = _UPLOAD_BPS
    """Upper limit on the rate of all uploads of results together, in bit/s."""
    ports: tuple[int, int] = _PORTS
    keep_days: float = _KEEP_DAYS
    """Days for which a run's files stay on the node after their upload."""
    results_bytes: float = _RESULTS_BYTES
    """Bytes that the files of all runs together may take on the node."""
    free_floor_bytes: int = _FREE_FLOOR_BYTES
    """Free space on the node's disk below which no run begins."""
    limits: Limits = field(default_factory=Limits)
    rule: Rule = field(default_factory=Rule)
    signals: Signals = field(default_factory=lambda: Signals.named(ALL))
    """Signals that runs may read."""
    shares_traffic: bool = False
    """Whether all users may read the owner's traffic (`privacy`)."""

    @classmethod
    def of(cls, values: Mapping[str, Any], mode: ScavengerMode = ScavengerMode.AUTO) -> Policy:
        """Parse the policy that is part of a schedule.

        Raises:
            InputError: a value has the wrong type or range.
        """
        try:
            low, high = (int(port) for port in values.get("ports", _PORTS))
            if not 0 < low <= high <= _LARGEST_PORT:
                raise ValueError("ports")
            cap = values.get("data_cap_bytes_per_month")
            quiet = values.get("quiet_hours")
            scavenger = dict(values.get("scavenger") or {})
            scavenger |= {"mode": mode} | ({"quiet": quiet} if quiet else {})
            return cls(
                programs=_names(values.get("programs")),
                hours=tuple(QuietHours.read(str(text)) for text in values.get("hours") or ()),
                networks=_names(values.get("networks")),
                reach=check_reach(values.get("reach")),
                listen=check_listen(values.get("listen")),
                backends=_names(values.get("backends")),
                has_kernel=bool(values.get("kernel", False)),
                has_uncounted_udp=bool(values.get("uncounted_udp", False)),
                upload_bps=_upload_bps(values.get("upload_bps", _UPLOAD_BPS)),
                month_bytes=None if cap is None else float(cap),
                ports=(low, high),
                keep_days=float(values.get("keep_days", _KEEP_DAYS)),
                results_bytes=float(values.get("results_bytes", _RESULTS_BYTES)),
                free_floor_bytes=int(values.get("free_floor_bytes", _FREE_FLOOR_BYTES)),
                limits=Limits(**{n: int(values[n]) for n in _LIMITS if values.get(n) is not None}),
                rule=parse_rule(scavenger),
                signals=Signals.named(_known_signals(values.get("signals"))),
                shares_traffic=shares_traffic(values),
            )
        except (TypeError, ValueError, AttributeError) as error:
            raise InputError(f"the node's policy cannot be read: {error}") from None

    def refusal(
        self, job: ScheduledJob, now_ns: int, month_bytes: int, side: Side = Side.CLIENT
    ) -> str | None:
        """Return, as text, why a job's run may not begin now; `None` if it may.

        Args:
            job: the job.
            now_ns: the time.
            month_bytes: traffic of runs and agent since the month began.
            side: the side of the run (client or server) that this node would execute.
        """
        run = job.spec.run
        program, network = _program(run, side), self.network_of(run, side)
        signal = first_forbidden(run.signals, self.signals)
        # A job that sets PATH could run another program under an allowed name.
        has_path = "PATH" in run.env
        for is_refused, why in (
            (
                bool(self.hours) and not any(hours.contains(now_ns) for hours in self.hours),
                "not at this hour",
            ),
            (
                self.programs is not None and (program not in self.programs or has_path),
                f'the program "{program[:100]}" is not among those allowed',
            ),
            (
                not self.allows_network(network),
                f"the network {network} is not allowed",
            ),
            (
                not _has(self.backends, run.backend),
                f"the back end {run.backend} is not allowed",
            ),
            (
                signal is not None,
                f"the signal {signal} is not allowed",
            ),
            (
                job.spec.kernel != Kernel() and not (self.has_kernel and job.priv),
                "kernel services are not allowed",
            ),
            (
                self.month_bytes is not None and month_bytes >= self.month_bytes,
                f"this month's {self.month_bytes or 0:,.0f} bytes are used up",
            ),
        ):
            if is_refused:
                return why
        return None

    def allows_network(self, network: Network) -> bool:
        """Return whether runs may use a network; the host's own only if the owner names it.

        An owner who allows the host's own network, which has no fence, also allows `internet`.
        """
        if self.networks is None:
            return network is not Network.HOST
        is_internet = network is Network.INTERNET
        return network in self.networks or (is_internet and Network.HOST in self.networks)

    def network_of(self, run: Run, side: Side) -> Network:
        """Return the network that one side of a job's run uses.

        Other nodes cannot reach a device of the kernel service, so servers use another network.
        """
        if side is Side.CLIENT or run.network is not Network.VETH:
            return run.network
        return Network.HOST if self.allows_network(Network.HOST) else Network.INTERNET


def _known_signals(names: Any) -> frozenset[str]:
    """Return the signals that a policy allows; a later version's names are unknown here."""
    allowed = _names(names)
    return frozenset(ALL) if allowed is None else allowed & {*ALL, *FIELDS_OF_RUNS}


def _upload_bps(value: Any) -> float:
    if not _SLOWEST_BPS <= float(value) <= _FASTEST_BPS:
        raise ValueError(f"upload_bps is from {_SLOWEST_BPS:g} to {_FASTEST_BPS:g}")
    return float(value)


def _has(allowed: frozenset[str] | None, word: str) -> bool:
    return allowed is None or word in allowed


def _names(values: Any) -> frozenset[str] | None:
    return None if values is None else frozenset(str(value) for value in values)


def _program(run: Run, side: Side) -> str:
    """Return the name by which a policy allows a program: the image, the command, or `skyhop`."""
    command = run.client if side is Side.CLIENT else run.serve
    return run.image or (command[0] if command else "skyhop")
