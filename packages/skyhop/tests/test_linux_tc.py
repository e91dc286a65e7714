"""Guests whose links are Linux's own queue disciplines, compared with skyhop's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from conftest import Skyhop

from guest_kernels import needs_guest_kernel
from skyhop.data.toml import toml_text

pytestmark = pytest.mark.soak

SCENARIO: dict[str, Any] = {
    "path": {"kind": "fixed", "rtt": "30 ms"},
    "link": {"rate": "20 Mbit/s"},
    "flow": [{"cc": "cubic"}],
    "run": {"duration": "3 s"},
}
CHANGES = [
    {"at": "800 ms", "rtt": "60 ms"},
    {"at": "1.2 s", "rate": "5 Mbit/s"},
    {"at": "1.6 s", "rtt": "20 ms", "loss": "2 %"},
    {"at": "2 s", "outage": "100 ms"},
]
ECN = {"ecn": True}
CHILDREN: list[tuple[dict[str, Any], str]] = [
    ({"kind": "red", "bandwidth": "0 bit/s", "max": "60 kB", "ecn": True}, "300 kB"),
    ({"kind": "sfq", "perturb": "1 s"}, "100 packets"),
    ({"kind": "fq", "flow_limit": 60}, "1000 packets"),
    ({"kind": "fq_pie", "tupdate": "20 ms", "ecn": True}, "1000 packets"),
    ({"kind": "cake", "diffserv": "besteffort"}, "30000 packets"),
    ({"kind": "codel", "ecn": True}, "1000 packets"),
    ({"kind": "fifo", "drop": "front"}, "50 packets"),
]
"""Disciplines below the token bucket, with the length of the link's queue."""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    needs_guest_kernel()
    file = tmp_path / "x.toml"
    file.write_text(toml_text(SCENARIO), "utf-8")
    return file


def run(skyhop: Skyhop, scenario: Path, name: str, *sets: str) -> Path:
    """Run the scenario in a guest; return the run directory."""
    words = [word for one in sets for word in ("--set", one)]
    done = skyhop("linux", scenario, "-o", name, *words)
    assert done.returncode == 0, done.stderr
    return scenario.parent / name


def head(directory: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the contents of run.json and summary.json."""
    texts = [(directory / name).read_text("utf-8") for name in ("run.json", "summary.json")]
    manifest, summary = (json.loads(text) for text in texts)
    return manifest, summary


def rows(directory: Path, table: str, before_s: float) -> list[dict[str, Any]]:
    """Return the rows of a table before a time."""
    all_rows = pq.read_table(directory / f"{table}.parquet").to_pylist()
    return [row for row in all_rows if row["t_ns"] < before_s * 1e9]


def test_linux_carries_what_skyhop_carries(skyhop: Skyhop, scenario: Path) -> None:
    tc = run(skyhop, scenario, "tc")
    ours = run(skyhop, scenario, "ours", "linux.link=skyhop")
    (manifest, summary), (others_manifest, others) = head(tc), head(ours)
    assert (manifest["link"], manifest["device"]) == ("tc", "veth")
    assert others_manifest["link"] == "skyhop"
    (flow,), (other,) = summary["flows"], others["flows"]
    assert flow["goodput_bps"] == pytest.approx(other["goodput_bps"], rel=0.02)
    assert flow["srtt_mean_us"] == pytest.approx(other["srtt_mean_us"], rel=0.03)
    assert abs(flow["retransmits"] - other["retransmits"]) <= 3
    backlog = "backlog_mean_bytes"
    assert summary["link"][backlog] == pytest.approx(others["link"][backlog], rel=0.05)


def test_a_longer_run_has_the_same_beginning(skyhop: Skyhop, scenario: Path) -> None:
    loss = "link.loss=0.5 %"
    short = run(skyhop, scenario, "short", loss)
    again = run(skyhop, scenario, "again", loss)
    long = run(skyhop, scenario, "long", loss, "run.duration=4 s")
    for table in ("flows", "link"):
        assert rows(short, table, 9) == rows(again, table, 9)
        assert rows(short, table, 2.95) == rows(long, table, 2.95)
    other = run(skyhop, scenario, "other", loss, "run.seed=2")
    assert rows(other, "flows", 2.95) != rows(short, "flows", 2.95)


def test_disciplines_follow_the_schedule(skyhop: Skyhop, scenario: Path) -> None:
    scenario.write_text(toml_text({**SCENARIO, "change": CHANGES}), "utf-8")
    manifest, summary = head(run(skyhop, scenario, "tc", "linux.link=tc"))
    drops = summary["link"]["drops"]
    assert drops["outage"] > 0
    assert drops["loss"] > 0
    for way in ("forward", "back"):
        packets = manifest["packets"][way]
        assert packets["enqueued"] == packets["delivered"] + packets["dropped"]
        assert packets["delivered"] == packets["device_received"]
    flow = rows(scenario.parent / "tc", "flows", 9)
    srtt_ms = {round(row["t_ns"] / 1e6): row["srtt_us"] / 1e3 for row in flow}
    assert srtt_ms[500] < 60 < min(srtt_ms[1100], srtt_ms[1200])
    assert srtt_ms[1500] > 120
    simulated = skyhop("sim", scenario, "-o", "sim", "--json")
    (ours,) = json.loads(simulated.stdout)["flows"]
    (theirs,) = summary["flows"]
    assert theirs["goodput_bps"] == pytest.approx(ours["goodput_bps"], rel=0.1)


@pytest.mark.parametrize(("qdisc", "queue"), CHILDREN, ids=[one["kind"] for one, _ in CHILDREN])
def test_a_discipline_of_linux_equals_skyhops(
    skyhop: Skyhop, scenario: Path, qdisc: dict[str, Any], queue: str
) -> None:
    link = {"rate": "20 Mbit/s", "queue": queue, "qdisc": qdisc}
    flows = [{"cc": "cubic"}, {"cc": "cubic", "start": "21 ms"}]
    scenario.write_text(toml_text({**SCENARIO, "link": link, "flow": flows, "tcp": ECN}), "utf-8")
    directory = run(skyhop, scenario, "tc", "linux.link=tc")
    manifest, summary = head(directory)
    packets = manifest["packets"]["forward"]
    assert packets["enqueued"] == packets["delivered"] + packets["dropped"]
    like_the_guest = ("--set", "tcp.profile=linux-6.12", "--set", "tcp.hz=100")
    simulated = skyhop("sim", scenario, "-o", "sim", "--json", *like_the_guest)
    ours = json.loads(simulated.stdout)
    goodput, our_goodput = (
        sum(flow["goodput_bps"] for flow in of["flows"]) for of in (summary, ours)
    )
    assert goodput == pytest.approx(our_goodput, rel=0.05)
    marks, our_marks = summary["link"]["marks"], ours["link"]["marks"]
    assert (marks > 0) == (our_marks > 0) == (qdisc["kind"] not in ("sfq", "fq", "fifo"))
    of_samples = [row["marks"] for row in rows(directory, "link", 9)]
    assert sum(of_samples) == marks
    # Linux does not tell to which flow marks belong.
    assert {flow["marks"] for flow in summary["flows"]} == ({None} if marks else {0})
    assert {row["marks"] for row in rows(directory, "flows", 9)} == ({None} if marks else {0})
    if marks:
        shown = skyhop("report", "tc", "sim", "-o", "report.html")
        assert shown.returncode == 0, shown.stderr


def test_a_discipline_that_differs_in_linux_is_an_error(skyhop: Skyhop, scenario: Path) -> None:
    sets = ("--set", "link.qdisc=red", "--set", "link.queue=300 kB", "--set", "linux.link=tc")
    done = skyhop("linux", scenario, "-o", "refused", *sets)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert "link.qdisc.bandwidth: below a token bucket Linux's red" in line


def test_an_unsupported_link_is_an_error_or_falls_back_to_skyhops(
    skyhop: Skyhop, scenario: Path
) -> None:
    sets = ("--set", "link.burst=1000 B", "--set", "run.duration=200 ms")
    done = skyhop("linux", scenario, "-o", "refused", *sets, "--set", "linux.link=tc")
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert "link.burst: it is smaller than a packet; linux.link" in line
    assert not (scenario.parent / "refused").exists()
    manifest, _ = head(run(skyhop, scenario, "auto", sets[1], sets[3]))
    assert manifest["link"] == "skyhop"
    assert manifest["link_because"].startswith("link.burst: ")
