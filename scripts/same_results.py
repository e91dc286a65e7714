"""Whether the simulator gives the same results, to the last bit, as another build of skyhop did.

    python scripts/same_results.py -o before.json          # with the one build
    python scripts/same_results.py --against before.json   # with the other

Runs every example, the first point of every study, and a scenario with something of everything,
and takes a digest of each column of each table and of what the summary says. Columns and keys that
only one build has are named; they are no difference.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from skyhop import _core
from skyhop.data.shipped import shipped_files
from skyhop.engines import sim
from skyhop.runs import Run
from skyhop.study.file import read_scenario_table
from skyhop.study.plan import load_study

TABLES = ("flows", "link", "events", "probes")
MEASURED = ("wall_s", "warnings")
"""Keys of the summary that are not results, or are sentences."""

Digests = dict[str, str]
"""What each column and key holds, by TABLE.COLUMN or summary.KEY."""


def everything() -> dict[str, Any]:
    """Return a scenario with every congestion control and what examples and studies lack."""
    flows: list[dict[str, Any]] = [
        {
            "cc": module.name,
            "start": f"{place} s",
            "via": ["path"] if place % 2 else ["path", "narrow"],
        }
        for place, module in enumerate(_core.list_cc())
    ]
    flows += [
        {"cc": "cubic", "from": "to", "bytes": "5 MB", "start": "3 s", "extra_rtt": "31 ms"},
        {"cc": "bbr", "via": ["narrow"], "stop": "20 s"},
        {"kind": "probe", "interval": "7 ms", "size": "200 B", "via": ["path", "wide"]},
        {"kind": "probe", "from": "to"},
    ]
    return {
        "path": {"constellation": "starlink-shell1", "from": "San Diego", "to": "New York"},
        "link": {
            "rate": "80 Mbit/s",
            "queue": "300 packets",
            "loss": "0.01 %",
            "back": {"rate": "20 Mbit/s", "loss": "0.02 %"},
        },
        "links": {
            "narrow": {"rtt": "12 ms", "rate": "30 Mbit/s", "queue": "60 ms"},
            "wide": {"rtt": "5 ms", "rate": "400 Mbit/s", "loss": "0.1 %"},
        },
        "change": [
            {"at": "11 s", "rate": "40 Mbit/s", "outage": "250 ms"},
            {"at": "17 s", "link": "narrow", "rtt": "44 ms", "loss": "0.5 %"},
            {"at": "23 s", "flow": 1, "via": ["wide", "path"]},
        ],
        "flow": flows,
        "signal": {"source": "path", "lead": "0.4 s", "error": "report-timing"},
        "run": {"duration": "60 s", "seed": 5, "sample": "50 ms"},
    }


def cases() -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Yield what is run: its name, the scenario as JSON, where it stands, and overrides."""
    for name, file in shipped_files("examples").items():
        # What is for programs has no flow.
        if "flow" in read_scenario_table(file):
            yield f"example {name}", "", str(file), ()
    for name, file in shipped_files("studies").items():
        study = load_study(file)
        # Films, browsers and predictions run no scenario.
        if study.file.engine not in ("sim", "live", "linux"):
            continue
        if (first := next(study.runs(), None)) is not None:
            yield f"study {name}", json.dumps(study.base), study.scenario_origin, first.sets
    yield "everything", json.dumps(everything()), "everything", ()


def measure(case: tuple[str, str, str, tuple[str, ...]]) -> tuple[str, Digests]:
    """Run a case in virtual time and return its name and what came out of it."""
    name, text, origin, sets = case
    scenario = (
        _core.Scenario.from_json(text, origin, list(sets))
        if text
        else _core.Scenario.read(origin, list(sets))
    )
    return name, digests(sim(scenario))


def digests(run: Run) -> Digests:
    """Return what a run's tables and summary hold."""
    found: Digests = {}
    tables: dict[str, pa.Table] = {name: getattr(run, name) for name in TABLES} | run.apps
    for table, content in tables.items():
        found[f"{table}.rows"] = str(content.num_rows)
        for name in content.column_names:
            found[f"{table}.{name}"] = column_digest(content[name])
    found |= {
        f"summary.{key}": repr(value)
        for key, value in leaves(run.summary)
        if key.split(".")[0] not in MEASURED
    }
    return found


def column_digest(column: pa.ChunkedArray) -> str:
    """Return a digest of values and of which are missing, whatever the integers' width."""
    whole = column.combine_chunks()
    missing = np.asarray(whole.is_null()).tobytes()
    if pa.types.is_integer(whole.type) or pa.types.is_floating(whole.type):
        wide = pa.int64() if pa.types.is_integer(whole.type) else pa.float64()
        values = whole.cast(wide).fill_null(0).to_numpy().tobytes()
    else:
        values = "\0".join(str(value) for value in whole.to_pylist()).encode()
    return hashlib.sha256(missing + values).hexdigest()[:16]


def leaves(value: object, key: str = "") -> Iterator[tuple[str, object]]:
    """Yield the numbers and texts of nested dictionaries and lists with their keys."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from leaves(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from leaves(inner, f"{key}.{place}")
    else:
        yield key, value


def compare(before: Mapping[str, Digests], after: Mapping[str, Digests]) -> list[str]:
    """Return a line for each case that differs, and print one for each case."""
    wrong = []
    for name in sorted({*before, *after}):
        if name not in before or name not in after:
            print(f"{name}: only {'before' if name in before else 'after'}")
            continue
        old, new = before[name], after[name]
        differing = sorted(key for key in {*old} & {*new} if old[key] != new[key])
        gone, added = sorted({*old} - {*new}), sorted({*new} - {*old})
        notes = [
            f"{len({*old} & {*new})} alike"
            if not differing
            else f"DIFFERS in {', '.join(differing)}"
        ]
        notes += [f"gone: {', '.join(gone)}"] if gone else []
        notes += [f"new: {', '.join(added)}"] if added else []
        print(f"{name}: {'; '.join(notes)}")
        if differing:
            wrong.append(name)
    return wrong


def main() -> int:
    """Measure, and write or compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("-o", "--output", type=Path, help="where this build's results go")
    what.add_argument("--against", type=Path, help="the other build's results")
    parser.add_argument("--only", default="", help="only cases whose name holds this")
    arguments = parser.parse_args()
    chosen = [case for case in cases() if arguments.only in case[0]]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        measured = dict(pool.map(measure, chosen))
    if arguments.output:
        arguments.output.write_text(json.dumps(measured, indent=1) + "\n", "utf-8")
        return 0
    before = json.loads(arguments.against.read_text("utf-8"))
    before = {name: content for name, content in before.items() if arguments.only in name}
    wrong = compare(before, measured)
    print(f"{len(measured) - len(wrong)} of {len(measured)} runs alike")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
