"""Loss of a host's owner to the testbed: only the seconds until a run gives way."""

from __future__ import annotations

import json
import os
import shlex
import statistics
import sys
from pathlib import Path

import owners_host
import pytest
from conftest import Skyhop

from needs import needs_namespaces, needs_program

RAMP_S = 1.0
"""Time in s that a TCP flow takes to fill the link, alone or once the run has stopped."""
SCENARIO = """
[path]
relay = "access"
from = "Barcelona, ES"
to = "Madrid, ES"

[link]
rate = "20 Mbit/s"
queue = "50 ms"

[run]
duration = "60 s"
"""


@pytest.mark.soak
@pytest.mark.alone
def test_an_owner_has_the_link_back_and_as_fast_as_without_the_testbed(
    skyhop: Skyhop, tmp_path: Path
) -> None:
    needs_namespaces()
    needs_program("iperf3", "iperf3")
    (tmp_path / "link.toml").write_text(SCENARIO)
    serve = f"iperf3 -s -p {owners_host.OWNERS} >/dev/null & exec iperf3 -s -p {owners_host.RUNS}"
    modules = f"PYTHONPATH={os.pathsep.join(sys.path)}"
    done = skyhop(
        *("live", "link.toml", "-o", "link", "--server-cmd", shlex.join(["sh", "-c", serve]), "--"),
        *("env", modules, sys.executable, owners_host.__file__, str(tmp_path), "{server}"),
    )
    assert (tmp_path / "found.json").exists(), done.stderr + done.stdout
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["states"][-1] == "aborted(scavenger)"
    silent_s = found["last"] - found["begun"]
    alone = [bps for _, bps in found["alone"]][int(RAMP_S / 0.5) :]
    beside = [bps for at, bps in found["beside"] if at - 0.5 > found["last"] + RAMP_S]
    shared = [bps for at, bps in found["beside"] if at < found["last"]]
    print(f"silent after {silent_s:.2f} s; alone {alone}, shared {shared}, then {beside}")
    assert 0 < silent_s <= 3.0
    assert len(beside) >= 3
    # The run was a real load: while it went on, the owner's rate was clearly lower.
    assert statistics.median(shared) < 0.9 * statistics.median(alone)
    assert statistics.median(beside) == pytest.approx(statistics.median(alone), rel=0.05)
