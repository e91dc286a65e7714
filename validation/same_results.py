"""Check that two builds of skyhop give the same results in the simulator, to the last bit.

    python -m validation same-results -o before.json          # with one build
    python -m validation same-results --against before.json   # with the other

The command runs every example, the first point of every study, and a scenario with all features. It
compares digests of each column of each table and of each key of the summary. Columns and keys that
only one build has are listed, but do not count as a difference.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from skyhop import _core
from skyhop.data.runs import Run
from skyhop.data.shipped import shipped_files
from skyhop.errors import InputError
from skyhop.simulation import sim
from skyhop.study.file import read_table
from skyhop.study.plan import load_study
from skyhop.study.scenario_runs import ScenarioKind

EVERYTHING = Path(__file__).with_name("everything.toml")
TABLES = ("flows", "link", "events", "probes")
MEASURED = ("wall_s", "warnings")
"""Summary keys that are not compared: they are no results of the simulation, or are sentences."""

Digests = dict[str, str]
"""Digests of columns and values of summary keys, by TABLE.COLUMN or summary.KEY."""


def everything() -> dict[str, Any]:
    """Return a scenario with every congestion control, and with features that no example has."""
    scenario = tomllib.loads(EVERYTHING.read_text("utf-8"))
    flows = [
        {"cc": module.name, "start": f"{index} s", "via": ["path", "narrow"][: 2 - index % 2]}
        for index, module in enumerate(_core.list_cc())
    ]
    return scenario | {"flow": [*flows, *scenario["flow"]]}


def cases() -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Yield the runs: name, scenario as JSON (or ""), scenario file, and overrides."""
    for name, file in shipped_files("examples").items():
        # Examples for the user's own programs have no flow.
        if "flow" in read_table(file):
            yield f"example {name}", "", str(file), ()
    for name, file in shipped_files("studies").items():
        study = load_study(file)
        # Studies of films, browsers and predictions do not run scenarios.
        if not isinstance(study.kind, ScenarioKind):
            continue
        if (first := next(study.runs(), None)) is not None:
            yield f"study {name}", json.dumps(study.base), study.scenario_origin, first.sets
    yield "everything", json.dumps(everything()), "everything", ()


def measure(case: tuple[str, str, str, tuple[str, ...]]) -> tuple[str, Digests]:
    """Simulate a case; return its name and digests."""
    name, text, origin, sets = case
    scenario = (
        _core.Scenario.from_json(text, origin, list(sets))
        if text
        else _core.Scenario.read(origin, list(sets))
    )
    return name, digests(sim(scenario))


def digests(run: Run) -> Digests:
    """Return the digests of a run's tables and summary."""
    found: Digests = {}
    tables: dict[str, pl.DataFrame] = {name: getattr(run, name) for name in TABLES} | run.apps
    for table, content in tables.items():
        found[f"{table}.rows"] = str(content.height)
        for name in content.columns:
            found[f"{table}.{name}"] = column_digest(content[name])
    found |= {
        f"summary.{key}": repr(value)
        for key, value in leaves(run.summary)
        if key.split(".")[0] not in MEASURED
    }
    return found


def column_digest(column: pl.Series) -> str:
    """Return a digest of values and null positions; the width of number types does not matter."""
    missing = column.is_null().to_numpy().tobytes()
    if column.dtype.is_numeric():
        wide = pl.Int64 if column.dtype.is_integer() else pl.Float64
        values = column.cast(wide).fill_null(0).to_numpy().tobytes()
    else:
        values = "\0".join(str(value) for value in column.to_list()).encode()
    return hashlib.sha256(missing + values).hexdigest()[:16]


def leaves(value: object, key: str = "") -> Iterator[tuple[str, object]]:
    """Yield the numbers and strings in nested dictionaries and lists, with dotted keys."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from leaves(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(inner, f"{key}.{index}")
    else:
        yield key, value


def compare(before: Mapping[str, Digests], after: Mapping[str, Digests]) -> list[str]:
    """Print a line for each case; return the names of the cases that differ."""
    wrong = []
    for name in sorted({*before, *after}):
        if name not in before or name not in after:
            print(f"{name}: only {'before' if name in before else 'after'}")
            continue
        old, new = before[name], after[name]
        both = sorted({*old} & {*new})
        differing = [key for key in both if old[key] != new[key]]
        notes = [f"DIFFERS in {', '.join(differing)}" if differing else f"{len(both)} alike"]
        for what, keys in (("gone", {*old} - {*new}), ("new", {*new} - {*old})):
            notes += [f"{what}: {', '.join(sorted(keys))}"] if keys else []
        print(f"{name}: {'; '.join(notes)}")
        wrong += [name] if differing else []
    return wrong


def main(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File for the digests of this build.")
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="File with the digests of the other build.")
    ] = None,
    only: Annotated[str, typer.Option(help="Only cases whose name contains this.")] = "",
) -> int:
    """Simulate the cases, and write or compare their digests."""
    if (output is None) == (against is None):
        raise InputError("give either --output or --against")
    chosen = [case for case in cases() if only in case[0]]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        measured = dict(pool.map(measure, chosen))
    if against is None:
        assert output is not None
        output.write_text(json.dumps(measured, indent=1) + "\n", "utf-8")
        return 0
    before = json.loads(against.read_text("utf-8"))
    before = {name: content for name, content in before.items() if only in name}
    wrong = compare(before, measured)
    print(f"{len(measured) - len(wrong)} of {len(measured)} runs alike")
    return 1 if wrong else 0
