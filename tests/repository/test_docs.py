"""Examples, commands and lists of the documentation: they run, and their items exist."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from conftest import ROOT, Skyhop

from needs import needs_namespaces
from skyhop import _core
from small_study import content

README = (ROOT / "README.md").read_text("utf-8")
EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))
STUDY_FILE = ROOT / "docs" / "reference" / "study-file.md"
STUDIES = sorted((ROOT / "studies").glob("*.toml"))
SHORT = ("--set", "run.duration=2 s")


def readme_commands() -> list[list[str]]:
    """Return the arguments of the README's skyhop commands, in order."""
    lines = re.findall(r"^    \.venv/bin/skyhop (.+)$", README, re.MULTILINE)
    return [shlex.split(line) for line in lines]


SHORTER = {"1 h": "10 min"}
"""Durations of the README's commands, and the shorter ones of the tests."""


def shortened(command: list[str]) -> list[str]:
    """Return the command with shorter durations."""
    parts = [SHORTER.get(part, part) for part in command]
    return [*parts[:2], *SHORT, *parts[2:]] if command[0] == "live" else parts


@pytest.mark.parametrize(
    "engines",
    [
        pytest.param({"live", "path"}, marks=pytest.mark.integration, id="short"),
        pytest.param({"live"}, marks=pytest.mark.soak, id="live runs short"),
    ],
)
def test_readme_commands_run_in_order(skyhop: Skyhop, tmp_path: Path, engines: set[str]) -> None:
    commands = readme_commands()
    assert [command[0] for command in commands] == ["path", "live", "report"]
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for command in commands:
        if command[0] == "live":
            needs_namespaces()
        done = skyhop(*(shortened(command) if command[0] in engines else command))
        assert done.returncode == 0, (command, done.stderr)
    assert (tmp_path / "report.html").stat().st_size > 100_000
    assert (tmp_path / "sd-ny.png").exists()


def engines_of(example: Path) -> set[str]:
    """Return the engines that the comment of an example names."""
    named = re.findall(
        r"^#   skyhop (\w+) examples/(\S+)", example.read_text("utf-8"), re.MULTILINE
    )
    assert named, "an example begins with the command that runs it"
    assert all(file == example.name for _, file in named)
    return {engine for engine, _ in named}


SIMULATED = [example for example in EXAMPLES if engines_of(example) == {"sim"}]


@pytest.mark.parametrize("example", SIMULATED, ids=lambda path: path.stem)
def test_simulated_examples_run(skyhop: Skyhop, tmp_path: Path, example: Path) -> None:
    done = skyhop("sim", example, "-o", "run")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "summary.json").exists()


def test_the_ends_of_a_dish_are_as_the_documentation_says(skyhop: Skyhop, tmp_path: Path) -> None:
    for name, late, rates in (
        ("download-to-a-dish", 2, ("150", "15")),
        ("upload-from-a-dish", 1, ("15", "150")),
    ):
        example = ROOT / "examples" / f"{name}.toml"
        sides = zip(("link", "link.back"), rates, strict=True)
        keys = [
            f"{side}.{key}" for side, rate in sides for key in (f"rate={rate} Mbit/s", "loss=0 %")
        ]
        sets = [part for key in (f"flow.{late}.start=0 s", *keys) for part in ("--set", key)]
        done = skyhop("sim", example, *SHORT, *sets, "-o", name)
        assert done.returncode == 0, done.stderr
        first, *_, last = goodputs_mbps(tmp_path / name)
        down, up = (first, last) if name == "download-to-a-dish" else (last, first)
        assert up < 15 < down < 150, "the rates of [link] and [link.back]"

    log = "ul_Mbps,dl_Mbps,ul_owd_ms,dl_owd_ms,ul_loss,dl_loss,t_ms\n"
    log += "".join(f"4,40,20,20,0,0,{t_ms}\n" for t_ms in range(0, 5000, 100))
    (tmp_path / "log.csv").write_text(log, "utf-8")
    (tmp_path / "measured.toml").write_text(
        'path = { kind = "trace", file = "p.parquet" }\n[[flow]]\n', "utf-8"
    )
    for direction, rate in (("down", 40), ("up", 4)):
        done = skyhop("path", "import", "log.csv", "--direction", direction, "-o", "p.parquet")
        assert done.returncode == 0, done.stderr
        done = skyhop("sim", "measured.toml", *SHORT, "-o", direction)
        assert done.returncode == 0, done.stderr
        (goodput_mbps,) = goodputs_mbps(tmp_path / direction)
        assert rate / 2 < goodput_mbps < rate
        # With the key, the direction of the import does not matter.
        done = skyhop(
            "sim", "measured.toml", *SHORT, "--set", "path.dish=from", "-o", f"{direction}-turned"
        )
        assert done.returncode == 0, done.stderr
        (goodput_mbps,) = goodputs_mbps(tmp_path / f"{direction}-turned")
        assert 2 < goodput_mbps < 4


def goodputs_mbps(run: Path) -> list[float]:
    flows = json.loads((run / "summary.json").read_text("utf-8"))["flows"]
    return [flow["goodput_bps"] / 1e6 for flow in flows]


@pytest.mark.soak
@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize(
    "example", [one for one in EXAMPLES if one not in SIMULATED], ids=lambda path: path.stem
)
def test_live_examples_run(skyhop: Skyhop, example: Path) -> None:
    text = example.read_text("utf-8")
    sooner = [f"change.{i}.at={i / 2 + 0.5} s" for i in range(text.count("[[change]]"))]
    sets = [part for change in sooner for part in ("--set", change)]
    program = ["--", "true"] if "[[flow]]" not in text else []
    done = skyhop("live", example, *SHORT, *sets, *program)
    assert done.returncode == 0, done.stderr


def test_links_of_the_readme_exist() -> None:
    """Check the README only; `make docs` and `make lint` check the pages' links."""
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_the_readme_is_short() -> None:
    assert len(README.split()) <= 350


def test_schema_is_current() -> None:
    committed = json.loads((ROOT / "docs" / "scenario.schema.json").read_text("utf-8"))
    assert committed == json.loads(_core.scenario_schema()), "run make schema"


@pytest.mark.parametrize(
    "what", ["constellations", "sites", "cc", "qdiscs", "apps", "handovers", "studies"]
)
def test_lists_have_names_and_descriptions(skyhop: Skyhop, what: str) -> None:
    done = skyhop("list", what, "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert rows
    assert all(row["name"] and row["description"] and row["source"] for row in rows)


def test_help_is_complete(skyhop: Skyhop) -> None:
    done = skyhop("--help")
    assert done.returncode == 0
    for command in ("path", "live", "sim", "report", "study", "list"):
        assert command in done.stdout
        sub = skyhop(command, "--help")
        assert sub.returncode == 0
        assert "xample" in sub.stdout


@pytest.mark.integration
def test_help_loads_nothing_heavy() -> None:
    """Imports of large libraries would make the help slow."""
    code = "import sys, skyhop.cli; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"numpy", "pyarrow", "polars", "matplotlib", "jinja2"}


@pytest.mark.soak
def test_the_study_of_the_documents_runs(skyhop: Skyhop, tmp_path: Path) -> None:
    text = STUDY_FILE.read_text("utf-8")
    (study,) = re.findall(r"```toml\n(.+?)```", text, re.DOTALL)
    (code,) = re.findall(r"```python\n(.+?)```", text, re.DOTALL)
    (tmp_path / "study.toml").write_text(study, "utf-8")
    done = skyhop("study", "run", "study.toml", "-o", "runs/study", "--json")
    assert done.returncode == 0, done.stderr
    # Two congestion controls, three losses and two queues without the deep one at 1 %, three seeds.
    assert json.loads(done.stdout)["runs"] == 30
    read = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "goodput_bps" in read.stdout, read.stderr


def test_the_blocks_of_studies_in_the_documents_are_valid() -> None:
    """Check each TOML block of the page as part of a small study."""
    from skyhop.study import load_study

    text = STUDY_FILE.read_text("utf-8")
    blocks = [tomllib.loads(b) for b in re.findall(r"```text\n(\[\[.+?)```", text, re.DOTALL)]
    (drawn,) = [b for b in blocks if b.get("axis", [{}])[0].get("name") == "draw"]
    (metrics,), (panels,) = [[b for b in blocks if key in b] for key in ("metric", "panel")]
    shown = {panel.kind for panel in load_study(content(**panels)).file.panel}
    assert shown == {"table", "comparison", "bars", "box", "cdf", "lines", "transfer", "scatter",
                     "heatmap", "map", "series"}  # fmt: skip
    scenario = content()["scenario"] | {"links": {"delay": {"rate": "1 Gbit/s"}}}
    scenario["run"] = {"duration": "5 min"}
    runs = list(load_study(content(scenario=scenario, **drawn)).runs())
    assert [len(run.resolved["change"]) for run in runs[:2]] == [40, 40]
    kinds = {metric.kind for metric in load_study(content(**metrics)).file.metric}
    assert kinds == {
        "samples",
        "probe",
        "flows",
        "time_to_bytes",
        "rate_over_bytes",
        "relative",
        "dissection",
        "gap",
    }


@pytest.mark.parametrize("study", STUDIES, ids=lambda path: path.stem)
def test_studies_can_be_run(study: Path) -> None:
    """Check every scenario, claim and panel without runs, which would take hours."""
    from skyhop.study import load_study

    checked = load_study(study)
    assert checked.claims
    if checked.file.engine != "elements":
        assert sum(1 for _ in checked.runs()) == checked.run_count


def test_a_study_is_shown(skyhop: Skyhop) -> None:
    shown = skyhop("study", "show", ROOT / "studies" / "satpipe-fig13.toml", "--json")
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["claims"]


@pytest.mark.parametrize("group", [(), ("list",), ("study",), ("cc",), ("signal",)])
def test_a_command_group_without_arguments_prints_its_help(
    skyhop: Skyhop, group: tuple[str, ...]
) -> None:
    alone, asked = skyhop(*group), skyhop(*group, "--help")
    assert (alone.returncode, alone.stderr) == (0, "")
    assert alone.stdout.split() == asked.stdout.split()
    assert alone.stdout.count("\n") > 5


def test_hints_name_the_commands_own_help(skyhop: Skyhop) -> None:
    done = skyhop("path", "compute", "--x")
    assert done.returncode == 2
    assert done.stderr.endswith("(see skyhop path compute --help)\n")
