"""Commands of docs/how-to/measured-paths.md, run in order on small files of each format."""

from __future__ import annotations

import gzip
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, Skyhop

import skyhop as sh
from reference_files import reference

PAGE = (ROOT / "docs" / "how-to" / "measured-paths.md").read_text("utf-8")


def write_inputs(directory: Path) -> None:
    """Write five seconds of each format, and the page's scenario."""
    begin_ns = 1_700_000_000 * 10**9
    rtts_ms = [20 + (i * 7) % 5 for i in range(50)]
    stamped = [
        f"[{1_700_000_000 + 0.1 * i:.6f}] 64 bytes from 192.0.2.1: icmp_seq={i + 1} ttl=56 "
        f"time={rtt_ms}.0 ms"
        for i, rtt_ms in enumerate(rtts_ms)
    ]
    trips = [
        {
            "seqno": i,
            "lost": "false",
            "timestamps": {"client": {"send": {"wall": begin_ns + i * 10**8, "monotonic": i}}},
            "delay": {"rtt": rtt_ms * 10**6, "send": 11 * 10**6, "receive": (rtt_ms - 11) * 10**6},
        }
        for i, rtt_ms in enumerate(rtts_ms)
    ]
    rows = [f"{begin_ns + i * 10**8},{rtt_ms}.5" for i, rtt_ms in enumerate(rtts_ms)]
    access = [f"12.5,{30 + i % 3},21,{25 + i % 4},0,0,{i * 100}" for i in range(50)]
    packets = [str(ms) for ms in range(1, 5001) for _ in range(2)]
    sums = [{"start": n, "end": n + 1, "bits_per_second": 5e7} for n in range(5)]
    report = {
        "start": {"connected": [], "timestamp": {"timesecs": 1_700_000_000}},
        "intervals": [{"sum": one} for one in sums],
    }
    texts = {
        "ping.txt": ["PING 192.0.2.1 (192.0.2.1) 56(84) bytes of data.", *stamped],
        "irtt.json": [json.dumps({"round_trips": trips})],
        "iperf3.json": [json.dumps(report)],
        "access.csv": access,
        "downlink.trace": packets,
        "bw_starlink.txt": packets,
        "delay_starlink.txt": [str(20 + i % 3) for i in range(500)],
        "replay.toml": re.findall(r"```toml\n(.+?)```", PAGE, re.DOTALL),
    }
    for name, lines in texts.items():
        (directory / name).write_text("\n".join(lines) + "\n", "utf-8")
    (directory / "measured").mkdir()
    (directory / "rtt.csv.gz").write_bytes(gzip.compress("\n".join(rows).encode()))


@pytest.mark.soak
def test_the_pages_commands_run_in_order(skyhop: Skyhop, tmp_path: Path) -> None:
    write_inputs(tmp_path)
    commands = re.findall(r"^    skyhop (.+)$", PAGE, re.MULTILINE)
    assert len(commands) >= 15
    for command in commands:
        done = skyhop(*shlex.split(command))
        assert done.returncode == 0, (command, done.stderr)
    first, again = (sh.read_path(tmp_path / name) for name in ("rtt.parquet", "again.parquet"))
    assert first.frames.equals(again.frames)
    assert first.header == again.header
    assert (tmp_path / "ping.png").read_bytes().startswith(b"\x89PNG")
    summary = json.loads((tmp_path / "runs" / "replay" / "summary.json").read_text("utf-8"))
    # The wire carries 30 to 32 Mbit/s, of which 1448 of 1514 bytes are payload.
    assert 20e6 < summary["flows"][0]["goodput_bps"] < 31e6


def test_the_measured_losses_of_the_page_on_links_are_those_of_the_log() -> None:
    page = (ROOT / "docs" / "explanation" / "links-and-hosts.md").read_text("utf-8")
    text = gzip.decompress(reference("throughput/lagos_isl_100ms.csv.gz").read_bytes()).decode()
    steps = np.loadtxt(text.splitlines(), delimiter=",", ndmin=2)
    for column, way, also in ((5, "down", "all of it in"), (4, "up", "in")):
        loss = 100 * steps[:, column]
        some = loss[loss > 0]
        where = f"{also} {100 * len(some) / len(loss):.1f} %"
        assert f"{way} {loss.mean():.2g} %, {where}" in page
        assert f"lose {some.mean():.0f} %" in page
