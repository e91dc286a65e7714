"""The report's page: what it says, from runs to HTML."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from skyhop._core import LOSS_REASONS
from skyhop.plot.comparison import comparison_figure
from skyhop.plot.path import path_figure
from skyhop.plot.records import (
    PathRecord,
    ReportError,
    RunRecord,
    by_duration,
    read_runs,
)
from skyhop.plot.run import run_figure
from skyhop.plot.style import FlowKey, FlowStyle, flow_styles, png_bytes
from skyhop.plot.writing import write_files
from skyhop.report.parts import ReportFigure, Table, figures_directory, render
from skyhop.report.summary import (
    GROUPS,
    MISSING,
    Column,
    column,
    rows_of,
    rows_of_more_links,
    three_digits,
)
from skyhop.report.toml import scenario_toml

_FLOW_KEYS = (
    "run", "engine", "seed", "cc", "goodput_bps", "srtt_mean_us", "rtt_p95_us",
    "base_rtt_mean_us", "cwnd_mean_packets", "retransmits", "sent_packets", "completion_s",
)  # fmt: skip
_RUN_KEYS = (
    "run", "utilisation", "backlog_mean_bytes", *(f"drops_{reason}" for reason in LOSS_REASONS),
    "handovers_end", "handovers_intermediate", "handovers_reroute",
    "lateness_p50_us", "lateness_p99_us", "lateness_max_us", "rtt_excess_p99_us",
)  # fmt: skip

_CARDS_AT_MOST = 8


def write_report(
    run_dirs: Sequence[Path | str],
    output: Path | str,
    *,
    title: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write one HTML file about the runs, and its figures as PNGs beside it.

    The HTML needs nothing but itself. The figures are also files in `figures_directory(output)`.
    Everything is written whole or not at all.

    Args:
        run_dirs: run directories, or directories that hold run directories.
        output: the HTML file; its directory must exist.
        title: the page's heading, by default the two ends of the path.
        progress: called with the number of figures drawn so far and of all.

    Returns:
        The path of the HTML file.

    Raises:
        ReportError: if a directory is not a run directory, or `output` cannot be a file.
        OSError: if the report cannot be written.

    """
    output = Path(output)
    if output.suffix.lower() not in {".html", ".htm"}:
        raise ReportError(f"{output}: a report is HTML: give a name that ends in .html")
    runs = read_runs(run_dirs)
    plans, figures = _planned_figures(runs), []
    for drawn, plan in enumerate(plans, start=1):
        figures.append(ReportFigure(plan.file, plan.caption, png_bytes(plan.draw()), plan.run))
        if progress is not None:
            progress(drawn, len(plans))
    folder = figures_directory(output)
    page = _page(runs, figures, title or _heading(runs), folder.name)
    contents = {f"{folder.name}/{figure.file}": figure.png for figure in figures}
    contents[output.name] = page.encode()
    stale = _stale(folder, {figure.file for figure in figures})
    write_files(output.parent, contents)
    for file in stale:
        file.unlink()
    return output


@dataclass(frozen=True)
class _FigurePlan:
    file: str
    caption: str
    draw: Callable[[], Figure]
    run: int | None = None


def _planned_figures(runs: Sequence[RunRecord]) -> list[_FigurePlan]:
    styles = flow_styles(runs)
    plans = []
    groups = by_duration(runs)
    for place, group in enumerate(groups):
        of_group = {
            (group.index(run), flow): style for (run, flow), style in styles.items() if run in group
        }
        if len(of_group) <= 1:
            continue
        caption = (
            "Goodput of every flow over time, its mean, and which share of the samples "
            "stayed at or below a value."
        )
        draw = partial(comparison_figure, [runs[run] for run in group], styles=of_group)
        file = "comparison.png" if len(groups) == 1 else f"comparison-{place + 1}.png"
        plans.append(_FigurePlan(file, caption, draw))
    paths = _distinct_paths(runs)
    for place, (path, until_s) in enumerate(paths):
        file = "path.png" if len(paths) == 1 else f"path-{place + 1}.png"
        caption = f"{_path_name(path)}: one-way delay without queueing, hops, and handovers."
        if path.duration_s > until_s:
            caption += f" The path file goes on until {path.duration_s:,.0f} s."
        plans.append(_FigurePlan(file, caption, partial(path_figure, path, until_s=until_s)))
    for index, run in enumerate(runs):
        file = f"run-{index + 1}-{re.sub(r'[^A-Za-z0-9._-]+', '-', run.name)}.png"
        draw = partial(run_figure, run, styles=_styles_of(index, styles))
        plans.append(_FigurePlan(file, _run_caption(run), draw, run=index))
    return plans


def _styles_of(index: int, styles: Mapping[FlowKey, FlowStyle]) -> dict[int, FlowStyle]:
    return {flow: style for (run, flow), style in styles.items() if run == index}


def _distinct_paths(runs: Sequence[RunRecord]) -> list[tuple[PathRecord, float]]:
    """Return each path once, with how much of it was run."""
    found: dict[bytes, tuple[PathRecord, float]] = {}
    for run in runs:
        if run.path is not None:
            path = run.path
            key = b"".join(a.tobytes() for a in (path.t_s, path.delay_ms, path.events.t_s))
            _, until_s = found.get(key, (path, 0.0))
            found[key] = (path, max(until_s, run.duration_s))
    return list(found.values())


def _run_caption(run: RunRecord) -> str:
    parts = [
        "The strip on top shows each event of the path; grey bands are times when it was down."
    ]
    if run.flows:
        parts.append("Retransmits and drops are counted per bar.")
    return " ".join(parts)


def _page(
    runs: Sequence[RunRecord], figures: Sequence[ReportFigure], title: str, folder: str
) -> str:
    rows = [list(rows_of(run)) for run in runs]
    flow_rows = [row for of_run in rows for row in of_run if row["flow"] is not None]
    run_rows = [of_run[0] for of_run in rows]
    link_rows = [
        row
        for run, of_run in zip(runs, run_rows, strict=True)
        for row in (of_run, *rows_of_more_links(run))
    ]
    return render(
        "report.html.jinja",
        title=title,
        facts=_facts(runs),
        warnings=[(run.name, text) for run, row in zip(runs, run_rows, strict=True)
                  for text in row["warnings"]],
        several=len(runs) > 1,
        cards=_cards(runs, rows),
        flow_table=_table(_flow_columns(flow_rows), flow_rows),
        run_table=_table([column(key) for key in _RUN_KEYS], link_rows),
        probe_table=_probe_table(runs),
        overview=[figure for figure in figures if figure.run is None],
        runs=[_section(run, index, figures) for index, run in enumerate(runs)],
        figure_files=[f"{folder}/{figure.file}" for figure in figures],
    )  # fmt: skip


def _heading(runs: Sequence[RunRecord]) -> str:
    names = dict.fromkeys(_ends(run) for run in runs)
    return "; ".join(names)


def _ends(run: RunRecord) -> str:
    if run.path is not None and run.path.header.get("constellation"):
        return _path_name(run.path)
    path = _part(run.scenario, "path")
    if path.get("kind") == "fixed":
        return f"A fixed path, RTT {path.get('rtt', 'not known')}"
    if path.get("from") and path.get("to"):
        return f"{path['from']} \N{RIGHTWARDS ARROW} {path['to']}"
    return _path_name(run.path) if run.path is not None else run.name


def _path_name(path: PathRecord) -> str:
    return f"{path.endpoint('from')} \N{RIGHTWARDS ARROW} {path.endpoint('to')}"


def _facts(runs: Sequence[RunRecord]) -> list[tuple[str, str]]:
    """Say what the runs were about: (name, values), each value once."""
    names = ("constellation", "relay", "handover", "outage", "start")
    facts = [(name, [_path_fact(run, name) for run in runs]) for name in names]
    facts += [
        ("link", [_link_fact(run) for run in runs]),
        ("duration", [f"{three_digits(run.duration_s)} s" for run in runs]),
        ("engine", [str(run.summary["engine"]) for run in runs]),
        ("handovers", [_handover_fact(run) for run in runs]),
    ]
    joined = [(name, " / ".join(dict.fromkeys(v for v in values if v))) for name, values in facts]
    return [(name, text) for name, text in joined if text]


def _path_fact(run: RunRecord, name: str) -> str:
    header = run.path.header if run.path is not None else {}
    return str(header.get(name) or _part(run.scenario, "path").get(name) or "")


def _link_fact(run: RunRecord) -> str:
    link = _part(run.scenario, "link")
    parts = [str(link[key]) for key in ("rate", "qdisc") if link.get(key)]
    if link.get("queue"):
        parts.append(f"queue {link['queue']}")
    return ", ".join(parts)


def _handover_fact(run: RunRecord) -> str:
    counts = run.summary["handovers"]
    return ", ".join(f"{counts[kind]:,} {kind}" for kind in ("end", "intermediate", "reroute"))


def _part(scenario: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = scenario.get(name)
    return part if isinstance(part, Mapping) else {}


@dataclass(frozen=True)
class _Card:
    colour: str
    name: str
    goodput: str
    lines: tuple[str, ...]


def _cards(runs: Sequence[RunRecord], rows: Sequence[Sequence[dict[str, Any]]]) -> list[_Card]:
    """Give the answer at a glance, a card per flow; none where there are too many for that."""
    styles = flow_styles(runs)
    cards = []
    for index, of_run in enumerate(rows):
        for row in of_run:
            if row["flow"] is None:
                continue
            style = styles[index, int(row["flow"])]
            srtt = column("srtt_mean_us").text(row)
            base = column("base_rtt_mean_us").text(row)
            ratio = row["retransmit_ratio"]
            lines = [
                f"srtt {srtt} ms over a base RTT of {base} ms",
                f"{column('retransmits').text(row)} of {column('sent_packets').text(row)} packets "
                f"sent again{'' if ratio is None else f' ({three_digits(100 * ratio)} %)'}",
            ]
            if row["completion_s"] is not None:
                lines.append(f"complete after {column('completion_s').text(row)} s")
            goodput = column("goodput_bps").text(row)
            cards.append(_Card(style.colour, style.label, goodput, tuple(lines)))
    return cards if len(cards) <= _CARDS_AT_MOST else []


def _flow_columns(rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    """Choose the flow table's columns: completion where a flow could complete, ids as needed."""
    keys = list(_FLOW_KEYS)
    if all(row["completion_s"] is None for row in rows):
        keys.remove("completion_s")
    if len({row["run"] for row in rows}) < len(rows):
        keys.insert(keys.index("cc"), "flow")
    return [column(key) for key in keys]


def _table(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> Table:
    shown = [c for c in columns if any(row.get(c.key) is not None for row in rows)]
    groups: list[tuple[str, int]] = []
    for shown_column in shown:
        name = _group(shown_column)
        if groups and groups[-1][0] == name:
            groups[-1] = (name, groups[-1][1] + 1)
        else:
            groups.append((name, 1))
    return Table(groups, shown, [[c.text(row) for c in shown] for row in rows])


def _group(of: Column) -> str:
    return next((name for start, name in GROUPS.items() if of.key.startswith(start)), "")


def _probe_table(runs: Sequence[RunRecord]) -> list[list[str]]:
    rows = []
    for run in runs:
        for probe in run.summary.get("probes") or []:
            quantiles = [probe.get(f"rtt_{q}_us") for q in ("p50", "p95", "p99")]
            rows.append(
                [
                    run.name,
                    str(probe["id"]),
                    f"{probe['sent']:,}",
                    f"{probe['lost']:,}",
                    *(MISSING if q is None else f"{q / 1e3:,.1f}" for q in quantiles),
                ]
            )
    return rows


@dataclass(frozen=True)
class _Section:
    name: str
    anchor: str
    flows: str
    figure: ReportFigure
    made_by: list[tuple[str, str]]
    command: str
    scenario: str


def _section(run: RunRecord, index: int, figures: Sequence[ReportFigure]) -> _Section:
    ccs = list(dict.fromkeys(str(flow["cc"]) for flow in run.flow_summaries()))
    engine = str(run.summary["engine"])
    return _Section(
        name=run.name,
        anchor=f"run-{index + 1}",
        flows=", ".join(ccs) if ccs else "no TCP flow",
        figure=next(figure for figure in figures if figure.run == index),
        made_by=_made_by(run),
        command=f"skyhop {engine} scenario.toml -o {shlex.quote(run.directory.name)} "
        f"--seed {run.summary['seed']}",
        scenario=scenario_toml(run.scenario),
    )


def _made_by(run: RunRecord) -> list[tuple[str, str]]:
    """List everything in run.json but the scenario, as (name, text)."""
    facts = [("engine", str(run.summary["engine"])), ("seed", str(run.summary["seed"]))]
    facts.append(("run time", f"{three_digits(float(run.summary['wall_s']))} s"))
    shown = {"scenario", "engine", "seed", "wall_s"}
    for key, value in run.manifest.items():
        if key not in shown and value is not None:
            facts += _flattened(key, value)
    return facts


def _flattened(key: str, value: Any) -> list[tuple[str, str]]:
    if isinstance(value, Mapping):
        return [fact for inner, v in value.items() for fact in _flattened(f"{key}.{inner}", v)]
    if isinstance(value, float):
        return [(key, three_digits(value))]
    return [(key, MISSING if value is None else str(value))]


def _stale(folder: Path, kept: set[str]) -> list[Path]:
    """List the figures of an earlier report of the same name that this one does not have."""
    ours = re.compile(r"((comparison|path)(-\d+)?|run-\d+-.*)\.png")
    found = folder.iterdir() if folder.is_dir() else []
    return [file for file in found if ours.fullmatch(file.name) and file.name not in kept]
