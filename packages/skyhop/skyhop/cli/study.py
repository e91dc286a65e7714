"""`skyhop study`: run, list and check studies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skyhop.cli import completion
from skyhop.cli.figures import Figures, Footer, Height, Kinds, Width, figure_files
from skyhop.cli.options import Json, Sets, group
from skyhop.cli.terminal import EXIT_FAILED, print_note, print_rows
from skyhop.data.figure_files import FIGURE_KINDS
from skyhop.data.progress import progress_bar

if TYPE_CHECKING:
    from skyhop.study import Study, StudyRun
    from skyhop.study.claims import ClaimResult
    from skyhop.study.conditions import Condition

app = group(
    "Answer a question with many runs: sweeps, statistics, claims, a report.\n\n"
    "Example: skyhop study run studies/satcp-table1.toml -o runs/satcp-table1"
)

_RUN_HELP = """\
Run a study, and write its dataset and its report.

If a study was interrupted, the same command continues it; finished runs are not repeated.

Examples:

  skyhop study run studies/satcp-table1.toml -o runs/satcp-table1

  skyhop study run satcp-fig9 -o runs/fig9 --jobs 2

  skyhop study run satcp-fig9 -o runs/fig9-deep --set link.queue="4 BDP"

  skyhop study run geo-table4 -o runs/geo-table4 --reuse runs/geo-table1-2

  skyhop study run leo-fig5 -o runs/fig5 --policy astraea=astraea.toml

  skyhop study run satcp-fig9 -o runs/fig9 --figures paper --format pdf --width one-column
"""

_SHOW_HELP = """\
Check a study file, and show its axes, claims and number of runs.

Example:

  skyhop study show studies/satcp-table1.toml

  skyhop study show satcp-fig9 --set link.queue="4 BDP"
"""

Policies = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=CARD.toml", help="Policy card of a learned sender to add (see skyhop policy)."
    ),
]
Source = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        help="A study file, or a name of skyhop study list.",
        autocompletion=completion.studies,
    ),
]


@app.command("run", help=_RUN_HELP)
def run(
    source: Source,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="The study's directory.")
    ],
    sets: Sets = None,
    jobs: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Number of concurrent runs; default: one per core."),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Where runs execute: local, or ray for a Ray cluster.",
            autocompletion=completion.one_of("local", "ray"),
        ),
    ] = "local",
    elements: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            metavar="OLD NEW",
            help="Older and newer snapshot of element sets, for studies of these.",
        ),
    ] = None,
    reuse: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="Study directory whose identical finished runs to reuse; repeatable.",
        ),
    ] = None,
    policy: Policies = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print verdicts and failures as JSON.")
    ] = False,
    figures: Figures = None,
    kinds: Kinds = None,
    width: Width = "page",
    height: Height = None,
    footer: Footer = True,
) -> None:
    """Run a study and write its report."""
    from skyhop.cli.stopping import stop_on_signals
    from skyhop.errors import InputError, InterruptedRunError
    from skyhop.report import write_study_report
    from skyhop.study import load_study, run_study
    from skyhop.study.claims import judge

    if engine not in ("local", "ray"):
        raise InputError(f"--engine {engine}: expected local or ray")
    files = figure_files(figures, kinds, width, FIGURE_KINDS, height_in=height, footer=footer)
    study = load_study(_found(source), cards_of(policy), sets or ())
    stop_on_signals()
    so_far = (0, study.run_count)

    def note(now: int, total: int) -> None:
        nonlocal so_far
        so_far = (now, total)
        progress(now, total)

    with progress_bar(f"{study.run_count} runs") as progress:
        try:
            done = run_study(
                study, output, jobs=jobs, engine="ray" if engine == "ray" else "local",
                elements=elements, reuse=reuse or (), progress=note,
            )  # fmt: skip
        except KeyboardInterrupt:
            now, total = so_far
            raise InterruptedRunError(
                f"interrupted: {now:,} of the {total:,} runs that were missing are done; "
                "repeat the command to continue"
            ) from None
    verdicts = judge(study.claims, done.results)
    page = write_study_report(done, verdicts, figures=files)
    _print_outcome(done, verdicts, as_json=as_json)
    for place in done.places:
        print_note(place)
    print_note(f"report: {page}")
    if done.failures:
        print_note(f"{output}: {len(done.failures)} runs failed: see {output / 'failures.json'}")
        raise typer.Exit(EXIT_FAILED)


def cards_of(given: list[str] | None) -> dict[str, Path]:
    """Parse the values of `--policy` into cards by name."""
    from skyhop.errors import InputError

    cards: dict[str, Path] = {}
    for text in given or ():
        name, equals, card = text.partition("=")
        if not (name and equals and card):
            raise InputError(f"--policy {text}: expected NAME=CARD.toml, such as astraea=a.toml")
        cards[name] = Path(card)
    return cards


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the studies that come with skyhop."""
    print_studies(as_json=as_json)


@app.command("show", help=_SHOW_HELP)
def show(source: Source, sets: Sets = None, as_json: Json = False) -> None:
    """Check a study file, and show its axes, claims and number of runs."""
    from skyhop.cli.tables import print_wrapped
    from skyhop.study import load_study
    from skyhop.study.conditions import conditions_of
    from skyhop.study.running import path_file_notes, places_of

    study = load_study(_found(source), sets=sets or ())
    # This checks every scenario, so that a wrong key is found before a long run.
    planned = list(study.runs())
    conditions = conditions_of(study, planned)
    distinct = len({run.run_id for run in planned})
    description = _description(study, distinct, conditions)
    if as_json:
        print(json.dumps(description, indent=2, ensure_ascii=False))
        return
    print_wrapped(study.file.title)
    print_wrapped(study.file.question)
    rows = [
        {"axis": axis["name"], "values": _listed(axis["values"])} for axis in description["axes"]
    ]
    print_rows(rows, as_json=False)
    print_rows([{"claim": claim} for claim in description["claims"]], as_json=False)
    print_rows(description["conditions"], as_json=False)
    runs = description["runs"]
    print(f"{runs} runs" + (f", {distinct} of them distinct" if distinct < runs else ""))
    if study.sets:
        print(f"set: {', '.join(study.sets)}")
    if not Path(source).is_file():
        print_note(f"its file, to copy and edit, is {description['file']}")
    for note in (*places_of(planned), *path_file_notes(study, planned)):
        print_note(note)


def _listed(values: list[str]) -> str:
    """Join values with commas, or with semicolons if a value contains a comma."""
    return ("; " if any("," in value for value in values) else ", ").join(values)


def print_studies(*, as_json: bool) -> None:
    """Print the studies that come with skyhop: name, description, source, and their files."""
    from skyhop.study.catalogue import list_studies

    entries = list_studies()
    rows = [
        {"name": entry.name, "description": entry.description, "source": entry.source}
        | ({"file": str(entry.file)} if as_json else {})
        for entry in entries
    ]
    print_rows(rows, as_json=as_json)
    for directory in {entry.file.parent for entry in entries}:
        print_note(f"their files, to copy and edit, are in {directory}")


def _found(source: str) -> Path:
    from skyhop.study.catalogue import find_study

    return find_study(source)


def _description(study: Study, distinct: int, conditions: Sequence[Condition]) -> dict[str, Any]:
    from skyhop.study.axes import axis_labels

    return {
        "title": study.file.title,
        "question": study.file.question,
        "source": study.file.source,
        "file": str(Path(study.origin).resolve()),
        "set": list(study.sets),
        "axes": [
            {"name": axis.name, "values": [str(value) for value in axis_labels(axis)]}
            for axis in study.file.axis
        ],
        "conditions": _conditions(conditions),
        "repeats": study.file.repeats,
        "runs": study.run_count,
        "distinct": distinct,
        "claims": [claim.text for claim in study.file.claim],
    }


def _conditions(conditions: Sequence[Condition]) -> list[dict[str, str]]:
    return [{"condition": c.name, "runs": c.runs, "value": c.value} for c in conditions]


def _print_outcome(done: StudyRun, verdicts: list[ClaimResult], *, as_json: bool) -> None:
    from skyhop.analysis.study_sentences import study_sentences
    from skyhop.cli.tables import print_wrapped
    from skyhop.study.outcome import study_outcome
    from skyhop.study.page import claim_rows, shown_failures, shown_warnings

    if as_json:
        outcome = {
            "directory": str(done.directory.root),
            "set": list(done.study.sets),
            "runs": done.results.frame.get_column("run").n_unique(),
            "conditions": _conditions(done.conditions),
            "claims": [_judged(verdict) for verdict in verdicts],
            "failures": [str(failure) for failure in done.failures],
            "warnings": [{"text": w.text, "runs": w.runs, "at": w.where} for w in done.warnings],
        }
        print(json.dumps(outcome, indent=2, ensure_ascii=False))
    else:
        print_wrapped(" ".join(study_sentences(study_outcome(done, verdicts))))
        print()
        print_rows(_conditions(done.conditions), as_json=False)
    if verdicts and not as_json:
        print()
        rows = [row for verdict in verdicts for row in claim_rows(verdict)]
        print_rows([{"claim": claim, "verdict": said} for claim, said in rows], as_json=False)
    for warning in shown_warnings(done):
        print_note(f"warning: {warning}")
    for failure in shown_failures(done):
        print_note(f"failed: {failure}")
    print_note(f"dataset: {done.directory.root / 'results.parquet'}")


def _judged(result: ClaimResult) -> dict[str, Any]:
    """Return a verdict; with both sides and the interval of the difference per comparison."""
    return {
        "text": result.claim.text,
        "verdict": result.verdict,
        "cannot_be_told": result.claim.cannot_be_told,
        "cause": result.cause_text,
        "within_chance": result.within_chance,
        "failed": [dict(run) for run in result.failed],
        "findings": [
            {
                "at": dict(finding.at),
                "verdict": finding.verdict,
                "within_chance": finding.within_chance,
                "why": finding.why,
                "comparisons": [
                    {
                        "text": c.text, "left": c.left, "right": c.right,
                        "low": c.interval.low, "high": c.interval.high,
                    }
                    for c in finding.comparisons
                ],
            }
            for finding in result.findings
        ],
    }  # fmt: skip
