"""Queueing discipline and shaper of a run's device: kinds and parameters of tc(8)."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass

from skyhop.errors import InputError, RunError
from skyhop_testbed import linux
from skyhop_testbed.kernel.network import DEVICE, Namespace
from skyhop_testbed.kernel.programs import call

_BIGGEST = 1 << 31


@dataclass(frozen=True)
class _Range:
    """Permitted range of a qdisc's parameter, and its unit in tc's syntax."""

    least: float
    most: float
    unit: str = ""

    def text(self, name: str, value: str) -> list[str]:
        try:
            number = float(value)
        except ValueError:
            raise InputError(f"{name}: expected a number, got {value!r}") from None
        if not self.least <= number <= self.most:
            raise InputError(f"{name}: expected {self.least:g} to {self.most:g}, got {value}")
        return [f"{number:g}{self.unit}" if self.unit else f"{int(number)}"]


_PACKETS = _Range(1, 10_000_000)
_BYTES = _Range(1, _BIGGEST)
_MS = _Range(0.001, 60_000, "ms")
_BPS = _Range(1_000, 4e11, "bit")
_PERCENT = _Range(0, 100, "%")
_FLAG = _Range(0, 1)

KINDS: dict[str, dict[str, _Range]] = {
    "pfifo": {"limit": _PACKETS},
    "bfifo": {"limit": _BYTES},
    "codel": {"limit": _PACKETS, "target_ms": _MS, "interval_ms": _MS, "ecn": _FLAG},
    "fq_codel": {
        "limit": _PACKETS, "flows": _Range(1, 65_536), "target_ms": _MS, "interval_ms": _MS,
        "quantum": _BYTES, "ecn": _FLAG,
    },
    "fq": {
        "limit": _PACKETS, "flow_limit": _PACKETS, "quantum": _BYTES, "initial_quantum": _BYTES,
    },
    "sfq": {"limit": _PACKETS, "quantum": _BYTES, "perturb": _Range(0, 3600)},
    "pie": {"limit": _PACKETS, "target_ms": _MS, "tupdate_ms": _MS, "ecn": _FLAG},
    "cake": {"bandwidth_bps": _BPS, "rtt_ms": _MS},
    "netem": {"limit": _PACKETS, "delay_ms": _MS, "loss_percent": _PERCENT, "rate_bps": _BPS},
}  # fmt: skip
"""Permitted kinds of queueing disciplines, and their parameters."""
_SUFFIXES = ("_ms", "_bps", "_percent")


def arguments(kind: str, parameters: dict[str, str]) -> list[str]:
    """Return the arguments of tc for a queueing discipline.

    Raises:
        InputError: the kind or a parameter is unknown, or a value is out of range.
    """
    known = KINDS.get(kind)
    if known is None:
        raise InputError(f"qdisc {kind}: unknown; expected one of {', '.join(KINDS)}")
    words = [kind]
    for name, value in parameters.items():
        if name not in known:
            raise InputError(f"qdisc {kind}: has no {name}; it has {', '.join(known)}")
        plain = name
        for suffix in _SUFFIXES:
            plain = plain.removesuffix(suffix)
        text = known[name].text(f"qdisc {kind}: {name}", value)
        if known[name] is _FLAG:
            words.append(plain if text == ["1"] else f"no{plain}")
        else:
            words += [plain, *text]
    return words


class Queue:
    """Queueing discipline and rate limit of a run's device."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._shape: list[str] = []
        self._qdisc: list[str] = []

    def set(self, kind: str, parameters: dict[str, str]) -> None:
        """Set the queueing discipline, as a child of the shaper if there is one.

        Raises:
            InputError: the kind is unknown or not in this kernel, or a value is out of range.
            RunError: the kernel refuses it.
        """
        words = arguments(kind, parameters)
        try:
            self._change(self._shape, words)
        except RunError as error:
            if kind in (known := offered()):
                raise
            raise InputError(f"qdisc {kind}: this kernel has {', '.join(known)}") from error

    def shape(self, rate_bps: int, burst_bytes: int | None, latency_ms: int | None) -> None:
        """Limit the rate of the device with tbf.

        `latency_ms` bounds the delay in tbf's own queue.
        """
        # The default burst is 4 ms at the rate, and at least one packet of full GSO size.
        burst = burst_bytes or max(65_536, rate_bps // 8 // 250)
        words = ["tbf", "rate", f"{rate_bps}bit", "burst", str(burst)]
        self._change([*words, "latency", f"{latency_ms or 50}ms"], self._qdisc)

    def _change(self, shape: list[str], qdisc: list[str]) -> None:
        before = (self._shape, self._qdisc)
        try:
            self._apply(shape, qdisc)
        except RunError:
            self._apply(*before)
            raise
        self._shape, self._qdisc = shape, qdisc

    def _apply(self, shape: list[str], qdisc: list[str]) -> None:
        def lines() -> None:
            # The deletion fails if the device has only the kernel's default qdisc.
            with suppress(RunError):
                call("tc", "qdisc", "delete", "dev", DEVICE, "root")
            if shape:
                call("tc", "qdisc", "add", "dev", DEVICE, "root", "handle", "1:", *shape)
            if qdisc:
                place = ["parent", "1:1"] if shape else ["root"]
                call("tc", "qdisc", "add", "dev", DEVICE, *place, "handle", "2:", *qdisc)

        self._namespace.inside(lines)


def offered() -> list[str]:
    """Return the kinds that this kernel supports, by trying each in a new network namespace."""
    found: list[str] = []

    def attempt() -> None:
        linux.unshare(linux.NEWNET)
        for kind in KINDS:
            limit = ["limit", "1000"] if kind == "bfifo" else []
            with suppress(RunError):
                call("tc", "qdisc", "replace", "dev", "lo", "root", kind, *limit)
                found.append(kind)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    return found
