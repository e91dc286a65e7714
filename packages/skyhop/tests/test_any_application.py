"""Commands of docs/how-to/any-program.md, and a program that reaches the machine's network."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from conftest import ROOT, Skyhop, skyhop_command

import skyhop as sh
from element_files import walker_omm
from needs import needs_program

PAGE = (ROOT / "docs" / "how-to" / "any-program.md").read_text("utf-8")


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.usefixtures("namespaces")
def test_the_pages_commands_run_in_order(skyhop: Skyhop, tmp_path: Path) -> None:
    needs_program("iperf3", "iperf3")
    (tmp_path / "starlink.tle").write_text(walker_omm(age=timedelta(hours=1)), "utf-8")
    (tmp_path / "dish.toml").write_text(*re.findall(r"```toml\n(.+?)```", PAGE, re.DOTALL))
    commands = re.findall(r"^    skyhop (.+)$", PAGE, re.MULTILINE)
    assert len(commands) == 7
    for command in commands:
        if "--internet" in command:
            # Its network is emulated by a test of its own, below.
            continue
        # Shorter durations than on the page save time.
        words = [{"5": "2", "3": "2"}.get(word, word) for word in shlex.split(command)]
        done = skyhop(*words)
        assert done.returncode == 0, (command, done.stderr)
    runs = {name: sh.read_run(tmp_path / "runs" / name) for name in ("iperf", "chosen", "dish")}
    largest = {
        name: max(run.summary["flows"], key=lambda flow: flow["goodput_bps"])
        for name, run in runs.items()
    }
    assert largest["chosen"]["cc"] == "reno"
    assert 50e6 < largest["iperf"]["goodput_bps"] < 100e6
    # The server of a download is at the end `to`.
    assert largest["dish"]["connection"].startswith("to:5201 -> from:")
    assert 40e6 < largest["dish"]["goodput_bps"] < 180e6
    assert (tmp_path / "dish.png").read_bytes().startswith(b"\x89PNG")
    assert "iperf Done." in (tmp_path / "iperf.html").read_text("utf-8")


SERVER = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(bytes(500_000))
http.server.HTTPServer(("198.18.0.1", 8000), Handler).serve_forever()
"""
CLIENT = """
import sys, time, urllib.request
for attempt in range(50):
    try:
        print(len(urllib.request.urlopen("http://198.18.0.1:8000/", timeout=5).read()))
        break
    except OSError as error:
        print(error, file=sys.stderr)
        time.sleep(0.1)
"""
BEYOND = """
ip link set lo up
ip address add 198.18.0.1/32 dev lo
"$1" server.py 2>server.log &
server=$!
shift
"$@"
status=$?
kill $server
exit $status
"""


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.usefixtures("namespaces")
def test_a_program_reaches_the_machines_network(tmp_path: Path) -> None:
    """Emulate the machine's network by a network namespace that ends with the test."""
    for program in ("unshare", "ip"):
        needs_program(program)
    needs_program("slirp4netns", "slirp4netns")
    for name, text in (("server.py", SERVER), ("client.py", CLIENT), ("beyond.sh", BEYOND)):
        (tmp_path / name).write_text(text, "utf-8")
    live = [*skyhop_command(), "live", "any-program", "-o", "run", "--internet"]
    command = ["sh", "beyond.sh", sys.executable, *live, "--", sys.executable, "client.py"]
    alone = ["unshare", "--user", "--map-root-user", "--net"]
    done = subprocess.run(
        [*alone, *command], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "500000\n", done.stderr
    run = sh.read_run(tmp_path / "run")
    assert run.info["internet"] is True
    download = max(run.summary["flows"], key=lambda flow: flow["goodput_bps"])
    assert download["connection"].startswith("to:8000 -> from:")
    assert download["sender_unseen"] is True
    # The path carries 20 Mbit/s of downloads.
    assert 1e6 < download["goodput_bps"] < 20e6


def test_internet_needs_a_program_and_slirp4netns(
    skyhop: Skyhop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = skyhop("live", "any-program", "--internet")
    assert done.returncode == 2
    assert "--internet needs a program" in done.stderr
    monkeypatch.setenv("PATH", str(tmp_path))
    done = skyhop("live", "any-program", "--internet", "--", "/bin/true")
    assert done.returncode in (1, 2)
    assert "--internet needs slirp4netns" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
