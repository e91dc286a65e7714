"""Tutorials without a test of their own: their commands run, in order, over the files they show."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from conftest import ROOT, Skyhop

TUTORIALS = ROOT / "docs" / "tutorials"
START = (ROOT / "docs" / "index.md").read_text("utf-8")
STUDY = (TUTORIALS / "first-study.md").read_text("utf-8")
MEASURED = (TUTORIALS / "measured-path.md").read_text("utf-8")
NETWORK = (TUTORIALS / "network.md").read_text("utf-8")


def commands_of(page: str) -> list[list[str]]:
    return [shlex.split(line) for line in re.findall(r"^    skyhop (.+)$", page, re.MULTILINE)]


def file_of(page: str) -> str:
    (text,) = re.findall(r"```toml\n(.+?)```", page, re.DOTALL)
    return str(text)


def test_the_first_page_is_short() -> None:
    assert len(START.split()) <= 400
    assert len(commands_of(START)) == 4


def test_the_study_of_the_tutorial_is_one() -> None:
    import tomllib

    from skyhop.study import load_study

    study = load_study(tomllib.loads(file_of(STUDY)))
    assert sum(1 for _ in study.runs()) == 18
    assert len(study.claims) == 2


@pytest.mark.soak
def test_the_first_pages_commands_run_in_order(skyhop: Skyhop, tmp_path: Path) -> None:
    for command in commands_of(START):
        done = skyhop(*command)
        assert done.returncode == 0, (command, done.stderr)
    assert (tmp_path / "sd-ny.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "report.html").stat().st_size > 100_000


@pytest.mark.soak
def test_the_studys_commands_run_in_order(skyhop: Skyhop, tmp_path: Path) -> None:
    (tmp_path / "loss.toml").write_text(file_of(STUDY), "utf-8")
    commands = commands_of(STUDY)
    assert len(commands) == 3
    for command in commands:
        done = skyhop(*command)
        assert done.returncode == 0, (command, done.stderr)
    assert (tmp_path / "runs" / "loss" / "report.html").exists()
    assert (tmp_path / "runs" / "loss" / "results.parquet").exists()


@pytest.mark.soak
def test_a_measured_paths_commands_run_in_order(skyhop: Skyhop, tmp_path: Path) -> None:
    """The log is made up: a level that shifts on Starlink's grid, ten times a second."""
    lines = ["PING 8.8.8.8 (8.8.8.8) 56(84) bytes of data."]
    for n in range(7200):
        time_s = 1_700_000_000 + n / 10
        level_ms = 25 + 12 * (int((time_s - 12) // 15) % 3)
        answer = f"icmp_seq={n + 1} ttl=56 time={level_ms + n % 3}.0 ms"
        lines.append(f"[{time_s:.6f}] 64 bytes from 8.8.8.8: {answer}")
    (tmp_path / "ping.txt").write_text("\n".join(lines) + "\n", "utf-8")
    (tmp_path / "mine.toml").write_text(file_of(MEASURED), "utf-8")
    commands = commands_of(MEASURED)
    assert len(commands) == 6
    for command in commands:
        done = skyhop(*command)
        assert done.returncode == 0, (command, done.stderr)
    assert (tmp_path / "mine.html").stat().st_size > 100_000


@pytest.mark.soak
def test_the_networks_commands_run_in_order_with_its_results(
    skyhop: Skyhop, tmp_path: Path
) -> None:
    (tmp_path / "hub.toml").write_text(file_of(NETWORK), "utf-8")
    commands = commands_of(NETWORK)
    assert len(commands) == 7
    for command in commands:
        done = skyhop(*command)
        assert done.returncode == 0, (command, done.stderr)
    # The page shows the table of the last command.
    for line in NETWORK.split("starlink-shell1: 158")[1].split("```")[0].splitlines():
        assert line.rstrip() in [printed.rstrip() for printed in done.stdout.splitlines()] or (
            line.startswith(" of 1,584")
        )
    mbps = {
        name: [
            flow["goodput_bps"] / 1e6
            for flow in json.loads((tmp_path / "runs" / name / "summary.json").read_text())["flows"]
        ]
        for name in ("hub", "wide", "lasers")
    }
    assert sum(mbps["hub"]) == pytest.approx(38, abs=1)
    assert sum(mbps["wide"]) == pytest.approx(38, abs=1)
    assert mbps["lasers"] == pytest.approx([19] * 5, abs=0.2)
    assert (tmp_path / "hub.gif").stat().st_size > 10_000
