"""Command `skyhop blind`: the handover grid found from traffic alone."""

import json
import random
from datetime import UTC, datetime
from pathlib import Path

import pytest
from conftest import Skyhop

import skyhop as sh
from reference_files import reference


def _log(directory: Path, offset_s: float) -> Path:
    """Write ten minutes of round trips whose level steps every 15 s."""
    chance = random.Random(1)
    rows = ["unix_ns,rtt_ms"]
    levels = [chance.uniform(25, 45) for _ in range(50)]
    for tenth in range(6000):
        at_s = 1_700_000_000 + tenth / 10 + chance.uniform(0, 0.05)
        slot = int((at_s - offset_s) // 15) % len(levels)
        rtt_ms = levels[slot] + chance.expovariate(1 / 3)
        if chance.random() > 0.1:
            rows.append(f"{int(at_s * 1e9)},{rtt_ms:.2f}")
    log = directory / "rtt.csv"
    log.write_text("\n".join(rows) + "\n")
    return log


def test_a_log_with_a_grid(skyhop: Skyhop, tmp_path: Path) -> None:
    result = skyhop("blind", _log(tmp_path, 4.2), "--json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["grid"], found["period_s"]) == (True, 15.0)
    assert found["offset_s"] == pytest.approx(4.2, abs=0.1)
    assert found["confidence"] > 0.5
    assert found["samples"] > 5000
    line = skyhop("blind", _log(tmp_path, 4.2)).stdout
    assert line.startswith("a handover every 15 s, at 4.")


@pytest.mark.parametrize("name", ["victoria_1", "victoria_2", "victoria_3"])
def test_starlink(skyhop: Skyhop, name: str) -> None:
    result = skyhop("blind", reference(f"rtt/{name}.csv.gz"), "--json")
    assert json.loads(result.stdout)["offset_s"] == pytest.approx(12.0, abs=0.1)


def test_oneweb(skyhop: Skyhop) -> None:
    result = skyhop("blind", reference("rtt/oneweb_iowa.csv.gz"), "--json")
    found = json.loads(result.stdout)
    assert (found["grid"], found["offset_s"], found["period_s"]) == (False, None, None)


@pytest.mark.parametrize(("profile", "offset_s"), [("victoria-2024", 12.0), ("oneweb-iowa", None)])
def test_a_modelled_link_has_the_grid_of_its_profile(
    skyhop: Skyhop, tmp_path: Path, profile: str, offset_s: float | None
) -> None:
    start = datetime(2026, 1, 1, 0, 0, 5, tzinfo=UTC)
    scenario = {
        "path": {"kind": "access", "profile": profile, "start": start.isoformat()},
        "flow": [{"kind": "probe", "interval": "12 ms"}],
        "run": {"duration": "5 min"},
    }
    probes = sh.sim(scenario).probes
    assert probes is not None
    start_ns = int(start.timestamp()) * 10**9
    answered = probes.drop_nulls("rtt_ns").select("t_ns", "rtt_ns").iter_rows()
    log = tmp_path / "rtt.csv"
    log.write_text("".join(f"{start_ns + t_ns},{rtt_ns / 1e6}\n" for t_ns, rtt_ns in answered))
    found = json.loads(skyhop("blind", log, "--json").stdout)
    assert found["offset_s"] == (None if offset_s is None else pytest.approx(offset_s, abs=0.1))


def test_the_period_is_searched_for(skyhop: Skyhop, tmp_path: Path) -> None:
    made = skyhop("blind", _log(tmp_path, 4.2), "--period", "search", "--json")
    assert json.loads(made.stdout)["period_s"] == 15.0
    starlink = skyhop("blind", reference("rtt/victoria_2.csv.gz"), "--period", "search")
    assert starlink.stdout.startswith("a handover every 15 s, at 11.9")
    oneweb = skyhop("blind", reference("rtt/oneweb_iowa.csv.gz"), "--period", "search")
    assert oneweb.stdout == "no grid of 5 to 60 s in 100000 samples\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["nosuch.csv"], "nosuch.csv"),
        (["bad.csv"], "line 2"),
        (["bad.csv", "--format", "mp3"], "csv"),
        (["bad.csv", "--format", "pcap"], "pcap"),
        (["bad.csv", "--period", "0 s"], "1 s"),
        (["bad.csv", "--period", "soon"], '"search"'),
    ],
)
def test_wrong_input_is_one_line(
    skyhop: Skyhop, tmp_path: Path, arguments: list[str], expected: str
) -> None:
    (tmp_path / "bad.csv").write_text("unix_ns,rtt_ms\n1,2,3\n")
    result = skyhop("blind", *arguments)
    assert result.returncode == 2
    assert expected in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_clock_that_was_set_and_a_long_period_are_errors(skyhop: Skyhop, tmp_path: Path) -> None:
    rows = [n * 100_000_000 for n in range(3000)]
    modern = [1_779_000_000_000_000_000 + ns for ns in rows]
    for name, times in (
        ("set.csv", rows + modern),
        ("modern.csv", modern),
        ("most.csv", [0, 2**63 - 1]),
    ):
        text = "".join(f"{ns},30\n" for ns in times)
        (tmp_path / name).write_text(f"unix_ns,rtt_ms\n{text}")
    for arguments, expected in (
        (["set.csv"], "set.csv: its times jump from 1970-01-01T00:04:59"),
        (["set.csv", "--period", "search"], "the clock was set in between"),
        (["most.csv"], "its times jump from 1970-01-01T00:00:00"),
        (["modern.csv", "--period", "1000 d"], "--period: "),
        (["modern.csv", "--period", "1000 h"], "--period: "),
        (["modern.csv", "--period", "301 s"], "is longer than the log of 299 s"),
    ):
        done = skyhop("blind", *arguments)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert expected in done.stderr
    assert skyhop("blind", "modern.csv").stdout == "no grid of 15 s in 3000 samples\n"
