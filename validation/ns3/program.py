"""Programs for ns-3: they send a description's packets, and packets over its stack."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from skyhop.errors import RunError
from validation.pages import MissingError

NETWORK, STACK = "static_network", "stack"
LIBRARIES = {
    NETWORK: ("point-to-point", "network", "core"),
    STACK: ("point-to-point", "applications", "internet", "network", "core"),
}
"""Programs, each from the C++ file of its name, and the libraries of ns-3 that they need."""
HEADER = Path("/usr/include/ns3/point-to-point-net-device.h")
ORDERS = ("order", "transmissions", "insertion")
"""Orders of packets that arrive at a node in the same nanosecond; see the program."""
Number = tuple[int, int]
"""Flow, and number of the packet in it."""
Loss = tuple[int, int, int, int]
"""Time in ns, flow, and nodes at both ends of the link; the second one is -1 for the air."""


@dataclass
class Fates:
    """Fates of the packets of a run.

    Attributes:
        rtts_ns: round trips of the packets that have returned.
        lost: packets that were lost, on their way there or back.
        losses: each loss with its time and link.
        cpu_s: CPU time of the simulation, without its preparation.
        arrivals: packets that have arrived at a node, each once for each node.
    """

    rtts_ns: dict[Number, int] = field(default_factory=dict)
    lost: set[Number] = field(default_factory=set)
    losses: list[Loss] = field(default_factory=list)
    cpu_s: float = 0.0
    arrivals: int = 0

    @property
    def rate(self) -> float:
        """Packet hops per second of CPU time."""
        return self.arrivals / self.cpu_s


def build(directory: Path, name: str = NETWORK) -> Path:
    """Compile a program; raise MissingError where ns-3 or the compiler is missing."""
    lacking = [] if shutil.which("g++") else ["g++"]
    if not HEADER.exists():
        lacking.append("libns3-dev")
    if lacking:
        raise MissingError(f"ns-3's program: apt-get install {' '.join(lacking)}")
    program, source = directory / name, Path(__file__).with_name(f"{name}.cc")
    libraries = [f"-lns3-{library}" for library in LIBRARIES[name]]
    command = ["g++", "-std=c++17", "-O2", "-DNDEBUG", str(source), "-o", str(program)]
    done = subprocess.run([*command, *libraries], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"{source}: does not compile: {done.stderr.strip()}")
    return program


def run(program: Path, description: str, order: str = "order") -> Fates:
    """Send the packets of a description; return their fates."""
    file = program.with_name("description")
    file.write_text(description, "utf-8")
    return _call(program, str(file), order)


def run_stack(program: Path, transport: str) -> Fates:
    """Send packets over ns-3's stack; only the speed is reported."""
    return _call(program, transport)


def _call(program: Path, *arguments: str) -> Fates:
    command = [str(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"{program.name}: {done.stderr.strip() or f'status {done.returncode}'}")
    return read(done.stdout.splitlines())


def read(lines: Iterable[str]) -> Fates:
    """Return the fates that the program's output lists."""
    fates = Fates()
    for line in lines:
        kind, *cells = line.split()
        if kind == "run":
            fates.cpu_s, fates.arrivals = float(cells[0]), int(cells[1])
            continue
        flow, number, sent_ns, at_ns, *ends = map(int, cells)
        if kind == "returned":
            fates.rtts_ns[flow, number] = at_ns - sent_ns
        elif kind == "lost":
            begin, end = ends
            fates.lost.add((flow, number))
            fates.losses.append((at_ns, flow, begin, end))
        else:
            raise RunError(f"ns-3's program: a line of an unknown kind: {line}")
    return fates
