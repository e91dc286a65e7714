"""Files that skyhop ships, found by name in a checkout and in a wheel."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from conftest import ROOT, Skyhop

from skyhop.data.shipped import find_scenario, shipped_files


@pytest.mark.parametrize("kind", ["examples", "studies"])
def test_the_checkouts_files_are_found(kind: str) -> None:
    found = shipped_files(kind)
    assert list(found) == sorted(file.stem for file in (ROOT / kind).glob("*.toml"))
    assert all(file.is_file() for file in found.values())


def test_a_wheels_files_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "site-packages" / "skyhop"
    shutil.copytree(ROOT / "examples", installed / "examples")
    monkeypatch.setattr("skyhop.data.shipped._PACKAGE", installed)
    file = shipped_files("examples")["parking-lot"]
    assert file == installed / "examples" / "parking-lot.toml"


def test_examples_are_listed_and_run_by_name(skyhop: Skyhop, tmp_path: Path) -> None:
    rows = json.loads(skyhop("list", "examples", "--json").stdout)
    assert all(row["description"] and Path(row["file"]).is_file() for row in rows)
    done = skyhop("sim", "san-diego-new-york", "-o", "run", "--set", "run.duration=2 s")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "summary.json").exists()


def test_a_users_file_precedes_an_example_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_scenario("parking-lot") == shipped_files("examples")["parking-lot"]
    Path("parking-lot").write_text("", "utf-8")
    assert find_scenario("parking-lot") == Path("parking-lot")


def test_an_unknown_name_is_a_one_line_error(skyhop: Skyhop) -> None:
    result = skyhop("sim", "no-such-example", "-o", "run")
    assert result.returncode == 2
    assert "no-such-example" in result.stderr
    assert len(result.stderr.splitlines()) == 1
