"""Segments of a route from a scenario's probes: the same as those of `skyhop dissect`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Skyhop

from skyhop.data.reading import run_record
from skyhop.data.records import RunRecord
from skyhop.data.runs import Run
from skyhop.errors import InputError
from skyhop.study import StudyRun, load_study, run_study
from skyhop.study.traceroute import traces_of
from small_study import content

HOPS = ["192.168.1.1", "100.64.0.1", "172.16.249.6", "8.8.8.8"]
LINKS = {"lan": 1.0, "ground": 3.0, "wan": 8.0}
"""Round trips of links in ms; the path has 30 ms, and 50 ms from 10 s on."""
VIA = [["lan"], ["lan", "path"], ["lan", "path", "ground"], ["lan", "path", "ground", "wan"]]


def metric(name: str, segment: str, **keys: Any) -> dict[str, Any]:
    return {
        "name": name, "kind": "dissection", "segment": segment, "flows": [1, 2, 3, 4],
        "hops": HOPS, **keys,
    }  # fmt: skip


METRICS = [
    *(metric(segment.lower(), segment) for segment in ("S1", "S2", "S3", "S5", "S6")),
    metric("s2_medians", "S2", method="medians"),
    metric("share", "S2", share=True),
    metric("share_medians", "S2", share=True, method="medians"),
]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> StudyRun:
    probe = {"kind": "probe", "interval": "100 ms"}
    scenario = {
        "path": {"kind": "fixed", "rtt": "30 ms"},
        "link": {"rate": "1 Gbit/s"},
        "links": {name: {"rate": "1 Gbit/s", "rtt": f"{rtt} ms"} for name, rtt in LINKS.items()},
        "flow": [probe, *({**probe, "via": via} for via in VIA)],
        "change": [{"at": "10 s", "rtt": "50 ms"}, {"at": "11 s", "outage": "500 ms"}],
        "run": {"duration": "15 s"},
    }
    study = load_study(content(scenario=scenario, axis=[], repeats=1, metric=METRICS))
    made = run_study(study, tmp_path_factory.mktemp("route"), jobs=1)
    assert not made.failures
    return made


def record_of(done: StudyRun) -> RunRecord:
    (name,) = done.results.frame["run"]
    return run_record(Run(done.directory.root / "runs" / name))


def test_known_delays_are_recovered(done: StudyRun) -> None:
    (row,) = done.results.frame.rows(named=True)
    # The path takes 30 ms in most traces, so that is its usual delay.
    assert row["s1"] == pytest.approx(0.5, abs=0.02)
    assert row["s2"] == pytest.approx(15, abs=0.02)
    assert row["s2_medians"] == pytest.approx(15, abs=0.02)
    assert row["s3"] == pytest.approx(1.5, abs=0.02)
    assert row["s6"] == pytest.approx(4, abs=0.02)
    assert row["share"] == pytest.approx(100 * 15 / 21, abs=0.2)
    assert row["share_medians"] == pytest.approx(100 * 15 / 21, abs=0.2)
    assert row["s5"] is None


def test_lost_probes_are_hops_without_an_answer(done: StudyRun) -> None:
    record = record_of(done)
    traces = traces_of(record, [1, 2, 3, 4], HOPS)
    assert len(traces) == 150
    silent = [trace for trace in traces if trace.hops[-1].address is None]
    assert 4 <= len(silent) <= 6
    assert all(trace.hops[0].rtt_ms is not None for trace in traces)
    assert all(str(trace.destination) == "8.8.8.8" for trace in traces)


def test_the_command_gives_the_same_delays(done: StudyRun, skyhop: Skyhop, tmp_path: Path) -> None:
    record = record_of(done)
    rtt_ms = np.array([record.probes[flow].rtt_ms for flow in (1, 2, 3, 4)]).T
    lines = []
    for trace in rtt_ms:
        lines.append("traceroute to 8.8.8.8 (8.8.8.8), 30 hops max, 60 byte packets")
        lines += [
            f" {place}  *" if np.isnan(rtt) else f" {place}  {address}  {rtt!r} ms"
            for place, (address, rtt) in enumerate(zip(HOPS, trace.tolist(), strict=True), start=1)
        ]
    (tmp_path / "traces.txt").write_text("\n".join(lines), "utf-8")
    found = json.loads(skyhop("dissect", "traces.txt", "--json").stdout)
    (row,) = done.results.frame.rows(named=True)
    pieces = {piece["name"]: piece for piece in found["segments"]}
    for name in ("S1", "S2", "S3", "S6"):
        assert pieces[name]["by_trace_ms"] == pytest.approx(row[name.lower()], abs=1e-6)
    assert 100 * pieces["S2"]["share"] == pytest.approx(row["share"], abs=1e-6)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"hops": HOPS[:3]}, "as many `flows` as `hops`"),
        ({"hops": ["somewhere"], "flows": [1]}, "somewhere"),
        ({"segment": "S7"}, "S7"),
        ({"above": 3}, "`above` goes with"),
    ],
)
def test_wrong_keys_are_named(keys: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError) as caught:
        load_study(content(metric=[{**metric("s2", "S2"), **keys}]))
    assert expected in str(caught.value)


def test_a_run_without_these_probes_has_no_segments(tmp_path: Path) -> None:
    study = load_study(content(axis=[], repeats=1, metric=[metric("s2", "S2")]))
    done = run_study(study, tmp_path, jobs=1)
    assert done.results.frame["s2"].to_list() == [None]
