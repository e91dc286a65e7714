"""The size of a queue: in summary.json, run.json, the terminal's line and the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from skyhop.analysis.summary import queue_text
from skyhop.report import write_report
from skyhop.simulation import sim

SCENARIO = {
    "path": {"kind": "fixed", "rtt": "44.1 ms"},
    "link": {"back": {"rate": "15 Mbit/s", "queue": "100 packets"}},
    "flow": [{"cc": "cubic"}],
    "run": {"duration": "1 s"},
}
FORWARD = "1 BDP = 827 kB, 546 packets (150 Mbit/s x 44.1 ms)"
BACK = "100 packets = 151 kB"


@pytest.mark.parametrize(
    ("queue", "text"),
    [
        (None, ""),
        ({}, ""),
        ({"given": "1.5 MB", "bytes": 1_500_000, "packets": 990}, "1.5 MB = 990 packets"),
        ({"given": "1 packets", "bytes": 1514, "packets": 1}, "1 packets = 1.51 kB"),
        (
            {"given": "260 ms", "bytes": 4_875_000, "packets": 3219, "rate_bps": 150_000_000},
            "260 ms = 4.88 MB, 3,219 packets (150 Mbit/s)",
        ),
        (
            {
                "given": "1 BDP", "bytes": 1514, "packets": 1,
                "rate_bps": 64_000, "base_rtt_us": 20_000,
            },
            "1 BDP = 1.51 kB, 1 packet (64 kbit/s x 20.0 ms)",
        ),
    ],
)  # fmt: skip
def test_a_queue_as_text(queue: object, text: str) -> None:
    assert queue_text(queue) == text


def test_every_output_has_the_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from skyhop.cli.runs import print_runs

    sim(SCENARIO, tmp_path / "run")
    run = json.loads((tmp_path / "run/run.json").read_text())
    link = json.loads((tmp_path / "run/summary.json").read_text())["link"]
    assert run["queues"]["path"] == [link["queue"], link["queue_back"]]
    assert (queue_text(link["queue"]), queue_text(link["queue_back"])) == (FORWARD, BACK)
    print_runs([tmp_path / "run"])
    said = " ".join(capsys.readouterr().out.split())
    assert f"queue {FORWARD}, queue back {BACK}" in said
    page = write_report([tmp_path / "run"], tmp_path / "report.html").read_text()
    assert FORWARD in page
    assert BACK in page
