"""Home of a lent node in network namespaces: its host, the LAN with the terminal, the Internet.

    lan       192.168.1.5, 192.168.100.1 (terminal), 169.254.169.254, fd12::5, 2001:db8:1::5
     |
    host      192.168.1.10, fd12::10, 2001:db8:1::10; 203.0.113.2, 2001:db8:2::2
     |
    internet  203.0.113.1, 198.51.100.7 (any server), 198.51.100.9 (orchestrator), 2001:db8:7::7

`2001:db8:1::/64` is the home's own prefix of public addresses. In each namespace a program accepts
TCP connections and receives datagrams at port 8080, and notes who called.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from skyhop_testbed import linux
from skyhop_testbed.agent.host_networks import read_host_networks
from skyhop_testbed.agent.reach import Reach
from skyhop_testbed.executor.assignment import RESULT_FILE, Assignment
from skyhop_testbed.fence import Fence
from skyhop_testbed.words import Side
from waiting import wait_for

PORT = 8080
PUBLIC, ORCHESTRATOR, PUBLIC_6 = "198.51.100.7", "198.51.100.9", "2001:db8:7::7"
WAN = "203.0.113.2"
DISH, IN_LAN, METADATA = "192.168.100.1", "192.168.1.5", "169.254.169.254"
_DEVICES = """
link add lan0 type veth peer name home0 netns {lan}
link add wan0 type veth peer name home1 netns {internet}
address add 192.168.1.10/24 dev lan0
address add fd12::10/64 dev lan0 nodad
address add 2001:db8:1::10/64 dev lan0 nodad
address add 203.0.113.2/24 dev wan0
address add 2001:db8:2::2/64 dev wan0 nodad
link set lo up
link set lan0 up
link set wan0 up
route add default via 203.0.113.1
route add 192.168.100.1/32 dev lan0
route add 169.254.169.254/32 dev lan0
-6 route add default via 2001:db8:2::1
"""
_LAN = """
address add 192.168.1.5/24 dev home0
address add 192.168.100.1/32 dev home0
address add 169.254.169.254/32 dev home0
address add fd12::5/64 dev home0 nodad
address add 2001:db8:1::5/64 dev home0 nodad
link set lo up
link set home0 up
"""
_INTERNET = """
address add 203.0.113.1/24 dev home1
address add 2001:db8:2::1/64 dev home1 nodad
address add 198.51.100.7/32 dev lo
address add 198.51.100.9/32 dev lo
address add 2001:db8:7::7/128 dev lo nodad
link set lo up
link set home1 up
"""
_ANSWERS = """
import select, socket, struct, sys
tcp = socket.create_server(("::", 8080), family=socket.AF_INET6, dualstack_ipv6=True)
udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
udp.bind(("::", 8080))
four = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
four.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
four.bind(("239.255.255.250", 1900))
for name in sys.argv[1:]:
    group = socket.inet_aton("239.255.255.250")
    index = struct.pack("=4s4si", group, bytes(4), socket.if_nametoindex(name))
    four.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, index)
print("ready", flush=True)
while True:
    for each in select.select([tcp, udp, four], [], [])[0]:
        if each is tcp:
            stream, caller = tcp.accept()
            stream.sendall(b"hello")
            stream.close()
        else:
            _, caller = each.recvfrom(2048)
        print({tcp: "tcp", udp: "udp", four: "multicast"}[each], caller[0], flush=True)
"""


@dataclass
class Home:
    """Namespaces of a lent node's home, and the programs in them."""

    directory: Path
    holders: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    others: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def begin(self) -> None:
        """Make the namespaces and their devices, and start the answering programs."""
        own = Path("/proc/self/ns/net").readlink()
        for name in ("host", "lan", "internet"):
            holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
            self.holders[name] = holder
            network = Path(f"/proc/{holder.pid}/ns/net")
            wait_for(lambda n=network: n.readlink() != own)  # type: ignore[misc]
        pids = {name: holder.pid for name, holder in self.holders.items()}
        for name, batch in (
            ("host", _DEVICES.format(**pids)),
            ("lan", _LAN),
            ("internet", _INTERNET),
        ):
            # Address families differ from line to line, which a batch of ip does not allow.
            for line in batch.split("\n"):
                if line:
                    subprocess.run([*self.inside(name), "ip", *line.split()], check=True)
        for name, devices in (("host", ["lan0"]), ("lan", ["home0"]), ("internet", ["home1"])):
            with self.log(name).open("wb") as log:
                command = [*self.inside(name), sys.executable, "-c", _ANSWERS, *devices]
                self.others.append(subprocess.Popen(command, stdout=log))
        for name in self.holders:
            wait_for(lambda n=name: "ready" in self.log(n).read_text())  # type: ignore[misc]

    def end(self) -> None:
        """End all programs; the namespaces vanish with them."""
        for process in (*self.others, *self.holders.values()):
            process.kill()
            process.wait()

    def inside(self, name: str) -> list[str]:
        """Return the words that start a program in a namespace."""
        return ["nsenter", f"--net=/proc/{self.holders[name].pid}/ns/net", "--"]

    def log(self, name: str) -> Path:
        """Return the file in which a namespace's program notes its callers."""
        return self.directory / f"{name}.log"

    def calls(self, name: str) -> list[str]:
        """Return the calls that a namespace's program has got."""
        return self.log(name).read_text().splitlines()[1:]

    def fence(
        self,
        *reach: str,
        listen: tuple[str, ...] = (),
        server: tuple[str, int] | None = None,
        dish: str | None = None,
    ) -> Fence:
        """Return the fence that the agent makes on the host of this home."""
        network = os.open(f"/proc/{self.holders['host'].pid}/ns/net", os.O_RDONLY)
        try:
            near = linux.inside_network(network, read_host_networks)
        finally:
            os.close(network)
        made = Reach(dish, [f"{ORCHESTRATOR}:7401"], print, networks=lambda: near)
        return made.fence(reach, listen, server)

    def start(self, name: str, program: str, fence: Fence) -> tuple[Path, subprocess.Popen[bytes]]:
        """Start an executor on the host with a Python program; return its directory and process."""
        directory = self.directory / name
        directory.mkdir()
        deadline_ns = time.time_ns() + 120 * 10**9
        Assignment(
            run=name, job="lent", node="home", side=Side.CLIENT, deadline_ns=deadline_ns,
            command=["python3", "-c", program], fence=fence,
        ).write(directory)  # fmt: skip
        command = [*self.inside("host"), sys.executable, "-m", "skyhop_testbed.executor"]
        return directory, subprocess.Popen([*command, str(directory)], start_new_session=True)

    def run(self, name: str, program: str, fence: Fence) -> dict[str, object]:
        """Run a Python program on the host as a job's; return what it prints, as JSON."""
        directory, executor = self.start(name, program, fence)
        assert executor.wait(180) == 0
        result = json.loads((directory / RESULT_FILE).read_text())
        errors = (directory / "stderr").read_text() if (directory / "stderr").exists() else ""
        assert result["state"] == "complete", (result, errors)
        found: dict[str, object] = json.loads((directory / "stdout").read_text())
        return {**found, "traffic": result["traffic"]}
