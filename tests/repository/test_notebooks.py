"""Display of runs and paths in notebooks, and the notebooks of examples/, run by a kernel."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

import skyhop as sh
from needs import missing
from skyhop.data import progress
from skyhop.errors import InputError, RunError

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
FIXED = {"path": {"kind": "fixed", "rtt": "20 ms"}, "link": {"rate": "10 Mbit/s"}}
SCENARIO: dict[str, Any] = {**FIXED, "flow": [{"cc": "cubic"}], "run": {"duration": "2 s"}}


@pytest.mark.soak
@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_the_notebooks_of_the_examples_run(file: Path, tmp_path: Path) -> None:
    if (
        importlib.util.find_spec("nbclient") is None
        or importlib.util.find_spec("ipykernel") is None
    ):
        missing("notebooks", "nbclient or ipykernel is not installed")
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(file, as_version=4)
    codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in codes), "strip its outputs"
    options = {"resources": {"metadata": {"path": str(tmp_path)}}, "kernel_name": "python3"}
    NotebookClient(notebook, timeout=600, **options).execute()
    shown = [output for cell in codes for output in cell.outputs]
    assert [o for o in shown if o.output_type == "error"] == []
    assert [o.text for o in shown if o.get("name") == "stderr"] == []
    kinds = [set(o.data) for o in shown if o.output_type in ("execute_result", "display_data")]
    assert sum("image/png" in kind for kind in kinds) == 3, "path, run and the last figure"
    assert sum("text/html" in kind for kind in kinds) >= 5, "path, run and frames"


@pytest.mark.soak
def test_the_python_code_of_the_page_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "python.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.+?)```", page, re.DOTALL)
    (tmp_path / "page.py").write_text(code, "utf-8")
    command = [sys.executable, "page.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("cubic") == done.stdout.count("bbr") == 2
    assert {"path.png", "run.png"} <= {file.name for file in tmp_path.iterdir()}


def test_a_run_shows_its_flows_and_warnings(tmp_path: Path) -> None:
    scenario = {**SCENARIO, "flow": [{"cc": "satcp"}, {"cc": "bbr"}]}
    run = sh.sim(scenario, tmp_path / "<b>run")
    shown = run._repr_html_()
    for text in (
        "&lt;b&gt;run: 2.00 s, engine sim, seed 1",
        "<td>satcp (told of nothing)</td>",
        "Jain",
        "goodput",
    ):
        assert text in shown
    assert "<strong>warning:</strong> satcp: gets no handover announcements" in shown
    assert run.plot()._repr_png_().startswith(b"\x89PNG")
    run.plot(tmp_path / "run.svg")
    assert (tmp_path / "run.svg").read_text("utf-8").startswith("<?xml")
    assert run.path is not None
    assert run.path.header["source"] == "fixed"


def test_a_path_shows_its_ends_and_statistics(tmp_path: Path) -> None:
    path = sh.path("San Diego", "New York", duration="30 s")
    shown = path._repr_html_()
    for text in (
        "New York City, US: 30.0 s, from 2019-12-01T",
        "starlink-shell1, bent-pipe",
        "p95",
    ):
        assert text in shown
    path.plot(tmp_path / "path.png", until_s=10)
    assert (tmp_path / "path.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InputError, match="figures are PNG"):
        path.plot(tmp_path / "path.txt")


def test_other_objects_show_a_summary(tmp_path: Path) -> None:
    assert "1,584 satellites" in sh.constellation("starlink-shell1")._repr_html_()
    pairs = sh.all_pairs(["London", "Rome", "Oslo"], tmp_path / "p.parquet", duration="2 s")
    assert "3 sites, 2 steps" in pairs._repr_html_()


@pytest.mark.integration
def test_a_study_shows_its_claims(tmp_path: Path) -> None:
    from skyhop.study import load_study, run_study

    claim = {"text": "It sends", "check": "goodput() > 1"}
    study = {"title": "A & B", "question": "?", "scenario": SCENARIO, "claim": [claim]}
    shown = run_study(load_study(study), tmp_path / "study", jobs=1)._repr_html_()
    for text in ("A &amp; B: 1 of 1 runs", "<td>It sends</td><td>holds</td>"):
        assert text in shown


def test_names_are_completed_before_they_are_loaded() -> None:
    for package in (sh, sh.figures, sh.report, sh.study):
        assert set(package.__all__) == set(dir(package))
    assert {"sim", "sweep", "study", "InterruptedRunError"} <= set(dir(sh))


@pytest.mark.integration
def test_repeats_give_a_frame_with_a_row_per_seed_and_flow() -> None:
    scenario = {**SCENARIO, "flow": [{"cc": "cubic"}, {"cc": "bbr"}]}
    frame = sh.sim(scenario, repeat=2, seed=7, sets=["link.loss=1 %"], jobs=2)
    rows = frame.select("seed", "flow", "cc").rows()
    assert rows == [(7, 0, "cubic"), (7, 1, "bbr"), (8, 0, "cubic"), (8, 1, "bbr")]
    alone = sh.sim(scenario, seed=8, sets=["link.loss=1 %"]).summary
    for flow, row in zip(alone["flows"], frame.filter(seed=8).rows(named=True), strict=True):
        assert row["goodput_mbps"] == pytest.approx(flow["goodput_bps"] / 1e6)
        assert row["srtt_ms"] == pytest.approx(flow["srtt_mean_us"] / 1e3)
        assert row["utilisation_percent"] == pytest.approx(100 * alone["link"]["utilisation"])
        assert row["cwnd_mean_packets"] == pytest.approx(flow["cwnd_mean_packets"])


@pytest.mark.integration
def test_a_sweep_crosses_its_axes_and_keeps_runs_with_an_output(tmp_path: Path) -> None:
    axes = {
        "flow.0.cc": ["cubic", "satcp"],
        "queue": {"short": {"link.queue": "5 packets"}, "long": {"link.queue": "90 packets"}},
    }
    with pytest.warns(UserWarning, match=r"2 of 4 runs \(flow\.0\.cc = satcp\): satcp: gets no"):
        frame = sh.sweep(SCENARIO, axes, output=tmp_path / "out", jobs=2)
    at = [("cubic", "short"), ("cubic", "long"), ("satcp", "short"), ("satcp", "long")]
    assert frame.select("flow.0.cc", "queue").rows() == at
    assert frame.get_column("cc").to_list() == ["cubic", "cubic", "satcp", "satcp"]
    drops = dict(zip(at, frame.get_column("drops_queue").to_list(), strict=True))
    assert drops["cubic", "short"] > drops["cubic", "long"]
    run = sh.read_run(frame.filter(cc="satcp", queue="long").get_column("directory").item())
    assert run.info["scenario"]["link"]["queue"] == "90 packets"
    (tmp_path / "s.toml").write_text('[path]\nkind = "trace"\nfile = "p.parquet"\n[[flow]]\n')
    with pytest.raises(RunError, match=r"all 2 runs failed: .*p\.parquet"):
        sh.sweep(tmp_path / "s.toml", {"flow.0.cc": ["cubic", "bbr"]}, jobs=1)


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        ({"flow.0.cc": "cubic"}, "flow.0.cc: expected a list of values"),
        ({"flow.0.cc": []}, "flow.0.cc: no values"),
        ({"queue": {"deep": "2 BDP"}}, "queue: expected a list of values, or labels"),
        ({"flow.0.ccc": ["bbr"]}, "flow.0.ccc: unknown field"),
        ({"seed": {"a": {"link.loss": "1 %"}}}, "`seed` is a column of the results"),
        ({"link.loss": ["1 %"], "l": {"a": {"link.loss": "1 %"}}}, "is set by the axis"),
    ],
)
def test_wrong_axes_are_refused(axes: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected.replace(".", r"\.").replace("(", r"\(")):
        sh.sweep(SCENARIO, axes)
    with pytest.raises(InputError, match="repeat=0"):
        sh.sweep(SCENARIO, repeat=0)


@dataclass
class _Html:
    """Stub of IPython's HTML."""

    data: str


class _Display:
    """Stub of a notebook's display that records the shown objects."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shown: list[str] = []
        ipython, display = types.ModuleType("IPython"), types.ModuleType("IPython.display")
        ipython.get_ipython = lambda: types.SimpleNamespace(kernel=self)  # type: ignore[attr-defined]
        display.display = self.display  # type: ignore[attr-defined]
        display.HTML = _Html  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        monkeypatch.setitem(sys.modules, "IPython.display", display)

    def display(self, content: _Html, *, display_id: bool) -> _Display:
        assert display_id
        self.update(content)
        return self

    def update(self, content: _Html) -> None:
        self.shown.append(content.data)


def test_a_bar_is_shown_in_notebooks_and_removed_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    display = _Display(monkeypatch)
    monkeypatch.setattr(progress, "_REFRESH_S", 0.0)
    with progress.progress_bar("a <b>") as quick:
        quick(1, 2)
    assert display.shown == [], "what is done soon shows nothing"
    monkeypatch.setattr(progress, "_QUIET_S", 0.0)
    with progress.progress_bar("a <b>") as bar:
        bar(1, 4)
        bar(2, 4)
    assert "a &lt;b&gt;" in display.shown[0]
    for value, text in zip(("0.000", "0.250", "0.500"), display.shown, strict=False):
        assert f'value="{value}"' in text
    assert display.shown[-1] == ""


def test_no_bar_is_shown_outside_notebooks_and_terminals(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_QUIET_S", 0.0)
    run = sh.sim(SCENARIO)
    assert run.flows.shape[0] > 0
    assert capfd.readouterr() == ("", "")
    assert json.loads((run.directory / "run.json").read_text("utf-8"))["engine"] == "sim"
