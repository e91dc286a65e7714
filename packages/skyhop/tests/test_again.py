"""Reports include commands to repeat their runs; these commands work as printed."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from conftest import ROOT

import skyhop as sh
import small_study
from command_line import Skyhop, run_here, run_process
from skyhop.data.scenarios import load_scenario

COMPUTED = """\
[path]
from = "San Diego"
to = "New York"
relay = "bent-pipe"
[link]
rate = "5 Mbit/s"
loss = "0.1 %"
[[flow]]
cc = "satcp"
[signal]
source = "path"
lead = "0.5 s"
[run]
duration = "12 s"
"""
MEASURED = """\
[path]
kind = "trace"
file = "data/path.parquet"
[link]
rate = "5 Mbit/s"
loss = "0.1 %"
[links.second]
rate = "4 Mbit/s"
path = { kind = "trace", file = "data/path.parquet" }
[[flow]]
cc = "cubic"
via = ["path", "second"]
[run]
duration = "4 s"
"""


class Boxes(HTMLParser):
    """Texts of a page's code boxes."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._inside = False
        self.feed(file.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Start a box, unless it holds a program's output."""
        if tag == "pre" and ("class", "printed") not in attrs:
            self._inside = True
            self.texts.append("")

    def handle_endtag(self, tag: str) -> None:
        """End the current box."""
        self._inside = self._inside and tag != "pre"

    def handle_data(self, data: str) -> None:
        """Append text to the current box."""
        if self._inside:
            self.texts[-1] += data


def run_again(page: Path, place: Path, run: Skyhop = run_here) -> subprocess.CompletedProcess[str]:
    """Follow the instructions of a page about one run, in an empty directory."""
    command, scenario = Boxes(page).texts
    place.mkdir()
    (place / "scenario.toml").write_text(scenario, "utf-8")
    return run_in(place, command, run)


def run_in(place: Path, command: str, run: Skyhop) -> subprocess.CompletedProcess[str]:
    """Run a command line in a directory, split as a shell splits it."""
    name, *words = shlex.split(command)
    assert name == "skyhop"
    return run(place, *words)


@pytest.mark.parametrize("text", [COMPUTED, MEASURED], ids=["computed", "measured"])
def test_a_simulated_run_is_the_same_again(skyhop: Skyhop, tmp_path: Path, text: str) -> None:
    (tmp_path / "work" / "data").mkdir(parents=True)
    (tmp_path / "work" / "x.toml").write_text(text, "utf-8")
    if text is MEASURED:
        made = skyhop("path", "compute", "--from", "Seattle", "--to", "New York", "--relay", "isl",
                      "--duration", "10 s", "-o", "work/data/path.parquet")  # fmt: skip
        assert made.returncode == 0, made.stderr
    first = skyhop("sim", "work/x.toml", "-o", "runs/a b", "--seed", 7)
    assert first.returncode == 0, first.stderr
    assert skyhop("report", "runs/a b", "-o", "page.html").returncode == 0
    again = run_again(tmp_path / "page.html", tmp_path / "elsewhere")
    assert again.returncode == 0, again.stderr
    for table in ("flows", "link", "events"):
        ours = tmp_path / "elsewhere" / "a b" / f"{table}.parquet"
        assert ours.read_bytes() == (tmp_path / "runs" / "a b" / f"{table}.parquet").read_bytes()


EXAMPLES = sorted(
    # The example of programs has no flow of its own.
    {file.stem for file in (ROOT / "examples").glob("*.toml")} - {"any-program"}
)


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_as_resolved_is_a_scenario(example: str) -> None:
    first = json.loads(load_scenario(ROOT / "examples" / f"{example}.toml").to_json())
    assert json.loads(load_scenario(first).to_json()) == first


@pytest.mark.soak
@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_as_resolved_runs_again(example: str) -> None:
    first = sh.sim(ROOT / "examples" / f"{example}.toml", seed=3)
    again = sh.sim(first.info["scenario"])
    assert again.info["scenario"] == first.info["scenario"]
    assert again.flows.equals(first.flows)


@pytest.mark.integration
def test_a_study_goes_on_by_the_command_of_its_page(skyhop: Skyhop, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    small_study.write(tmp_path / "mine" / "small.toml", repeats=1)
    first = skyhop("study", "run", "mine/small.toml", "-o", "results/of it")
    assert first.returncode == 0, first.stderr
    runs = sorted((tmp_path / "results" / "of it" / "runs").iterdir())
    assert len(runs) == 4
    shutil.rmtree(runs[0])
    kept = [run.stat().st_ino for run in runs[1:]]
    command, text = Boxes(tmp_path / "results" / "of it" / "report.html").texts
    assert text == (tmp_path / "mine" / "small.toml").read_text("utf-8")
    assert str(tmp_path) not in command, "the page names no directories of this machine"
    again = run_in(tmp_path, command, run_here)
    assert again.returncode == 0, again.stderr
    assert [run.stat().st_ino for run in runs[1:]] == kept, "finished runs are not repeated"
    assert runs[0].is_dir(), "what was missing is there again"


def live_and_again(skyhop: Skyhop, place: Path, text: str, *words: str) -> list[sh.Run]:
    """Run live, and again as the report says; return both runs, in `place`."""
    place.mkdir()
    (place / "x.toml").write_text(
        f'[path]\nkind = "fixed"\nrtt = "10 ms"\n[link]\nrate = "20 Mbit/s"\n{text}', "utf-8"
    )
    first = skyhop("live", place / "x.toml", "-o", place / "run", *words)
    assert first.returncode == 0, first.stderr
    assert skyhop("report", place / "run", "-o", place / "page.html").returncode == 0
    again = run_again(place / "page.html", place / "elsewhere", run_process)
    assert again.returncode == 0, again.stderr
    return [sh.read_run(place / "run"), sh.read_run(place / "elsewhere" / "run")]


@pytest.mark.integration
@pytest.mark.usefixtures("namespaces")
def test_a_live_run_runs_again_with_its_program(skyhop: Skyhop, tmp_path: Path) -> None:
    program = ["sh", "-c", 'echo "$SKYHOP_SERVER" > "heard it"']
    options = ("--server-cmd", "sleep 0.1", "--cc", "reno")
    text = '[run]\nduration = "1 s"\nseed = 5\n'
    first, again = live_and_again(skyhop, tmp_path / "it", text, *options, "--", *program)
    heard = tmp_path / "it" / "elsewhere" / "heard it"
    assert heard.read_text() == (tmp_path / "heard it").read_text()
    for key in ("scenario", "seed", "program", "default_cc"):
        assert first.info[key] == again.info[key]


@pytest.mark.soak
@pytest.mark.usefixtures("namespaces")
@pytest.mark.alone
def test_a_live_run_of_flows_runs_again(skyhop: Skyhop, tmp_path: Path) -> None:
    # Long enough that slow start has little effect.
    text = '[[flow]]\ncc = "cubic"\n[run]\nduration = "10 s"\n'
    runs = live_and_again(skyhop, tmp_path / "it", text)
    assert runs[0].info["scenario"] == runs[1].info["scenario"]
    first, again = (run.summary["flows"][0]["goodput_bps"] for run in runs)
    assert again == pytest.approx(first, rel=0.1)
