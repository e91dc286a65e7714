"""Report of a study: complete in one file, with figures next to it for papers."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from conftest import Skyhop
from matplotlib.patches import Ellipse
from pydantic import TypeAdapter

from blank_figures import leave_blank
from skyhop.analysis.charts import ScatterChart
from skyhop.figures.charts import draw_chart
from skyhop.report import write_study_report
from skyhop.study import Results, load_study
from skyhop.study.axes import numeric_axes
from skyhop.study.charts import ChartSource, chart_of
from skyhop.study.metric_kinds import TimeToBytesMetric
from skyhop.study.metrics import MetricSet
from skyhop.study.panel_kinds import ComparisonPanel, Panel, ScatterPanel, TablePanel
from skyhop.study.plan import Study
from skyhop.study.results import dataset
from skyhop.study.tables import comparison_table, table_of
from small_study import content, write

CC_LOSS = {"x": "loss", "hue": "cc"}
PANELS: Sequence[dict[str, Any]] = (
    {"kind": "table", "title": "A table", "metrics": ["goodput", "srtt"], "by": ["cc", "loss"]},
    {"kind": "comparison", "title": "Compared", "metric": "goodput", "by": "cc",
     "against": "cubic", "each": ["loss"]},
    {"kind": "bars", "title": "Bars", "metric": "goodput", **CC_LOSS},
    {"kind": "box", "title": "Boxes", "series": "goodput", **CC_LOSS},
    {"kind": "box", "title": "Boxes of runs", "metric": "srtt", "x": "cc"},
    {"kind": "cdf", "title": "Shares", "series": "srtt", "hue": "cc"},
    {"kind": "lines", "title": "Lines", "metric": "retransmit_ratio", **CC_LOSS},
    {"kind": "scatter", "title": "Scatter", "x": "srtt", "y": "goodput", "hue": "cc"},
    {"kind": "heatmap", "title": "Heat", "metric": "goodput", "x": "loss", "y": "cc"},
    {"kind": "map", "title": "Map", "metrics": ["goodput", "srtt"], "x": "loss", "y": "cc",
     "turn": 5, "groups": ["bbr"], "marks": [{"name": "mine", "x": "0.5 %"}]},
    {"kind": "scatter", "title": "Ellipses", "x": "srtt", "y": "goodput", "hue": "cc",
     "per": "run", "ellipses": True, "zero": False, "where": {"loss": "1 %"}},
    {"kind": "box", "title": "Boxes of bins", "bins_of": "late", "x": "loss", "hue": "cc"},
    {"kind": "cdf", "title": "Shares of bins", "bins_of": "late", "hue": "cc"},
    {"kind": "cdf", "title": "Shares of sums", "bins_of": "sum", "hue": "cc"},
    {"kind": "transfer", "title": "Transfers", "upto": "1 MB", "step": "50 kB", "hue": "cc"},
    {"kind": "transfer", "title": "One transfer", "upto": "1 MB", "step": "250 kB", "cut": "100 ms",
     "spread": "sd"},
    {"kind": "series", "title": "Link", "series": ["throughput", "retransmit_share"], "hue": "cc",
     "bin": "500 ms"},
    {"kind": "series", "title": "Series", "series": ["goodput", "cwnd", "base_rtt"], "hue": "cc",
     "where": {"loss": "1 %"}, "from": "1 s", "until": "2 s"},
)  # fmt: skip


LATE = {"name": "late", "kind": "samples", "series": "retransmit_share", "bin": "500 ms",
        "from": "1 s", "unit": "%"}  # fmt: skip
SUM = {"name": "sum", "kind": "flows", "over": "sum", "bin": "500 ms", "from": "1 s"}


@pytest.fixture(scope="module", params=["blank", pytest.param("drawn", marks=pytest.mark.soak)])
def reported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run a study with every kind of panel, and a claim of each verdict; return its directory.

    Its figures are blank, because test_paper_figures.py draws one of every kind.
    """
    from skyhop.study import run_study
    from skyhop.study.claims import judge

    place = tmp_path_factory.mktemp("reported")
    claims = [
        {"text": "BBR <fast>", "check": 'goodput(cc="bbr") > 1'},
        {"text": "CUBIC wins", "check": 'goodput(cc="cubic") > 99', "note": "It does not."},
        {"text": "Who knows", "check": 'completion(cc="bbr") > 1'},
        {"text": "Sage & all", "cannot_be_told": "no weights: 100 % unknown"},
    ]
    published = [{"metric": "goodput", "by": ["cc"], "values": [["bbr", 9.5]]}]
    write(place / "s.toml", panel=list(PANELS), claim=claims, published=published, notes=["N & M"],
          metric=[LATE, SUM])  # fmt: skip
    study = load_study(place / "s.toml")
    done = run_study(study, place / "out", jobs=2)
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "blank":
            leave_blank(patch)
        write_study_report(done, judge(study.claims, done.results))
    return place / "out"


def test_the_page_is_complete_and_loads_no_other_file(reported: Path) -> None:
    page = (reported / "report.html").read_text("utf-8")
    for text in (
        "Which of them fills a lossy link?", "BBR &lt;fast&gt;", "✓ holds", "✗ does not hold",
        "? cannot be told", "It does not.", "1 of 4 hold", "Sage &amp; all",
        "? cannot be told: no weights: 100 % unknown", "N &amp; M", "8 of 8", "published",
        "run s.toml -o out", "results.parquet", "[scenario.path]",
    ):  # fmt: skip
        assert text in page, text
    for panel in PANELS:
        assert f"<h2>{panel['title']}</h2>" in page
    assert "No finished run has anything to show" not in page
    figures = len(PANELS) - 2
    assert page.count("data:image/webp;base64,") == 2 * figures  # wide, and for phones
    assert not re.search(r'src(set)?="(?!data:)', page)
    linked = set(re.findall(r'href="(?!#)([^"]+)"', page))
    files = (reported / "report-figures").iterdir()
    assert linked == {f"report-figures/{file.name}" for file in files}
    assert not re.search(r"@import|url\((?!data:)", page)


def test_every_figure_has_files_for_papers(reported: Path) -> None:
    folder = reported / "report-figures"
    starts = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
    for kind, start in starts.items():
        files = sorted(folder.glob(f"*{kind}"))
        assert len(files) == len(PANELS) - 2
        assert all(file.read_bytes().startswith(start) for file in files)
    tables = sorted(folder.glob("*.csv"))
    assert len(tables) == len(PANELS)
    for table in tables:
        rows = list(csv.DictReader(table.read_text("utf-8").splitlines()))
        assert rows, table


def test_numbers_of_figures_equal_the_dataset(reported: Path) -> None:
    frame = pl.read_parquet(reported / "results.parquet")
    table = pl.read_csv(next((reported / "report-figures").glob("1-*.csv")))
    for row in table.iter_rows(named=True):
        own = frame.filter(cc=row["cc"], loss=row["loss"]).get_column("goodput_bps") / 1e6
        assert row["goodput"] == pytest.approx(own.mean())
        assert row["goodput_low"] <= row["goodput"] <= row["goodput_high"]
        if row["cc"] == "bbr":
            assert row["goodput_published"] == 9.5
            assert row["goodput_ratio"] == pytest.approx(row["goodput"] / 9.5)
        else:
            assert row["goodput_published"] is None
    series = pl.read_csv(next((reported / "report-figures").glob("*-series.csv")))
    assert series.get_column("t_s").min() >= 1
    assert series.get_column("t_s").max() <= 2


def figure_rows(reported: Path, name: str) -> pl.DataFrame:
    (file,) = (reported / "report-figures").glob(f"*-{name}.csv")
    return pl.read_csv(file)


def test_panels_of_bins_show_the_metrics_bins(reported: Path) -> None:
    """Check the four bins of 500 ms from 1 s to 3 s, whose mean in each run is the metric."""
    shown = figure_rows(reported, "shares-of-bins").filter(pl.col("hue") == "cubic")
    frame = pl.read_parquet(reported / "results.parquet").filter(pl.col("cc") == "cubic")
    assert shown.height == frame.height * 4
    assert shown.get_column("value").mean() == pytest.approx(frame.get_column("late_pct").mean())
    boxes = figure_rows(reported, "boxes-of-bins")
    assert boxes.get_column("count").to_list() == [8] * 4


def test_bins_of_flows_count_once_for_each_run(reported: Path) -> None:
    shown = figure_rows(reported, "shares-of-sums").filter(pl.col("hue") == "cubic")
    frame = pl.read_parquet(reported / "results.parquet").filter(pl.col("cc") == "cubic")
    assert shown.height == frame.get_column("run").n_unique() * 4
    assert shown.get_column("value").mean() == pytest.approx(frame.get_column("sum").mean())


def test_transfer_panels_show_times_to_bytes(reported: Path) -> None:
    times = TimeToBytesMetric(name="t", kind="time_to_bytes", bytes="500 kB")
    metrics = MetricSet.build([times], "here")
    frame = pl.read_parquet(reported / "results.parquet")
    shown = figure_rows(reported, "transfers")
    assert shown.filter(pl.col("hue") == "bbr").get_column("megabytes").to_list() == pytest.approx(
        [place * 0.05 for place in range(1, 21)]
    )
    for cc in ("cubic", "bbr"):
        runs = frame.filter(pl.col("cc") == cc).get_column("run")
        found = [metrics.rows(reported / "runs" / run)[0]["t"] for run in runs]
        row = shown.filter(pl.col("hue") == cc).row(9, named=True)
        assert (row["runs"], row["mean"]) == (4, pytest.approx(sum(found) / 4))
        assert row["low"] < row["mean"] < row["high"]
    cut = figure_rows(reported, "one-transfer")
    assert cut.get_column("runs").to_list() == [8] * 4
    tenths = cut.get_column("mean") * 10 * 8
    assert (tenths - tenths.round()).abs().max() < 1e-6


def test_verdicts_have_a_table_for_papers(reported: Path) -> None:
    text = (reported / "report-figures" / "claims.tex").read_text("utf-8")
    assert r"\begin{tabular}{@{}lll@{}}" in text
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert rows[0] == r"claim & verdict & what came out \\"
    assert rows[1].startswith(r"BBR \textless{}fast\textgreater{} & holds & ")
    assert rows[2].startswith("CUBIC wins & does not hold & ")
    assert rows[4] == r"Sage \& all & cannot be told: no weights: 100 \% unknown &  \\"
    page = (reported / "report.html").read_text("utf-8")
    assert 'href="report-figures/claims.tex"' in page


def made_up(
    goodput_mbps: Mapping[str, Sequence[float | None]], **changes: Any
) -> tuple[Study, Results]:
    study = load_study(content(**changes))
    rows = [
        {"cc": cc, "loss": "1 %", "seed": seed, "run": f"{cc}{seed}",
         "goodput_bps": None if value is None else 1e6 * value}
        for cc, values in goodput_mbps.items()
        for seed, value in enumerate(values)
    ]  # fmt: skip
    return study, Results(dataset(rows, numeric_axes(study.file)), study.metrics)


def test_a_comparison_gives_differences_and_effects() -> None:
    study, results = made_up({"cubic": [10, 11, 12, 13], "bbr": [20, 21, 22, 23]})
    panel = ComparisonPanel(kind="comparison", title="", metric="goodput", by="cc", against="cubic")
    made = comparison_table(panel, study, results)
    reference, bbr = made.data.rows(named=True)
    assert reference["name"] == "cubic (reference)"
    assert (bbr["mean"], bbr["difference"], bbr["effect"]) == (21.5, 10, "very large")
    assert bbr["p"] < 0.001
    assert made.table.rows[1][-3] == "< 0.0001" or made.table.rows[1][-3].startswith("0.")


def test_a_comparison_without_values_has_no_difference() -> None:
    study, results = made_up({"cubic": [10, 11], "bbr": [None, None]})
    panel = ComparisonPanel(kind="comparison", title="", metric="goodput", by="cc", against="cubic")
    bbr = comparison_table(panel, study, results).data.row(1, named=True)
    assert (bbr["runs"], bbr["mean"], bbr["difference"]) == (0, None, None)


def test_a_comparison_along_numbers_finds_its_reference() -> None:
    axis = {"name": "flows", "key": "flow.0.count", "values": [1, 2]}
    study = load_study(content(axis=[axis]))
    rows = [
        {"flows": flows, "seed": seed, "run": f"{flows}{seed}", "flow": 0,
         "goodput_bps": 1e6 * flows}
        for flows in (1, 2) for seed in (1, 2)
    ]  # fmt: skip
    results = Results(dataset(rows, numeric_axes(study.file)), study.metrics)
    panel = ComparisonPanel(kind="comparison", title="", metric="goodput", by="flows", against=1)
    made = comparison_table(panel, study, results)
    assert made.data.get_column("name").to_list() == ["1 (reference)", "2.0"]
    assert made.data.row(1, named=True)["difference"] == 1


def test_a_comparison_can_have_both_tests_and_published_deviations() -> None:
    from scipy import stats

    own = {"cubic": [10.0, 11, 12, 13, 20], "bbr": [20.0, 21, 22, 23]}
    published = [
        {"metric": "goodput", "stat": "sd", "by": ["cc"],
         "values": [["cubic", 17.0], ["bbr", 12.2]]},
        {"metric": "goodput", "by": ["cc"], "values": [["cubic", 123.3]]},
    ]  # fmt: skip
    study, results = made_up(own, published=published)
    panel = ComparisonPanel(
        kind="comparison", title="", metric="goodput", by="cc", against="cubic", test="both"
    )
    made = comparison_table(panel, study, results)
    bbr = made.data.row(1, named=True)
    for prefix, alike in (("", False), ("student_", True)):
        test = stats.ttest_ind(own["bbr"], own["cubic"], equal_var=alike)
        expected = (test.statistic, test.df, test.pvalue)
        found = tuple(bbr[prefix + name] for name in ("t", "degrees", "p"))
        assert found == pytest.approx(expected)
    assert bbr["student_degrees"] == 7
    assert bbr["d_published"] == pytest.approx(8.3 / ((17.0**2 + 12.2**2) / 2) ** 0.5)
    assert (bbr["effect"], bbr["effect_published"]) == ("very large", "large")
    titles = [column.title for column in made.table.columns]
    assert titles[4:] == [
        "Welch's t", "degrees", "p", "Student's t", "degrees", "p",
        "Cohen's d", "effect", "d by published sd", "effect",
    ]  # fmt: skip
    alone = comparison_table(panel.model_copy(update={"test": "student"}), study, results)
    assert alone.data.row(1, named=True)["t"] == pytest.approx(bbr["student_t"])
    assert "Welch's t" not in [column.title for column in alone.table.columns]
    # Published means and standard deviations are kept apart.
    table = TablePanel(kind="table", title="", metrics=["goodput"], by=["cc"], spread="sd")
    shown = table_of(table, study, results)
    cubic = shown.data.row(0, named=True)
    assert (cubic["goodput_published"], cubic["goodput_published_sd"]) == (123.3, 17.0)
    assert cubic["goodput_sd"] == pytest.approx(pl.Series(own["cubic"]).std())
    titles = [column.title for column in shown.table.columns]
    assert titles == ["cc", "ours", "published", "ratio"]
    assert shown.table.rows[0][1:3] == ["13 ± 4", "123 ± 17"]
    assert shown.table.note == "±: standard deviation over runs"
    none = table_of(table.model_copy(update={"spread": "none"}), study, results)
    assert none.table.rows[0] == ["cubic", "13.2", "123 ± 17", "0.107"]


def test_points_of_runs_have_an_ellipse() -> None:
    study = load_study(content())
    rows = [
        {"cc": cc, "loss": "1 %", "seed": seed, "run": f"{cc}{seed}", "flow": flow,
         "goodput_bps": 1e6 * (seed + flow), "srtt_mean_us": 1e3 * (5 - seed)}
        for cc in ("cubic", "bbr") for seed in (1, 2, 4) for flow in (0, 1)
    ]  # fmt: skip
    results = Results(dataset(rows, numeric_axes(study.file)), study.metrics)
    source = ChartSource(study, results, lambda _: pytest.fail("needs no samples"))
    panel = ScatterPanel(kind="scatter", title="", x="srtt", y="goodput", hue="cc", per="run",
                         ellipses=True)  # fmt: skip
    chart = chart_of(panel, source)
    assert isinstance(chart, ScatterChart)
    first = chart.points[0]
    assert (first.xs.tolist(), first.ys.tolist()) == ([4, 3, 1], [1.5, 2.5, 4.5])
    assert first.ellipse is not None
    # The points are on a line with a slope of -45 degrees.
    assert first.ellipse.angle_deg == pytest.approx(-45)
    assert first.ellipse.minor == pytest.approx(0, abs=1e-6)
    assert first.ellipse.major == pytest.approx(2**0.5 * pl.Series([1, 2, 4]).std())
    flows = chart_of(panel.model_copy(update={"per": "flow", "ellipses": False}), source)
    assert isinstance(flows, ScatterChart)
    assert flows.data.height == 12
    assert flows.points[0].ellipse is None
    sheet = draw_chart(chart)
    drawn = [patch for patch in sheet.axes[0].patches if isinstance(patch, Ellipse)]
    assert len(drawn) == 2
    assert drawn[0].get_center() == pytest.approx((8 / 3, 8.5 / 3))
    assert drawn[0].get_width() == pytest.approx(2 * first.ellipse.major)
    assert sheet.axes[0].get_ylim()[1] > first.ellipse.top


def test_a_table_without_repeats_has_no_interval() -> None:
    study, results = made_up({"cubic": [10], "bbr": [20]})
    panel = TablePanel(kind="table", title="", metrics=["goodput"], by=["cc"])
    made = table_of(panel, study, results)
    assert made.table.rows == [["cubic", "10.0"], ["bbr", "20.0"]]
    assert [column.title for column in made.table.columns] == ["cc", "goodput"]


def test_a_mean_and_its_interval_are_one_cell() -> None:
    study, results = made_up({"cubic": [10, 10.4, 10.8], "bbr": [20]})
    panel = TablePanel(kind="table", title="", metrics=["goodput"], by=["cc"])
    made = table_of(panel, study, results)
    assert made.table.rows == [["cubic", "10.4 ± 0.4"], ["bbr", "20.0"]]
    assert [column.title for column in made.table.columns] == ["cc", "goodput"]
    assert made.table.note == "±: to the farther end of the mean's 95 % interval"
    assert made.data.columns == [
        "cc", "goodput", "goodput_low", "goodput_high", "goodput_published", "goodput_ratio",
    ]  # fmt: skip


@pytest.mark.usefixtures("pictures")
def test_failures_are_on_the_page(skyhop: Skyhop, tmp_path: Path) -> None:
    axis = {"name": "cc", "key": "flow.0.cc", "values": ["cubic", "psychic"]}
    write(tmp_path / "study.toml", axis=[axis], panel=[dict(PANELS[2], x="cc", hue="cc")])
    done = skyhop("study", "run", "study.toml", "-o", "out")
    assert done.returncode == 1
    # One line stands for both seeds.
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("failed: ")]
    assert line.startswith("failed: 2 runs (cc = psychic): ")
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "2 runs failed: what follows is without them" in page
    assert page.count("<details><summary>2 runs (cc = psychic): ") == 1
    assert "failures.json lists all" not in page


@pytest.mark.usefixtures("pictures")
@pytest.mark.parametrize(
    ("count", "said"), [(11, "and 1 more error: "), (13, "and 3 more errors: ")]
)
def test_the_number_of_errors_that_a_page_leaves_out_is_on_it(
    skyhop: Skyhop, tmp_path: Path, count: int, said: str
) -> None:
    axis = {"name": "cc", "key": "flow.0.cc", "values": [f"psychic{n}" for n in range(count)]}
    write(tmp_path / "study.toml", axis=[axis], panel=[dict(PANELS[2], x="cc", hue="cc")])
    assert skyhop("study", "run", "study.toml", "-o", "out").returncode == 1
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert page.count("<details><summary>2 runs (cc = psychic") == 10
    assert f"{said}failures.json lists all" in page
    listed = json.loads((tmp_path / "out" / "failures.json").read_text("utf-8"))
    assert len({failure["error"] for failure in listed}) == count


def test_a_study_without_finished_runs_has_a_report(skyhop: Skyhop, tmp_path: Path) -> None:
    axis = {"name": "cc", "key": "flow.0.cc", "values": ["psychic"]}
    claim = {"text": "It is fast", "check": "goodput() > 1"}
    panel = dict(PANELS[2], x="cc", hue="cc")
    write(tmp_path / "study.toml", axis=[axis], claim=[claim], panel=[panel])
    done = skyhop("study", "run", "study.toml", "-o", "out")
    assert done.returncode == 1, done.stderr
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "cannot be told" in page


@pytest.mark.usefixtures("pictures")
def test_an_earlier_reports_figures_are_removed(skyhop: Skyhop, tmp_path: Path) -> None:
    bars = dict(PANELS[2])
    write(tmp_path / "study.toml", panel=[bars, {**bars, "title": "Again"}])
    assert skyhop("study", "run", "study.toml", "-o", "out").returncode == 0
    assert (tmp_path / "out" / "report-figures" / "2-again.pdf").exists()
    write(tmp_path / "study.toml", panel=[bars])
    assert skyhop("study", "run", "study.toml", "-o", "out").returncode == 0
    names = {file.name for file in (tmp_path / "out" / "report-figures").iterdir()}
    assert names == {"1-bars.png", "1-bars.svg", "1-bars.pdf", "1-bars.csv"}


@pytest.mark.parametrize("kind", ["bars", "box", "cdf", "lines", "scatter"])
@pytest.mark.parametrize(
    ("metric", "begins"), [("delay_inflation", 1.0), ("ratio", 1.0), ("mos", 1.0), ("srtt", 0.0)]
)
def test_axes_begin_at_the_metrics_origin(kind: str, metric: str, begins: float) -> None:
    own = {"name": "ratio", "kind": "expression", "value": "srtt / base_rtt", "origin": 1}
    axis = {"name": "flows", "key": "flow.0.count", "values": [1, 2]}
    study = load_study(content(axis=[axis], metric=[own]))
    rows = [
        {"flows": flows, "seed": seed, "run": f"{flows}{seed}", "flow": 0, "goodput_bps": 1e6,
         "delay_inflation": 1 + 0.1 * flows, "ratio": 1 + 0.1 * flows, "mos_mean": 1.0 + flows,
         "srtt_mean_us": 20e3 * flows}
        for flows in (1, 2) for seed in (1, 2)
    ]  # fmt: skip
    results = Results(dataset(rows, numeric_axes(study.file)), study.metrics)
    source = ChartSource(study, results, lambda _: pytest.fail("needs no samples"))
    keys: dict[str, Any] = {"kind": kind, "title": "", "metric": metric, "x": "flows"}
    if kind == "cdf":
        keys = {"kind": kind, "title": "", "metric": metric, "hue": "flows"}
    if kind == "scatter":
        keys = {"kind": kind, "title": "", "x": metric, "y": "goodput"}
    chart = chart_of(TypeAdapter(Panel).validate_python(keys), source)
    assert chart is not None
    (ax,) = draw_chart(chart).axes
    limits = ax.get_xlim() if kind in ("cdf", "scatter") else ax.get_ylim()
    assert limits[0] == pytest.approx(begins, abs=0.01)
