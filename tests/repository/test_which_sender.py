"""The page that says which sender serves whom: made of a data file, by the statistics of runs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping

import numpy as np
import polars as pl
import pytest

from validation import pages
from validation.provenance import Provenance
from validation.which_sender import answers, page
from validation.which_sender import runs as data
from validation.which_sender.answers import READERS, RESEARCHER
from validation.which_sender.runs import (
    DELAY,
    FAIRNESS,
    GOODPUT,
    NEXT_TO_CUBIC,
    POWER,
    Runs,
)

COMPUTED = ("access", "true, ISL")
MODELLED = ("Victoria, model", "Lagos, model, up")
MEASURED = ("Victoria 1", "Lagos, up")
STUDY_OF = {
    **dict.fromkeys(COMPUTED, "leo-beyond"),
    **dict.fromkeys(MODELLED, "leo-beyond-access"),
    **dict.fromkeys(MEASURED, "leo-beyond-measured"),
}
SENDERS = ("CUBIC", "BBR", "LeoCC")
Change = Mapping[tuple[str, str], Mapping[str, float]]
"""Values by path and sender that differ from those of `VALUES`."""
VALUES = {
    "CUBIC": {"goodput": 60.0, "inflation": 1.5, "inflation_p95": 1.9, "share": 50.0},
    "BBR": {"goodput": 90.0, "inflation": 1.2, "inflation_p95": 1.3, "share": 80.0},
    "LeoCC": {"goodput": 95.0, "inflation": 1.1, "inflation_p95": 1.2, "share": 70.0},
}
SAME: Change = {}


def made_up(change: Change = SAME) -> Runs:
    """Return runs of three senders over two paths of each kind, five seeds each."""
    rng = np.random.default_rng(1)
    rows = []
    everything = itertools.product(
        [*COMPUTED, *MODELLED, *MEASURED],
        ("FIFO", "FQ-CoDel"),
        ("none", NEXT_TO_CUBIC),
        SENDERS,
        range(5),
    )
    for path, queue, rival, sender, seed in everything:
        study = STUDY_OF[path]
        values = {**VALUES[sender], **change.get((path, sender), {})}
        if queue == "FQ-CoDel":
            values |= {"inflation_p95": 1.05, "share": 50.0}
        noisy = {name: value + 0.01 * rng.normal() for name, value in values.items()}
        if rival == "none":
            noisy["share"] = float("nan")
        rows.append([study, path, queue, rival, sender, seed, *noisy.values()])
    names = [*data.KEYS, *data.COLUMNS]
    frame = pl.DataFrame(rows, schema=names, orient="row")
    return Runs(frame, dict.fromkeys(data.STUDIES, Provenance("0123", "2026-01-01")))


def items(runs: Runs) -> dict[str, str]:
    """Return the recommendation for each reader, on one line."""
    found = {}
    for text in answers.recommendations(runs):
        who = re.match(r"- \*\*([^*]+)\*\*", text)
        assert who, text
        found[who[1]] = " ".join(text.split())
    return found


def test_each_reader_gets_the_best_deployable_sender_with_numbers_and_the_next() -> None:
    found = items(made_up())
    edge = found["CDN edge"]
    assert "use **BBR**. BBR has 90.0 [90.0, 90.0] Mbit/s over the modelled Victoria, model" in edge
    assert "over the measured Victoria 1 (5 runs), behind FIFO; next is CUBIC with 60.0" in edge
    apart = "+30.0 [+30.0, +30.0]"
    assert (
        f"BBR against CUBIC: goodput (Mbit/s) {apart} over computed paths, {apart} over modelled "
        f"paths, {apart} over measured paths; delay (times the base RTT) \N{MINUS SIGN}0.6" in edge
    )
    assert "Over 2 computed paths of 100 Mbit/s (10 runs) it is best: BBR has 90.0" in edge
    assert "LeoCC" not in edge, "a research sender is no recommendation"
    call = found["Video call"]
    assert re.search(r"use \*\*BBR\*\*\. BBR has 1\.(29|30|31) ", call)
    assert "BBR against CUBIC: delay" in call, "each reader's own question comes first"
    operator = found["Gateway operator"]
    assert "use **FQ-CoDel**" in operator
    shares = "BBR takes 50 % [50.0, 50.0] of both with FQ-CoDel, 80 % [80.0, 80.0] with FIFO"
    assert shares in operator
    for kind in ("modelled", "measured"):
        assert re.search(rf"Over {kind} paths it is the same: FQ-CoDel has 1\.0[456] ", operator)
    researcher = found["Researcher"]
    assert "use **BBR**" in researcher
    assert "The best research sender is LeoCC over 2 computed paths, with 86." in researcher
    assert "LeoCC over 2 modelled paths" in researcher


def test_the_better_sender_is_recommended_whichever_it_is() -> None:
    swapped = made_up({(path, "CUBIC"): {"goodput": 99.0} for path in STUDY_OF})
    edge = items(swapped)["CDN edge"]
    assert "use **CUBIC**" in edge
    assert "BBR against CUBIC: goodput (Mbit/s) \N{MINUS SIGN}9.0" in edge.replace("9.00", "9.0")


@pytest.mark.parametrize("kinds", [(MODELLED,), (MEASURED,)])
def test_modelled_and_measured_paths_that_disagree_are_both_quoted(
    kinds: tuple[tuple[str, str], ...],
) -> None:
    turned = made_up({(path, "CUBIC"): {"goodput": 99.0} for kind in kinds for path in kind})
    edge = items(turned)["CDN edge"]
    first, second = ("CUBIC", "BBR") if kinds == (MODELLED,) else ("BBR", "CUBIC")
    assert f"modelled paths say **{first}**; measured paths say **{second}**. {first} has" in edge
    assert f"; {second} has " in edge


def test_a_sender_that_is_nearly_the_best_over_both_kinds_is_recommended() -> None:
    close = made_up({(path, "CUBIC"): {"goodput": 92.0} for path in MEASURED})
    assert "use **BBR**" in items(close)["CDN edge"], "2 % better over one kind decides nothing"


def test_computed_paths_that_say_otherwise_change_no_recommendation() -> None:
    turned = made_up({(path, "CUBIC"): {"goodput": 99.0} for path in COMPUTED})
    edge = items(turned)["CDN edge"]
    assert "use **BBR**" in edge
    assert "**Over 2 computed paths of 100 Mbit/s (10 runs) it differs**: CUBIC has 99.0" in edge


def test_bbr_against_cubic_has_the_sign_of_each_kind_of_path() -> None:
    turned = made_up({("Victoria 1", "BBR"): {"inflation_p95": 3.0}})
    delay = items(turned)["CDN edge"].partition("; delay (times the base RTT) ")[2]
    computed, modelled, measured = delay.split(" paths")[0:3]
    assert computed.startswith("\N{MINUS SIGN}0.6")
    assert modelled.startswith(", \N{MINUS SIGN}0.6")
    assert re.match(r", \+1\.(09|10|11) .* over measured", measured)


def test_a_sender_with_little_goodput_does_not_count_for_delay() -> None:
    slow = {(path, "BBR"): {"goodput": 40.0} for path in COMPUTED}
    ranked = data.rank(made_up(slow), DELAY, [(path, "FIFO") for path in COMPUTED], data.DEPLOYABLE)
    assert list(ranked.strata) == ["CUBIC"]


def test_an_even_share_is_judged_run_by_run() -> None:
    runs = made_up()
    frame = runs.frame.with_columns(
        share=pl.when(pl.col("sender") == "BBR")
        .then(50 + 20 * (pl.col("seed") % 2 * 2.0 - 1))
        .otherwise(pl.col("share") + 3)
    )
    uneven = Runs(frame, runs.made)
    ranked = data.rank(uneven, FAIRNESS, [("access", "FIFO")], data.DEPLOYABLE)
    assert ranked.best == "CUBIC"
    assert ranked.mean("BBR") == pytest.approx(20)


def test_kinds_of_paths_that_contradict_each_other_are_named() -> None:
    assert answers.contradictions(made_up()) == []
    turned = made_up({("Victoria 1", "CUBIC"): {"goodput": 99.0}})
    best, computed, model = answers.contradictions(turned)
    lead = "Goodput of a sender alone: the best deployable sender is BBR over computed paths (90.0"
    assert best.startswith(lead)
    assert "BBR over modelled paths (90.0" in best
    assert "CUBIC over measured paths (99.0" in best
    assert "+30.0 [+30.0, +30.0] over the computed access path" in computed
    assert "+30.0 [+30.0, +30.0] over Victoria, model, but the opposite over" in model
    for pair in (computed, model):
        assert "Victoria 1 (\N{MINUS SIGN}9.0" in pair
    modelled = made_up({("Victoria, model", "CUBIC"): {"goodput": 99.0}})
    _, computed, model = answers.contradictions(modelled)
    assert "opposite over Victoria, model (\N{MINUS SIGN}9.0" in computed
    assert "over Victoria, model, but the opposite over Victoria 1 (+30.0" in model
    assert "No answer differs by more than chance" in page.page(made_up())
    slow = made_up({("Victoria 1", "BBR"): {"inflation_p95": 2.5}})
    assert "packets arrive closer together" in " ".join(page.page(slow).split())


@pytest.mark.parametrize("goodput", [90.0, 92.0])
def test_a_difference_within_chance_or_5_percent_is_no_contradiction(goodput: float) -> None:
    runs = made_up({("Victoria 1", "CUBIC"): {"goodput": goodput}})
    assert answers.contradictions(runs) == []
    assert "use **BBR**" in items(runs)["CDN edge"]


def test_data_with_computed_paths_alone_makes_a_page() -> None:
    runs = made_up()
    computed = Runs(runs.frame.filter(pl.col("study") == "leo-beyond"), runs.made)
    text = page.page(computed)
    assert "The data has paths of one kind only." in text
    assert "use **BBR**. BBR has 90.0 [90.0, 90.0] Mbit/s over 2 computed paths (10 runs)" in (
        " ".join(text.split())
    )
    assert "| access | true, ISL | ± |" in text


def test_tables_hold_every_sender_and_compare_bbr_with_cubic() -> None:
    text = page.page(made_up())
    blocks = text.split("\n### ")[1:]
    assert len(blocks) == 2 * 2 * len(data.QUESTIONS), "downloads, uploads; two queues"
    for block in blocks:
        rows = [line for line in block.splitlines() if line.startswith("| ")]
        names = [row.split(" | ")[0].lstrip("| ") for row in rows]
        assert names == [
            "sender", *SENDERS, "BBR \N{MINUS SIGN} CUBIC", "95 % interval", "Cohen's d",
        ]  # fmt: skip
        assert len({row.count("|") for row in rows}) == 1
    downloads = next(b for b in blocks if b.startswith("Goodput of a sender alone (Mbit/s): FIFO"))
    marked = "Victoria, model\N{DOUBLE DAGGER} | Victoria 1\N{DAGGER}"
    assert f"| access | true, ISL | {marked} |" in downloads
    assert "| BBR | **90.0** | **90.0** | **90.0** | **90.0** |" in downloads
    assert "| LeoCC | *95.0* |" in downloads, "the best research sender is apart"


def test_heat_maps_keep_deployable_senders_and_kinds_of_paths_apart() -> None:
    charts = page.heat_charts(made_up())
    assert set(charts) == {"goodput", "delay", "fairness", "queue"}
    chart = charts["goodput"]
    assert list(chart.rows) == list(SENDERS)
    assert (list(chart.row_breaks), list(chart.column_breaks)) == ([2], [2, 4])
    assert chart.columns.names == list(STUDY_OF)
    assert chart.grid[2] == pytest.approx(100.0), "of the best sender's"


def test_lines_fit() -> None:
    for line in page.page(made_up()).splitlines():
        assert len(line) <= pages.WIDTH or line.startswith("|"), line


def test_readers_ask_what_the_questions_measure() -> None:
    assert {reader.question for reader in READERS} == {GOODPUT, DELAY}
    assert RESEARCHER.question is POWER


def test_the_committed_page_is_what_the_data_file_gives() -> None:
    runs = data.read()
    assert set(runs.made) == set(data.STUDIES)
    assert page.PAGE.read_text("utf-8") == page.page(runs)
