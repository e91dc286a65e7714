"""Jobs with kernel settings: agent, executor, kernel service and iperf3 together.

The service is in a namespace that the test makes; the runs' devices lead only there.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from test_testbed_agent import is_settled, job, kept_revision
from test_testbed_kernel import Place, available, placed
from testbed_fake_orchestrator import AgentProcess, FakeOrchestrator

from needs import missing, needs_program
from skyhop_testbed.executor.journal import is_alive, read_journal
from waiting import wait_for

pytestmark = [pytest.mark.soak, pytest.mark.alone]

_SERVER = "10.213.0.0"
"""Address of the service's end of the first run's veth pair."""
_RUNS = "10.213.0.0/20"
"""Addresses of the uplink `none`, as docs/testbed/kernel-service.md opens them."""
_PORT = 5202


@dataclass
class Node:
    """Agent with a kernel service, and iperf3 at the other end of its runs' devices."""

    orchestrator: FakeOrchestrator
    agent: AgentProcess
    place: Place

    def plan(self, script: str, kernel: dict[str, Any], **others: Any) -> str:
        """Plan a run of a shell script in a veth."""
        spec = job("sh", "-c", script, run={"network": "veth"}, kernel=kernel, length_s=60.0)
        return self.orchestrator.plan(spec, priv=True, **others)

    def directory(self, run: str) -> Path:
        """Return a run's directory on the node."""
        return self.agent.state / "runs" / run

    def steps(self, run: str) -> list[str]:
        """Return the steps of its executor's journal."""
        return [step.step for step in read_journal(self.directory(run))]

    def wait_executing(self, run: str) -> None:
        """Wait until a run's program has its device and its kernel settings."""
        began = self.directory(run) / "work" / "began"
        wait_for(began.exists, 120, self.said)

    def result(self, run: str) -> dict[str, Any]:
        """Wait until a run has ended; return its result."""
        wait_for(lambda: is_settled(self.orchestrator, run), 120, self.said)
        wait_for(lambda: not is_alive(self.directory(run)))
        result: dict[str, Any] = json.loads((self.directory(run) / "result.json").read_text())
        return result

    def said(self) -> str:
        """Return the reports and the log."""
        told = [str(body) for _, kind, body in self.orchestrator.events if kind in ("run", "task")]
        log = (self.place.directory / "log").read_text()
        return "\n".join([*told, self.agent.log(), log])


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    needs_program("iperf3", "iperf3")
    (tmp_path / "kernel").mkdir()
    orchestrator = FakeOrchestrator(tmp_path / "orchestrator")
    orchestrator.policy = {"kernel": True, "reach": [_RUNS]}
    with placed(tmp_path / "kernel") as place:
        place.serve()
        net = f"--net=/proc/{place.holder.pid}/ns/net"
        server = subprocess.Popen(
            ["nsenter", net, "iperf3", "-s", "-p", str(_PORT)], stdout=subprocess.DEVNULL
        )
        place.others.append(server)  # type: ignore[arg-type]
        agent = AgentProcess(tmp_path / "agent", orchestrator, kernel=place.socket)
        try:
            agent.start()
            yield Node(orchestrator, agent, place)
        finally:
            agent.clear()
            orchestrator.stop()


def _iperf3(options: str = "") -> str:
    return (
        f"iperf3 -c {_SERVER} -p {_PORT} -t 1 -J {options} > iperf3.json && "
        "cat /proc/sys/net/ipv4/tcp_notsent_lowat && tc qdisc show dev run0"
    )


def _kernels_other() -> str:
    """Return a congestion control of this kernel that is not its default."""
    default = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    return next(
        name for name in ("bbr", "cubic", "reno") if name in available() and name != default
    )


@pytest.mark.parametrize("whose", ["the kernel's", "skyhop's"])
def test_iperf3_runs_with_what_its_job_asks_for_and_the_host_does_not(
    node: Node, whose: str
) -> None:
    """Check the congestion control that iperf3 reports of its own socket."""
    asked = _kernels_other() if whose == "the kernel's" else "skyhop:bbr2"
    lowat = Path("/proc/sys/net/ipv4/tcp_notsent_lowat").read_text()
    default = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    kernel = {"cc": asked, "qdisc": "pfifo", "qdisc_parameters": {"limit": 77}}
    run = node.plan(_iperf3(), {**kernel, "sysctl": {"tcp_notsent_lowat": 131_072}})
    result = node.result(run)
    if result["reason"] == "kernel" and "clang" in result.get("message", ""):
        missing("clang", result["message"])
    assert (result["state"], result["exit"]) == ("complete", 0), (result, node.said())
    kept = node.directory(run)
    end = json.loads((kept / "work" / "iperf3.json").read_text())["end"]
    used = end["sender_tcp_congestion"]
    assert used == asked if whose == "the kernel's" else used.startswith("bbr2_r")
    # The other end is no part of the run, and sends with its machine's congestion control.
    assert end["receiver_tcp_congestion"] == default
    sent = end["sum_sent"]["bytes"]
    assert sent > 1_000_000
    assert sent <= result["traffic"]["tx_bytes"] < 1.2 * sent
    shown = (kept / "stdout").read_text()
    assert shown.startswith("131072\n")
    assert "qdisc pfifo" in shown
    assert "limit 77p" in shown
    wait_for(lambda: node.place.left() == [], why=node.said)
    assert Path("/proc/sys/net/ipv4/tcp_notsent_lowat").read_text() == lowat
    assert Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip() == default


@pytest.mark.parametrize("who", ["agent", "executor", "both"])
def test_whoever_is_killed_while_iperf3_runs_nothing_is_left(node: Node, who: str) -> None:
    script = f"touch began; iperf3 -c {_SERVER} -p {_PORT} -t 3 -J > iperf3.json"
    run = node.plan(script, {"cc": _kernels_other(), "qdisc": "pfifo"})
    node.wait_executing(run)
    assert node.place.left() != []
    executors = node.agent.executors()
    if who != "executor":
        node.agent.kill()
    if who != "agent":
        for pid in executors:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for(lambda: node.place.left() == [], 120, node.said)
    if who != "executor":
        node.agent.start()
    result = node.result(run)
    assert node.steps(run).count("started") == 1
    if who == "agent":
        assert result["state"] == "complete", node.said()
        end = json.loads((node.directory(run) / "work" / "iperf3.json").read_text())["end"]
        assert end["sender_tcp_congestion"] == _kernels_other()
    else:
        assert (result["state"], result["reason"]) == ("failed", "killed")
    wait_for(lambda: node.place.left() == [], 120, node.said)
    # The node accepts runs as before.
    after = node.plan("ip -br link show run0", {}, start_s=0.0)
    assert node.result(after)["state"] == "complete", node.said()


def test_who_serves_such_a_job_has_his_hosts_network_and_kernel(node: Node) -> None:
    """Check docs/testbed/kernel-service.md: `veth` and `[kernel]` apply to the client only."""
    script = "cat /proc/sys/net/ipv4/tcp_congestion_control; grep -c run0 /proc/net/dev; sleep 60"
    spec = job(
        "true",
        run={"network": "veth", "serve": ["sh", "-c", script]},
        kernel={"cc": _kernels_other()},
        server="bcn-1",
    ) | {"nodes": ["edh"]}
    run = "01JZZZZZZZZZZZZZZZZZZZZZZZ"
    node.orchestrator.policy |= {"networks": ["host", "veth"]}
    node.orchestrator.publish()
    wait_for(lambda: kept_revision(node.agent), why=node.said)
    node.orchestrator.task(run, "start", spec, priv=True)
    place = node.directory(f"{run}.server")
    wait_for(lambda: "executing" in [s.step for s in read_journal(place)], why=node.said)
    wait_for(lambda: (place / "stdout").read_text().count("\n") == 2, why=node.said)
    default = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text()
    assert (place / "stdout").read_text() == f"{default}0\n"
    assert node.place.left() == []
    node.orchestrator.task(run, "stop", spec, priv=True)
    wait_for(lambda: not is_alive(place), why=node.said)


def test_a_veth_reaches_this_machine_only_if_the_owner_opens_it(node: Node) -> None:
    node.orchestrator.policy = {"kernel": True}
    script = f"timeout 5 bash -c 'exec 3<>/dev/tcp/{_SERVER}/{_PORT}'"
    closed = node.result(node.plan(script, {}))
    assert (closed["state"], closed["exit"]) == ("failed", 124), node.said()
    node.orchestrator.policy |= {"reach": [f"{_SERVER}:{_PORT}"]}
    opened = node.result(node.plan(script, {}, start_s=0.0))
    assert (opened["state"], opened["exit"]) == ("complete", 0), node.said()


def test_a_node_whose_owner_allows_no_kernel_refuses_and_asks_for_nothing(node: Node) -> None:
    node.orchestrator.policy = {}
    run = node.plan("true", {"cc": "reno"})
    wait_for(lambda: is_settled(node.orchestrator, run), why=node.said)
    assert node.orchestrator.states(run) == ["skipped(refused)"]
    assert "run.open" not in (node.place.directory / "log").read_text()
