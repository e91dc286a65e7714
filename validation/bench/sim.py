"""Benchmark of simulations: packets per second and peak memory, each in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from skyhop import _core
from skyhop.cli.terminal import print_rows

# Imported at the top, so that the import's time does not count as time of a run.
from skyhop.simulation import sim
from validation.bench.measure import cost, previous
from validation.fixed import over_fixed_path


@dataclass(frozen=True)
class Simulation:
    """Simulation over a fixed path with a queue of one BDP."""

    flows: str
    flow: Mapping[str, Any]
    rate: str = "150 Mbit/s"
    rtt: str = "50 ms"
    duration_s: int = 600

    @property
    def name(self) -> str:
        """Name of the simulation in previous.toml."""
        return f"{self.flows}, {self.rate}, {self.rtt}, {self.duration_s} s"

    @property
    def scenario(self) -> Mapping[str, Any]:
        """Scenario of the simulation, for `skyhop.sim`."""
        return over_fixed_path(self.rate, self.rtt, f"{self.duration_s} s", self.flow)


SIMULATIONS = (
    Simulation("one CUBIC flow", {"cc": "cubic"}),
    Simulation("one BBR flow", {"cc": "bbr"}),
    Simulation("16 CUBIC flows", {"cc": "cubic", "count": 16}),
    # Cost per packet and memory should stay the same for a tenth of the packets and for windows
    # seventy times as large.
    Simulation("one CUBIC flow", {"cc": "cubic"}, duration_s=60),
    Simulation("one CUBIC flow", {"cc": "cubic"}, "10 Gbit/s", "100 ms", 20),
    Simulation("one CUBIC flow", {"cc": "cubic"}, "10 Gbit/s", "100 ms", 4),
)

ROUNDS = 5
"""Number of runs per queue discipline; the fastest one counts."""

# In a ring of links, every flow crosses five consecutive links, so that ten flows share each link.
LINKS, FLOWS, LINKS_OF_A_FLOW, RING_S = 100, 200, 5, 20
RING = f"{LINKS} links, {FLOWS} flows"


def bench_sim() -> None:
    """Print speed and memory of all simulations."""
    rows = [simulation_row(simulation) for simulation in SIMULATIONS]
    print("simulator, whole runs in a process each")
    print_rows(rows, as_json=False)
    print_rows([ring_row()], as_json=False)
    print("the same with each queue discipline: two CUBIC flows over 200 Mbit/s and 40 ms")
    print_rows(list(qdisc_rows()), as_json=False)
    print(
        "paths drawn from access profiles: two CUBIC flows, cost per packet over a computed path's"
    )
    print_rows(list(access_rows()), as_json=False)


def simulation_row(simulation: Simulation) -> dict[str, object]:
    """Measure one simulation in a process of its own, including the writing of its files."""
    run = run_in_process(simulation.scenario)
    speed, memory = speed_and_memory(run, run.data_packets, simulation.name, "packets")
    return {
        "flows": simulation.flows,
        "link": f"{simulation.rate}, {simulation.rtt}",
        "simulated s": simulation.duration_s,
        "data packets": run.data_packets,
        **speed,
        "times real time": round(simulation.duration_s / run.took_s),
        **memory,
    }


def ring_row() -> dict[str, object]:
    """Measure how many links data packets and ACKs cross per second in a ring of many links."""
    run = run_in_process(ring())
    speed, memory = speed_and_memory(run, run.packet_hops, RING, "packet-hops")
    hops = {"packet-hops": run.packet_hops}
    return {"scenario": RING, "simulated s": RING_S, **hops, **speed, **memory}


def speed_and_memory(
    run: SimulationResult, count: int, name: str, unit: str
) -> tuple[dict[str, object], dict[str, object]]:
    """Return the cells on speed, in `unit` per second, and on memory, with the previous ones."""
    figure = f"m_{unit.replace('-', '_')}"
    speed: dict[str, object] = {
        f"M {unit}/s": round(count / run.took_s / 1e6, 2),
        "before": previous("sim", name, f"{figure}_per_s"),
        "of the engine's time": round(count / run.engine_s / 1e6, 2),
    }
    memory: dict[str, object] = {
        "peak memory MB": round(run.peak_bytes / 1e6),
        "MB before": previous("sim", name, "peak_memory_mb"),
    }
    return speed, memory


def qdisc_rows() -> Iterator[dict[str, object]]:
    """Yield the speed with each queue discipline, and its ratio to the speed with fifo."""
    speeds = dict.fromkeys((entry.name for entry in _core.list_qdiscs()), 0.0)
    # Alternate the disciplines, so that slow periods of the machine affect all of them equally.
    for name in [*speeds] * ROUNDS:
        run = run_in_process(with_qdisc(name))
        speeds[name] = max(speeds[name], run.data_packets / run.engine_s / 1e6)
    for name, speed in speeds.items():
        yield {
            "qdisc": name,
            "M packets/s": round(speed, 2),
            "of fifo's": f"{speed / speeds['fifo']:.0%}",
        }


def with_qdisc(name: str) -> Mapping[str, Any]:
    """Return a scenario of two CUBIC flows over a queue discipline."""
    # CAKE's own limit is memory in bytes (docs/explanation/links-and-hosts.md).
    room = {"queue": "64 MB"} if name == "cake" else {}
    flows = {"cc": "cubic", "count": 2}
    return over_fixed_path("200 Mbit/s", "40 ms", "120 s", flows, qdisc=name, **room)


COMPUTED = {"relay": "access", "from": "Seattle", "to": "San Jose"}


def access_rows() -> Iterator[dict[str, object]]:
    """Yield the cost per packet over each access profile, and its ratio to a computed path's."""
    profiles = [entry.name for entry in _core.list_access()]
    paths: dict[str, Mapping[str, Any]] = {
        "computed": COMPUTED,
        **{name: {"kind": "access", "profile": name, "dish": "to"} for name in profiles},
    }
    costs_ns = dict.fromkeys(paths, float("inf"))
    wholes_ns = dict(costs_ns)
    for name in [*paths] * ROUNDS:
        run = run_in_process(over_access(paths[name]))
        costs_ns[name] = min(costs_ns[name], run.engine_s / run.data_packets * 1e9)
        wholes_ns[name] = min(wholes_ns[name], run.took_s / run.data_packets * 1e9)
    for name, cost_ns in costs_ns.items():
        yield {
            "path": name,
            "ns per packet": round(cost_ns),
            "of computed": f"{cost_ns / costs_ns['computed']:.0%}",
            "with planning and files": f"{wholes_ns[name] / wholes_ns['computed']:.0%}",
        }


def over_access(path: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a scenario of two CUBIC flows over an access path of 100 Mbit/s."""
    return {
        "path": path,
        "link": {"rate": "100 Mbit/s"},
        "flow": [{"cc": "cubic", "count": 2}],
        "run": {"duration": "120 s"},
    }


def ring() -> Mapping[str, Any]:
    """Return the scenario of the ring of links."""
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
    """Work done by a simulation, and its cost."""

    data_packets: int
    packet_hops: int
    took_s: float
    engine_s: float
    """Part of the run time in s in which the engine moves packets, without planning and writing."""
    peak_bytes: int
    """Peak memory of the process in bytes, including interpreter and libraries."""


def run_in_process(scenario: Mapping[str, Any], processors: Iterable[int] = ()) -> SimulationResult:
    """Run a simulation in a process of its own, which loads nothing else, on some processors."""
    command = [sys.executable, "-m", "validation.bench.sim", *map(str, processors)]
    text = json.dumps(scenario)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    return SimulationResult(**json.loads(done.stdout))


def run_timed(scenario: Mapping[str, Any]) -> SimulationResult:
    """Run a simulation in this process, and measure its cost."""
    with cost() as took:
        run = sim(scenario)
    timing, packets = run.info["timing"], run.summary["data_packets"]
    return SimulationResult(
        packets, timing["packet_hops"], took.wall_s, timing["engine_s"], peak_memory_bytes()
    )


def peak_memory_bytes() -> int:
    """Return the peak memory of this process in bytes; getrusage would include its parent's."""
    status = Path("/proc/self/status").read_text("utf-8")
    peak_kb = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(peak_kb) * 1024


if __name__ == "__main__":
    if sys.argv[1:]:
        os.sched_setaffinity(0, map(int, sys.argv[1:]))
    print(json.dumps(asdict(run_timed(json.load(sys.stdin)))))
