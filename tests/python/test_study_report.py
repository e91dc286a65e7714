"""The report of a study: everything it must say is in one file, and its figures stand beside."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from conftest import Skyhop
from small_study import content, write

from skyhop.report import write_study_report
from skyhop.study import Results, load_study
from skyhop.study.axes import numeric_axes
from skyhop.study.file import ComparisonPanel, TablePanel
from skyhop.study.plan import Study
from skyhop.study.results import dataset
from skyhop.study.tables import comparison_table, table_of

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
    {"kind": "series", "title": "Series", "series": ["goodput", "cwnd", "base_rtt"], "hue": "cc",
     "where": {"loss": "1 %"}, "from": "1 s", "until": "2 s"},
)  # fmt: skip


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a study with every kind of panel, one claim of each verdict."""
    from skyhop.study import run_study
    from skyhop.study.claims import judge

    place = tmp_path_factory.mktemp("reported")
    claims = [
        {"text": "BBR <fast>", "check": 'goodput(cc="bbr") > 1'},
        {"text": "CUBIC wins", "check": 'goodput(cc="cubic") > 99', "note": "It does not."},
        {"text": "Who knows", "check": 'completion(cc="bbr") > 1'},
    ]
    published = [{"metric": "goodput", "by": ["cc"], "values": [["bbr", 9.5]]}]
    write(place / "s.toml", panel=list(PANELS), claim=claims, published=published, notes=["N & M"])
    study = load_study(place / "s.toml")
    done = run_study(study, place / "out", jobs=2)
    write_study_report(done, judge(study.claims, done.results))
    return place / "out"


def test_the_page_says_everything_and_needs_nothing(reported: Path) -> None:
    page = (reported / "report.html").read_text("utf-8")
    for text in (
        "Which of them fills a lossy link?", "BBR &lt;fast&gt;", "✓ holds", "✗ does not hold",
        "? cannot be told", "It does not.", "1 of 3 hold", "N &amp; M", "8 of 8", "published",
        "/s.toml -o /", "results.parquet", "[scenario.path]",
    ):  # fmt: skip
        assert text in page, text
    for panel in PANELS:
        assert f"<h2>{panel['title']}</h2>" in page
    assert "No finished run has anything to show" not in page
    assert page.count("data:image/png;base64,") == 2 * 8  # wide, and for phones
    assert not re.search(r'src(set)?="(?!data:)', page)
    linked = set(re.findall(r'href="(?!#)([^"]+)"', page))
    files = (reported / "report-figures").iterdir()
    assert linked == {f"report-figures/{file.name}" for file in files}
    assert not re.search(r"@import|url\((?!data:)", page)


def test_every_figure_is_there_for_a_paper(reported: Path) -> None:
    folder = reported / "report-figures"
    starts = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
    for kind, start in starts.items():
        files = sorted(folder.glob(f"*{kind}"))
        assert len(files) == 8
        assert all(file.read_bytes().startswith(start) for file in files)
    tables = sorted(folder.glob("*.csv"))
    assert len(tables) == len(PANELS)
    for table in tables:
        rows = list(csv.DictReader(table.read_text("utf-8").splitlines()))
        assert rows, table


def test_numbers_beside_figures_are_those_of_the_dataset(reported: Path) -> None:
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
    series = pl.read_csv(next((reported / "report-figures").glob("10-*.csv")))
    assert series.get_column("t_s").min() >= 1
    assert series.get_column("t_s").max() <= 2


def made_up(goodput_mbps: dict[str, list[float]]) -> tuple[Study, Results]:
    study = load_study(content())
    rows = [
        {"cc": cc, "loss": "1 %", "seed": seed, "run": f"{cc}{seed}", "goodput_bps": 1e6 * value}
        for cc, values in goodput_mbps.items()
        for seed, value in enumerate(values)
    ]
    return study, Results(dataset(rows, numeric_axes(study.file)), study.metrics)


def test_a_comparison_counts_what_there_is() -> None:
    study, results = made_up({"cubic": [10, 11, 12, 13], "bbr": [20, 21, 22, 23]})
    panel = ComparisonPanel(kind="comparison", title="", metric="goodput", by="cc", against="cubic")
    made = comparison_table(panel, study, results)
    reference, bbr = made.data.rows(named=True)
    assert reference["name"] == "cubic (reference)"
    assert (bbr["mean"], bbr["difference"], bbr["effect"]) == (21.5, 10, "very large")
    assert bbr["p"] < 0.001
    assert made.table.rows[1][-3] == "< 0.0001" or made.table.rows[1][-3].startswith("0.")


def test_a_table_without_repeats_has_no_interval() -> None:
    study, results = made_up({"cubic": [10], "bbr": [20]})
    panel = TablePanel(kind="table", title="", metrics=["goodput"], by=["cc"])
    made = table_of(panel, study, results)
    assert made.table.rows == [["cubic", "10.0"], ["bbr", "20.0"]]
    assert [column.title for column in made.table.columns] == ["cc", "goodput"]


def test_failures_stand_on_the_page(skyhop: Skyhop, tmp_path: Path) -> None:
    axis = {"name": "cc", "key": "flow.0.cc", "values": ["cubic", "psychic"]}
    write(tmp_path / "study.toml", axis=[axis], panel=[dict(PANELS[2], x="cc", hue="cc")])
    assert skyhop("study", "run", "study.toml", "-o", "out").returncode == 1
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "2 runs failed: what follows is without them" in page
    assert "cc = psychic, seed 1" in page


def test_a_study_of_which_nothing_ran_says_so(skyhop: Skyhop, tmp_path: Path) -> None:
    axis = {"name": "cc", "key": "flow.0.cc", "values": ["psychic"]}
    claim = {"text": "It is fast", "check": "goodput() > 1"}
    panel = dict(PANELS[2], x="cc", hue="cc")
    write(tmp_path / "study.toml", axis=[axis], claim=[claim], panel=[panel])
    done = skyhop("study", "run", "study.toml", "-o", "out")
    assert done.returncode == 1, done.stderr
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "cannot be told" in page


def test_an_earlier_reports_figures_do_not_stay(skyhop: Skyhop, tmp_path: Path) -> None:
    bars = dict(PANELS[2])
    write(tmp_path / "study.toml", panel=[bars, {**bars, "title": "Again"}])
    assert skyhop("study", "run", "study.toml", "-o", "out").returncode == 0
    assert (tmp_path / "out" / "report-figures" / "2-again.pdf").exists()
    write(tmp_path / "study.toml", panel=[bars])
    assert skyhop("study", "run", "study.toml", "-o", "out").returncode == 0
    names = {file.name for file in (tmp_path / "out" / "report-figures").iterdir()}
    assert names == {"1-bars.png", "1-bars.svg", "1-bars.pdf", "1-bars.csv"}
