"""Reports and figures from synthetic run directories."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure

from blank_figures import leave_blank
from skyhop import _core
from skyhop.analysis.binning import binned, binned_sum, ecdf, round_step
from skyhop.analysis.comparison import compare, shared_events
from skyhop.analysis.flow_groups import by_duration, flow_groups
from skyhop.analysis.flows import flow_styles
from skyhop.analysis.link_rate import link_rate_steps
from skyhop.analysis.path_timeline import path_timeline
from skyhop.analysis.run_page import Lead, PageFigure, runs_page
from skyhop.analysis.run_tables import run_tables
from skyhop.analysis.run_timeline import run_timeline
from skyhop.analysis.summary import rows_of
from skyhop.analysis.tables import short_number, three_digits
from skyhop.data import paths
from skyhop.data.arrays import FloatArray
from skyhop.data.reading import path_record, read_runs, run_record
from skyhop.data.records import AppSeries
from skyhop.data.run_headers import read_run_headers
from skyhop.data.runs import read_run
from skyhop.data.toml import toml_text
from skyhop.errors import InputError, RunError
from skyhop.figures import comparison_figure, path_figure, png_bytes, run_figure, save
from skyhop.figures.timeline import SHAPES_AT_MOST, draw_timeline
from skyhop.report import figures_directory, summary_rows, write_report
from synthetic_run import APP_KINDS, FLOW_SCHEMA, SyntheticRun, write_path

SHORT = SyntheticRun(duration_s=12.0)


class Page(HTMLParser):
    """Parsed HTML of a report: sources of its images, cells of its tables, its text."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.sources: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.cells: list[tuple[str, str]] = []
        self._key: str | None = None
        self.text = ""
        self.html = file.read_text(encoding="utf-8")
        self.feed(self.html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the files that a tag loads or links to."""
        given = dict(attrs)
        self.tags.add(tag)
        self.sources += [value for key in ("src", "srcset", "data") if (value := given.get(key))]
        self.links += [value for value in [given.get("href")] if value]
        self._key = given.get("data-key") if tag == "td" else self._key

    def handle_endtag(self, tag: str) -> None:
        """Forget the column when a table cell ends."""
        if tag == "td":
            self._key = None

    def handle_data(self, data: str) -> None:
        """Collect text, and the cell that contains it."""
        self.text += data
        if self._key is not None:
            self.cells.append((self._key, data))

    def column(self, key: str) -> list[str]:
        """Return the texts of the cells of a column."""
        return [text for name, text in self.cells if name == key]


@pytest.fixture(scope="module", params=["blank", pytest.param("drawn", marks=pytest.mark.soak)])
def demo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a report over a CUBIC and a BBR run, as the demo does; return its file."""
    place = tmp_path_factory.mktemp("demo")
    warning = "lateness p99 is 2.3 ms, above 2 ms <not exact>"
    SyntheticRun(("cubic",), warnings=(warning,)).write(place / "cubic")
    SyntheticRun(("bbr",), seed=2, probe=True).write(place / "bbr")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "blank":
            leave_blank(patch)
        return write_report([place / "cubic", place / "bbr"], place / "report.html")


def test_the_tables_hold_the_summarys_numbers(demo: Path) -> None:
    page = Page(demo)
    summaries = [
        json.loads((demo.parent / r / "summary.json").read_text()) for r in ("cubic", "bbr")
    ]
    flows = [summary["flows"][0] for summary in summaries]
    assert page.column("cc") == ["cubic", "bbr"]
    assert page.column("goodput_bps") == [three_digits(f["goodput_bps"] / 1e6) for f in flows]
    assert page.column("srtt_mean_us") == [f"{f['srtt_mean_us'] / 1e3:.1f}" for f in flows]
    assert page.column("rtt_p95_us") == [f"{f['rtt_p95_us'] / 1e3:.1f}" for f in flows]
    assert page.column("base_rtt_mean_us") == ["40.9", "40.9"]
    assert page.column("retransmits") == [f"{f['retransmits']:,}" for f in flows]
    assert page.column("sent_packets") == ["689,431", "689,431"]
    assert page.column("utilisation") == ["91.8", "91.8"]
    for reason in ("queue", "loss", "outage", "dismantled", "device"):
        drops = [f"{summary['link']['drops'][reason]:,}" for summary in summaries]
        assert page.column(f"drops_{reason}") == drops
    assert page.column("handovers_end") == [str(s["handovers"]["end"]) for s in summaries]
    assert page.column("lateness_p99_us") == ["144", "144"]
    assert page.column("rtt_excess_p99_us") == ["912", "912"]


def test_the_page_loads_no_other_file(demo: Path) -> None:
    page = Page(demo)
    assert len(page.sources) == 8  # comparison, path, two runs: each wide, and for phones
    assert all(source.startswith("data:image/webp;base64,") for source in page.sources)
    files = {unquote(link) for link in page.links if not link.startswith("#")}
    assert files == {str(f.relative_to(demo.parent)) for f in figures_directory(demo).iterdir()}
    assert not page.tags & {"script", "link", "iframe", "object", "embed"}
    assert not re.search(r"https?://|@import|url\(", page.html)


def test_the_page_names_its_runs_and_warnings(demo: Path) -> None:
    page = Page(demo)
    for text in (
        "a full link has a goodput of 95.6 % of its rate",
        "San Diego \N{RIGHTWARDS ARROW} New York", "starlink-shell1", "bent-pipe",
        "lateness p99 is 2.3 ms, above 2 ms <not exact>", "Linux 6.1.0-18-amd64", "0.1.0",
        "skyhop live scenario.toml -o bbr", "comparison.png",
    ):  # fmt: skip
        assert text in page.text
    # A reader sees the warning before the first number.
    assert page.text.index("lateness p99 is 2.3 ms") < page.text.index("Mbit/s goodput")
    probes = page.text[page.text.index("Probes") :]
    assert "600" in probes[:200]


def test_a_warning_of_several_runs_stands_once(tmp_path: Path) -> None:
    texts = {"a": ("late", "small"), "b": ("late",), "c": ("late", "small")}
    places = [
        replace(SHORT, warnings=given).write(tmp_path / name) for name, given in texts.items()
    ]
    assert runs_page(read_runs(places)).warnings == [("", "late"), ("a, c", "small")]


def test_a_page_with_a_question_begins_with_its_answer_and_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_blank(monkeypatch)
    warning = "lateness p99 is 2.3 ms, above 2 ms"
    run = replace(SHORT, warnings=(warning,)).write(tmp_path / "cubic")
    (record,) = read_runs([run])
    figure = PageFigure("lead", "What the figure shows.", lambda: run_timeline(record))
    lead = Lead("Which one is faster?", ("The first is.", "It is so by far."), figure)
    file = write_report([run], tmp_path / "report.html", lead=lead)
    page = Page(file)
    terms = runs_page([record]).terms
    assert terms
    order = [
        "Which one is faster?", "The first is. It is so by far.", "What the figure shows.", warning,
        terms, "Mbit/s goodput",
    ]  # fmt: skip
    places = [page.text.index(text) for text in order]
    assert places == sorted(places)
    assert page.html.index("data:image") < page.html.index('<p class="caption">What the figure')
    assert (figures_directory(file) / "lead.png").exists()
    # A later report without a question removes the figure.
    write_report([run], file)
    assert "Which one is faster?" not in Page(file).text
    assert not (figures_directory(file) / "lead.png").exists()


def test_a_page_explains_only_the_handovers_of_its_runs(tmp_path: Path) -> None:
    (record,) = read_runs([SHORT.write(tmp_path / "run")])
    counts = {"end": 1, "intermediate": 0, "reroute": 2}
    page = runs_page([replace(record, summary={**record.summary, "handovers": counts})])
    assert page.terms.startswith("end: one end of the path changes its satellite; reroute: ")
    assert "intermediate" not in page.terms
    none = dict.fromkeys(counts, 0)
    assert not runs_page([replace(record, summary={**record.summary, "handovers": none})]).terms


def test_the_figures_are_in_the_pages_directory(demo: Path) -> None:
    folder = figures_directory(demo)
    names = sorted(file.name for file in folder.iterdir())
    assert names == ["comparison.png", "path.png", "run-1-cubic.png", "run-2-bbr.png"]
    for file in folder.iterdir():
        assert file.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_the_page_holds_the_scenario_as_toml_that_reads_back(tmp_path: Path) -> None:
    run = read_runs([SHORT.write(tmp_path / "run")])[0]
    read_back = tomllib.loads(toml_text(run.scenario))
    assert read_back["path"] == run.scenario["path"]
    assert read_back["flow"] == [
        {"kind": "tcp", "cc": "cubic", "from": "from", "satcp": {"hold": "1.3 s"}}
    ]
    assert "change" not in read_back


def test_toml_quotes_what_needs_quoting() -> None:
    scenario = {
        "text": 'a "quoted" \\ line\nbreak \x7f é',
        "odd key.": 1.5,
        "list": [1, "two", {"three": None, "four": True}],
        "big": 10**12,
        "tiny": 1e-9,
    }
    expected = {**scenario, "list": [1, "two", {"four": True}]}
    assert tomllib.loads(toml_text(scenario)) == expected


def test_a_strip_has_one_marker_per_event(tmp_path: Path) -> None:
    for seconds, every in ((60.0, 3.3), (1800.0, 3.0)):
        made = SyntheticRun(duration_s=seconds, event_every_s=every, sample_s=seconds / 600)
        run = read_runs([made.write(tmp_path / f"{seconds}")])[0]
        expected = made.path_events()
        for figure in (
            run_figure(run),
            path_figure(path_of(made.path_table().to_pylist(), seconds)),
        ):
            for kind in ("end", "intermediate", "reroute"):
                times = [event["t_ns"] / 1e9 for event in expected if event["kind"] == kind]
                assert markers(figure, kind) == pytest.approx(times)
    assert len(expected) / 4 > SHAPES_AT_MOST  # the dense way of drawing was among them


def test_a_run_that_stopped_early_shows_only_its_own_time(tmp_path: Path) -> None:
    made = SyntheticRun(summary={"virtual_s": 20.0})
    figure = run_figure(made.write(tmp_path / "run"))
    reached = [event for event in made.path_events() if event["t_ns"] < 20e9]
    drawn = [t for kind in ("end", "intermediate", "reroute") for t in markers(figure, kind)]
    assert len(drawn) == len(reached)


def test_a_lost_path_is_down_until_it_is_restored() -> None:
    found = path_with_events([("end", 5, 2), ("end", 6, 3), ("lost", 20, 0), ("restored", 30, 1),
                             ("lost", 50, 0)])  # fmt: skip
    path = path_record(found)
    assert path.events.down_spans(60.0) == [(5.0, 9.0), (20.0, 31.0), (50.0, 60.0)]
    assert path.events.down_spans(25.0) == [(5.0, 9.0), (20.0, 25.0)]
    figure = path_figure(path)
    assert markers(figure, "lost") == [20.0, 50.0]
    assert markers(figure, "restored") == [30.0]


def test_every_kind_has_its_own_colour_and_shape() -> None:
    kinds = ["end", "intermediate", "reroute", "lost", "restored"]
    path = path_with_events([(kind, 5 + place, 0) for place, kind in enumerate(kinds)])
    figure = path_figure(path)
    collections = [found for kind in kinds for found in scatters(figure, kind)]
    assert len({tuple(np.asarray(c.get_facecolor())[0]) for c in collections}) == len(kinds)
    assert len({np.asarray(c.get_paths()[0].vertices).tobytes() for c in collections}) == len(kinds)


def test_a_path_jumps_where_its_nodes_change_and_is_linear_elsewhere() -> None:
    steps: list[tuple[list[int], int | None]] = [
        ([-1, 5, -2], 10_000_000), ([-1, 5, -2], 20_000_000), ([-1, 6, -2], 5_000_000), ([], None)
    ]  # fmt: skip
    rows = [
        {"t_ns": second * 10**9, "nodes": nodes,
         "hop_delay_ns": [1, delay_ns - 1] if delay_ns else [],
         "delay_ns": delay_ns, "delay_back_ns": delay_ns}
        for second, (nodes, delay_ns) in enumerate(steps)
    ]  # fmt: skip
    path = path_record(path_of(rows, 4.0))
    t_s, delay_ms = path.curve(path.delay_ms)
    np.testing.assert_array_equal(t_s, [0, 1, 2, 2, 3, 3, 4])
    np.testing.assert_array_equal(delay_ms, [10, 20, 20, 5, 5, np.nan, np.nan])
    np.testing.assert_array_equal(path.hops, [2, 2, 2, np.nan])


def test_a_figure_of_a_path_goes_to_a_png_file(tmp_path: Path) -> None:
    file = write_path(tmp_path / "x.parquet", SHORT.path_table())
    path_figure(file, tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InputError, match=r"x\.jpg.*\.png"):
        path_figure(file, tmp_path / "x.jpg")


def test_a_measured_path_without_nodes_shows_its_rate() -> None:
    rows = [
        {"t_ns": i * 10**9, "nodes": [], "hop_delay_ns": [], "delay_ns": 20_000_000,
         "delay_back_ns": 22_000_000, "rate_bps": 10_000_000 * (i + 1)}
        for i in range(5)
    ]  # fmt: skip
    figure = path_figure(path_of(rows, 5.0))
    labels = [ax.get_ylabel() for ax in figure.axes]
    assert labels[1:] == ["one-way delay\n(ms)", "rate\n(Mbit/s)"]


@pytest.mark.parametrize(
    "made",
    [
        SyntheticRun(ccs=(), probe=False, duration_s=5.0),
        SyntheticRun(ccs=(), probe=True, duration_s=5.0),
        SyntheticRun(connected=False, duration_s=5.0),
        SyntheticRun(duration_s=0.05, step_s=0.05),
        SyntheticRun(duration_s=0.1, step_s=0.1),
        SyntheticRun(duration_s=5.0, engine="sim", summary={"warnings": ["interrupted at 5.0 s"]}),
        SyntheticRun(ccs=("cubic",) * 12, duration_s=5.0),
        SyntheticRun(duration_s=5.0, summary={"virtual_s": 0.0}),
    ],
    ids=["nothing", "probe", "no samples", "no sample yet", "one sample", "sim", "12 flows", "0 s"],
)
@pytest.mark.usefixtures("pictures")
def test_runs_at_the_edge_make_a_report(tmp_path: Path, made: SyntheticRun) -> None:
    made.write(tmp_path / "run")
    page = Page(write_report([tmp_path / "run"], tmp_path / "report.html"))
    assert len(page.column("cc")) == len(made.ccs)
    assert len(summary_rows([tmp_path / "run"])) == max(len(made.ccs), 1)
    assert "nan" not in [text for _, text in page.cells]


@pytest.mark.usefixtures("pictures")
def test_unknown_figures_of_a_run_are_dashes(tmp_path: Path) -> None:
    SyntheticRun(connected=False, duration_s=5.0).write(tmp_path / "run")
    page = Page(write_report([tmp_path / "run"], tmp_path / "report.html"))
    assert "srtt \N{EN DASH} ms" in page.text
    (row,) = summary_rows([tmp_path / "run"])
    assert row["srtt_mean_us"] is None


@pytest.mark.usefixtures("pictures")
def test_probes_and_the_copy_of_the_path_may_be_absent(tmp_path: Path) -> None:
    run = SHORT.write(tmp_path / "run")
    (run / "probes.parquet").unlink()
    (run / "path.parquet").unlink()
    page = Page(write_report([run], tmp_path / "report.html"))
    assert len(page.sources) == 2
    assert "San Diego" in page.text


def test_runs_have_the_tables_of_their_applications(tmp_path: Path) -> None:
    assert set(APP_KINDS) <= set(_core.APP_TABLES)
    assert read_run(SHORT.write(tmp_path / "none")).apps == {}
    made = SyntheticRun(("cubic",) * 3, 12.0, apps=("requests", None, "bursts"))
    run = read_run(made.write(tmp_path / "run"))
    assert {name: table.height for name, table in run.apps.items()} == {
        "requests": 60, "bursts": 60
    }  # fmt: skip
    record = run_record(run)
    assert {flow: series.table for flow, series in record.apps.items()} == {
        0: "requests", 2: "bursts"
    }  # fmt: skip
    rows = [row for row in made.app_rows() if row["flow"] == 2]
    series = record.apps[2]
    assert series.t_s.tolist() == [row["t_ns"] / 1e9 for row in rows]
    assert series.failed_s.tolist() == [17 / 5]
    assert series.latency_ms[[0, 1]].tolist() == [row["latency_ns"] / 1e6 for row in rows[:2]]


@pytest.mark.usefixtures("pictures")
def test_applications_have_a_table_and_a_line(tmp_path: Path) -> None:
    made = SyntheticRun(("cubic", "bbr"), 12.0, apps=(None, "requests"))
    app = made.summary_json()["apps"][0]
    run = made.write(tmp_path / "run")
    page = Page(write_report([run], tmp_path / "report.html"))
    assert page.column("app") == ["request-response"]
    assert (page.column("completed"), page.column("failed")) == (["59"], ["1"])
    quantiles = [f"{app[f'latency_{q}_us'] / 1e3:,.1f}" for q in ("p50", "p95", "p99")]
    assert [page.column(f"latency_{q}_us") for q in ("p50", "p95", "p99")] == [
        [text] for text in quantiles
    ]
    p50, _, p99 = quantiles
    line = f"request-response: 59 completed, 1 failed, p50 {p50} ms, p99 {p99} ms"
    assert page.text.count(line) == 1
    bulk, requests = summary_rows([run])
    assert (bulk["app"], bulk["failed"], bulk["latency_p99_us"]) == (None, None, None)
    assert (requests["app"], requests["completed"]) == ("request-response", 59)
    assert requests["latency_p99_us"] == app["latency_p99_us"]


@pytest.mark.usefixtures("pictures")
def test_columns_without_values_are_not_shown(tmp_path: Path) -> None:
    run = SHORT.write(tmp_path / "run")
    assert "Applications" not in Page(write_report([run], tmp_path / "report.html")).text
    shown = run_tables(read_run_headers([run])).flows.columns
    assert not {"app", "marks", "engine", "completion_s"} & {column.key for column in shown}


@pytest.mark.usefixtures("pictures")
def test_a_finite_transfer_shows_its_completion(tmp_path: Path) -> None:
    flow = {**SHORT.summary_json()["flows"][0], "completion_s": 7.25}
    SyntheticRun(duration_s=12.0, summary={"flows": [flow]}).write(tmp_path / "run")
    page = Page(write_report([tmp_path / "run"], tmp_path / "report.html"))
    assert page.column("completion_s") == ["7.25"]


def test_rows_for_other_programs_have_everything_and_the_same_keys(tmp_path: Path) -> None:
    SHORT.write(tmp_path / "live")
    SyntheticRun(("bbr",), duration_s=12.0, engine="sim").write(tmp_path / "sim")
    rows = summary_rows([tmp_path / "live", tmp_path / "sim"])
    summary = json.loads((tmp_path / "live" / "summary.json").read_text())
    assert [row["run"] for row in rows] == ["live", "sim"]
    assert rows[0].keys() == rows[1].keys()
    assert rows[0]["goodput_bps"] == summary["flows"][0]["goodput_bps"]
    assert rows[0]["drops_queue"] == summary["link"]["drops"]["queue"]
    assert rows[0]["lateness_p99_us"] == summary["lateness_us"]["p99"]
    assert rows[1]["lateness_p99_us"] is None
    json.dumps(rows)


def test_full_rows_keep_the_summarys_own_numbers(tmp_path: Path) -> None:
    run = read_runs([SHORT.write(tmp_path / "run")])[0]
    (row,) = rows_of(run)
    for key, value in run.summary["flows"][0].items():
        assert row["flow" if key == "id" else key] == value


@pytest.mark.usefixtures("pictures")
def test_runs_of_different_length_are_compared_separately(tmp_path: Path) -> None:
    lengths_s = {"a": 12.0, "b": 100.0, "c": 12.5, "d": 96.0, "alone": 1000.0}
    for name, duration_s in lengths_s.items():
        SyntheticRun(duration_s=duration_s, sample_s=duration_s / 50).write(tmp_path / name)
    runs = read_runs([tmp_path / name for name in lengths_s])
    assert by_duration(runs) == [[0, 2], [1, 3], [4]]
    # Each group starts again with the first shade of a congestion control.
    styles = flow_styles(runs)
    colours = [styles[run, 0].colour for run in range(5)]
    assert colours[0] == colours[1] == colours[4] != colours[2] == colours[3]
    report = write_report([run.directory for run in runs], tmp_path / "report.html")
    drawn = {file.name for file in figures_directory(report).glob("comparison*")}
    assert drawn == {"comparison-1.png", "comparison-2.png"}


def test_a_directory_of_runs_stands_for_its_runs(tmp_path: Path) -> None:
    for seed in (1, 2, 10):
        SyntheticRun(duration_s=3.0, seed=seed).write(tmp_path / "runs" / f"seed-{seed}")
    names = [run.name for run in read_runs([tmp_path / "runs"])]
    assert names == ["seed-1", "seed-2", "seed-10"]


def test_runs_of_the_same_name_get_distinct_labels(tmp_path: Path) -> None:
    for place in ("a", "b"):
        SyntheticRun(duration_s=3.0).write(tmp_path / place / "cubic")
    runs = read_runs([tmp_path / "a" / "cubic", tmp_path / "b" / "cubic"])
    assert [run.name for run in runs] == ["a/cubic", "b/cubic"]
    labels = {style.label for style in flow_styles(runs).values()}
    assert labels == {"cubic (a/cubic)", "cubic (b/cubic)"}


def test_many_runs_share_a_colour_per_congestion_control(tmp_path: Path) -> None:
    for seed in range(10):
        cc = ("cubic", "bbr")[seed % 2]
        SyntheticRun((cc,), duration_s=3.0, seed=seed).write(tmp_path / f"seed-{seed}")
    runs = read_runs([tmp_path])
    styles = flow_styles(runs)
    assert {style.group for style in styles.values()} == {"cubic", "bbr"}
    assert len({style.colour for style in styles.values()}) == 2
    comparison_figure(runs, styles=styles)


def test_a_comparison_marks_handovers_only_where_all_runs_had_the_same(tmp_path: Path) -> None:
    same = [SHORT.write(tmp_path / "a"), SyntheticRun(("bbr",), 12.0).write(tmp_path / "b")]
    other = SyntheticRun(duration_s=12.0, event_every_s=2.0).write(tmp_path / "c")
    assert shared_events(read_runs(same)) is not None
    assert shared_events(read_runs([*same, other])) is None


@pytest.mark.parametrize(
    ("break_it", "named", "why"),
    [
        (lambda run: (run / "run.json").unlink(), "run", "run.json is missing"),
        (lambda run: (run / "summary.json").unlink(), "summary.json", "not finished"),
        (lambda run: (run / "summary.json").write_text("{"), "summary.json", "JSON"),
        (lambda run: (run / "summary.json").write_text("{}"), "summary.json", "`engine`"),
        (lambda run: (run / "run.json").write_text("{}"), "run.json", "`scenario`"),
        (lambda run: (run / "flows.parquet").unlink(), "flows.parquet", "missing"),
        (lambda run: truncate(run / "link.parquet"), "link.parquet", "Parquet"),
        (lambda run: drop_column(run / "flows.parquet"), "flows.parquet", "`srtt_us`"),
        (lambda run: truncate(run / "path.parquet"), "path.parquet", "Parquet"),
        (lambda run: (run / "bursts.parquet").write_text("x"), "bursts.parquet", "cannot read"),
        (lambda run: drop_flow_key(run / "summary.json"), "summary.json", "flows[0].cc"),
    ],
)
def test_a_directory_without_a_run_is_named(
    tmp_path: Path, break_it: Any, named: str, why: str
) -> None:
    run = SyntheticRun(duration_s=1.0).write(tmp_path / "run")
    break_it(run)
    with pytest.raises(InputError) as failure:
        write_report([run], tmp_path / "report.html")
    message = str(failure.value)
    assert named in message
    assert why in message
    assert "\n" not in message
    assert list(tmp_path.iterdir()) == [run]


@pytest.mark.usefixtures("pictures")
def test_a_report_needs_runs_and_an_html_file_in_a_directory(tmp_path: Path) -> None:
    run = SyntheticRun(duration_s=1.0).write(tmp_path / "run")
    (tmp_path / "taken.html").mkdir()
    for runs, output, why in (
        ([], tmp_path / "x.html", "no run directory"),
        ([tmp_path / "absent"], tmp_path / "x.html", "does not exist"),
        ([run / "run.json"], tmp_path / "x.html", "not a directory"),
        ([run], tmp_path / "x.txt", r"ends in \.html"),
        ([run], tmp_path / "absent" / "x.html", "no such directory"),
        ([run], tmp_path / "taken.html", "is a directory"),
    ):
        with pytest.raises(InputError, match=why):
            write_report(runs, output)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run", "taken.html"]


def test_a_file_without_a_path_is_named(tmp_path: Path) -> None:
    plain = tmp_path / "plain.parquet"
    pq.write_table(SHORT.path_table().replace_schema_metadata(None), plain)
    with pytest.raises(InputError, match=r'plain\.parquet.*"skyhop"'):
        path_figure(plain)
    with pytest.raises(InputError, match="no frames"):
        path_figure(path_of([], 1.0))
    pq.write_table(SHORT.path_table().drop_columns(["nodes"]), plain)
    with pytest.raises(InputError, match='no column "nodes"'):
        path_figure(plain)


@pytest.mark.usefixtures("pictures")
def test_a_full_disk_leaves_the_old_report_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = SyntheticRun(duration_s=1.0).write(tmp_path / "run")
    report = write_report([run], tmp_path / "report.html")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    written: list[str] = []

    def full(file: str, _content: bytes) -> None:
        written.append(file)
        if len(written) % 2 == 0:
            raise RunError(f"{file}: cannot write: No space left on device")
        Path(file).touch()

    monkeypatch.setattr("skyhop._core.replace_file", full)
    with pytest.raises(RunError, match=r"path\.png: cannot write: No space left"):
        write_report([run], report, title="another")
    with pytest.raises(RunError, match="No space left"):
        write_report([run], tmp_path / "new.html")
    after = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert after == before
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "report-figures", "report.html", "run"
    ]  # fmt: skip


@pytest.mark.usefixtures("pictures")
def test_a_report_written_again_has_no_figures_of_the_old_one(tmp_path: Path) -> None:
    runs = [SyntheticRun((cc,), 1.0).write(tmp_path / cc) for cc in ("cubic", "bbr")]
    write_report(runs, tmp_path / "report.html")
    folder = figures_directory(tmp_path / "report.html")
    mine = ("mine.png", "run-9-mine.png", "comparison-3.svg")
    for name in mine:
        (folder / name).write_bytes(b"")
    write_report(runs[:1], tmp_path / "report.html")
    names = sorted(file.name for file in folder.iterdir())
    assert names == sorted([*mine, "path.png", "run-1-cubic.png"])


def test_the_same_runs_make_the_same_report(tmp_path: Path) -> None:
    run = SyntheticRun(duration_s=2.0).write(tmp_path / "run")
    first = write_report([run], tmp_path / "report.html").read_bytes()
    assert write_report([run], tmp_path / "report.html").read_bytes() == first


@pytest.mark.usefixtures("pictures")
def test_progress_counts_the_figures(tmp_path: Path) -> None:
    run = SyntheticRun(duration_s=1.0).write(tmp_path / "run")
    told: list[tuple[int, int]] = []
    write_report([run], tmp_path / "x.html", progress=lambda *done: told.append(done))
    assert told == [(1, 2), (2, 2)]


@pytest.mark.usefixtures("pictures")
def test_names_from_the_input_cannot_become_markup(tmp_path: Path) -> None:
    SyntheticRun(("<b>x</b>",), duration_s=1.0).write(tmp_path / "run")
    html = write_report([tmp_path / "run"], tmp_path / "report.html", title="<i>t</i>").read_text()
    assert "<b>x</b>" not in html
    assert "<i>t</i>" not in html


def test_bars_lose_no_packet() -> None:
    t_s: FloatArray = np.arange(1.0, 101.0) * 0.1
    counts = np.ones(100)
    np.testing.assert_array_equal(binned_sum(t_s, counts, np.arange(11.0)), np.full(10, 10.0))
    late = binned_sum(np.append(t_s, 10.0001), np.append(counts, 1.0), np.arange(11.0))
    assert late.sum() == 101


def test_means_over_bins_skip_unknown_values() -> None:
    t_s = np.array([0.5, 1.0, 1.5, 3.5])
    middles, means = binned(t_s, np.array([2.0, 4.0, np.nan, 7.0]), 1.0)
    np.testing.assert_array_equal(middles, [0.5, 1.5, 2.5, 3.5])
    np.testing.assert_array_equal(means, [3.0, np.nan, np.nan, 7.0])


def test_an_ecdf_ends_at_one_and_ignores_nan() -> None:
    values, share = ecdf(np.array([3.0, np.nan, 1.0, 2.0]))
    np.testing.assert_array_equal(values, [1.0, 2.0, 3.0])
    assert share[-1] == 1.0
    many, share = ecdf(np.arange(100_000.0))
    assert (len(many), share[-1], many[-1]) == (2000, 1.0, 99_999.0)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.01234, "0.012"), (0.9996, "1.00"), (9.2345, "9.23"), (9.996, "10.0"),
     (47.69, "47.7"), (99.96, "100"), (1234.5, "1,234")],
)  # fmt: skip
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert three_digits(value) == text


def test_steps_are_round() -> None:
    assert [round_step(x) for x in (0.011, 0.5, 3.0, 10.0, 0.0)] == [0.02, 0.5, 5.0, 10.0, 1.0]


def test_the_links_rate_follows_the_scenarios_changes() -> None:
    scenario = {
        "link": {"rate": "150 Mbit/s"},
        "change": [{"at": "20 s", "rate": "1 Gbit/s"}, {"at": "500 ms", "rate": "64 kbit/s"},
                   {"at": "3 s", "loss": "1 %"}],
    }  # fmt: skip
    steps = link_rate_steps(scenario, 60.0)
    assert steps is not None
    assert steps[0].tolist() == [0.0, 0.5, 20.0, 60.0]
    assert steps[1].tolist() == pytest.approx([150.0, 0.064, 1000.0, 1000.0])
    assert link_rate_steps({"link": {"rate": "fast"}}, 60.0) is None


def test_figures_hold_every_flow_and_panel(tmp_path: Path) -> None:
    made = SyntheticRun(("cubic", "bbr"), duration_s=20.0, probe=True)
    figure = run_figure(made.write(tmp_path / "run"))
    panels = [ax.get_ylabel().split("\n")[0] for ax in figure.axes[1:]]
    assert panels == [
        "goodput", "srtt", "probe RTT", "cwnd", "retransmits", "queue", "drops"
    ]  # fmt: skip
    goodput = figure.axes[1]
    assert sum(line.get_gid() == "flow-1" for line in goodput.lines) == 1
    rows = made.flow_rows()
    (total,) = [line for line in goodput.lines if line.get_label() == "all flows"]
    expected = [(rows[2 * i]["goodput_bps"] + rows[2 * i + 1]["goodput_bps"]) / 1e6 for i in (0, 9)]
    assert np.asarray(total.get_ydata())[[0, 9]] == pytest.approx(expected)
    (lost,) = scatters(figure, "probe-lost")
    assert len(np.asarray(lost.get_offsets())) == sum(
        row["rtt_ns"] is None for row in made.probe_rows()
    )
    assert png_bytes(figure).startswith(b"\x89PNG")


def test_latencies_have_a_panel_per_table(tmp_path: Path) -> None:
    made = SyntheticRun(("cubic", "bbr", "reno"), apps=("requests", "requests", "messages"))
    figure = run_figure(made.write(tmp_path / "run"))
    panels = {ax.get_ylabel().split("\n")[0]: ax for ax in figure.axes[1:]}
    assert list(panels)[1:5] == ["srtt", "latency of requests", "latency of messages", "cwnd"]
    requests = panels["latency of requests"]
    dots = [np.asarray(c.get_offsets()) for c in requests.collections if c.get_gid() == "latency"]
    rows = [[row for row in made.app_rows() if row["flow"] == flow] for flow in (0, 1)]
    for drawn, of_flow in zip(dots, rows, strict=True):
        shown = {row["t_ns"] / 1e9: row["latency_ns"] / 1e6 for row in of_flow if row["latency_ns"]}
        known = drawn[np.isfinite(drawn[:, 1])]
        assert dict(known.tolist()) == pytest.approx(shown)
    failed = [c for c in requests.collections if c.get_gid() == "failed"]
    heights = [set(np.asarray(c.get_offsets())[:, 1].tolist()) for c in failed]
    assert [len(np.asarray(c.get_offsets())) for c in failed] == [5, 5]
    assert heights[0].isdisjoint(heights[1]), "failures of one flow do not hide those of another"
    # The axis spans 42 ms to above 1 s, below the marks of failures.
    assert requests.get_yscale() == "log"
    highest = max(drawn[:, 1][np.isfinite(drawn[:, 1])].max() for drawn in dots)
    bottom, top = requests.get_ylim()
    share = np.log(highest / bottom) / np.log(top / bottom)
    assert 0.7 < share < min(*heights[0], *heights[1])
    assert png_bytes(figure).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("latencies_ms", "is_log"), [((5.0, 49.0), False), ((5.0, 51.0), True), ((0.0, 51.0), False),
                                 ((np.nan, np.nan), False)],
)  # fmt: skip
def test_latencies_of_decades_are_on_a_logarithmic_scale(
    tmp_path: Path, latencies_ms: tuple[float, float], is_log: bool
) -> None:
    made = SyntheticRun(apps=("bursts",), duration_s=3.0)
    run = read_runs([made.write(tmp_path / "run")])[0]
    series = AppSeries("bursts", np.array([1.0, 2.0]), np.array(latencies_ms))
    panel = run_timeline(replace(run, apps={0: series})).panels[2]
    assert (panel.what, panel.is_log) == ("latency of bursts", is_log)
    known = [value for value in latencies_ms if np.isfinite(value)]
    assert panel.span is not None
    assert all(panel.span[0] <= value < panel.span[1] for value in known)
    assert png_bytes(draw_timeline(run_timeline(replace(run, apps={0: series}))))


def test_many_applications_share_a_colour_and_an_entry_of_the_legend(tmp_path: Path) -> None:
    made = SyntheticRun(("cubic",) * 9, 12.0, apps=("requests",) * 9)
    figure = run_figure(made.write(tmp_path / "run"))
    (dots,) = scatters(figure, "latency")
    (failed,) = scatters(figure, "failed")
    assert len(np.asarray(dots.get_offsets())) == len(made.app_rows()) == 540
    assert failed.get_label() == "failed (9)"


@pytest.mark.integration
def test_view_models_need_no_drawing_library(tmp_path: Path) -> None:
    runs = [SyntheticRun((cc,), probe=True).write(tmp_path / cc) for cc in ("cubic", "bbr")]
    code = (
        "import sys\n"
        "from skyhop.analysis.run_page import Lead, PageFigure, runs_page\n"
        "from skyhop.data.reading import read_runs\n"
        "page = runs_page(read_runs(sys.argv[1:]))\n"
        "views = [figure.view() for figure in page.figures]\n"
        "print([panel.what for panel in views[-1].panels])\n"
        "print({'matplotlib', 'jinja2'} & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *map(str, runs)], capture_output=True,
                          text=True, check=True)  # fmt: skip
    panels = ["goodput", "srtt", "probe RTT", "cwnd", "retransmits", "queue", "drops"]
    assert done.stdout.splitlines() == [str(panels), "set()"]


def test_announcements_and_reactions_to_them_are_shown(tmp_path: Path) -> None:
    phases = [("hold", 0, 10.0, 1.3), ("hold", 1, 11.0, 1.3), ("hold", 0, 30.0, 1.3)]
    phases += [("drain", 1, 40.0, 0.1), ("probe-rtt", 1, 40.1, 0.2)]
    made = SyntheticRun(("satcp", "satpipe"), announced_s=(9.9, 29.9, 39.9), phases=tuple(phases))
    figure = run_figure(made.write(tmp_path / "run"))
    assert markers(figure, "announcement") == [9.9, 29.9, 39.9]
    # The figure has a strip and two panels; overlapping holds make one span.
    expected = {"hold": [(10.0, 12.3), (30.0, 31.3)], "drain": [(40.0, 40.1)]}
    for kind, spans in {**expected, "probe-rtt": [(40.1, 40.3)]}.items():
        drawn = [c for ax in figure.axes for c in ax.collections if c.get_gid() == kind]
        assert len(drawn) == 3
        for collection in drawn:
            boxes = [path.get_extents() for path in collection.get_paths()]
            assert [(box.x0, box.x1) for box in boxes] == [pytest.approx(span) for span in spans]
    assert not scatters(run_figure(SyntheticRun().write(tmp_path / "other")), "announcement")


def test_a_figure_is_saved_whole(tmp_path: Path) -> None:
    run = SyntheticRun(duration_s=1.0).write(tmp_path / "run")
    assert save(run_figure(run), tmp_path / "run.png") == tmp_path / "run.png"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run", "run.png"]


def scatters(figure: Figure, gid: str) -> list[PathCollection]:
    """Return the scatter collections of a figure with this gid."""
    found = [c for ax in figure.axes for c in ax.collections if c.get_gid() == gid]
    return [c for c in found if isinstance(c, PathCollection)]


def markers(figure: Figure, kind: str) -> list[float]:
    """Return the times in s of the strip's markers of a kind."""
    return [
        float(x) for found in scatters(figure, kind) for x in np.asarray(found.get_offsets())[:, 0]
    ]


def path_of(rows: list[dict[str, Any]], duration_s: float) -> paths.Path:
    """Return the path of a path file with these rows."""
    header = {**SHORT.path_header(), "duration_ns": int(duration_s * 1e9)}
    rows = [{"events": [], **row} for row in rows]
    table = pa.Table.from_pylist(rows, SHORT.path_table().schema)
    with TemporaryDirectory() as place:
        file = Path(place) / "x.parquet"
        pq.write_table(table.replace_schema_metadata({"skyhop": json.dumps(header)}), file)
        return paths.read_path(file)


def path_with_events(events: list[tuple[str, float, float]]) -> paths.Path:
    """Return a path of a minute with events (kind, at, outage), times in s."""
    rows = SyntheticRun(connected=False).path_table().to_pylist()
    for kind, at_s, outage_s in events:
        event = {"t_ns": int(at_s * 1e9), "kind": kind, "hop": None,
                 "outage_ns": int(outage_s * 1e9)}  # fmt: skip
        rows[int(at_s)]["events"].append(event)
    return path_of(rows, 60.0)


def truncate(file: Path) -> None:
    """Truncate a file to half its size."""
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def drop_column(file: Path) -> None:
    """Rewrite flows.parquet without the column of srtt."""
    place = FLOW_SCHEMA.get_field_index("srtt_us")
    pq.write_table(pq.ParquetFile(file).read().remove_column(place), file)


def drop_flow_key(file: Path) -> None:
    """Rewrite summary.json with a flow without the key `cc`."""
    summary = json.loads(file.read_text())
    del summary["flows"][0]["cc"]
    file.write_text(json.dumps(summary))


def test_figures_have_the_format_of_their_name(tmp_path: Path) -> None:
    path = SHORT.write(tmp_path / "run") / "path.parquet"
    begins = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF-"}
    for kind, begin in begins.items():
        path_figure(path, tmp_path / f"path.{kind}")
        assert (tmp_path / f"path.{kind}").read_bytes().startswith(begin)


@pytest.mark.usefixtures("pictures")
def test_names_like_a_formula_are_plain_text(tmp_path: Path) -> None:
    name = r"a $\frac{1}{0} \unknown$ b"
    SyntheticRun(duration_s=12.0).write(tmp_path / name)
    SyntheticRun(("bbr",), duration_s=12.0).write(tmp_path / "c$d")
    page = Page(write_report([tmp_path / name, tmp_path / "c$d"], tmp_path / "report.html"))
    assert name in page.text


def test_a_fixed_path_has_no_figure_and_no_invented_names(tmp_path: Path) -> None:
    directory = SyntheticRun(duration_s=12.0).write(tmp_path / "run")
    (record,) = read_runs([directory])
    assert record.path is not None
    header = {"source": "fixed", "from": {"name": "from"}, "to": {"name": "to"},
              "start": "2019-12-01T00:00:00Z"}  # fmt: skip
    count = len(record.path.t_s)
    events = record.path.events
    still = replace(events, t_s=events.t_s[:0], kinds=())
    fixed = replace(record.path, header=header, delay_ms=np.full(count, 20.0), events=still,
                    delay_back_ms=np.full(count, 20.0), hops=np.ones(count))  # fmt: skip
    page = runs_page([replace(record, path=fixed)])
    assert [figure.name for figure in page.figures] == ["run-1-run"]
    assert "start" not in dict(page.facts)
    # A fixed path that changes has a figure, without its one hop.
    jumping = path_timeline(replace(fixed, delay_ms=np.linspace(10, 20, count)))
    assert (jumping.title, [panel.what for panel in jumping.panels]) == (
        "Fixed path", ["one-way delay"],
    )  # fmt: skip


def test_labels_name_their_runs_if_one_has_to(tmp_path: Path) -> None:
    runs = read_runs([
        SyntheticRun((cc,), 12.0).write(tmp_path / name)
        for cc, name in (("reno", "orbit-reno"), ("bbr", "orbit-bbr"), ("bbr", "live-bbr"))
    ])  # fmt: skip
    labels = [style.label for style in flow_styles(runs).values()]
    assert labels == ["reno (orbit-reno)", "bbr (orbit-bbr)", "bbr (live-bbr)"]


def test_long_durations_are_written_without_an_exponent() -> None:
    texts = [short_number(value) for value in (5730.0, 12.5, 0.1, 5731.0, 123456.7, 20.0)]
    assert texts == ["5,730", "12.5", "0.1", "5,731", "123,000", "20"]


@pytest.mark.parametrize(
    "key", ["link.queue", "link.back.rate", "link.back.queue", "link.qdisc", "link.loss"]
)
def test_flows_over_different_links_are_never_one_bar(tmp_path: Path, key: str) -> None:
    last = key.rpartition(".")[2]
    settings: dict[str, tuple[Any, Any]] = {
        "queue": ("1 BDP", "2 BDP"),
        "rate": ("5 Mbit/s", "9 Mbit/s"),
        "qdisc": ({"kind": "fq_codel"}, {"kind": "fq_codel", "target": "9 ms"}),
        "loss": ("1 %", {"kind": "gilbert-elliott", "good": "9 s", "bad": "1 s"}),
    }
    runs = []
    for name, value in zip(("a", "b"), settings[last], strict=True):
        (run,) = read_runs([SyntheticRun(("cubic",), 12.0).write(tmp_path / name)])
        link = run.scenario["link"]
        part = link.setdefault("back", {}) if "back" in key else link
        part[last] = value
        runs.append(run)
    shown = compare(runs)
    assert len({group.name for group in shown.groups}) == 2
    assert [len(group.goodputs_mbps) for group in shown.groups] == [1, 1]
    groups = flow_groups(runs)
    assert len({group.name for group in groups}) == 2
    facts = dict(runs_page(runs).facts)
    assert " / " in facts["link back" if "back" in key else "link"]
