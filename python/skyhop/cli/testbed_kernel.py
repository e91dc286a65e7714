"""`skyhop testbed kernel`: what runs of the testbed may have done as root."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Annotated

import typer


def kernel(
    socket: Annotated[
        Path, typer.Option("--socket", metavar="PATH", help="The Unix socket that it serves.")
    ] = Path("/run/skyhop-kernel.sock"),
    state: Annotated[
        Path, typer.Option("--state", metavar="DIR", help="Its own directory, for its journal.")
    ] = Path("/var/lib/skyhop-kernel"),
    allow_uid: Annotated[
        list[int] | None,
        typer.Option("--allow-uid", metavar="UID", help="The agent's user; root may always ask."),
    ] = None,
    uplink: Annotated[
        str,
        typer.Option(metavar="none|nat|routed|macvlan|ipvlan", help="What runs' devices lead to."),
    ] = "none",
    interface: Annotated[
        str | None, typer.Option(metavar="NAME", help="Over which interface; none needs no one.")
    ] = None,
    addresses: Annotated[
        str, typer.Option(metavar="PREFIX", help="Addresses for runs' devices.")
    ] = "10.213.0.0/20",
    gateway: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="The LAN's, for macvlan and ipvlan.")
    ] = None,
    prefix_bits: Annotated[
        int, typer.Option(metavar="BITS", help="The LAN's prefix, for macvlan and ipvlan.")
    ] = 24,
) -> None:
    """Serve typed requests of the testbed's agent and executors, as root, until Ctrl-C.

    A run gets a device in a network namespace of its own, and may have its congestion control,
    queue, rate and some sysctls changed there; all of it is undone when it ends. Nothing else can
    be asked for.

    Example: sudo skyhop testbed kernel --allow-uid 990 --uplink nat --interface eth0
    """
    from skyhop.errors import InputError, RunError
    from skyhop.testbed.clock import SYSTEM_CLOCK
    from skyhop.testbed.kernel.service import KernelService
    from skyhop.testbed.kernel.uplinks import Kind, Uplink

    if os.geteuid() != 0:
        raise RunError("the kernel service needs root: start it with sudo or by systemd")
    if uplink not in set(Kind):
        raise InputError(f"--uplink {uplink}: expected one of {', '.join(Kind)}")
    way = Uplink(Kind(uplink), interface, addresses, gateway, prefix_bits)
    allowed = allow_uid or []
    service = KernelService(socket.absolute(), state.absolute(), allowed, way, clock=SYSTEM_CLOCK)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: service.stop())
    service.serve()
