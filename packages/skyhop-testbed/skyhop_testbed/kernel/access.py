"""Access of a run to the kernel service."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class KernelAccess:
    """Access to the kernel service: its socket, and the run's requests to it."""

    socket: str
    token: str
    """Token of the run; the agent has registered it at the service with `run.open`."""
    cc: str | None = None
    parameters: dict[str, float | int | bool | str] = field(default_factory=dict)
    qdisc: str | None = None
    qdisc_parameters: dict[str, float | int | bool | str] = field(default_factory=dict)
    sysctl: dict[str, str | int] = field(default_factory=dict)
    leoscope: bool = False
    """Whether the program may use LEOScope's text protocol on port 9000 of its own namespace."""

    def grants(self) -> list[str]:
        """Return the permissions that `run.open` needs.

        A run that only wants a device needs none.
        """
        wanted = {"cc": self.cc or self.leoscope, "qdisc": self.qdisc, "sysctl": self.sysctl}
        return [name for name, is_wanted in wanted.items() if is_wanted]
