"""Commands of the how-to pages on figures and on comparing paths, run in order."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from conftest import ROOT, Skyhop

import skyhop as sh

PATHS = ROOT / "docs" / "how-to" / "paths.md"


def commands_of(page: str) -> list[str]:
    return re.findall(r"^    skyhop (.+)$", page, re.MULTILINE)


@pytest.mark.soak
def test_the_pages_commands_run_in_order(skyhop: Skyhop, tmp_path: Path) -> None:
    commands = commands_of((ROOT / "docs" / "how-to" / "figures.md").read_text("utf-8"))
    assert len(commands) == 9
    for command in commands:
        shorter = command.replace("20 s", "2 s").replace("10 min", "1 min")
        done = skyhop(*shlex.split(shorter.replace('"10 s"', '"30 s"')))
        assert done.returncode == 0, (command, done.stderr)
    files = {file.name for file in (tmp_path / "paper").iterdir()}
    assert files == {"comparison.pdf", "path.pdf", "run-1-cubic.pdf", "run-2-bbr.pdf"}
    for name in ("sd-ny.pdf", "sky.pdf", "cubic.pdf", "both.svg", "report.html", "sd-ny.gif"):
        assert (tmp_path / name).stat().st_size > 5000


@pytest.mark.soak
def test_paths_are_compared_as_the_page_says(skyhop: Skyhop, tmp_path: Path) -> None:
    page = PATHS.read_text("utf-8")
    commands = commands_of(page.partition("## Side by side")[2].partition("## ")[0])
    assert len(commands) == 3
    for name, relay in (("path", "isl"), ("access", "access")):
        sh.path("Seattle", "New York", relay=relay, duration="5 s").write(
            tmp_path / f"{name}.parquet"
        )
    for command in commands:
        done = skyhop(*shlex.split(command), "--duration", "5 s")
        assert done.returncode == 0, (command, done.stderr)
    assert (tmp_path / "two.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.soak
def test_a_path_is_shown_as_the_page_says(skyhop: Skyhop, tmp_path: Path) -> None:
    page = PATHS.read_text("utf-8")
    commands = commands_of(page.partition("## Look at a path")[2].partition("## ")[0])
    assert len(commands) == 5
    for command in commands:
        done = skyhop(*shlex.split(command))
        assert done.returncode == 0, (command, done.stderr)
    for figure in ("sd-ny.png", "ground.png", "sky.png"):
        assert (tmp_path / figure).read_bytes().startswith(b"\x89PNG")
