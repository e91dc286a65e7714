"""Captures of simulated runs, as Wireshark's own program reads them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from conftest import Skyhop

import skyhop
from needs import needs_program
from skyhop.engines import Capture
from skyhop.errors import InputError, RunError

SCENARIO: Mapping[str, Any] = {
    "path": {"kind": "fixed", "rtt": "40 ms"},
    "link": {"rate": "20 Mbit/s", "queue": "60 kB", "loss": "0.1 %"},
    "flow": [
        {"cc": "cubic", "tcp": {"ecn": True}},
        {
            "from": "to",
            "app": {"kind": "request-response", "requests": 20, "response": "200 kB"},
        },
        {"kind": "probe", "interval": "50 ms"},
    ],
    "run": {"duration": "10 s"},
}

SHORT = """
path = { kind = "fixed", rtt = "40 ms" }
link = { rate = "20 Mbit/s" }
flow = [{}]
run = { duration = "2 s" }
"""


@pytest.mark.integration
def test_tshark_counts_what_the_run_counts(tmp_path: Path) -> None:
    needs_program("tshark", "tshark")
    run = skyhop.sim(SCENARIO, capture=Capture(tmp_path / "x.pcapng"))
    assert not tshark(tmp_path / "x.pcapng", "_ws.malformed or _ws.expert.severity == error")
    sender = tmp_path / "sender.pcapng"
    tshark(tmp_path / "x.pcapng", 'frame.interface_name == "path from"', "-w", str(sender))
    again = "tcp.len > 0 and (tcp.analysis.retransmission or tcp.analysis.out_of_order)"
    for flow in run.summary["flows"]:
        of_flow = f"tcp.port == {5201 + flow['id']}"
        assert len(tshark(sender, f"{of_flow} and {again}")) == flow["retransmits"] > 0
        assert not tshark(sender, f"{of_flow} and tcp.analysis.lost_segment")
    fields = ("-T", "fields", "-e", "frame.time_relative", "-e", "frame.comment")
    seen = tshark(tmp_path / "x.pcapng", 'frame.interface_name == "path lost"', *fields)
    losses = run.events.filter(pl.col("kind") == "loss").sort("t_ns")
    assert [line.split("\t")[1] for line in seen] == [
        f"lost: {reason}" for reason in losses["reason"]
    ]
    assert [float(line.split("\t")[0]) for line in seen] == pytest.approx(
        list(losses["t_ns"] / 1e9), abs=1e-9
    )


def tshark(file: Path, choice: str, *arguments: str) -> list[str]:
    """Return the lines that tshark prints of the packets that it chooses."""
    command = ["tshark", "-r", str(file), "-Y", choice, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()


def test_a_capture_follows_the_choice_of_flows_and_sizes(skyhop: Skyhop, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(SHORT, "utf-8")
    options = ["--pcap", "x.pcapng", "--pcap-size", "200 kB", "--pcap-files", "2"]
    done = skyhop("sim", "x.toml", "-o", "run", *options, "--pcap-flow", "0")
    assert done.returncode == 0, done.stderr
    files = sorted(tmp_path.glob("*.pcapng"))
    assert len(files) == 2
    assert all(200_000 <= file.stat().st_size < 201_000 for file in files[:1])
    assert [file.name for file in files] != ["x-2.pcapng", "x.pcapng"], "older ones are removed"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--pcap-flow", "0"], "--pcap-flow, --pcap-size and --pcap-files go with --pcap FILE"),
        (["--pcap", "x", "--repeat", "2"], "--pcap captures a single run; leave out --repeat"),
        (["--pcap", "x", "--pcap-flow", "7"], "there is no flow 7 to capture"),
        (["--pcap", "x", "--pcap-size", "much"], 'size of capture files: "much"'),
        (["--pcap", "no/x.pcapng"], "no/x.pcapng"),
    ],
)
def test_a_capture_that_cannot_be_made_is_one_line(
    skyhop: Skyhop, tmp_path: Path, options: list[str], line: str
) -> None:
    (tmp_path / "x.toml").write_text(SHORT, "utf-8")
    done = skyhop("sim", "x.toml", "-o", "run", *options)
    assert done.returncode in {1, 2}
    assert line in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["x.toml"]


def test_a_network_is_not_captured(tmp_path: Path) -> None:
    network = {
        "network": {"constellation": "starlink-shell1", "sites": ["London", "Paris"]},
        "flow": [{"between": ["London", "Paris"]}],
        "run": {"duration": "1 s"},
    }
    with pytest.raises((InputError, RunError), match="captured in runs over a"):
        skyhop.sim(network, capture=Capture(tmp_path / "x.pcapng"))
