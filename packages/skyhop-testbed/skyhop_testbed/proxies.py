"""HTTP proxies through which clients and agents reach an orchestrator, by the method CONNECT."""

from __future__ import annotations

from urllib.parse import urlsplit

from skyhop.errors import InputError
from skyhop_testbed.addresses import is_loopback


def environment_proxy(address: str) -> str | None:
    """Return the proxy for HOST:PORT that HTTPS_PROXY, ALL_PROXY and NO_PROXY name, if any.

    This machine's own addresses have none.

    Raises:
        InputError: the proxy is not an HTTP proxy.
    """
    from urllib.request import (  # type: ignore[attr-defined]
        getproxies_environment,
        proxy_bypass_environment,
    )

    named = getproxies_environment()
    found = named.get("https") or named.get("all")
    if not found or is_loopback(address) or proxy_bypass_environment(address):
        return None
    return checked_proxy(found if "://" in found else f"http://{found}", "HTTPS_PROXY")


def checked_proxy(url: str, key: str) -> str:
    """Return the URL of an HTTP proxy unchanged, if its form is valid.

    Raises:
        InputError: the form is wrong; the message names `key`, and no password.
    """
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme == "http" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise InputError(f'{key}: expected an HTTP proxy such as "http://proxy.example.org:3128"')
    return url
