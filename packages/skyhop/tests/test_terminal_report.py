"""Reports of runs in a testbed include the terminal's telemetry."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
import test_dissection
import test_orientation
from conftest import Skyhop
from test_report import Page

from obstruction_maps import seen
from skyhop.analysis.terminal_page import fetched as fetched_place
from skyhop.analysis.terminal_page import telemetry_of_run, terminal_part
from skyhop.errors import InputError
from skyhop.figures import style
from skyhop.report import write_report
from skyhop.telemetry.maps import recorded_map
from synthetic_run import SyntheticRun

RUN = "01M86YZWXZ64AP3YKG7KMADTAQ"
_BLANK = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP6DwABBQECz6AuzQAAAABJRU5ErkJggg=="
)
"""Smallest PNG, of one pixel."""


def fetched(directory: Path) -> Path:
    """Write the files of a fetched run; return the directory of its client's files."""
    client = directory / "client"
    client.mkdir(parents=True)
    frame = test_orientation.telemetry(1, 40)
    frame.drop("node").write_parquet(client / "telemetry.parquet")
    manifest = {"run": RUN, "side": "client", "node": "bcn-1", "files": []}
    (client / "manifest.json").write_text(json.dumps(manifest))
    (client / "obstruction_map.json").write_bytes(recorded_map(seen()))
    traces = test_dissection.traceroute(test_dissection.round_trips(60, 1))
    (client / "stdout").write_text(traces)
    return client


@pytest.fixture(params=["blank", pytest.param("drawn", marks=pytest.mark.soak)])
def pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw figures, but save blank pictures of them except in soak: rendering takes longest."""
    if request.param == "blank":
        monkeypatch.setattr(style, "figure_bytes", lambda *_, **__: _BLANK)


def headings(file: Path) -> list[str]:
    page = Page(file)
    every = ("Spikes", "Orientation", "Obstruction map", "Where latency arises")
    return [heading for heading in every if f"<h3>{heading}</h3>" in page.html]


@pytest.mark.usefixtures("pictures")
def test_a_fetched_run_is_a_page_about_its_terminal(skyhop: Skyhop, tmp_path: Path) -> None:
    fetched(tmp_path / "spike")
    done = skyhop("report", "spike", "-o", "report.html")
    assert done.returncode == 0, done.stderr
    assert "constrained_layout" not in done.stderr
    page = Page(tmp_path / "report.html")
    assert len(headings(tmp_path / "report.html")) == 4
    assert "Not shown" not in page.text
    assert all(text in page.html for text in ("bcn-1", RUN, "<dd>600</dd>"))
    assert all(source.startswith("data:image/webp") for source in page.sources)
    assert {file.name for file in (tmp_path / "report-figures").iterdir()} == {
        f"terminal-1-{name}.png" for name in ("spikes", "orientation", "sky", "segments")
    }


@pytest.mark.usefixtures("pictures")
def test_a_run_directory_with_telemetry_shows_it_with_its_own_figures(tmp_path: Path) -> None:
    client = fetched(tmp_path)
    SyntheticRun(duration_s=12.0).write(client / "run")
    report = write_report([client / "run"], tmp_path / "report.html")
    assert "Link and path" in Page(report).text
    assert len(headings(report)) == 4
    files = {file.name for file in (tmp_path / "report-figures").iterdir()}
    assert {"run-1-run-spikes.png", "run-1-run.png"} < files
    # A second report without telemetry removes the figures of telemetry.
    (client / "telemetry.parquet").unlink()
    write_report([client / "run"], tmp_path / "report.html")
    files = {file.name for file in (tmp_path / "report-figures").iterdir()}
    assert not [name for name in files if "spikes" in name]
    assert headings(report) == []


def test_telemetry_is_a_runs_own_or_beside_it_as_a_testbed_leaves_it(tmp_path: Path) -> None:
    client = fetched(tmp_path / "spike")
    (client / "run").mkdir()
    (client / "run" / "run.json").touch()
    assert telemetry_of_run(client / "run") == client
    assert telemetry_of_run(client) == client
    assert telemetry_of_run(tmp_path / "spike") is None
    # A directory with a run of skyhop gets the run's page, which includes telemetry.
    assert fetched_place(tmp_path / "spike") is None
    (client / "run" / "run.json").unlink()
    assert fetched_place(tmp_path / "spike") == fetched_place(client) == client
    (client / "manifest.json").unlink()
    assert telemetry_of_run(client / "run") is None


def test_what_cannot_be_shown_is_said(tmp_path: Path) -> None:
    client = fetched(tmp_path)
    test_orientation.telemetry(1, 40).head(5).write_parquet(client / "telemetry.parquet")
    (client / "stdout").write_text("traceroute to nowhere\n")
    part = terminal_part(client)
    assert [figure.name for figure in part.figures] == ["sky"]
    assert len(part.missing) == 3
    assert all("\n" not in text for text in part.missing)


def test_damaged_files_are_refused_in_one_line(skyhop: Skyhop, tmp_path: Path) -> None:
    client = fetched(tmp_path / "run")
    (client / "manifest.json").write_text("[1]")
    done = skyhop("report", "run", "-o", "report.html")
    assert done.returncode == 2
    assert "is not a testbed's manifest" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    (client / "manifest.json").unlink()
    (client / "telemetry.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="is damaged"):
        terminal_part(client)
