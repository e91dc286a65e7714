"""Tables on a terminal: whole columns at any width, and what they say of runs."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import Skyhop, skyhop_command
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from scipy import stats
from synthetic_run import SyntheticRun

from skyhop.analysis.run_tables import run_tables
from skyhop.cli import tables
from skyhop.cli.runs import print_csv, print_runs
from skyhop.cli.tables import Cells, fitting, print_table
from skyhop.cli.terminal import print_rows
from skyhop.data.heads import read_heads

LONG = "a-run-with-a-name-as-long-as-some-people-make-them-who-name-their-parameters"
WIDTHS = (60, 80, 120)


def printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int | None
) -> None:
    """Let tables be as wide as this."""
    capsys.readouterr()
    monkeypatch.setattr(tables, "terminal_width", lambda: width)


def runs(place: Path) -> list[Path]:
    """Write a run with a long name and three flows, one alone, and three repeats."""
    SyntheticRun(("cubic",) * 3, 12.0).write(place / LONG)
    SyntheticRun(("bbr",), 12.0, engine="sim").write(place / "b")
    (place / "repeated").mkdir()
    for seed, goodput_bps in ((1, 40_000_000), (2, 44_000_000), (3, 45_000_000)):
        made = SyntheticRun(("satcp",), 12.0, engine="sim")
        flow = {**made.summary_json()["flows"][0], "goodput_bps": goodput_bps}
        SyntheticRun(("satcp",), 12.0, engine="sim", summary={"flows": [flow]}).write(
            place / "repeated" / f"seed-{seed}"
        )
    return [place / LONG, place / "b", place / "repeated"]


@pytest.mark.parametrize("width", WIDTHS)
def test_a_table_of_runs_fits_and_says_what_it_leaves_out(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    width: int,
) -> None:
    directories = runs(tmp_path)
    made = run_tables(read_heads(directories)).flows
    printed(capsys, monkeypatch, width)
    print_runs(directories)
    lines = capsys.readouterr().out.splitlines()
    rule = next(
        place
        for place, line in enumerate(lines)
        if set(line) == {"\N{BOX DRAWINGS LIGHT HORIZONTAL}"}
    )
    end = next(
        place for place, line in enumerate(lines) if line.startswith(("left out", LONG + ":"))
    )
    assert all(cell_len(line) <= width for line in lines[:end])
    (left_out,) = [line for line in lines if line.startswith("left out")] or [""]
    heading = " ".join(lines[:rule])
    for place, column in enumerate(made.columns):
        shown = all(word in heading for word in column.title.split())
        assert shown or column.title in left_out
        if shown and column.numeric and column.title not in left_out:
            body = "\n".join(lines[rule + 1 : end])
            assert all(row[place] in body for row in made.rows), "figures are never folded"
    assert {"run", "cc", "goodput"} <= set(heading.split()), "the most important ones are there"
    together = "".join(line[:40].split("  ")[0].strip() for line in lines[rule + 1 : end])
    assert LONG in together, "a long name is folded, and nothing of it is lost"


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    "what", [("list", "profiles"), ("list", "constellations"), ("study", "list")]
)
def test_lists_fit_their_width(
    skyhop: Skyhop, monkeypatch: pytest.MonkeyPatch, width: int, what: tuple[str, ...]
) -> None:
    monkeypatch.setattr(tables, "terminal_width", lambda: width)
    done = skyhop(*what)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") > 3
    assert all(cell_len(line) <= width for line in done.stdout.splitlines())


@pytest.mark.integration
def test_a_list_fits_a_terminal() -> None:
    shown = on_terminal([*skyhop_command(), "list", "profiles"], 60)
    assert shown.count("\n") > 3
    assert all(cell_len(line) <= 60 for line in shown.splitlines())


def on_terminal(command: list[str], width: int) -> str:
    """Return what a command prints on a terminal so wide."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(width), "NO_COLOR": "1", "TERM": "dumb"}
    with subprocess.Popen(command, stdout=theirs, env=environment) as process:
        os.close(theirs)
        said = b""
        while True:
            try:
                said += os.read(ours, 1 << 16)
            except OSError:  # the other end is closed
                break
    os.close(ours)
    assert process.returncode == 0
    return said.decode().replace("\r\n", "\n")


def test_a_pipe_gets_everything_on_one_line_per_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    directories = runs(tmp_path)
    printed(capsys, monkeypatch, None)
    print_runs(directories)
    out = capsys.readouterr().out
    assert "left out" not in out
    assert sum(line.startswith(LONG) for line in out.splitlines()) == 3 + 1


def test_repeats_are_a_mean_and_its_interval_or_each_by_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    directories = [runs(tmp_path)[2]]
    values = np.array([40, 44, 45])
    low, high = stats.t.interval(0.95, 2, values.mean(), stats.sem(values))
    printed(capsys, monkeypatch, None)
    print_runs(directories)
    together = capsys.readouterr().out
    assert f"{values.mean():.1f} ± {(high - low) / 2:.2f}" in together
    assert "repeated (x3)" in together
    print_runs(directories, each=True)
    each = capsys.readouterr().out
    assert [f"{value}.0" in each for value in (40, 44, 45)] == [True] * 3


def test_what_belongs_to_the_link_stands_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = runs(tmp_path)[0]
    printed(capsys, monkeypatch, 120)
    print_runs([directory])
    out = capsys.readouterr().out
    summary = json.loads((directory / "summary.json").read_text())
    used = f"{100 * summary['link']['utilisation']:,.1f} % of the link used"
    assert out.count(used) == 1
    goodputs = np.array([flow["goodput_bps"] for flow in summary["flows"]], float)
    index = goodputs.sum() ** 2 / (len(goodputs) * (goodputs**2).sum())
    assert f"Jain's index {index:.3f}" in out


def test_csv_has_every_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directories = runs(tmp_path)
    capsys.readouterr()
    print_runs(directories, as_csv=True)
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["run"] for row in rows] == [LONG] * 3 + ["b", "seed-1", "seed-2", "seed-3"]
    assert rows[4]["goodput_bps"] == "40000000"


def test_csv_of_nothing_is_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    print_csv([])
    assert capsys.readouterr().out.strip() == ""


TEXTS = st.lists(
    st.text(st.characters(codec="ascii", categories=("L", "N", "Zs")), max_size=40),
    min_size=1,
    max_size=1,
)
COLUMNS = st.lists(
    st.builds(
        Cells,
        st.sampled_from(["goodput", "base RTT mean", "x"]),
        st.just("ms"),
        TEXTS,
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


@given(COLUMNS, st.integers(20, 150))
def test_what_is_shown_is_readable_and_fits(columns: list[Cells], width: int) -> None:
    shown = fitting(columns, range(len(columns)), width)
    assert shown
    assert all(columns[place].least <= wide <= columns[place].full for place, wide in shown.items())
    if len(shown) > 1:
        assert sum(shown.values()) + 2 * (len(shown) - 1) <= width
    assert fitting(columns, range(len(columns)), None).keys() == set(range(len(columns)))


def test_markup_in_names_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([Cells("run", "", ["[red]a[/red] :smile:"], numeric=False)])
    assert "[red]a[/red] :smile:" in capsys.readouterr().out


def test_thousands_are_apart(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"sent_packets": 1234567, "is": True, "none": None}], as_json=False)
    out = capsys.readouterr().out
    assert "1,234,567" in out
    assert "sent" in out
    assert "True" in out


def test_names_from_files_do_not_act_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["Zürich", "\x1b[2Jcleared", "abc\u202egnp.exe", "two\nlines", "a\u200cb"]
    print_table([Cells("name\u2066", "", names, numeric=False)], title="of\x07")
    said = capsys.readouterr().out
    assert not set(said) & set("\x1b\x07\u202e\u2066")
    for shown in ["Zürich", r"\x1b[2Jcleared", r"abc\u202egnp.exe", r"two\nlines", "a\u200cb"]:
        assert shown in said
