"""Addresses on which a service listens, as options give them."""

from __future__ import annotations

import ipaddress

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


def is_loopback(address: str) -> bool:
    """Return whether only this machine reaches an address HOST:PORT."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
