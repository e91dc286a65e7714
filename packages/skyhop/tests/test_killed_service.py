"""Signal services killed at any moment: their listeners in the kernel go on."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from conftest import Skyhop, skyhop_command

from needs import kills, needs_program, needs_root, recorded, unless_impossible

pytestmark = [pytest.mark.soak, pytest.mark.alone]

# The trial runs in its own network and mount namespaces, which take its remains with them.
_TRIAL = textwrap.dedent(
    """
    import random, socket, subprocess, sys, threading, time

    trials, *skyhop = sys.argv[1:]
    subprocess.run(["mount", "-t", "bpf", "bpf", "/sys/fs/bpf"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run([*skyhop, "cc", "load", "satpipe"], check=True, stdout=subprocess.DEVNULL)

    listener = socket.create_server(("127.0.0.1", 0))
    sender = socket.create_connection(listener.getsockname())
    receiver, _ = listener.accept()
    sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"satpipe")
    # SO_MAX_PACING_RATE: 20 Mbit/s leave the machine to the service.
    sender.setsockopt(socket.SOL_SOCKET, 47, 2_500_000)
    received = [0]
    def sink():
        while chunk := receiver.recv(1 << 16):
            received[0] += len(chunk)
    def source():
        try:
            while True:
                sender.sendall(bytes(1 << 14))
        except OSError:
            pass
    for work in (sink, source):
        threading.Thread(target=work, daemon=True).start()

    def flows(seconds):
        before = received[0]
        time.sleep(seconds)
        return received[0] - before > 0.5 * 2_500_000 * seconds

    chance = random.Random(1)
    serve = [*skyhop, "signal", "serve", "--socket", "killed.sock"]
    for trial in range(int(trials)):
        service = subprocess.Popen(
            [*serve, "--period", "1 s", "--lead", "0.4 s"], stderr=subprocess.DEVNULL
        )
        time.sleep(chance.uniform(0.3, 2.5))
        service.kill()
        service.wait()
        # The last announced window may still be ahead: 0.4 s, and 0.3 s of draining and probing.
        time.sleep(0.8)
        print("flows" if flows(0.5) else "stalls")
    subprocess.run([*skyhop, "cc", "unload", "satpipe"], check=True, stdout=subprocess.DEVNULL)
    print("flows" if flows(0.5) else "stalls")
    """
)


def test_who_listened_to_a_killed_service_goes_on(skyhop: Skyhop, tmp_path: Path) -> None:
    unless_impossible(skyhop("cc", "check", "satpipe"))
    needs_root()
    needs_program("mount")
    needs_program("ip")
    trials = max(3, kills())
    isolated = [needs_program("unshare"), "--net", "--mount", "--propagation", "private"]
    with recorded("kill", "signal serve", trials, 1):
        result = subprocess.run(
            [*isolated, sys.executable, "-c", _TRIAL, str(trials), *skyhop_command()],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60 + 10 * trials,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        assert result.stdout.split() == ["flows"] * (trials + 1)
        offered = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text()
        assert "satpipe" not in offered.split()
