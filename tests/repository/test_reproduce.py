"""Pages that make reproduce writes: a page of verdicts, and a page per paper with its studies."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from onnx_file import linear
from skyhop.errors import SkyhopError
from skyhop.study import StudyRun, load_study, run_study
from skyhop.study.catalogue import list_studies
from skyhop.study.claims import judge
from small_study import CARD, content
from validation import pages as markdown
from validation import reproduce, reproduced
from validation.which_sender import runs as which_sender

QUEUES = {
    "deep": {"link.queue": "1 MB"},
    "shallow": {"link.queue": "10 kB"},
}


AT = 'rival="none", queue="deep", path="lossy"'
CHECK = f'used({AT}, sender="BBR") > used({AT}, sender="CUBIC")'


def matrix() -> dict[str, object]:
    """Return a study with the axes and the metrics of leo-beyond, of two senders."""
    rival = {"none": {"flow.1.count": 0}, "CUBIC": {"flow.1.count": 1}}
    samples = {"kind": "samples", "from": "1 s"}
    return content(
        repeats=3,
        scenario={
            "path": {"kind": "fixed", "rtt": "20 ms"},
            "link": {"rate": "10 Mbit/s"},
            "flow": [{"start_spread": "200 ms"}, {"cc": "cubic", "start_spread": "200 ms"}],
            "run": {"duration": "4 s"},
        },
        axis=[
            {"name": "path", "points": {"clean": {}, "lossy": {"link.loss": "2 %"}}},
            {"name": "queue", "points": QUEUES},
            {"name": "rival", "points": rival},
            {
                "name": "sender",
                "points": {"CUBIC": {"flow.0.cc": "cubic"}, "BBR": {"flow.0.cc": "bbr"}},
            },
        ],
        claim=[{"text": "BBR has more with loss", "check": CHECK}],
        metric=[
            {"name": "used", "unit": "Mbit/s", **samples},
            {"name": "inflation", "series": "srtt_over_base", **samples},
            {"name": "inflation_p95", "series": "srtt_over_base", "stat": "p95", **samples},
            {"name": "sum", "kind": "flows", "over": "sum", "from": "1 s"},
            {"name": "share", "kind": "expression", "value": "used / sum * 100", "unit": "%"},
        ],
    )


PAPERS = """
[[paper]]
page = "one"
name = "One"
citation = "Somewhere."
studies = ["first", "third"]
holds = "much."
fails = "little, because of chance."

[[paper]]
page = "two"
name = "Two"
citation = "Elsewhere."
studies = ["second"]
holds = "nothing."
fails = "nothing."
unknown = "a closed module."
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> StudyRun:
    return run_study(load_study(matrix()), tmp_path_factory.mktemp("matrix"))


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Directory of the pages of two made-up papers."""
    (tmp_path / "papers.toml").write_text(PAPERS, "utf-8")
    monkeypatch.setattr(reproduced, "PAPERS", tmp_path / "papers.toml")
    monkeypatch.setattr(reproduced, "PAGES", tmp_path / "pages")
    return tmp_path / "pages"


def test_the_data_file_has_a_row_per_run(done: StudyRun) -> None:
    frame = which_sender.collect("leo-beyond", done.results)
    assert frame.columns == [*which_sender.KEYS, *which_sender.COLUMNS]
    assert frame.height == 2 * len(QUEUES) * 2 * 2 * 3
    runs = which_sender.Runs(frame, {})
    info = done.results.metrics.infos["used"]
    at = {"path": "lossy", "queue": "deep", "rival": "none", "sender": "BBR"}
    values = runs.values(which_sender.GOODPUT, ("lossy", "deep"), "BBR")
    assert values == pytest.approx(done.results.values(info, at), abs=0.01)
    ranked = which_sender.rank(
        runs, which_sender.GOODPUT, [("lossy", "deep")], which_sender.DEPLOYABLE
    )
    # CUBIC takes loss for congestion.
    assert list(ranked.strata) == ["BBR", "CUBIC"]
    alone = frame.filter(frame["rival"] == "none")
    assert alone["share"].null_count() == alone.height
    shares = frame.filter(frame["rival"] == "CUBIC")["share"].to_numpy()
    assert np.all((shares > 0) & (shares < 100))


def test_a_study_replaces_its_section_and_the_page_of_verdicts_counts_it(
    done: StudyRun, pages: Path
) -> None:
    claims = judge(done.study.claims, done.results)
    for name in ("second", "first", "second"):
        reproduced.write_study(reproduced.Reproduced(name, done, claims))
    one, two = (pages / f"{name}.md" for name in ("one", "two"))
    assert list(reproduced.read_sections(one.read_text("utf-8"))) == ["first"]
    assert list(reproduced.read_sections(two.read_text("utf-8"))) == ["second"]
    assert "All runs are by one build" in two.read_text("utf-8")
    assert f"](#first) | {done.study.run_count} | " in one.read_text("utf-8")
    text = (pages / "index.md").read_text("utf-8")
    claimed = len(claims)
    assert claimed == 1
    assert f"Of {2 * claimed} claims" in text
    first, second = (file.read_text("utf-8") for file in (one, two))
    assert f"- **Holds** ({claimed}): much." in first
    assert "- **Does not hold** (0): little, because of chance." in first
    untold = ["**Cannot be told**" in summary for summary in (first, second)]
    assert untold == [False, True], "only of the paper that says why"
    assert "All runs are by one build" in text
    old = two.read_text("utf-8").replace("second: build ", "second: build 0")
    two.write_text(old, "utf-8")
    reproduced.write_study(reproduced.Reproduced("third", done, claims))
    assert "All runs are by 2 builds (" in (pages / "index.md").read_text("utf-8")
    assert list(reproduced.read_sections(one.read_text("utf-8"))) == ["first", "third"]


def test_a_section_names_the_network_of_a_users_sender_and_renewed_prose_keeps_it(
    done: StudyRun, pages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = tmp_path / "card.toml"
    card.write_text(CARD, "utf-8")
    network = linear([-1.0], 1.0)
    (tmp_path / "forty.onnx").write_bytes(network)
    study = load_study(matrix(), {"learned": card})
    run = replace(done, study=study)
    reproduced.write_study(reproduced.Reproduced("first", run, judge(study.claims, done.results)))
    line = f"- network of the user: forty.onnx: SHA-256 {hashlib.sha256(network).hexdigest()}\n\n"
    section = reproduced.read_sections((pages / "one.md").read_text("utf-8"))["first"]
    assert line in section
    monkeypatch.setattr(reproduced, "find_study", Path)
    monkeypatch.setattr(reproduced, "read_study_file", lambda _: study.file)
    assert line in reproduced.renewed("first", section)


def test_a_study_without_a_paper_is_an_error(pages: Path) -> None:
    del pages
    with pytest.raises(SkyhopError, match=r"papers\.toml names no paper for the study nowhere"):
        reproduced.paper_of("nowhere")


def test_each_study_belongs_to_one_paper() -> None:
    named = [name for paper in reproduced.papers() for name in paper.studies]
    assert sorted(named) == sorted(entry.name for entry in list_studies())


def test_the_committed_verdicts_are_those_of_the_papers_pages() -> None:
    page = (reproduced.PAGES / "index.md").read_text("utf-8")
    assert page == reproduced.verdicts_page()


def test_long_lines_are_broken_but_for_tables() -> None:
    words = "word " * 40
    text = markdown.wrapped(f"- {words}\n| {words} |\n{words}")
    item, rest, table, *paragraph = text.split("\n")
    assert rest.startswith("  word")
    assert len(table) > markdown.WIDTH
    assert all(len(line) <= markdown.WIDTH for line in (item, rest, *paragraph))


def test_times_of_all_goes_count_and_those_that_run_nothing_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproduce, "RUNS", tmp_path / "studies")
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(reproduce, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    runs = tmp_path / "studies" / "first" / "runs"
    assert reproduce.time_taken("first") is None

    def stopped() -> None:
        with reproduce.timed("first"):
            (runs / "a").mkdir(parents=True)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert reproduce.time_taken("first") == 10
    with reproduce.timed("first"):
        (runs / "b").mkdir()
    assert reproduce.time_taken("first") == 20
    with reproduce.timed("first"):
        pass
    assert reproduce.time_taken("first") == 20
    # The duration of one that began before durations were recorded is not known.
    (tmp_path / "studies" / "second").mkdir()
    with reproduce.timed("second"):
        (tmp_path / "studies" / "second" / "runs" / "a").mkdir(parents=True)
    assert reproduce.time_taken("second") is None
    # What a full disk leaves.
    reproduce.took_file("third").touch()
    assert reproduce.time_taken("third") is None


def test_a_build_is_what_decides_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduced, "ROOT", tmp_path)

    def named(file: str, text: str) -> str:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text, "utf-8")
        reproduced.build.cache_clear()
        return reproduced.build()

    try:
        first = named("crates/sim/src/lib.rs", "1")
        assert named("crates/live/src/lib.rs", "1") == first
        assert named("crates/sim/src/tests.rs", "1") == first
        assert named("crates/sim/tests/all/main.rs", "1") == first
        assert named("crates/sim/src/lib.rs", "1") == first
        names = [first]
        for file in ("crates/sim/src/lib.rs", "cc/bbr.c", "Cargo.lock", "data/sites/a.csv"):
            names.append(named(file, "2"))
        assert len(set(names)) == len(names)
    finally:
        reproduced.build.cache_clear()


def test_what_is_left_is_told_from_what_studies_took_before(done: StudyRun, pages: Path) -> None:
    del pages
    reproduced.write_study(reproduced.Reproduced("first", done, [], 600.0))
    reproduced.write_study(reproduced.Reproduced("second", done, []))
    # Where runs were there already, what it took before stands.
    reproduced.write_study(reproduced.Reproduced("first", done, []))
    times = reproduced.times_of(reproduced.all_sections())
    assert times == {"first": 600.0}
    left = reproduce.RemainingStudies({"first": 10.0, "second": 20.0, "third": 30.0}, times)
    assert left.time_left() == "; about 60 min are left"
    left.done("first", 1200.0)
    assert left.time_left() == "; about 100 min are left", "this machine is half as fast"
    left.done("second", None)
    assert left.time_left() == "; about 60 min are left"
    assert reproduce.RemainingStudies({"second": 20.0}, {}).time_left() == ""


def test_the_committed_pages_have_the_prose_of_the_study_files() -> None:
    """`validation reproduce --texts` renews it without a run."""
    for name, section in reproduced.all_sections().items():
        assert section == reproduced.renewed(name, section).rstrip("\n") + "\n", name


def test_renewed_prose_keeps_verdicts_and_numbers() -> None:
    name, section = next(iter(reproduced.all_sections().items()))
    file = reproduced.read_study_file(reproduced.find_study(name))
    claim = file.claim[0]
    assert claim.text in section
    old = section.replace(claim.text, "An old text").replace(file.title, "An old title")
    assert reproduced.renewed(name, old).rstrip("\n") + "\n" == section
    line = "| Text | cannot be told: an old reason |  |"
    unknown = claim.model_copy(update={"check": None, "cannot_be_told": "a new one"})
    assert reproduced.row_of(unknown, line) == ("cannot be told: a new one", "")
    line = "| Text | holds | 1 against 2<br>*An old note.* |"
    assert reproduced.row_of(claim, line) == ("holds", "1 against 2")


def test_claims_that_fail_are_counted_by_their_cause() -> None:
    name, section = next(iter(reproduced.all_sections().items()))
    first = reproduced.read_study_file(reproduced.find_study(name)).claim[0]
    lines = reproduced.claim_lines(section)
    assert len(lines) == len(reproduced.read_study_file(reproduced.find_study(name)).claim)
    failed = section.replace("\n".join(lines), f"| {first.text} | does not hold | 1 against 2 |")
    ((claim, verdict),) = reproduced.judged_claims({name: failed})
    assert (claim, verdict) == (first, "does not hold")
    counts = reproduced.tally({name: failed})
    assert sum(counts[cause] for cause in reproduced.CAUSES) == 1
    assert counts[first.cause or "unexplained"] == 1
    held = failed.replace("does not hold", "holds")
    assert not any(reproduced.tally({name: held})[cause] for cause in reproduced.CAUSES)


def test_every_claim_that_fails_or_cannot_be_told_has_a_cause() -> None:
    sections = reproduced.all_sections()
    judged = list(reproduced.judged_claims(sections))
    assert len(judged) > 500
    without = [c.text for c, verdict in judged if not verdict.startswith("holds") and not c.cause]
    assert without == []
