"""`skyhop testbed kernel`: root service with typed requests for runs of the testbed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer


def kernel(
    socket: Annotated[
        Path, typer.Option("--socket", metavar="PATH", help="Unix socket to serve.")
    ] = Path("/run/skyhop-kernel.sock"),
    state: Annotated[
        Path, typer.Option("--state", metavar="DIR", help="State directory with the journal.")
    ] = Path("/var/lib/skyhop-kernel"),
    allow_uid: Annotated[
        list[int] | None,
        typer.Option(
            "--allow-uid",
            metavar="UID",
            help="User id of the agent (repeatable); root is always allowed.",
        ),
    ] = None,
    uplink: Annotated[
        str,
        typer.Option(metavar="none|nat|routed|macvlan|ipvlan", help="Uplink of the runs' devices."),
    ] = "none",
    interface: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Interface of the uplink; not needed for none."),
    ] = None,
    addresses: Annotated[
        str, typer.Option(metavar="PREFIX", help="Addresses for runs' devices.")
    ] = "10.213.0.0/20",
    gateway: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Gateway of the LAN, for macvlan and ipvlan."),
    ] = None,
    prefix_bits: Annotated[
        int, typer.Option(metavar="BITS", help="Prefix length of the LAN, for macvlan and ipvlan.")
    ] = 24,
) -> None:
    """Serve typed requests of the testbed's agent and executors, as root, until Ctrl-C or SIGTERM.

    A run gets a device in its own network namespace, where its job may set the congestion control,
    queue, rate and some sysctls. All changes are undone when the run ends. Other requests are
    refused.

    Example: sudo skyhop testbed kernel --allow-uid 990 --uplink nat --interface eth0
    """
    from skyhop import logs
    from skyhop.cli.stopping import stop_on_signals, until_signal
    from skyhop.errors import InputError, RunError
    from skyhop_testbed.clock import SYSTEM_CLOCK
    from skyhop_testbed.kernel.service import KernelService
    from skyhop_testbed.kernel.uplinks import Kind, Uplink

    logs.configure(otherwise=logs.SERVICE)
    if os.geteuid() != 0:
        raise RunError("the kernel service needs root: start it with sudo or by systemd")
    if uplink not in set(Kind):
        raise InputError(f"--uplink {uplink}: expected one of {', '.join(Kind)}")
    way = Uplink(Kind(uplink), interface, addresses, gateway, prefix_bits)
    allowed = allow_uid or []
    files = socket.absolute(), state.absolute()
    with until_signal():
        service = KernelService(*files, allowed, way, clock=SYSTEM_CLOCK)
        stop_on_signals(service.stop)
        service.serve()
