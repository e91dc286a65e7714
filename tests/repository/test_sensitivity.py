"""The page on where headline claims hold: made of a data file, a map per paper."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from skyhop.study import load_study, run_study
from small_study import write
from validation import pages
from validation.provenance import Provenance, read_provenance, write_provenance
from validation.reproduced import paper_of, papers
from validation.sensitivity import data, page
from validation.sensitivity.data import Cells, Mapped, figures

T3P = "sensitivity-t3p"


def made_up(gain: float = 3.0) -> Cells:
    """Return runs of T3P's study: a gain for independent losses of 2 % and more, none otherwise."""
    mapped = Mapped.of(T3P)
    rows, columns = mapped.labels("loss"), mapped.labels("burst")
    found = []
    for (row, line), (column, level) in itertools.product(enumerate(rows), enumerate(columns)):
        is_link = line in ("Victoria", "Lagos", "Starlink")
        if is_link and column:
            continue
        mean = gain if row >= rows.index("2 %") and column == 0 and not is_link else 1.0
        # Runs of the first cell are on both sides of 2, the turn.
        runs = (1.5, 2.6) if (row, column) == (0, 0) else (mean, mean + 0.1)
        found += [(T3P, "gain", "", line, level, seed, v) for seed, v in enumerate(runs)]
    frame = pl.DataFrame(found, schema=[*data.KEYS, "seed", "value"], orient="row")
    return Cells(frame, {T3P: Provenance("0123", "2026-01-01")})


def test_each_paper_has_figures_whose_studies_have_one_map() -> None:
    # Hypatia's claims are about orbits and routes, and no property of a link decides them.
    own = [paper.page for paper in papers() if paper.page not in ("skyhop", "hypatia")]
    assert {figure.paper for figure in figures()} == {*own}
    for figure in figures():
        assert paper_of(figure.study).page == "skyhop"
        mapped = Mapped.of(figure.study)
        assert set(figure.links) <= set(mapped.labels(mapped.panel.y))
        assert {str(group) for group in mapped.panel.groups} <= set(mapped.labels(mapped.panel.y))


def test_a_figure_counts_the_cells_of_its_plane_in_which_the_claim_holds() -> None:
    (drawn,) = page.every_figure(made_up())
    (text,) = page.counts(drawn)
    assert text.endswith(
        ": 2.00 or more in 2 of 25 cells of the plane, less in 22, and 1 within chance."
    )
    (less,) = page.counts(page.every_figure(made_up(gain=1.0))[0])
    assert "in 0 of 25 cells" in less


def test_links_have_their_own_value_with_its_interval() -> None:
    cells = made_up()
    (drawn,) = page.every_figure(cells)
    texts = list(page.links(cells, drawn))
    assert len(texts) == 3
    place = "**Lagos** (1.3 % lost, in bursts of some 100 ms): "
    assert texts[1] == f"{place}goodput over the default's 1.05 [1.00, 1.10]."
    assert drawn.maps[0].grid[-3:, 0] == pytest.approx(1.05)
    assert np.isnan(drawn.maps[0].grid[-3:, 1:]).all()


def test_the_page_has_the_figures_that_have_runs() -> None:
    text = page.page(made_up())
    assert text.count("![") == 1
    assert f"]({T3P}.png)" in text
    assert '<a id="t3p"></a>' in text
    assert "(build 0123, 2026-01-01)" in text
    for line in text.splitlines():
        assert len(line) <= pages.WIDTH or line.startswith("|"), line


def test_rows_of_the_data_are_the_runs_of_a_studys_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    panel = {"kind": "map", "title": "Map", "metrics": ["goodput", "srtt"], "x": "loss", "y": "cc",
             "turn": 5}  # fmt: skip
    study = load_study(write(tmp_path / "small.toml", panel=[panel]))
    results = run_study(study, tmp_path / "out", jobs=1).results
    monkeypatch.setattr(data, "find_study", lambda _: tmp_path / "small.toml")
    frame = data.collect("small", results)
    assert frame.columns == [*data.KEYS, "seed", "value"]
    assert frame.height == 2 * 2 * 2 * 2, "metrics, senders, losses, seeds"
    cells = Cells(frame, {})
    own = results.frame.filter(cc="bbr", loss="1 %").get_column("goodput_bps") / 1e6
    found = cells.values("small", "goodput", "", "bbr", "1 %")
    assert found == pytest.approx(own.to_numpy(), rel=1e-3)


def test_builds_and_dates_are_written_and_read(tmp_path: Path) -> None:
    file = tmp_path / "made.toml"
    assert read_provenance(file) == {}
    made = {"a": Provenance("01", "2026-01-01"), "b-c": Provenance("02", "2026-01-02")}
    write_provenance(file, "a.csv", made)
    assert read_provenance(file) == made


def test_the_committed_page_is_what_the_data_file_gives() -> None:
    cells = data.read()
    assert set(cells.made) == set(page.STUDIES)
    drawn = page.every_figure(cells)
    assert [one.figure for one in drawn] == list(figures())
    for one in drawn:
        assert (pages.RESULTS / one.picture).is_file()
    assert page.PAGE.read_text("utf-8") == page.page(cells)
