"""Figures and tables for papers: widths, formats, files, and captions."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from conftest import Skyhop
from matplotlib import get_data_path
from matplotlib.axis import Tick
from matplotlib.font_manager import FontProperties
from matplotlib.text import Text
from matplotlib.textpath import TextPath
from PIL import Image
from test_study_report import LATE, PANELS, SUM

from skyhop.analysis.charts import Chart, MetricChart
from skyhop.analysis.comparison import compare
from skyhop.analysis.run_timeline import run_timeline
from skyhop.analysis.tables import Column, Table, plus_minus
from skyhop.cli.figures import figure_files
from skyhop.data.figure_files import FIGURE_KINDS, FIGURE_WIDTHS, FigureWidth
from skyhop.data.reading import read_runs, run_record
from skyhop.data.records import RunRecord
from skyhop.data.runs import Run
from skyhop.errors import InputError
from skyhop.figures import comparison_figure, path_figure, run_figure
from skyhop.figures.charts import _draw, draw_chart
from skyhop.figures.comparison import COMPARISON_PANELS
from skyhop.figures.style import Sheet, shape_figure
from skyhop.report import FigureFiles, write_figure, write_report
from skyhop.report.latex import latex_table
from skyhop.report.latex_text import escaped
from skyhop.report.parts import draw_figure
from skyhop.study import load_study, run_study
from skyhop.study.charts import ChartSource, chart_of
from small_study import write
from synthetic_run import SyntheticRun

WIDTHS_IN = {"page": 11.0, "two-column": 7.16, "one-column": 3.5}
LEAST_PT = 6.0
NARROW_FIRST = [
    width if width == "one-column" else pytest.param(width, marks=pytest.mark.soak)
    for width in FIGURE_WIDTHS
]
"""Figure widths: the narrowest always, because it is the hardest to fit; others in soak."""

pytestmark = pytest.mark.filterwarnings("error::UserWarning")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    SyntheticRun(("cubic", "bbr"), 12.0, probe=True, apps=("requests",)).write(place / "both")
    SyntheticRun(("a-rather-long-name-of-mine",), 12.0).write(place / "mine")
    return place


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory) -> ChartSource:
    """Run a study with every kind of panel; return the source of its charts."""
    place = tmp_path_factory.mktemp("studied")
    published = [{"metric": "goodput", "by": ["cc"], "values": [["bbr", 9.5]]}]
    keys = {"panel": list(PANELS), "metric": [LATE, SUM], "published": published}
    study = load_study(write(place / "s.toml", **keys))
    done = run_study(study, place / "out", jobs=2)
    read = cache(lambda run: run_record(Run(done.directory.runs / run)))
    return ChartSource(study, done.results, read)


@pytest.fixture(scope="module")
def charts(studied: ChartSource) -> dict[str, Any]:
    """Return the chart of each panel by its title; None for a table."""
    return {panel.title: chart_of(panel, studied) for panel in studied.study.file.panel}


def test_every_width_is_tested() -> None:
    assert set(WIDTHS_IN) == set(FIGURE_WIDTHS) == set(get_args(FigureWidth))


@pytest.mark.parametrize("width", NARROW_FIRST)
def test_figures_of_runs_fit_their_width(runs: Path, width: FigureWidth) -> None:
    records = read_runs([runs / "both", runs / "mine"])
    check_fits(run_figure(records[0], width=width), width)
    check_fits(comparison_figure(records, width=width), width)
    check_fits(path_figure(runs / "both" / "path.parquet", width=width), width)


@pytest.mark.parametrize("width", NARROW_FIRST)
def test_figures_of_studies_fit_their_width(charts: dict[str, Any], width: FigureWidth) -> None:
    drawn = [draw_chart(chart, width) for chart in charts.values() if chart is not None]
    tables = [panel for panel in PANELS if panel["kind"] in ("table", "comparison")]
    assert len(drawn) == len(PANELS) - len(tables)
    for figure in drawn:
        check_fits(figure, width)


def check_fits(figure: Sheet, width: FigureWidth) -> None:
    """Check that a figure has the given width, readable texts, and nothing cut off."""
    assert figure.get_figwidth() == WIDTHS_IN[width]
    figure.draw_without_rendering()
    right, top = figure.bbox.width, figure.bbox.height
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text()]
    # Labels of ticks outside an axis's limits are not drawn, so they are not checked.
    ticks = [label for tick in figure.findobj(Tick) for label in (tick.label1, tick.label2)]
    shown = [text for text in texts if text not in ticks]
    assert shown
    for text in shown:
        assert text.get_fontsize() >= LEAST_PT, text
        box = text.get_window_extent()
        assert box.x0 > -2, text
        assert box.x1 < right + 2, text
        assert box.y0 > -2, text
        assert box.y1 < top + 2, text
    legends = [ax.get_legend().get_window_extent() for ax in figure.axes if ax.get_legend()]
    for legend in legends:
        assert legend.x0 > -2
        assert legend.x1 < right + 2
    drawn = [ax for ax in figure.axes if ax.axison and ax.get_label() != "<colorbar>"]
    assert all(ax.get_window_extent().width > 0.08 * right for ax in drawn)


@pytest.mark.parametrize("width", NARROW_FIRST)
def test_pdfs_are_as_wide_as_a_column(runs: Path, tmp_path: Path, width: FigureWidth) -> None:
    write_figure([runs / "mine"], tmp_path / "x.pdf", width=width)
    page = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+) ", (tmp_path / "x.pdf").read_bytes())
    assert page is not None
    assert float(page[1]) == pytest.approx(72 * WIDTHS_IN[width], abs=0.1)


@pytest.mark.usefixtures("pictures")
def test_files_have_the_given_directory_and_formats(
    skyhop: Skyhop, runs: Path, tmp_path: Path
) -> None:
    done = skyhop("report", runs / "mine", "-o", "r.html", "--figures", "my figs",
                  "--format", "pdf", "--format", "svg", "--width", "one-column")  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = {file.name for file in (tmp_path / "my figs").iterdir()}
    assert found == {f"{name}.{kind}" for name in ("path", "run-1-mine") for kind in ("pdf", "svg")}
    page = (tmp_path / "r.html").read_text("utf-8")
    assert 'href="my%20figs/path.pdf"' in page
    svg = (tmp_path / "my figs" / "path.svg").read_text("utf-8")
    assert re.search(r'<svg[^>]* width="252pt"', svg)
    assert not (tmp_path / "r-figures").exists()


def test_a_single_figure_has_the_format_of_its_name(
    skyhop: Skyhop, runs: Path, tmp_path: Path
) -> None:
    done = skyhop("report", runs / "mine", "-o", "one.svg", "--width", "two-column")
    assert done.returncode == 0, done.stderr
    assert "figure: one.svg" in done.stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == ["one.svg"]
    text = (tmp_path / "one.svg").read_text("utf-8")
    assert re.search(r'<svg[^>]* width="515.52pt"', text)


@pytest.mark.usefixtures("pictures")
def test_figures_of_all_formats_go_to_the_given_directory(runs: Path, tmp_path: Path) -> None:
    wanted = FigureFiles(tmp_path / "paper")
    write_report([runs / "mine"], tmp_path / "r.html", figures=wanted)
    (tmp_path / "paper" / "path.pdf").write_bytes(b"mine")
    write_report([runs / "mine"], tmp_path / "r.html", figures=replace(wanted, kinds=("png",)))
    # Files in a directory that the user gave are overwritten, never removed.
    kinds = {file.suffix[1:] for file in (tmp_path / "paper").glob("path.*")}
    assert kinds == set(FIGURE_KINDS)
    assert (tmp_path / "paper" / "path.pdf").read_bytes() == b"mine"


def test_wrong_options_are_named_before_any_work(skyhop: Skyhop, tmp_path: Path) -> None:
    write(tmp_path / "s.toml")
    done = skyhop("study", "run", "s.toml", "-o", "out", "--width", "3in")
    assert done.returncode == 2
    said = 'skyhop: --width: expected page, two-column or one-column, not "3in"\n'
    assert done.stderr == said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("directory", "kinds", "said"),
    [
        (None, ["eps"], '--format: expected png, svg or pdf, not "eps"'),
        ("no/such/place", [], "there is no such directory"),
        ("taken", [], "taken is not a directory"),
    ],
)
def test_impossible_figures_are_named(
    tmp_path: Path, directory: str | None, kinds: list[str], said: str
) -> None:
    (tmp_path / "taken").write_text("", "utf-8")
    place = None if directory is None else tmp_path / directory
    with pytest.raises(InputError, match=re.escape(said)):
        figure_files(place, kinds, "page", FIGURE_KINDS)


def test_one_figure_has_no_directory_of_figures(skyhop: Skyhop, runs: Path) -> None:
    done = skyhop("report", runs / "both", "-o", "x.pdf", "--figures", "here")
    assert done.returncode == 2
    assert "--figures and --format are for pages" in done.stderr


@pytest.mark.usefixtures("pictures")
def test_a_study_writes_its_tables_as_latex(skyhop: Skyhop, tmp_path: Path) -> None:
    published = [{"metric": "goodput", "by": ["cc"], "values": [["bbr", 9.5]]}]
    table = {**PANELS[0], "title": "50 % & more"}
    write(tmp_path / "s.toml", panel=[table, PANELS[2]], published=published, repeats=1)
    done = skyhop("study", "run", "s.toml", "-o", "out", "--figures", "paper", "--format", "pdf",
                  "--width", "one-column")  # fmt: skip
    assert done.returncode == 0, done.stderr
    names = {file.name for file in (tmp_path / "paper").iterdir()}
    assert names == {"1-50-more.csv", "1-50-more.tex", "2-bars.csv", "2-bars.pdf"}
    lines = (tmp_path / "paper" / "1-50-more.tex").read_text("utf-8").splitlines()
    assert lines[0] == "% 50 % & more"
    assert r"\begin{tabular}{@{}llrrrr@{}}" in lines
    assert r" &  & \multicolumn{3}{c}{goodput (Mbit/s)} &  \\" in lines
    head = lines.index(r"cc & loss & ours & published & ratio & mean srtt \\")
    assert lines[head + 1] == r" &  &  &  &  & (ms) \\"
    # The cell with the congestion control is empty below its first row.
    firsts = [line.split(" & ")[0] for line in lines[head + 3 : -2]]
    assert firsts == ["cubic", "", r"\addlinespace", "bbr", ""]
    assert lines[-3].split(" & ")[3] == "9.50"
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert 'href="../paper/1-50-more.tex"' in page


def test_latex_prints_what_the_page_shows() -> None:
    columns = [Column("a", r"50 % of $x_1$ & \more", "", str, numeric=False),
               Column("b", "~^{}#", "\N{MICRO SIGN}s", str)]  # fmt: skip
    rows = [["[1] <a-b> | \N{RIGHTWARDS ARROW}", "-1.5"], ["\N{EN DASH}", "1,234"]]
    text = latex_table(Table([("", 2)], columns, rows), "two\nlines")
    lines = text.splitlines()
    assert lines[0] == "% two lines"
    assert lines[2:5] == [
        r"\begin{tabular}{@{}lr@{}}", r"\toprule",
        r"50 \% of \$x\_1\$ \& \textbackslash{}more & "
        r"\textasciitilde{}\textasciicircum{}\{\}\# \\",
    ]  # fmt: skip
    assert lines[5] == r" & ($\mu$s) \\"
    # LaTeX takes a bracket after the end of a row (\\) for its argument.
    assert lines[7] == r"{}[1] \textless{}a-b\textgreater{} \textbar{} $\rightarrow$ & $-$1.5 \\"
    assert lines[8] == r"-- & 1,234 \\"


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("S\N{LATIN SMALL LETTER A WITH TILDE}o Paulo", r"S\~{a}o Paulo"),
        # Only other encodings than pdfLaTeX's default have these letters.
        ("Cz\N{LATIN SMALL LETTER E WITH OGONEK}stochowa", "Czestochowa"),
        ("\N{LATIN CAPITAL LETTER D WITH STROKE}\N{LATIN SMALL LETTER A WITH GRAVE}", r"D\`{a}"),
        ("\N{LATIN SMALL LETTER A WITH BREVE AND TILDE}", r"\u{a}"),
        ("\N{GREEK SMALL LETTER LAMDA}\N{GREEK CAPITAL LETTER DELTA}", r"$\lambda$$\Delta$"),
        ("--policy x---y", r"-{}-policy x-{}-{}-y"),
        ("two\n\nlines\tand\N{THIN SPACE}spaces", "two lines and spaces"),
        ("a \N{NOT EQUAL TO} b", r"a $\neq$ b"),
        ("10\N{SUPERSCRIPT MINUS}\N{SUPERSCRIPT FIVE}, x\N{SUBSCRIPT TWO}", "10$^-$$^5$, x$_2$"),
        ("\N{GREEK SMALL LETTER OMICRON WITH TONOS}", "o"),
        # Accents may be characters of their own, also where no letter has both.
        ("e\N{COMBINING ACUTE ACCENT}x\N{COMBINING CIRCUMFLEX ACCENT}", r"\'{e}\^{x}"),
        ("\N{LATIN SMALL LETTER O WITH STROKE AND ACUTE}", r"\o{}"),
        ("5''", "5'{}'"),
        ("\N{LEFT-POINTING DOUBLE ANGLE QUOTATION MARK}a\0", "``a"),
        ("\N{CYRILLIC SMALL LETTER SHORT I}", "\N{CYRILLIC SMALL LETTER SHORT I}"),
    ],
)  # fmt: skip
def test_latex_has_no_character_that_pdflatex_lacks(text: str, latex: str) -> None:
    assert escaped(text) == latex


def test_no_row_or_line_begins_with_an_argument() -> None:
    columns = [Column("a", "", "", str, numeric=False),
               Column("b", "RTT [mean] *of all*", "packets per second *", str)]  # fmt: skip
    latex = latex_table(Table([("", 2)], columns, [["*", "1"], ["[x]", "2"]]), "")
    assert r"{}* & 1 \\" in latex
    assert r"{}[x] & 2 \\" in latex
    assert not re.search(r"\\\\\s*[\[*]", latex)


def test_names_longer_than_a_column_break_at_separators() -> None:
    name = "san-diego_to_new-york/" * 4
    columns = [Column("a", "run", "", str, numeric=False), Column("b", "goodput", "Mbit/s", str)]
    latex = latex_table(Table([("", 2)], columns, [[name, "138"]]), "", "one-column")
    assert max(widths_in(latex)) <= 3.487
    assert r"san-\allowbreak{}diego\_\allowbreak{}to" in latex
    # An unbreakable heading is printed at the smallest size.
    columns[1] = Column("b", "unbreakable" * 6, "", str)
    assert r"\scriptsize" in latex_table(Table([("", 2)], columns, [["a", "1"]]), "", "one-column")


def test_an_empty_table_and_a_table_of_text_are_latex() -> None:
    columns = [Column("a", "cc", "", str, numeric=False), Column("b", "goodput", "Mbit/s", str)]
    for table in (Table([("", 2)], columns, []), Table([("", 1)], columns[:1], [["bbr"]])):
        latex = latex_table(table, "t", "one-column")
        assert latex.count(r"\begin{tabular}") == latex.count(r"\bottomrule") == 1
        assert "cc" in latex


def wide_table(columns: int) -> Table:
    titles = ["goodput", "slowest seconds after an end handover (5th percentile, 15 s)", "RTT p95"]
    return Table(
        [("", 2 + columns)],
        [*(Column(name, name, "", str, numeric=False) for name in ("pair of cities", "cc")),
         *(Column(str(n), titles[n % 3], "Mbit/s", str) for n in range(columns))],
        [[pair, cc, *["138.2 \N{PLUS-MINUS SIGN} 0.3"] * columns]
         for pair in ("New York to London", "London to Singapore") for cc in ("cubic", "bbr3")],
    )  # fmt: skip


def widths_in(latex: str) -> Iterator[float]:
    """Yield the width of each `tabular` in inches, in Computer Modern, without its outer space."""
    size = re.search(r"\\(small|footnotesize|scriptsize)", latex)
    # Letters of cmr9, cmr8 and cmr7 are as wide as those of cmr10 at these sizes.
    points = {"small": 9.25, "footnotesize": 8.5, "scriptsize": 7.97}[size[1]] if size else 10
    space = re.search(r"tabcolsep}\{(.*?)pt", latex)
    font = FontProperties(fname=f"{get_data_path()}/fonts/ttf/cmr10.ttf")
    for body in latex.split(r"\begin{tabular}")[1:]:
        widths: dict[int, float] = {}
        set_pt = re.findall(r"p\{([\d.]+)pt\}", body)
        for line in body.splitlines():
            if "multicolumn" in line or not line.endswith(r"\\"):
                continue
            for place, cell in enumerate(line.removesuffix(r" \\").split(" & ")):
                for text in re.sub(r"\\makecell\[..\]\{(.*)\}", r"\1", cell).split(r" \\ "):
                    plain = text.replace(r"$\pm$", "+").strip() or "-"
                    width = TextPath((0, 0), plain, size=points, prop=font).get_extents().width
                    widths[place] = max(widths.get(place, 0.0), width)
        widest = map(float, set_pt) if set_pt else widths.values()
        gaps = max(widths) * 2 * float(space[1] if space else 6)
        yield (sum(widest) + gaps) / 72.27


@pytest.mark.parametrize(("width", "room_in"), [("one-column", 3.487), ("two-column", 7.14)])
@pytest.mark.parametrize("columns", [1, 2, 4, 9])
def test_latex_tables_are_as_wide_as_their_column(
    columns: int, width: FigureWidth, room_in: float
) -> None:
    table = wide_table(columns)
    latex = latex_table(table, "", width)
    found = list(widths_in(latex))
    assert max(found) <= room_in
    # Every number is there, also if the columns are in several parts.
    assert latex.count("138.2") == 4 * columns
    assert r"\makecell[br]{slowest" in latex or columns < 4
    # The rows of a pair are a group.
    assert latex.count("New York to London") == len(found)


def test_sentences_wrap_in_latex() -> None:
    titles = ("claim", "verdict", "what came out")
    columns = [Column(name, name, "", str, numeric=False) for name in titles]
    sentence = "BBR fills more than 90 percent of the link between any two cities of the list"
    table = Table([("", 3)], columns, [[sentence, "holds", f"{sentence}: 127 against 95.8"]])
    for width, room_in in (("one-column", 3.5), ("page", 7.16)):
        latex = latex_table(table, "", width)  # type: ignore[arg-type]
        assert latex.count("raggedright") >= 2
        (found_in,) = widths_in(latex)
        assert found_in <= room_in


def test_values_have_the_decimals_of_their_uncertainty() -> None:
    found = {
        (value, reach): plus_minus(value, reach)
        for value, reach in [(138.21, 0.312), (5, 3), (0.361, 0.5), (1384, 250), (0.0123, 0.0011),
                             (138, 0), (1.0123, 0.096), (-3.21, 0.04), (214.41, 3e-14)]
    }  # fmt: skip
    assert list(found.values()) == [
        "138.2 ± 0.3", "5 ± 3", "0.4 ± 0.5", "1,384 ± 250", "0.0123 ± 0.0011", "138 ± 0",
        "1.01 ± 0.10", "-3.21 ± 0.04", "214 ± 0",
    ]  # fmt: skip


def test_panels_name_the_runs_behind_them(charts: dict[str, Any]) -> None:
    said = {title: getattr(chart, "pooled", None) for title, chart in charts.items()}
    assert said == {
        "A table": None,
        "Compared": None,
        "Bars": "each bar: 2 runs (2 seeds, 3 s each), with the mean's 95 % interval",
        "Boxes": "each box: all samples (means over 1 s) of 2 runs (2 seeds, 3 s each)",
        "Boxes of runs": "each box: 4 runs (2 seeds, 3 s each)",
        "Shares": "each curve: all samples (means over 1 s) of 4 runs (2 seeds, 3 s each)",
        "Lines": "each point: 2 runs (2 seeds, 3 s each), with the mean's 95 % interval",
        "Scatter": "each point: one flow of one run; 8 in all",
        "Ellipses": "each point: one run; 4 in all; ellipses: one standard deviation "
        "around the mean",
        "Heat": "each cell: 2 runs (2 seeds, 3 s each)",
        "Map": "each cell: 2 runs (2 seeds, 3 s each); orange: 5 or more; "
        "?: the 95 % interval contains 5",
        "Series": "each line: one run, with seed 1, all samples; goodput above the link's rate: "
        "what waited behind a lost packet is read at once",
        "Link": "each line: one run, with seed 1, as means over 500 ms",
        "Boxes of bins": "each box: all samples (means over 500 ms) of 2 runs (2 seeds)",
        "Shares of bins": "each curve: all samples (means over 500 ms) of 4 runs (2 seeds)",
        "Shares of sums": "each curve: all samples (means over 500 ms) of 4 runs (2 seeds)",
        "Transfers": "each point: 4 runs (2 seeds, 3 s each), with the mean's 95 % interval",
        "One transfer": "each point: 8 runs (2 seeds, 3 s each), less and plus their "
        "standard deviation",
    }
    written = [text.get_text() for text in draw_chart(charts["Shares"]).findobj(Text)]
    assert said["Shares"] in written


def test_comparisons_name_the_samples_behind_their_shares(runs: Path) -> None:
    figure = comparison_figure(read_runs([runs / "both", runs / "mine"]))
    written = {text.get_text() for text in figure.findobj(Text)}
    assert "shares: each curve is of all samples of one flow over 12 s, one every 0.1 s" in written


def test_a_burst_after_a_hole_is_explained(tmp_path: Path) -> None:
    run = read_runs([SyntheticRun(duration_s=12.0).write(tmp_path / "run")])[0]
    note = "above the link's rate: what waited behind a lost packet is read at once"
    for highest_mbps, expected in ((150.0, ""), (151.0, ""), (400.0, note)):
        goodput_mbps = np.full_like(run.flows[0].goodput_mbps, 90.0)
        goodput_mbps[50] = highest_mbps
        series = replace(run.flows[0], goodput_mbps=goodput_mbps)
        shown = run_timeline(replace(run, flows={0: series}))
        assert shown.panels[0].note == expected
    narrow = {text.get_text() for text in draw(shown, "one-column").findobj(Text)}
    assert f"goodput {note}" in {" ".join(text.split()) for text in narrow}
    # With a higher rate after a change, the goodput stays below it.
    run.scenario["change"] = [{"at": "4 s", "rate": "500 Mbit/s"}]
    assert run_timeline(replace(run, flows={0: series})).panels[0].note == ""


def test_bursts_are_explained_in_comparisons_and_over_measured_paths(tmp_path: Path) -> None:
    run = read_runs([SyntheticRun(duration_s=12.0).write(tmp_path / "run")])[0]
    goodput_mbps = np.full_like(run.flows[0].goodput_mbps, 90.0)
    goodput_mbps[50] = 400.0
    burst = replace(run, flows={0: replace(run.flows[0], goodput_mbps=goodput_mbps)})
    note = "goodput above the link's rate: what waited behind a lost packet is read at once"
    assert (compare([run]).bursts, compare([burst, run]).bursts) == ("", note)
    # A measured path has a rate of its own, which changes.
    del burst.scenario["link"]["rate"]
    assert burst.path is not None
    for rate_mbps, expected in ((100.0, note), (500.0, "")):
        rates = np.full(len(burst.path.t_s), rate_mbps)
        path = replace(burst.path, rate_mbps=rates)
        assert compare([replace(burst, path=path)]).bursts == expected


def test_bursts_are_explained_in_panels_of_studies(studied: ChartSource) -> None:
    def with_goodput(name: str, mbps: float) -> RunRecord:
        run = studied.record(name)
        return replace(run, flows={
            flow: replace(series, goodput_mbps=np.full_like(series.goodput_mbps, mbps))
            for flow, series in run.flows.items()
        })  # fmt: skip

    panels = {panel.title: panel for panel in studied.study.file.panel}
    sources = [replace(studied, record=partial(with_goodput, mbps=mbps)) for mbps in (293.0, 9.0)]
    note = "; goodput above the link's rate: what waited behind a lost packet is read at once"
    for title in ("Series", "Boxes"):
        charts = [chart_of(panels[title], source) for source in sources]
        assert [note in chart.pooled for chart in charts if chart is not None] == [True, False]


@pytest.mark.parametrize("panel", ["goodput", "srtt", "cwnd"])
def test_one_panel_of_a_run_is_a_figure(runs: Path, panel: str) -> None:
    record = read_runs([runs / "mine"])[0]
    figure = run_figure(record, width="one-column", panel=panel)
    labels = [axes.get_ylabel().split("\n")[0] for axes in figure.axes]
    assert [label for label in labels if label] == [panel]
    with pytest.raises(InputError, match=r'no panel "srttt" \(did you mean srtt\?\)'):
        run_figure(record, panel="srttt")


def test_one_panel_of_a_comparison_is_a_figure(runs: Path) -> None:
    records = read_runs([runs / "both", runs / "mine"])
    for panel in COMPARISON_PANELS:
        figure = comparison_figure(records, width="one-column", panel=panel)
        assert len([ax for ax in figure.axes if ax.get_xlabel()]) == 1
        check_fits(figure, "one-column")
    with pytest.raises(InputError, match="choose one of goodput, mean goodput, goodput CDF"):
        comparison_figure(records, panel="rtt")


@pytest.mark.usefixtures("pictures")
def test_figures_have_the_given_height_and_no_footer(
    skyhop: Skyhop, runs: Path, tmp_path: Path
) -> None:
    both = [str(runs / "both"), str(runs / "mine")]
    done = skyhop("report", *both, "-o", "c.svg", "--panel", "srtt CDF", "--width", "one-column",
                  "--height", "2.5", "--no-footer")  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = re.search(r'width="([\d.]+)pt" height="([\d.]+)pt"', (tmp_path / "c.svg").read_text())
    assert found is not None
    assert (float(found[1]) / 72, float(found[2]) / 72) == pytest.approx((3.5, 2.5), abs=0.01)
    plain = shape_figure(comparison_figure(read_runs([runs / "both"])), None, footer=False)
    assert not any(text.get_text().startswith("shares: ") for text in plain.findobj(Text))
    done = skyhop("report", *both, "-o", "c.svg", "--height", "0.6")
    assert done.returncode == 2
    assert "a height of 0.6 in is too small for the figure's" in done.stderr
    done = skyhop("report", *both, "-o", "r.html", "--panel", "srtt")
    assert done.returncode == 2
    assert "--panel is for a single figure" in done.stderr


def test_a_panel_of_a_path_has_the_given_shape(skyhop: Skyhop, tmp_path: Path) -> None:
    fixed = ("path", "--kind", "fixed", "--rtt", "20 ms", "--duration", "5 s", "-o", "p.parquet")
    shape = ("--width", "one-column", "--height", "1.5", "--no-footer")
    done = skyhop(*fixed, "--plot", "p.svg", "--panel", "one-way delay", *shape)
    assert done.returncode == 0, done.stderr
    found = re.search(r'width="([\d.]+)pt" height="([\d.]+)pt"', (tmp_path / "p.svg").read_text())
    assert found is not None
    assert (float(found[1]) / 72, float(found[2]) / 72) == pytest.approx((3.5, 1.5), abs=0.01)
    assert "Fixed path" not in (tmp_path / "p.svg").read_text()
    done = skyhop(*fixed, "--plot", "p.svg", "--panel", "delay")
    assert done.returncode == 2
    assert 'no panel "delay": choose one of one-way delay' in done.stderr


def draw(timeline: Any, width: FigureWidth) -> Sheet:
    from skyhop.figures.timeline import draw_timeline

    return draw_timeline(timeline, width)


@pytest.mark.usefixtures("pictures")
def test_the_page_has_figures_for_phones_and_for_dark_mode(runs: Path, tmp_path: Path) -> None:
    page = write_report([runs / "mine"], tmp_path / "r.html").read_text("utf-8")
    assert page.count('<source media="(max-width: 640px)" srcset="data:image/webp') == 2
    dark = page[page.index("@media (prefers-color-scheme: dark) {\n  figure img") :]
    assert "invert(1) hue-rotate(180deg)" in dark[:300]


def test_both_pictures_of_a_page_are_smaller_than_the_file(runs: Path) -> None:
    (mine,) = read_runs([runs / "mine"])
    drawn = partial(draw, run_timeline(mine))
    figure = draw_figure("mine", "", drawn, FigureFiles(kinds=("png",)))
    assert len(figure.wide) + len(figure.narrow) < len(figure.files["mine.png"])
    wide, narrow = (Image.open(io.BytesIO(content)) for content in (figure.wide, figure.narrow))
    assert (wide.format, wide.width, narrow.format, narrow.width) == ("WEBP", 1540, "WEBP", 770)


def test_widths_are_checked_in_python_too(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.png, \.svg or \.pdf"):
        write_figure([runs / "mine"], tmp_path / "x.jpg")


def test_every_kind_of_chart_has_a_drawing() -> None:
    kinds = {kind for base in (Chart, MetricChart) for kind in base.__subclasses__()} - {
        MetricChart
    }
    assert len(kinds) > 5
    without = _draw.dispatch(Chart)
    assert [kind.__name__ for kind in kinds if _draw.dispatch(kind) is without] == []
