"""Dissection of the real traceroute's output over hops of known delays.

The command reads the output from a file, and must recover each delay.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Skyhop
from hops import HOST

from needs import cases, missing, needs_namespaces, needs_program

# One-way delays in ms: host's network, bent pipe, three hops of the operator, Internet.
HOPS = {
    "192.168.1.1": 0.5,
    "100.64.0.1": 16.0,
    "172.16.249.6": 0.9,
    "206.224.65.1": 1.6,
    "149.19.108.9": 2.5,
    "8.8.8.8": 5.1,
}


@pytest.mark.soak
@pytest.mark.alone
def test_delays_of_hops_are_recovered_from_traceroute(skyhop: Skyhop, tmp_path: Path) -> None:
    """Check each delay to 0.2 ms, and the bent pipe's share to a percentage point."""
    needs_namespaces()
    needs_program("traceroute", "traceroute")
    needs_program("ip")
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        missing("tun", "/dev/net/tun cannot be opened")
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    hops = [f"{address}={delay_ms}" for address, delay_ms in HOPS.items()]
    program = [sys.executable, str(Path(__file__).with_name("hops.py")), str(cases(25)), *hops]
    traced = subprocess.run(
        ["unshare", *user, "--net", *program],
        capture_output=True, text=True, timeout=60 * cases(1), check=False,
    )  # fmt: skip
    assert traced.returncode == 0, traced.stderr
    assert HOST not in traced.stdout
    file = tmp_path / "traces.txt"
    file.write_text(traced.stdout)
    found = json.loads(skyhop("dissect", str(file), "--json").stdout)
    assert found["used"] == found["traces"] == cases(25)
    total_ms = sum(HOPS.values())
    for segment, (address, delay_ms) in zip(found["segments"], HOPS.items(), strict=True):
        assert segment["addresses"] == [address]
        for way in ("by_trace", "of_medians"):
            assert segment[f"{way}_ms"] == pytest.approx(delay_ms, abs=0.2)
    pipe = found["segments"][1]
    assert pipe["name"] == "S2"
    for name in ("share", "of_medians_share"):
        assert pipe[name] == pytest.approx(16.0 / total_ms, abs=0.01)
