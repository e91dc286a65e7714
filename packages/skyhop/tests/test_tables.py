"""Tables on a terminal: complete columns at any width, and their content for runs."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import Skyhop, skyhop_command
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from scipy import stats

from skyhop.analysis.run_tables import run_tables
from skyhop.cli import tables
from skyhop.cli.runs import print_csv, print_runs
from skyhop.cli.tables import Cells, blocks, print_table
from skyhop.cli.terminal import print_rows
from skyhop.data.run_headers import read_run_headers
from skyhop.telemetry.fields import FIELDS, TIME
from skyhop.telemetry.store import Store
from synthetic_run import SyntheticRun

LONG = "a-run-with-a-name-as-long-as-some-people-make-them-who-name-their-parameters"
WIDTHS = (60, 80, 120)


def printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """Set the width of tables to `width` columns, and discard earlier output."""
    capsys.readouterr()
    monkeypatch.setattr(tables, "terminal_width", lambda: width)


def runs(place: Path) -> list[Path]:
    """Write a run with a long name and three flows, one with one flow, and three repeats."""
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


RULE = "\N{BOX DRAWINGS LIGHT HORIZONTAL}"


def tables_of(lines: list[str]) -> list[tuple[str, list[str]]]:
    """Return the heading and the lines of each printed table."""
    rules = [place for place, line in enumerate(lines) if set(line) == {RULE}]
    begins = [next((p + 1 for p in range(rule, -1, -1) if not lines[p]), 0) for rule in rules]
    ends = [*(begin - 1 for begin in begins[1:]), len(lines)]
    return [
        (" ".join(lines[begin:rule]), lines[rule + 1 : end])
        for begin, rule, end in zip(begins, rules, ends, strict=True)
    ]


@pytest.mark.parametrize("width", WIDTHS)
def test_a_table_of_runs_fits_and_holds_every_column(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    width: int,
) -> None:
    directories = runs(tmp_path)
    made = run_tables(read_run_headers(directories)).flows
    printed(capsys, monkeypatch, width)
    print_runs(directories)
    lines = capsys.readouterr().out.splitlines()
    assert all(cell_len(line) <= width or LONG in line for line in lines)
    shown = tables_of(lines)
    for heading, _ in shown:
        assert {"run", "cc"} <= set(heading.split()), "each table names its rows"
    heading, body = shown[0]
    first = {"goodput", "p95"} if width > 80 else {"goodput"}
    assert first <= set(heading.split()), "the most important ones are in the first"
    together = "".join(line[:48].split("  ")[0].strip() for line in body)
    assert LONG in together, "a name that takes the line is folded, and nothing of it is lost"
    assert any(line.startswith("repeated (x3)") for line in body), "others are not"
    everything = "\n".join(lines)
    for place, column in enumerate(made.columns):
        assert any(set(column.title.split()) <= set(heading.split()) for heading, _ in shown)
        if column.numeric:
            assert all(row[place] in everything for row in made.rows), "figures are never folded"


def test_the_main_columns_fit_into_80_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that names of runs are complete, and RTT p95 and MOS are in the first table."""
    names = ("bloat-cubic-fq_codel", "bloat-bbr-fq_codel")
    call = {
        "id": 1, "kind": "call", "completed": 120, "failed": 0, "mos_mean": 4.4, "mos_least": 4.03,
        "latency_p50_us": 99_000, "latency_p95_us": 99_000, "latency_p99_us": 99_000,
        "audio_late": 0.0, "audio_lost": 0.0, "video_late": 0.0, "video_lost": 0.0,
    }  # fmt: skip
    for name in names:
        SyntheticRun(("cubic",), 3.0, summary={"apps": [call]}).write(tmp_path / name)
    printed(capsys, monkeypatch, 80)
    print_runs([tmp_path / name for name in names])
    (heading, body), *_ = tables_of(capsys.readouterr().out.splitlines())
    assert {"p95", "MOS", "least"} <= set(heading.split())
    for name in names:
        assert sum(line.startswith(f"{name} ") for line in body) == 2
    assert sum("4.40   4.03" in line for line in body) == 2


def test_long_names_break_at_separators(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed(capsys, monkeypatch, 27)
    print_table([Cells("run", "", ["london-new-york/bbr-fq_codel"], numeric=False),
                 Cells("goodput", "Mbit/s", ["139"])])  # fmt: skip
    words = capsys.readouterr().out.split()
    assert words[-3:] == ["london-new-york/", "139", "bbr-fq_codel"]


@pytest.mark.parametrize(("given", "width"), [("120", 120), ("", 80), ("0", 80), ("wide", 80)])
def test_a_pipe_is_as_wide_as_columns_says(
    monkeypatch: pytest.MonkeyPatch, given: str, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", given)
    assert tables.terminal_width() == width
    monkeypatch.delenv("COLUMNS")
    assert tables.terminal_width() == tables.PIPE_WIDTH == 80


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    "what",
    [("list", "profiles"), ("list", "constellations"), ("list", "cc"), ("list", "qdiscs"),
     ("study", "list"), ("telemetry", "show", "kept")],
)  # fmt: skip
def test_lists_fit_their_width(
    skyhop: Skyhop,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    width: int,
    what: tuple[str, ...],
) -> None:
    sample = {field.name: 1.0 for field in FIELDS if field.name.endswith("_bps")}
    Store(tmp_path / "kept").append("bcn-1", [{TIME: 10**18, **sample}])
    monkeypatch.setattr(tables, "terminal_width", lambda: width)
    done = skyhop(*what)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") > 3
    assert all(cell_len(line) <= width for line in done.stdout.splitlines())
    if what[0] == "telemetry":
        assert {*sample} <= {word.strip(",") for word in done.stdout.split()}, "names are whole"


@pytest.mark.integration
def test_a_list_fits_a_terminal() -> None:
    shown = on_terminal([*skyhop_command(), "list", "profiles"], 60)
    assert shown.count("\n") > 3
    assert all(cell_len(line) <= 60 for line in shown.splitlines())


def on_terminal(command: list[str], width: int) -> str:
    """Return the output of a command on a terminal of a given width."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(width), "NO_COLOR": "1", "TERM": "dumb"}
    with subprocess.Popen(command, stdout=theirs, env=environment) as process:
        os.close(theirs)
        said = b""
        while True:
            try:
                said += os.read(ours, 1 << 16)
            except OSError:  # EIO: the other end is closed
                break
    os.close(ours)
    assert process.returncode == 0
    return said.decode().replace("\r\n", "\n")


def test_repeats_are_shown_as_mean_and_interval_or_separately(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    directories = [runs(tmp_path)[2]]
    values = np.array([40, 44, 45])
    low, high = stats.t.interval(0.95, 2, values.mean(), stats.sem(values))
    printed(capsys, monkeypatch, 120)
    print_runs(directories)
    together = capsys.readouterr().out
    assert f"{values.mean():.1f} ± {(high - low) / 2:.2f}" in together
    assert "repeated (x3)" in together
    print_runs(directories, each=True)
    each = capsys.readouterr().out
    assert [f"{value}.0" in each for value in (40, 44, 45)] == [True] * 3


def test_values_of_the_link_are_shown_once(
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


def many_flows(place: Path, start_s: float = 0.0) -> Path:
    """Write a run with ten cubic and two bbr flows forward, and two bbr flows back.

    The cubic flows begin at `start_s`.
    """
    flow = [{"cc": "cubic", "count": 10}, {"cc": "bbr", "count": 2},
            {"cc": "bbr", "count": 2, "from": "to"}]  # fmt: skip
    made = SyntheticRun(("cubic",) * 10 + ("bbr",) * 4, 12.0, engine="sim")
    goodputs = [4e6] * 10 + [20e6, 40e6] + [5e6, 5e6]
    pairs = zip(made.summary_json()["flows"], goodputs, strict=True)
    flows = [{**one, "goodput_bps": int(goodput)} for one, goodput in pairs]
    flows[:10] = [{**one, "start_s": start_s} for one in flows[:10]]
    directory = replace(made, summary={"flows": flows}).write(place)
    manifest = json.loads((directory / "run.json").read_text())
    manifest["scenario"]["flow"] = flow
    (directory / "run.json").write_text(json.dumps(manifest))
    return directory


def test_many_flows_have_sums_per_sender(tmp_path: Path) -> None:
    found = run_tables(read_run_headers([many_flows(tmp_path / "many")]))
    rows = [dict(zip(("run", "sender", "flows", "sum", "share", "mean"), row, strict=True))
            for row in found.senders.rows]  # fmt: skip
    cubic, forward, back = rows
    assert (cubic["sender"], cubic["flows"], cubic["sum"]) == (
        "cubic (from San Diego)",
        "10",
        "40.0",
    )
    # Shares are of the goodput in the same direction.
    assert (cubic["share"], forward["share"], back["share"]) == ("40.0", "60.0", "100")
    assert (cubic["mean"], forward["mean"], back["mean"]) == ("4.00", "30.0", "5.00")
    few = SyntheticRun(("cubic", "bbr"), 12.0).write(tmp_path / "few")
    assert run_tables(read_run_headers([few])).senders.rows == []


def test_sums_per_sender_are_over_the_run(tmp_path: Path) -> None:
    """Flows that begin late carry less over the run, and no more than the link."""
    found = run_tables(read_run_headers([many_flows(tmp_path / "late", start_s=6.0)]))
    cubic, forward, _ = found.senders.rows
    # Half of the run of 12 s at 10 x 4 Mbit/s.
    assert tuple(cubic[3:]) == ("20.0", "25.0", "4.00")
    assert tuple(forward[3:]) == ("60.0", "75.0", "30.0")


def test_one_handover_is_no_plural(tmp_path: Path) -> None:
    counts = {"end": 1, "intermediate": 0, "reroute": 0}
    made = replace(SyntheticRun(("cubic",), 12.0), summary={"handovers": counts})
    (line,) = run_tables(read_run_headers([made.write(tmp_path / "one")])).links
    assert ", 1 handover," in f"{line},"


def test_jains_index_is_of_flows_that_compete(tmp_path: Path) -> None:
    (line,) = run_tables(read_run_headers([many_flows(tmp_path / "many")])).links
    index = 100**2 / (12 * (10 * 4**2 + 20**2 + 40**2))
    assert f"Jain's index of the bulk flows from -> to {index:.3f}" in line
    assert "Jain's index of the bulk flows to -> from 1.000" in line


def test_csv_has_every_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directories = runs(tmp_path)
    capsys.readouterr()
    print_runs(directories, as_csv=True)
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["run"] for row in rows] == [LONG] * 3 + ["b", "seed-1", "seed-2", "seed-3"]
    assert rows[4]["goodput_bps"] == "40000000"
    assert rows[4]["probe_rtt_p95_us"] == ""


def test_csv_has_the_probe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = SyntheticRun(("cubic", "bbr"), 12.0, probe=True).write(tmp_path / "probed")
    (probe,) = json.loads((directory / "summary.json").read_text())["probes"]
    print_runs([directory], as_csv=True)
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    for row in rows:
        assert int(row["probe_rtt_p95_us"]) == probe["rtt_p95_us"]
        assert float(row["probe_loss"]) == probe["lost"] / probe["sent"]


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
def test_tables_are_readable_and_fit(columns: list[Cells], width: int) -> None:
    found = list(blocks(columns, range(len(columns)), (0,), width))
    assert set().union(*found) == set(range(len(columns))), "nothing is left out"
    for shown in found:
        assert 0 in shown, "the first column names the rows of each"
        for place, wide in shown.items():
            assert columns[place].least(width) <= wide <= max(columns[place].full, wide)
        if len(shown) > 2:
            assert sum(shown.values()) + 2 * (len(shown) - 1) <= width


def test_markup_in_names_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([Cells("run", "", ["[red]a[/red] :smile:"], numeric=False)])
    assert "[red]a[/red] :smile:" in capsys.readouterr().out


def test_thousands_are_separated(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"sent_packets": 1234567, "is": True, "none": None}], as_json=False)
    out = capsys.readouterr().out
    assert "1,234,567" in out
    assert "sent" in out
    assert "True" in out


def test_names_from_files_send_no_control_characters_to_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = ["Zürich", "\x1b[2Jcleared", "abc\u202egnp.exe", "two\nlines", "a\u200cb"]
    print_table([Cells("name\u2066", "", names, numeric=False)], title="of\x07")
    said = capsys.readouterr().out
    assert not set(said) & set("\x1b\x07\u202e\u2066")
    for shown in ["Zürich", r"\x1b[2Jcleared", r"abc\u202egnp.exe", r"two\nlines", "a\u200cb"]:
        assert shown in said
