"""Sysctls that a run may change, all of them per network namespace."""

from __future__ import annotations

from skyhop.errors import InputError, RunError
from skyhop_testbed.kernel.network import Namespace

_LARGEST_BUFFER = 1 << 30
_PREFIX = "net.ipv4."
ALLOWED: dict[str, tuple[int, int, int]] = {
    "tcp_rmem": (3, 4096, _LARGEST_BUFFER),
    "tcp_wmem": (3, 4096, _LARGEST_BUFFER),
    "tcp_notsent_lowat": (1, 1, (1 << 32) - 1),
    "tcp_ecn": (1, 0, 2),
    "tcp_slow_start_after_idle": (1, 0, 1),
    "tcp_mtu_probing": (1, 0, 2),
}
"""Number of values, and smallest and largest value, of each permitted sysctl."""


def set_sysctl(namespace: Namespace, name: str, value: str) -> None:
    """Set a sysctl in a run's namespace.

    Raises:
        InputError: the sysctl is not permitted, or its value is out of range.
        RunError: the kernel refuses.
    """
    plain = name.removeprefix(_PREFIX)
    if plain not in ALLOWED:
        raise InputError(f"sysctl {name}: not permitted; expected one of {', '.join(ALLOWED)}")
    count, least, most = ALLOWED[plain]
    numbers = [int(word) for word in value.split()]
    if len(numbers) != count or numbers != sorted(numbers):
        raise InputError(f"sysctl {plain}: expected {count} ascending whole numbers")
    if not all(least <= number <= most for number in numbers):
        raise InputError(f"sysctl {plain}: expected {least:,} to {most:,}")
    try:
        namespace.write(plain, value)
    except OSError as error:
        raise RunError(f"sysctl {plain}: {error.strerror}") from None
