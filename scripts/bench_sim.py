"""How fast and how large simulations are, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench_previous import previous

from skyhop import _core
from skyhop.cli.terminal import print_rows

# At the top, so that loading it does not count as time of a run.
from skyhop.engines import sim


@dataclass(frozen=True)
class Simulation:
    """One simulated run over a fixed path with a queue of one BDP."""

    flows: str
    flow: Mapping[str, Any]
    rate: str = "150 Mbit/s"
    rtt: str = "50 ms"
    duration_s: int = 600

    @property
    def name(self) -> str:
        """What the figures of before call it."""
        return f"{self.flows}, {self.rate}, {self.rtt}, {self.duration_s} s"

    @property
    def scenario(self) -> Mapping[str, Any]:
        """The scenario."""
        return {
            "path": {"kind": "fixed", "rtt": self.rtt},
            "link": {"rate": self.rate},
            "flow": [self.flow],
            "run": {"duration": f"{self.duration_s} s"},
        }


SIMULATIONS = (
    Simulation("one CUBIC flow", {"cc": "cubic"}),
    Simulation("one BBR flow", {"cc": "bbr"}),
    Simulation("16 CUBIC flows", {"cc": "cubic", "count": 16}),
    # The same cost per packet and the same memory after a tenth of the packets, and with windows
    # seventy times as large.
    Simulation("one CUBIC flow", {"cc": "cubic"}, duration_s=60),
    Simulation("one CUBIC flow", {"cc": "cubic"}, "10 Gbit/s", "100 ms", 20),
    Simulation("one CUBIC flow", {"cc": "cubic"}, "10 Gbit/s", "100 ms", 4),
)

ROUNDS = 5
"""The fastest of so many runs stands for a discipline."""

# A ring of links, of which every flow crosses five in a row: ten flows share each link.
LINKS, FLOWS, LINKS_OF_A_FLOW, RING_S = 100, 200, 5, 20
RING = f"{LINKS} links, {FLOWS} flows"


def bench_sim() -> None:
    """Print how fast and how large simulations are."""
    rows = [simulation_row(simulation) for simulation in SIMULATIONS]
    print("simulator, whole runs in a process each")
    print_rows(rows, as_json=False)
    print_rows([ring_row()], as_json=False)
    print("the same with each queue discipline: two CUBIC flows over 200 Mbit/s and 40 ms")
    print_rows(list(qdisc_rows()), as_json=False)


def simulation_row(simulation: Simulation) -> dict[str, object]:
    """Return how fast and how large one run is in a process of its own, files included."""
    run, before = alone(simulation.scenario), simulation.name
    return {
        "flows": simulation.flows,
        "link": f"{simulation.rate}, {simulation.rtt}",
        "simulated s": simulation.duration_s,
        "data packets": run.data_packets,
        "M packets/s": round(run.data_packets / run.took_s / 1e6, 2),
        "before": previous("sim", before, "m_packets_per_s"),
        "of the engine's time": round(run.data_packets / run.engine_s / 1e6, 2),
        "times real time": round(simulation.duration_s / run.took_s),
        "peak memory MB": round(run.peak_bytes / 1e6),
        "MB before": previous("sim", before, "peak_memory_mb"),
    }


def ring_row() -> dict[str, object]:
    """Return how fast packets cross links where there are many, data and acknowledgements alike."""
    run = alone(ring())
    return {
        "scenario": RING,
        "simulated s": RING_S,
        "packet-hops": run.packet_hops,
        "M packet-hops/s": round(run.packet_hops / run.took_s / 1e6, 2),
        "before": previous("sim", RING, "m_packet_hops_per_s"),
        "of the engine's time": round(run.packet_hops / run.engine_s / 1e6, 2),
        "peak memory MB": round(run.peak_bytes / 1e6),
        "MB before": previous("sim", RING, "peak_memory_mb"),
    }


def qdisc_rows() -> Iterator[dict[str, object]]:
    """Yield how fast runs are with each queue discipline, and the part of fifo's speed."""
    speeds = dict.fromkeys((entry.name for entry in _core.list_qdiscs()), 0.0)
    # In turns: a moment in which the machine is slow meets all of them alike.
    for name in [*speeds] * ROUNDS:
        run = alone(with_qdisc(name))
        speeds[name] = max(speeds[name], run.data_packets / run.engine_s / 1e6)
    for name, speed in speeds.items():
        yield {
            "qdisc": name,
            "M packets/s": round(speed, 2),
            "of fifo's": f"{speed / speeds['fifo']:.0%}",
        }


def with_qdisc(name: str) -> Mapping[str, Any]:
    """Return the scenario of a queue discipline."""
    # CAKE's own limit is its memory (docs/scenario.md).
    room = {"queue": "64 MB"} if name == "cake" else {}
    return {
        "path": {"kind": "fixed", "rtt": "40 ms"},
        "link": {"rate": "200 Mbit/s", "qdisc": name, **room},
        "flow": [{"cc": "cubic", "count": 2}],
        "run": {"duration": "120 s"},
    }


def ring() -> Mapping[str, Any]:
    """Return the scenario of many links."""
    names = [f"link-{number:02}" for number in range(LINKS)]
    flows = [
        {
            "cc": "cubic",
            "via": [names[(flow + step) % LINKS] for step in range(LINKS_OF_A_FLOW)],
            "start": f"{5 * flow} ms",
        }
        for flow in range(FLOWS)
    ]
    return {
        "path": {"kind": "fixed", "rtt": "8 ms"},
        "links": {name: {"rtt": "8 ms", "rate": "50 Mbit/s"} for name in names},
        "flow": flows,
        "run": {"duration": f"{RING_S} s"},
    }


@dataclass(frozen=True)
class SimulationResult:
    """What a simulation took."""

    data_packets: int
    packet_hops: int
    took_s: float
    engine_s: float
    """Of it, what the engine took to move packets: nothing planned, nothing written."""
    peak_bytes: int
    """The peak of the process's memory, interpreter and libraries included."""


def alone(scenario: Mapping[str, Any]) -> SimulationResult:
    """Run a simulation in a process of its own, which loads nothing else."""
    command = [sys.executable, __file__]
    text = json.dumps(scenario)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    return SimulationResult(**json.loads(done.stdout))


def timed(scenario: Mapping[str, Any]) -> SimulationResult:
    """Run a simulation in this process."""
    started_s = time.monotonic()
    run = sim(scenario)
    took_s = time.monotonic() - started_s
    timing = run.info["timing"]
    return SimulationResult(
        run.summary["data_packets"],
        timing["packet_hops"],
        took_s,
        timing["engine_s"],
        peak_memory_bytes(),
    )


def peak_memory_bytes() -> int:
    """Return the most memory that this process has had; getrusage counts its parent's too."""
    status = Path("/proc/self/status").read_text("utf-8")
    peak_kb = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(peak_kb) * 1024


if __name__ == "__main__":
    print(json.dumps(asdict(timed(json.load(sys.stdin)))))
