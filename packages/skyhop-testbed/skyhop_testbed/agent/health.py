"""Health report of a node: its software and resources, at its start and every five minutes."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from skyhop.version import __version__
from skyhop_testbed.agent.deploying import kernel_answers
from skyhop_testbed.agent.node import Node, clock_offset_ms
from skyhop_testbed.agent.reports import HealthReport
from skyhop_testbed.words import Backend, Network

EVERY_S = 300.0
_PROGRAMS = (
    "chromium", "curl", "dig", "ffmpeg", "flent", "iperf", "iperf3", "irtt", "mtr", "netperf",
    "ping", "python3", "tcpdump", "tracepath", "traceroute", "tshark", "wget",
)  # fmt: skip
_CONGESTION = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


def health(node: Node) -> HealthReport:
    """Return a health report: programs, kernel, disk, clock and load."""
    has_kernel = kernel_answers(node.kernel)
    room = shutil.disk_usage(node.state)
    return HealthReport(
        version=__version__,
        programs=[name for name in _PROGRAMS if shutil.which(name)],
        kernel={
            "release": os.uname().release,
            "service": has_kernel,
            "congestion": _words(_CONGESTION),
        },
        disk_free_bytes=room.free,
        clock_offset_ms=clock_offset_ms(),
        load=os.getloadavg()[0],
        backends={backend.value: _lacks(backend) for backend in Backend},
        data={
            "month": node.allowance.month(),
            "used_bytes": node.allowance.used_bytes(),
            "cap_bytes": node.policy.month_bytes,
            "held_back": node.allowance.held_back(),
        },
        networks=[n.value for n in Network if n is not Network.VETH or has_kernel],
    )


def _lacks(backend: Backend) -> str | None:
    if backend is Backend.PROCESS or shutil.which(backend.value):
        return None
    return f"{backend.value} is not installed"


def _words(file: Path) -> list[str]:
    with suppress(OSError):
        return file.read_text("ascii").split()
    return []
