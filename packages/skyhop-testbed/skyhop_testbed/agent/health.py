"""Health report of a node: its software and resources, at its start and every five minutes."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from skyhop.version import __version__
from skyhop_testbed.agent.deploying import kernel_answers
from skyhop_testbed.agent.node import Node, clock_offset_ms
from skyhop_testbed.agent.reports import HealthReport, UpdateHealth
from skyhop_testbed.agent.room import Room
from skyhop_testbed.words import Backend, Network

EVERY_S = 300.0
_PROGRAMS = (
    "chromium", "curl", "dig", "ffmpeg", "flent", "iperf", "iperf3", "irtt", "mtr", "netperf",
    "ping", "python3", "tcpdump", "tracepath", "traceroute", "tshark", "wget",
)  # fmt: skip
_CONGESTION = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


def health(node: Node, runs: Room, update: UpdateHealth | None = None) -> HealthReport:
    """Return a health report: programs, kernel, disk, clock, load and state of the release."""
    has_kernel = kernel_answers(node.kernel)
    lacks = _network_lacks(node, has_kernel=has_kernel)
    return HealthReport(
        version=__version__,
        programs=[name for name in _PROGRAMS if shutil.which(name)],
        kernel={
            "release": os.uname().release,
            "service": has_kernel,
            "congestion": _words(_CONGESTION),
        },
        disk_free_bytes=node.space_of(node.state).free,
        clock_offset_ms=clock_offset_ms(),
        load=os.getloadavg()[0],
        backends={backend.value: _lacks(backend) for backend in Backend},
        networks=[network.value for network in Network if lacks[network] is None],
        network_lacks={network.value: why for network, why in lacks.items() if why is not None},
        data={
            "month": node.allowance.month(),
            "used_bytes": node.allowance.used_bytes(),
            "cap_bytes": node.policy.month_bytes,
            "held_back": node.allowance.held_back(),
        },
        shortage=runs.why_full() or "",
        results_bytes=runs.used_bytes(),
        results_most_bytes=node.policy.results_bytes,
        update=update,
    )


def _network_lacks(node: Node, *, has_kernel: bool) -> dict[Network, str | None]:
    """Return why a network cannot be used on this machine, or `None`, by network."""
    lacks: dict[Network, str | None] = dict.fromkeys(Network)
    lacks[Network.INTERNET] = node.internet_lacks()
    if not has_kernel:
        lacks[Network.VETH] = "the kernel service does not run"
    return lacks


def _lacks(backend: Backend) -> str | None:
    if backend is Backend.PROCESS or shutil.which(backend.value):
        return None
    return f"{backend.value} is not installed"


def _words(file: Path) -> list[str]:
    with suppress(OSError):
        return file.read_text("ascii").split()
    return []
