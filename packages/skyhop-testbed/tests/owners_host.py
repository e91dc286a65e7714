"""Measurement on a host whose owner starts to use it, in the namespace of a live link's client.

`python owners_host.py DIRECTORY SERVER` measures the owner's iperf3 alone, then while a run of an
agent fills the same link, until the run gives way. It writes `found.json` into the directory.
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from test_testbed_agent import is_settled, job
from testbed_fake_orchestrator import AgentProcess, FakeOrchestrator

from waiting import wait_for

OWNERS, RUNS = 5201, 5202
DEVICE = "skyhop0"
ALONE_S, BESIDE_S = 3, 6
UNDISTURBED_S = 1.2
_ALL = 0x0003
_ETHERNET = 14


class Packets:
    """Packet watcher that records the time of the run's last packet."""

    def __init__(self) -> None:
        self.count, self.last = 0, 0.0
        self._raw = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ALL))
        self._raw.bind((DEVICE, _ALL))
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            # SOCK_DGRAM delivers packets without link headers, which TUN devices lack.
            packet = self._raw.recv(64)
            header = 4 * (packet[0] & 15)
            is_whole = packet[0] >> 4 == 4 and len(packet) >= header + 4
            if is_whole and RUNS in struct.unpack_from("!HH", packet, header):
                self.count, self.last = self.count + 1, time.time()


def owner(server: str, seconds: int) -> list[tuple[float, float]]:
    """Download for `seconds`; return end time and rate in bit/s of each half second."""
    begun = time.time()
    command = ["iperf3", "-c", server, "-p", str(OWNERS), "-R", "-t", str(seconds), "-i", "0.5"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    said: dict[str, Any] = json.loads(done.stdout)
    assert "error" not in said, said["error"]
    sums = [each["sum"] for each in said["intervals"]]
    return [(begun + each["end"], each["bits_per_second"]) for each in sums]


def main(directory: Path, server: str) -> None:
    """Measure alone and with a run, and write the results."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    found: dict[str, Any] = {"alone": owner(server, ALONE_S)}
    packets = Packets()
    orchestrator = FakeOrchestrator(directory / "orchestrator")
    orchestrator.policy = {"networks": ["host"]}
    agent = AgentProcess(directory / "state", orchestrator, interface=DEVICE)
    try:
        agent.start()
        program = ["iperf3", "-c", server, "-p", str(RUNS), "-R", "-t", "60"]
        run = orchestrator.plan(job(*program, length_s=90.0, run={"network": "host"}))
        wait_for(lambda: packets.count > 100, 120, agent.log)
        first = packets.last
        wait_for(lambda: time.time() - first > UNDISTURBED_S)
        assert time.time() - packets.last < 0.2, (orchestrator.states(run), agent.log())
        found["begun"] = time.time()
        found["beside"] = owner(server, BESIDE_S)
        wait_for(lambda: is_settled(orchestrator, run), 120, agent.log)
        found |= {"last": packets.last, "states": orchestrator.states(run)}
    finally:
        agent.clear()
        orchestrator.stop()
    (directory / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
