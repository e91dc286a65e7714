"""Studies over measured paths: where their files are found, and when `reproduce` skips them."""

from __future__ import annotations

import tomllib
from pathlib import Path

import polars as pl
import pytest

import skyhop as sh
from skyhop.data.toml import toml_text
from skyhop.study import load_study, run_study
from skyhop.study.catalogue import find_study
from validation import measured_paths, reproduce

STUDY = find_study("measured")
OVER_MEASURED = [STUDY, *sorted(STUDY.parent.glob("*-measured*.toml"))]


def can_run(study: Path) -> bool:
    """Return whether `reproduce` runs a study here."""
    return reproduce.missing_requirement(study) is None


def test_their_path_files_are_made_from_reference_files() -> None:
    runs = (run for study in OVER_MEASURED for run in load_study(study).runs())
    paths = [run.resolved["path"] for run in runs]
    named = {path["file"] for path in paths if path["kind"] == "trace"}
    assert named == {f"measured/{name}.parquet" for name in measured_paths.MEASUREMENTS}


@pytest.mark.integration
def test_a_study_is_skipped_until_its_files_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("measured").mkdir()
    for name in measured_paths.MEASUREMENTS:
        assert not all(map(can_run, OVER_MEASURED))
        path = sh.path(kind="fixed", rtt="30 ms", duration="2 s")
        path.write(f"measured/{name}.parquet")
    assert all(map(can_run, OVER_MEASURED))
    assert can_run(find_study("satpipe-fig13"))
    # Element sets are reference files, which this machine may lack.
    assert can_run(find_study("satcp-fig4")) == (reproduce.elements() is not None)
    monkeypatch.setenv("SKYHOP_DASH_JS", str(tmp_path / "dash.js"))
    lacking = reproduce.missing_requirement(find_study("satpipe-fig19-20-browser"))
    assert lacking is not None
    assert "install" in lacking
    monkeypatch.setattr(reproduce, "found", {}.get)
    assert not can_run(find_study("satcp-fig4"))
    # A copy of the study elsewhere finds the files in the current directory.
    table = tomllib.loads(STUDY.read_text("utf-8"))
    table |= {"repeats": 1, "claim": [], "panel": [], "metric": []}
    kept = {name: table["axis"][0]["points"][name] for name in ("Victoria 1", "Iowa")}
    table["axis"][0]["points"] = kept
    table["scenario"]["run"]["duration"] = "2 s"
    Path("elsewhere").mkdir()
    Path("elsewhere/own.toml").write_text(toml_text(table), "utf-8")
    done = run_study(load_study("elsewhere/own.toml"), "out", jobs=1)
    assert not done.failures
    assert done.results.frame.get_column("path").unique().sort().to_list() == ["Iowa", "Victoria 1"]
    assert done.results.frame.select(pl.col("goodput_bps").min()).item() > 0
