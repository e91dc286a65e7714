"""Forecasts from element sets, and their errors, as a user sees them."""

from __future__ import annotations

import csv
import gzip
import json
import os
import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from conftest import Skyhop

import skyhop as sh
from element_files import walker_omm
from reference_files import reference
from signal_service import TIMEOUT_S, announced, await_note, service
from skyhop.analysis.report_timing import report_timing

SITE = ("--site", "48.43,-123.37")


def forecasting(elements: Path, *more: str) -> tuple[str, ...]:
    """Return the options of a forecasting service."""
    return ("--source", "forecast", "--elements", str(elements), *SITE, *more)


@pytest.mark.integration
def test_handovers_are_forecast_at_the_moments_of_the_grid(tmp_path: Path) -> None:
    elements = tmp_path / "fleet.csv.gz"
    elements.write_bytes(gzip.compress(walker_omm(age=timedelta(hours=1)).encode()))
    # With so long a lead the handovers of the next minutes are announced immediately.
    with service(tmp_path, *forecasting(elements, "--lead", "20 min")) as (process, place):
        hello, *handovers = announced(place, 8)
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 0
        assert process.stderr is not None
        assert "changed" not in process.stderr.read()
    assert (hello["source"], hello["period_ns"]) == ("forecast", None)
    moments = [datetime.fromisoformat(str(line["at_utc"])) for line in handovers]
    assert moments == sorted(moments)
    assert len(set(moments)) == len(moments)
    assert all(abs(moment - datetime.now(UTC)) < timedelta(minutes=25) for moment in moments)
    assert {line["kind"] for line in handovers} == {"end"}
    on_grid = [moment for moment in moments if moment.second % 15 == 12]
    assert len(on_grid) >= len(moments) - 1


@pytest.mark.soak
def test_a_whole_path_is_forecast_with_its_other_handovers(tmp_path: Path) -> None:
    elements = tmp_path / "fleet.csv"
    elements.write_text(walker_omm(age=timedelta(hours=20)), "utf-8")
    options = ("--to", "40.8,-73.9", "--relay", "isl", "--handover", "sticky", "--lead", "10 min")
    with service(tmp_path, *forecasting(elements, *options)) as (process, place):
        _, *handovers = announced(place, 7)
        process.send_signal(signal.SIGINT)
        process.wait(TIMEOUT_S)
        assert process.stderr is not None
        notes = process.stderr.read()
    assert {line["kind"] for line in handovers} >= {"end", "intermediate"}
    # Error of 20-hour-old elements plus a step; the clock's error adds to it.
    assert min(int(str(line["error_ns"])) for line in handovers) >= 5.0e9
    assert "element sets of" in notes
    assert "more than 20 h old" in notes


@pytest.mark.integration
def test_a_changed_file_is_read_again_and_a_damaged_one_is_not_taken(tmp_path: Path) -> None:
    elements = tmp_path / "fleet.csv"
    elements.write_text(walker_omm(), "utf-8")
    options = forecasting(elements, "--lead", "10 min")
    with service(tmp_path, *options) as (process, place):
        announced(place, 3)
        _replace(elements, walker_omm()[:50])
        await_note(process, "continuing with the previous element sets")
        _replace(elements, walker_omm(ahead_s=100))
        await_note(process, f"{elements} has changed; forecasting from it")
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 0


def _replace(file: Path, text: str) -> None:
    aside = file.with_suffix(".new")
    aside.write_text(text, "utf-8")
    aside.replace(file)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "needs --elements"),
        (["--elements", "fleet.csv"], "needs --site"),
        (["--elements", "nosuch.tle", *SITE], "nosuch.tle"),
        (["--elements", "cut.csv.gz", *SITE], "cut.csv.gz"),
        (["--elements", "cut.csv", *SITE], "no element sets"),
        (["--elements", "stale.csv", *SITE], "stale"),
        (["--elements", "fleet.csv", "--site", "Nowhere at all"], "Nowhere at all"),
        (["--elements", "fleet.csv", *SITE, "--handover", "random"], "is not a handover policy"),
        (["--elements", "fleet.csv", *SITE, "--relay", "geo"], "--relay geo"),
        (["--elements", "fleet.csv", *SITE, "--to", "1,1", "--relay", "pigeon"], "pigeon"),
    ],
)
def test_what_cannot_be_forecast_from_is_one_line(
    skyhop: Skyhop, tmp_path: Path, arguments: list[str], expected: str
) -> None:
    fleet = walker_omm()
    (tmp_path / "fleet.csv").write_text(fleet, "utf-8")
    (tmp_path / "cut.csv").write_text(fleet[:40], "utf-8")
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(fleet.encode())[:2_000])
    (tmp_path / "stale.csv").write_text(walker_omm(age=timedelta(days=40)), "utf-8")
    done = skyhop("signal", "serve", "--socket", "x.sock", "--source", "forecast", *arguments)
    assert done.returncode == 2, done.stderr
    assert expected in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_scenario_announces_what_older_elements_foretell(skyhop: Skyhop, tmp_path: Path) -> None:
    start = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:00Z")
    (tmp_path / "new.csv").write_text(walker_omm(), "utf-8")
    (tmp_path / "old.csv").write_text(walker_omm(ahead_s=0.3), "utf-8")
    (tmp_path / "x.toml").write_text(
        f"[path]\nfrom = '48.43,-123.37'\nto = '40.8,-73.9'\nrelay = 'isl'\nhandover = 'sticky'\n"
        f"constellation = 'new.csv'\nstart = '{start}'\nminimum_elevation = '25 deg'\n"
        "[link]\nrate = '5 Mbit/s'\n[[flow]]\ncc = 'satcp'\n"
        "[signal]\nsource = 'forecast'\nelements = 'old.csv'\nlead = '1 s'\n"
        "[run]\nduration = '300 s'\n",
        "utf-8",
    )
    done = skyhop("sim", "x.toml", "-o", "out")
    assert done.returncode == 0, done.stderr
    run = json.loads((tmp_path / "out" / "run.json").read_text("utf-8"))
    assert run["scenario"]["signal"]["elements"] == str(tmp_path / "old.csv")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))
    assert summary["handovers"]["end"] > 0
    stranger = walker_omm(first_number=50_000)
    (tmp_path / "old.csv").write_text(stranger, "utf-8")
    refused = skyhop("sim", "x.toml", "-o", "again")
    assert refused.returncode == 2
    assert "signal.elements: these are not the satellites of the path" in refused.stderr


def test_satellites_that_are_ahead_are_wrong_by_that_time(skyhop: Skyhop, tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_text(walker_omm(age=timedelta(seconds=1), ahead_s=1.45), "utf-8")
    (tmp_path / "new.csv").write_text(walker_omm(), "utf-8")
    done = skyhop("signal", "timing", "old.csv", "new.csv", "-o", "errors.png", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    # The old elements place the satellites ahead of where the new ones do.
    assert found["satellites"] == 792
    assert found["t_err_s"] >= found["quantiles_s"]["90%"] > 0
    assert (tmp_path / "errors.png").stat().st_size > 10_000
    table = skyhop("signal", "timing", "old.csv", "new.csv")
    assert "792 satellites" in table.stdout
    assert f"T_err = {found['t_err_s']:g} s" in table.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["nosuch.tle", "new.csv"], "nosuch.tle"),
        (["new.csv", "old.csv"], "give the older snapshot first"),
        (["stranger.csv", "new.csv"], "no satellite is in both"),
        (["old.csv", "new.csv", "--at", "noon"], "noon"),
        (["old.csv", "new.csv", "--up-to", "soon"], "--up-to"),
        (["old.csv", "new.csv", "-o", "figure.jpg"], "ends in .png, .svg or .pdf"),
        (["starlink-shell1", "new.csv"], "expected a file of element sets"),
    ],
)
def test_snapshots_that_cannot_be_compared_are_one_line(
    skyhop: Skyhop, tmp_path: Path, arguments: list[str], expected: str
) -> None:
    (tmp_path / "old.csv").write_text(walker_omm(age=timedelta(hours=3)), "utf-8")
    (tmp_path / "new.csv").write_text(walker_omm(), "utf-8")
    (tmp_path / "stranger.csv").write_text(walker_omm(first_number=50_000), "utf-8")
    done = skyhop("signal", "timing", *arguments)
    assert done.returncode == 2, done.stderr
    assert expected in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_published_errors_are_reproduced() -> None:
    with reference("leoem/report_timing_errors_s.csv").open(encoding="utf-8") as file:
        published_s = np.array([float(row["abs_error_s"]) for row in csv.DictReader(file)])
    old, new = (reference(f"leoem/starlink_{age}.tle.gz") for age in ("old", "new"))
    found = report_timing(old, new, at="2021-11-22T10:57:50Z", up_to_s=1.6)
    assert len(found.errors_s) == pytest.approx(len(published_s), rel=0.01)
    for share in (0.1, 0.25, 0.5, 0.75, 0.9):
        assert found.quantile_s(share) == pytest.approx(
            float(np.quantile(published_s, share)), rel=0.1
        ), share
    assert found.t_err_s == 0.6
    # Not three hours: the snapshots were downloaded then, but their elements are a day apart.
    assert found.newer_by_h == pytest.approx(24, abs=1)
    assert found.age_h == pytest.approx(31.6, abs=0.5)


def test_the_stated_error_holds_for_nine_satellites_in_ten() -> None:
    for old, new in (
        ("leoem/starlink_old.tle.gz", "leoem/starlink_new.tle.gz"),
        ("tle/starlink_19-05-2026.tle.gz", "tle/starlink_20-05-2026.tle.gz"),
    ):
        found = report_timing(reference(old), reference(new))
        # crates/signal/src/forecast.rs: 0.2 s for every hour.
        assert found.quantile_s(0.9) <= 0.2 * found.age_h, old


def test_constellations_know_the_epochs_of_their_elements(tmp_path: Path) -> None:
    (tmp_path / "fleet.csv").write_text(walker_omm(age=timedelta(hours=2)), "utf-8")
    fleet = sh.constellation(os.fspath(tmp_path / "fleet.csv"))
    ages_h = (time.time_ns() - np.array(fleet.element_epochs_ns)) / 3.6e12
    assert ages_h == pytest.approx(2, abs=0.05)
