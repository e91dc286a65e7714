"""Comparison of paths: the compared paths, the table, and the figure."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from conftest import Skyhop

import skyhop as sh
from skyhop.analysis.path_comparison import compare_paths, comparison_rows, comparison_table
from skyhop.analysis.path_statistics import path_statistics
from skyhop.data.figure_files import FIGURE_WIDTHS
from skyhop.data.reading import path_record
from skyhop.data.records import PathRecord
from skyhop.figures.path_comparison import draw_path_comparison

ENDS = ("--from", "Seattle", "--to", "New York", "--duration", "30 s")


@pytest.fixture(scope="module")
def records() -> dict[str, PathRecord]:
    paths = {
        "isl": sh.path("Seattle", "New York", relay="isl", duration="1 min"),
        "geo": sh.path("Seattle", "New York", constellation="geo:-95.2", relay="geo",
                       duration="30 s"),
    }  # fmt: skip
    return {name: path_record(path) for name, path in paths.items()}


def test_constellations_relays_and_files_are_compared(skyhop: Skyhop, tmp_path: Path) -> None:
    sh.path("San Diego", "New York", duration="20 s").write(tmp_path / "mine.parquet")
    done = skyhop("path", "compare", "isl", "kuiper-630-hypatia:isl", "geo:-95.2", "mine.parquet",
                  "isl", *ENDS, "--json", "-o", "x.svg", "--width", "one-column")  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["path"] for row in rows] == [
        "starlink-shell1, isl", "kuiper-630-hypatia, isl", "geo:-95.2, geo", "mine"
    ]  # fmt: skip
    assert [row["from"] for row in rows] == ["Seattle, US"] * 3 + ["San Diego, US"]
    assert [row["duration_s"] for row in rows] == [30, 30, 30, 20]
    assert rows[2]["rtt_mean_ms"] > 10 * rows[0]["rtt_mean_ms"]
    assert rows[2]["handovers_per_hour_end"] == 0
    assert 'width="252pt"' in (tmp_path / "x.svg").read_text("utf-8")


def test_the_table_has_the_statistics_of_each_path(records: dict[str, PathRecord]) -> None:
    rows = comparison_rows(records)
    for row, path in zip(rows, records.values(), strict=True):
        figures = path_statistics(path)
        assert row["rtt_p95_ms"] == figures["rtt_ms"]["p95"]
        assert row["outage_share"] == figures["outage_share"]
        assert row["stretch_great_circle"] == figures["stretch_great_circle"]
    table = comparison_table(rows)
    # Equal ends need no columns.
    assert [column.title for column in table.columns][:2] == ["path", "RTT mean"]
    assert len(table.rows) == 2


def test_a_terminal_and_csv_have_the_same_paths(skyhop: Skyhop) -> None:
    arguments = ("path", "compare", "bent-pipe", "access", *ENDS)
    text = skyhop(*arguments)
    assert text.returncode == 0, text.stderr
    assert "starlink-shell1, access" in text.stdout
    rows = list(csv.DictReader(skyhop(*arguments, "--csv").stdout.splitlines()))
    assert [row["relay"] for row in rows] == ["bent-pipe", "access"]
    assert float(rows[0]["rtt_mean_ms"]) > 0


def test_the_figure_has_a_line_and_a_curve_per_path(records: dict[str, PathRecord]) -> None:
    shown = compare_paths(records)
    assert shown.panel.is_log, "half a second next to thirty milliseconds"
    for width in FIGURE_WIDTHS:
        over_time, shares = draw_path_comparison(shown, width).axes
        assert [line.get_label() for line in over_time.lines] == ["isl", "geo"]
        assert len({line.get_marker() for line in over_time.lines}) == 2
        assert len(shares.lines) == 2
    for (name, curve), path in zip(shown.shares, records.values(), strict=True):
        quantiles = path_statistics(path)["rtt_ms"]
        assert curve.values[-1] == pytest.approx(quantiles["max"]), name
        assert curve.shares[-1] == pytest.approx(1)
        at = int(np.searchsorted(curve.shares, 0.5))
        assert curve.values[at] == pytest.approx(quantiles["p50"])


def test_shares_of_a_path_with_outages_count_the_time_it_is_up(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("1,8,10,20,0,0,0\n1,4,20,50,0,0,3000\n1,4,20,50,0,0,4000\n")
    path = path_record(sh.import_path(tmp_path / "x.csv", "csv"))
    ((_, curve),) = compare_paths({"x": path}).shares
    assert curve.values.tolist() == pytest.approx([30, 70, 70])
    assert curve.shares[0] == pytest.approx(3 / 7)


def test_files_of_the_same_name_get_distinct_labels(skyhop: Skyhop, tmp_path: Path) -> None:
    path = sh.path("San Diego", "New York", duration="5 s")
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        path.write(tmp_path / place / "x.parquet")
    done = skyhop("path", "compare", "a/x.parquet", "b/x.parquet", "--json")
    assert [row["path"] for row in json.loads(done.stdout)] == ["a/x.parquet", "b/x.parquet"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("isl",), "isl: there is no such path file; to compute a path, give --from and --to"),
        (("gone.parquet", *ENDS), "gone.parquet: cannot read"),
        (("no-such-fleet:isl", *ENDS), "no-such-fleet"),
        (("isl", *ENDS, "--width", "wide"), "--width: expected page"),
    ],
)
def test_wrong_arguments(skyhop: Skyhop, arguments: tuple[str, ...], said: str) -> None:
    done = skyhop("path", "compare", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
