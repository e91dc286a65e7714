"""Addresses of options: those on which a service listens, and those of a host."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import suppress

from skyhop.errors import InputError

_LARGEST_PORT = 65_535


def listening_address(option: str, text: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT; with port 0 the kernel chooses a free port.

    Args:
        option: name of the option, for the message.
        text: the option's value.

    Raises:
        InputError: the text is not HOST:PORT.
    """
    host, _, port = text.rpartition(":")
    known = port.isascii() and port.isdecimal() and int(port[:9]) <= _LARGEST_PORT
    if not host or not known:
        raise InputError(
            f'{option} "{text}": expected HOST:PORT, such as "127.0.0.1:7400", '
            "with port 0 for any free port"
        )
    return host.strip("[]"), int(port)


def host_of(address: str) -> str:
    """Return the host of an address such as "example.org:7401", "[2001:db8::1]:7401" or "::1"."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0] if address.count(":") == 1 else address


def ip_addresses(host: str) -> list[str]:
    """Return the IP addresses of a host name or address, sorted and without zones.

    Raises:
        OSError: the name cannot be resolved.
    """
    with suppress(ValueError):
        return [str(ipaddress.ip_address(host.partition("%")[0]))]
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return sorted({str(each[4][0]).partition("%")[0] for each in found})


def is_loopback(address: str) -> bool:
    """Return whether only this machine reaches an address HOST:PORT."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
