"""Ordinary programs in guests: their output, and their flows in the run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Skyhop

from guest_kernels import needs_guest_kernel
from needs import needs_program
from skyhop.data.toml import toml_text

pytestmark = pytest.mark.soak

PROXY = """
import socket, sys, threading


def pass_on(source, to):
    while data := source.recv(65536):
        to.sendall(data)
    to.shutdown(socket.SHUT_WR)


listener = socket.create_server(("127.0.0.1", 3128))
while True:
    near, _ = listener.accept()
    far = socket.create_connection((sys.argv[1], 8000))
    for pair in ((near, far), (far, near)):
        threading.Thread(target=pass_on, args=pair, daemon=True).start()
"""
"""TCP proxy at the client's end, to the server at the other end."""
SIZE = 2_000_000
FETCH = "curl -sS -o /dev/null -w '%{http_code} %{size_download} %{time_total}'"


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    needs_guest_kernel()
    file = tmp_path / "x.toml"
    text = {
        "path": {"kind": "fixed", "rtt": "30 ms"},
        # Downloads of the client use the return direction.
        "link": {"rate": "20 Mbit/s", "back": {"rate": "20 Mbit/s"}},
        "flow": [{"cc": "cubic"}],
        "run": {"duration": "10 s"},
    }
    file.write_text(toml_text(text), "utf-8")
    return file


def test_ping(skyhop: Skyhop, scenario: Path) -> None:
    needs_program("ping", "ping")
    done = skyhop("linux", scenario, "-o", "out", "--", "ping", "-c", "3", "{server}")
    assert done.returncode == 0, done.stderr
    assert "3 packets transmitted, 3 received, 0% packet loss" in done.stdout
    # The round trip is that of the path, without other delay.
    assert "rtt min/avg/max/mdev = 30.0" in done.stdout
    # Messages of the guest's kernel are not printed.
    assert "reboot" not in done.stdout


def test_the_exit_status_is_the_programs(skyhop: Skyhop, scenario: Path) -> None:
    assert skyhop("linux", scenario, "--", "sh", "-c", "exit 7").returncode == 7


@pytest.mark.parametrize("through", ["straight", "a proxy"])
def test_curl_and_a_server_in_python(skyhop: Skyhop, scenario: Path, through: str) -> None:
    needs_program("curl", "curl")
    served = scenario.parent / "served"
    served.mkdir()
    (served / "blob").write_bytes(bytes(SIZE))
    proxy = scenario.parent / "proxy.py"
    proxy.write_text(PROXY, "utf-8")
    if through == "straight":
        fetches = f"{FETCH} http://{{server}}:8000/blob"
    else:
        # The proxy's connection to the server crosses the path; that to curl is local.
        fetches = (
            f"python3 {proxy} {{server}} & sleep 1; {FETCH} http://127.0.0.1:3128/blob; kill $!"
        )
    server = f"python3 -m http.server 8000 --directory {served}"
    done = skyhop(
        "linux", scenario, "-o", "out", "--server-cmd", server, "--", "sh", "-c",
        f"sleep 1; {fetches}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (said,) = [line.split() for line in done.stdout.splitlines() if line.startswith("200 ")]
    assert said[:2] == ["200", str(SIZE)]
    # Slow start takes some round trips; the rest runs at the link's rate.
    least_s = 8 * SIZE / 20e6
    assert least_s < float(said[2]) < least_s + 0.4
    summary = json.loads((scenario.parent / "out" / "summary.json").read_text("utf-8"))
    assert any(flow["goodput_bps"] > 15e6 for flow in summary["flows"])


def test_the_player_without_a_browser(skyhop: Skyhop, scenario: Path) -> None:
    sets = ("--set", "run.duration=30 s", "--set", 'flow.0.app={kind="dash",controller="bola"}')
    sets += ("--set", "link.rate=6 Mbit/s", "--set", "link.queue=2 BDP")
    films = []
    for engine in ("linux", "sim"):
        done = skyhop(engine, scenario, "-o", engine, *sets, "--json")
        assert done.returncode == 0, done.stderr
        (film,) = json.loads(done.stdout)["apps"]
        films.append(film)
    in_guest, simulated = films
    assert in_guest["completed"] == pytest.approx(simulated["completed"], abs=1)
    assert in_guest["stalls"] == simulated["stalls"] == 0
    assert in_guest["startup_ns"] == pytest.approx(simulated["startup_ns"], rel=0.05)
    assert in_guest["mean_bitrate_bps"] == pytest.approx(simulated["mean_bitrate_bps"], rel=0.1)
