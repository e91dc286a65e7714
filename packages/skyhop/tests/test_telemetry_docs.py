"""docs/how-to/telemetry.md: its commands run, in order, and print what the page says."""

from __future__ import annotations

import gzip
import re
import shlex
from pathlib import Path

import pytest
import test_dissection
import test_orientation
from conftest import ROOT, Skyhop

from skyhop.telemetry.fields import TIME

PAGE = (ROOT / "docs" / "how-to" / "telemetry.md").read_text("utf-8")


def write_inputs(directory: Path) -> None:
    """Write the input files of the page's commands: traces, probes, a terminal's status."""
    rtt_ms = test_dissection.round_trips(1200, 3)
    (directory / "traces.txt").write_text(test_dissection.traceroute(rtt_ms))
    begin_ns = 1_764_028_800 * 10**9
    probes = [f"{begin_ns + n * 10**8},{25 + n % 7 + 45 * (1320 <= n < 1620)}" for n in range(9000)]
    (directory / "rtt.csv.gz").write_bytes(gzip.compress("\n".join(probes).encode()))
    frame = test_orientation.telemetry(1, 1200, worse_ms=25.0)
    # Shift by full slots, so that latency changes on the grid.
    slot_ns = 15 * 10**9
    shift_ns = -(-(begin_ns - frame[TIME][0]) // slot_ns) * slot_ns
    lines = ["timestamp,sinr,popPingLatencyMs,boresightAzimuthDeg,boresightElevationDeg"]
    for row in frame.to_dicts():
        latency = row["pop_ping_latency_ms"]
        lines.append(
            f"{(row[TIME] + shift_ns) / 1e9:.3f},9,{'' if latency is None else f'{latency:.4f}'},"
            f"{row['direction_azimuth']:.4f},{row['direction_elevation']:.4f}"
        )
    (directory / "status.csv").write_text("\n".join(lines))


@pytest.mark.soak
def test_the_pages_commands_run_in_order_and_print_what_it_says(
    skyhop: Skyhop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "130")
    write_inputs(tmp_path)
    blocks = re.findall(r"```console\n(.+?)```", PAGE, re.DOTALL)
    assert len(blocks) >= 6
    for block in blocks:
        commands = re.findall(r"^\$ skyhop (.+)$", block, re.MULTILINE)
        printed = ""
        for command in commands:
            done = skyhop(*shlex.split(command))
            assert done.returncode == 0, (command, done.stderr)
            printed += done.stdout + done.stderr
        said = [line for line in block.splitlines() if line and not line.startswith("$")]
        for line in said:
            assert " ".join(line.split()) in " ".join(printed.split()), (commands, line)
    for figure in ("orientation.png", "spikes.png", "segments.png"):
        assert (tmp_path / figure).read_bytes().startswith(b"\x89PNG")
