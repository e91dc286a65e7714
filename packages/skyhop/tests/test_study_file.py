"""Study files: valid content, expansion to points, and messages about errors."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st

import skyhop
from needs import needs_program
from skyhop.data.scenarios import load_scenario
from skyhop.data.templates import template
from skyhop.errors import InputError
from skyhop.study import load_study, run_study
from skyhop.study.axes import expand
from skyhop.study.catalogue import find_study
from skyhop.study.file import Axis, StudyFile, parse_study
from small_study import content

NAMES = st.sampled_from(["alpha", "beta", "gamma", "delta"])
LENGTHS = st.integers(1, 4)


@st.composite
def axes(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw axes of distinct names and keys; axes of one zip have one length."""
    names = draw(st.lists(NAMES, unique=True, min_size=1, max_size=4))
    lengths = {zipped: draw(LENGTHS) for zipped in ("z1", "z2")}
    drawn = []
    for name in names:
        zipped = draw(st.sampled_from([None, "z1", "z2"]))
        count = lengths[zipped] if zipped else draw(LENGTHS)
        values = draw(st.lists(st.integers(), min_size=count, max_size=count, unique=True))
        axis = {"name": name, "key": f"flow.0.{name}", "values": values}
        drawn.append({**axis, "zip": zipped} if zipped else axis)
    return drawn


def study_file(**changes: Any) -> StudyFile:
    return parse_study(content(**changes), "study.toml")


@given(axes())
def test_expansion_crosses_zips_and_other_axes(drawn: list[dict[str, Any]]) -> None:
    points = expand(study_file(axis=drawn), "study.toml")
    groups = {axis.get("zip") or axis["name"]: len(axis["values"]) for axis in drawn}
    assert len(points) == math.prod(groups.values())
    assert len({tuple(point.labels.items()) for point in points}) == len(points)
    for point in points:
        assert list(point.labels) == [axis["name"] for axis in drawn]
        places: dict[str, set[int]] = {}
        for axis in drawn:
            value = point.labels[axis["name"]]
            assert point.sets[axis["key"]] == value
            places.setdefault(axis.get("zip") or axis["name"], set()).add(
                axis["values"].index(value)
            )
        assert all(len(found) == 1 for found in places.values()), "a zip goes in step"


@given(axes(), st.data())
def test_exclusion_removes_exactly_the_matching_points(
    drawn: list[dict[str, Any]], data: st.DataObject
) -> None:
    everything = expand(study_file(axis=drawn), "study.toml")
    axis = data.draw(st.sampled_from(drawn))
    taken = data.draw(st.lists(st.sampled_from(axis["values"]), min_size=1, unique=True))
    expected = [p for p in everything if p.labels[axis["name"]] not in taken]
    study = study_file(axis=drawn, exclude=[{axis["name"]: taken}])
    if expected:
        assert expand(study, "study.toml") == expected
    else:
        with pytest.raises(InputError, match="nothing to run"):
            expand(study, "study.toml")


@given(
    st.floats(-100, 100), st.floats(0, 100), st.integers(2, 30), st.sampled_from(["linear", "log"])
)
def test_ranges_contain_both_ends(begin: float, length: float, count: int, scale: str) -> None:
    begin = abs(begin) + 0.01 if scale == "log" else begin
    given_range = {"from": begin, "to": begin + length + 1, "count": count, "scale": scale}
    axis = {"name": "loss", "key": "link.loss", "range": given_range}
    values = [p.labels["loss"] for p in expand(study_file(axis=[axis]), "study.toml")]
    assert len(values) == count
    assert float(values[0]) == pytest.approx(begin, rel=1e-8, abs=1e-8)
    assert float(values[-1]) == pytest.approx(begin + length + 1, rel=1e-8)
    assert values == sorted(values)


def test_a_range_by_step_has_round_numbers() -> None:
    axis = {"name": "loss", "key": "link.loss",
            "range": {"from": 0, "to": 0.3, "step": 0.1, "unit": "%"}}  # fmt: skip
    points = expand(study_file(axis=[axis]), "study.toml")
    assert [point.labels["loss"] for point in points] == ["0 %", "0.1 %", "0.2 %", "0.3 %"]


def test_a_point_may_have_changes_of_its_own() -> None:
    change = [{"at": "1 s", "rate": "1 Mbit/s"}, {"at": "2 s", "loss": "1 %"}]
    axis = {"name": "link", "points": {"steady": {"change": []}, "slow": {"change": change}}}
    steady, slow = expand(study_file(axis=[axis]), "study.toml")
    assert (steady.sets["change"], slow.sets["change"]) == ([], change)


def test_run_ids_depend_on_the_scenario_only() -> None:
    runs = list(load_study(content()).runs())
    assert len(runs) == 2 * 2 * 2
    assert len({run.run_id for run in runs}) == len(runs)
    assert [run.seed for run in runs[:2]] == [1, 2]
    again = list(load_study(content(title="Another title")).runs())
    assert [run.run_id for run in again] == [run.run_id for run in runs]
    longer = content()
    longer["scenario"]["run"]["duration"] = "4 s"
    assert not {run.run_id for run in runs} & {run.run_id for run in load_study(longer).runs()}


def test_run_ids_depend_on_the_content_of_path_files(tmp_path: Any) -> None:
    file = tmp_path / "path.parquet"
    scenario = content()["scenario"]
    scenario["path"] = {"kind": "trace", "file": str(file)}
    ids = []
    for rtt in ("20 ms", "30 ms"):
        skyhop.path(kind="fixed", rtt=rtt, duration="3 s").write(file)
        ids.append([run.run_id for run in load_study(content(scenario=scenario)).runs()])
    assert not set(ids[0]) & set(ids[1])


FILM = """\
description = "two tracks"
source = "made up"
chunk = "4 s"
chunks = 2
[[track]]
bitrate = "300 kbit/s"
[[track]]
bitrate = "{top} kbit/s"
"""


def test_run_ids_depend_on_the_content_of_films(tmp_path: Any) -> None:
    file = tmp_path / "lecture.toml"
    scenario = content()["scenario"]
    scenario["flow"] = [{"app": {"kind": "dash", "film": str(file)}}]
    video = {"data": "seconds.parquet", "film": str(file), "controller": "bola", "every": "3 min"}
    by_rate = content(engine="video", video=video, axis=[])
    del by_rate["scenario"]
    ids = []
    for top in (900, 2000):
        file.write_text(FILM.format(top=top), "utf-8")
        studies = [content(scenario=scenario), by_rate]
        ids.append([run.run_id for study in studies for run in load_study(study).runs()])
    assert not set(ids[0]) & set(ids[1])


def test_run_ids_depend_on_each_of_several_files_of_one_name(tmp_path: Any) -> None:
    needs_program("cc")
    files = [tmp_path / name / "idea.c" for name in ("a", "b")]
    for file in files:
        file.parent.mkdir()
        file.write_text(template(file), "utf-8")
    scenario = content()["scenario"]
    scenario["flow"] = [{"cc": str(file)} for file in files]
    study = content(scenario=scenario, axis=[])
    ids = []
    for changed in (None, *files):
        if changed is not None:
            changed.write_text(changed.read_text("utf-8") + "/* changed */\n", "utf-8")
        ids.append(next(load_study(study).runs()).run_id)
    assert len(set(ids)) == 3


def test_run_ids_of_films_depend_on_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    study = load_study(find_study("t3p-video"))
    before = next(study.runs()).run_id
    monkeypatch.setattr("skyhop.study.table_runs.core_digest", lambda: "another")
    assert next(study.runs()).run_id != before


def test_run_ids_depend_on_the_path_files_of_links(tmp_path: Any) -> None:
    file = tmp_path / "path.parquet"
    scenario = content()["scenario"]
    path = {"kind": "trace", "file": str(file)}
    scenario["links"] = {"more": {"path": path, "rate": "5 Mbit/s"}}
    scenario["flow"].append({"cc": "cubic", "via": ["more"]})
    ids = []
    for rtt in ("20 ms", "30 ms"):
        skyhop.path(kind="fixed", rtt=rtt, duration="3 s").write(file)
        ids.append([run.run_id for run in load_study(content(scenario=scenario)).runs()])
    assert not set(ids[0]) & set(ids[1])


CC = {"name": "cc", "key": "flow.0.cc", "values": ["cubic", "bbr"]}
WRONG = {
    "unknown key": ({"colour": 1}, "colour: unknown key; expected one of axis,"),
    "unknown key of an axis": ({"axis": [{**CC, "unit": "s"}]}, "axis 1.unit: unknown key"),
    "unknown key of a panel": (
        {"panel": [{"kind": "bars", "title": "", "metric": "goodput", "x": "cc", "y": "cc"}]},
        "panel 1.y: unknown key; expected one of hue, kind, metric",
    ),
    "missing title": ({"title": None}, "title: is missing"),
    "a wrong name for a missing key": ({"title": None, "name": "x"}, "name: unknown key"),
    "several missing keys": ({"axis": [{}]}, "axis 1.name: is missing"),
    "missing keys of a kind": ({"panel": [{"kind": "table"}]}, 'kind = "table" needs `title`, '),
    "wrong type": ({"repeats": "many"}, 'repeats: expected a whole number (it is "many")'),
    "a half": ({"repeats": 1.5}, "repeats: expected a whole number (it is 1.5)"),
    "no list": ({"axis": {"name": "cc"}}, "axis: expected a list"),
    "no table": ({"axis": ["cc"]}, 'axis 1: expected a table (it is "cc")'),
    "no words": ({"title": 3}, "title: expected text (it is 3)"),
    "text for a list": (
        {"panel": [{"kind": "bars", "title": "", "metric": "goodput", "x": "cc"},
                   {"kind": "series", "title": "", "series": "goodput", "hue": "cc"}]},
        """panel 2.series: expected a list, such as ["goodput"] (it is "goodput", without""",
    ),
    "a list for text": (
        {"panel": [{"kind": "cdf", "title": "", "series": ["srtt"], "hue": "cc"}]},
        "panel 1.series: expected 'goodput', 'cwnd', 'srtt', 'ack_rtt', 'throughput', "
        "'retransmit_share' or 'laser_load' (it is a list)",
    ),
    "text for each": (
        {"panel": [{"kind": "comparison", "title": "", "metric": "goodput", "by": "cc",
                    "against": "bbr", "each": "loss"}]},
        'panel 1.each: expected a list, such as ["loss"]',
    ),
    "text for a claim's each": (
        {"claim": [{"text": "", "check": "goodput() > 1", "each": "loss"}]},
        'claim 1.each: expected a table, such as { loss = … } (it is "loss")',
    ),
    "a value for a list of each": (
        {"claim": [{"text": "", "check": "goodput() > 1", "each": {"loss": "1 %"}}]},
        'claim 1.each.loss: expected a list, such as ["1 %"]',
    ),
    "a kind of panel": (
        {"panel": [{"kind": "bar", "title": "", "metric": "goodput", "x": "cc"}]},
        """'heatmap', 'map', 'series' (it is "bar") (did you mean bars?)""",
    ),
    "no kind of panel": (
        {"panel": [{"title": "", "metric": "goodput"}]},
        "panel 1.kind: is missing; expected one of 'table', 'comparison', 'bars'",
    ),
    "a metric with two t": (
        {"panel": [{"kind": "bars", "title": "", "metric": "goodputt", "x": "cc"}]},
        "panel 1.metric: no metric `goodputt` (did you mean goodput?); expected",
    ),
    "a metric of a claim": (
        {"claim": [{"text": "", "check": "Srtt() > 1"}]}, "no metric `Srtt` (did you mean srtt?)"
    ),
    "an axis of a panel": (
        {"panel": [{"kind": "bars", "title": "", "metric": "goodput", "x": "los"}]},
        "panel 1.x: no axis `los` (did you mean loss?)",
    ),
    "a value of an axis": ({"exclude": [{"cc": "BBR"}]}, "no value 'BBR' (did you mean bbr?)"),
    "a nearly right key": ({"pannel": []}, "pannel: unknown key (did you mean panel?)"),
    "another engine": (
        {"engine": "ns3"},
        "engine: expected 'sim', 'live', 'linux', 'elements', 'predict', 'telemetry', 'video' or "
        "'browser'",
    ),
    "a list of lists": (
        {"axis": [{**CC, "values": [["bbr"]]}]}, "axis 1.values 1: expected a number, text, true"
    ),
    "a point of lists of lists": (
        {"axis": [{"name": "a", "points": {"b": {"link.loss": [[1]]}}}]},
        "axis 1.points.b.link.loss: expected a number, text, true or false, a list of those, a",
    ),
    "no values": ({"axis": [{"name": "cc", "key": "flow.0.cc"}]}, "expected one of `values`"),
    "two bases": ({"base": "x.toml"}, "either `base`"),
    "the same axis twice": ({"axis": [CC, CC]}, "there is already an axis `cc`"),
    "the same key twice": ({"axis": [CC, {**CC, "name": "dd"}]}, "set by the axis `cc`"),
    "the same value twice": ({"axis": [{**CC, "values": ["bbr", "bbr"]}]}, "twice"),
    "seed as an axis": (
        {"axis": [{"name": "s", "key": "run.seed", "values": [1]}]},
        "seeds come from `repeats`",
    ),
    "an axis named as a column": ({"axis": [{**CC, "name": "goodput_bps"}]}, "column of"),
    "uneven zip": (
        {"axis": [{**CC, "zip": "a"},
                  {"name": "l", "key": "link.loss", "values": ["1 %"], "zip": "a"}]},
        "same length; it has `cc` 2, `l` 1",
    ),
    "unknown axis excluded": ({"exclude": [{"dd": 1}]}, "no axis `dd`"),
    "unknown value excluded": ({"exclude": [{"cc": "reno"}]}, "cc has no value 'reno'"),
    "unknown metric": (
        {"panel": [{"kind": "bars", "title": "", "metric": "speed", "x": "cc"}]},
        "panel 1.metric: no metric `speed`; expected one of goodput",
    ),
    "a taken metric": (
        {"metric": [{"name": "goodput", "kind": "samples"}]}, "`goodput` is taken"
    ),
    "a metric that calls": (
        {"metric": [{"name": "x", "kind": "expression", "value": 'goodput(cc="bbr")'}]},
        "metric 1.value",
    ),
    "published without a number": (
        {"published": [{"metric": "goodput", "by": ["cc"], "values": [["bbr", "fast"]]}]},
        "published 1.values 1: expected a number",
    ),
    "published for another axis value": (
        {"published": [{"metric": "goodput", "by": ["cc"], "values": [["reno", 1]]}]},
        "cc has no value 'reno'",
    ),
    "bins of a metric without bins": (
        {"panel": [{"kind": "cdf", "title": "", "bins_of": "goodput", "hue": "cc"}]},
        "panel 1.bins_of: `goodput` has no bins; expected a metric of kind",
    ),
    "a box of two things": (
        {"panel": [{"kind": "box", "title": "", "metric": "srtt", "series": "srtt", "x": "cc"}]},
        "expected either `metric`, of whole runs, `bins_of`, of a metric's bins, or `series`",
    ),
    "a transfer of too many steps": (
        {"panel": [{"kind": "transfer", "title": "", "upto": "1 GB", "step": "1 kB"}]},
        "expected `upto` to be 1 to 1000 of `step`",
    ),
    "a transfer that is not kept": (
        {"keep": "rows", "panel": [{"kind": "transfer", "title": "", "upto": "1 MB",
                                    "step": "1 MB"}]},
        'expected keep = "series"',
    ),
    "a window of bytes without bytes": (
        {"metric": [{"name": "x", "kind": "samples", "within": "bytes"}]},
        'within = "bytes" goes with `bytes`, and needs it',
    ),
    "a window of bytes for flows together": (
        {"metric": [{"name": "x", "kind": "flows", "over": "sum", "bytes": "1 MB"}]},
        "`bytes` goes with kind =",
    ),
    "a share of nothing": (
        {"metric": [{"name": "x", "kind": "probe", "above": 5, "upto": 4}]},
        "expected `above` below `upto`",
    ),
    "a share of bytes": (
        {"metric": [{"name": "x", "kind": "time_to_bytes", "bytes": "1 MB", "above": 5}]},
        "`above` goes with kind =",
    ),
    "series that are not kept": (
        {"keep": "rows", "panel": [{"kind": "cdf", "title": "", "series": "srtt", "hue": "cc"}]},
        'expected keep = "series"',
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case.replace(" ", "-"))
def test_wrong_keys_are_named(case: str) -> None:
    changes, expected = WRONG[case]
    with pytest.raises(InputError) as caught:
        load_study({k: v for k, v in content(**changes).items() if v is not None})
    assert expected in str(caught.value)
    assert str(caught.value).startswith("the study")
    assert "\n" not in str(caught.value)


def test_an_axis_covers_computed_measured_and_constant_paths(tmp_path: Path) -> None:
    skyhop.path(kind="fixed", rtt="30 ms", duration="3 s").write(tmp_path / "measured.parquet")
    ways = {
        "computed": {},
        "measured": {"path": {"kind": "trace", "file": str(tmp_path / "measured.parquet")}},
        "constant": {"path": {"kind": "fixed", "rtt": "20 ms"}, "link.loss": "1 %"},
    }
    path = {"from": "Seattle", "to": "San Diego", "constellation": "starlink-shell1"}
    scenario = {**content()["scenario"], "path": path}
    axis = [{"name": "way", "points": ways}, CC]
    study = load_study(content(scenario=scenario, axis=axis, repeats=1))
    paths = [run.resolved["path"] for run in study.runs()]
    kinds = [path["kind"] for path in paths]
    assert kinds == ["constellation"] * 2 + ["trace"] * 2 + ["fixed"] * 2
    done = run_study(study, tmp_path / "out", jobs=2)
    assert not done.failures
    rtts_ms = {
        way: done.results.estimate(study.metrics.infos["base_rtt"], {"way": way}).mean
        for way in ways
    }
    assert rtts_ms["measured"] == pytest.approx(30, abs=0.1)
    assert rtts_ms["constant"] == pytest.approx(20, abs=0.1)
    # The kept scenario of a run over a shared path loads again.
    for run in study.runs():
        own = tmp_path / "out" / "runs" / run.run_id / "scenario.toml"
        assert (
            json.loads(load_scenario(own).to_json())["path"]["kind"] == run.resolved["path"]["kind"]
        )


def test_a_wrong_scenario_is_named_with_its_point() -> None:
    axis = {"name": "loss", "key": "link.loss", "values": ["0 %", "lots"]}
    with pytest.raises(InputError, match=r"link\.loss.*\(at loss = lots\)"):
        list(load_study(content(axis=[axis])).runs())
    axis = {"name": "hue", "key": "link.hue", "values": [1]}
    with pytest.raises(InputError, match="hue"):
        list(load_study(content(axis=[axis])).runs())


def test_the_schema_is_current() -> None:
    committed = json.loads((ROOT / "docs" / "study.schema.json").read_text("utf-8"))
    assert committed == StudyFile.model_json_schema(by_alias=True), "run make schema"


def test_every_axis_kind_is_in_the_schema() -> None:
    assert {"values", "range", "points"} <= set(Axis.model_json_schema()["properties"])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"axis": [{"name": "cc", "key": "flow.cc", "values": ["cubic"]}]},
            'the study: axis 1 (`cc`): key `flow.cc`: there is no entry "cc"; the list has 1',
        ),
        (
            {"axis": [{"name": "relay", "points": {"x": {"path": {"kind": "constellation",
              "from": "1,1", "to": "2,2", "relay": "ISL"}}}}]},
            "path.relay: unknown variant `ISL` (did you mean isl?), expected one of `isl`",
        ),
    ],
)  # fmt: skip
def test_wrong_scenarios_of_points_are_named(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError) as caught:
        list(load_study(content(**changes)).runs())
    assert expected in str(caught.value)


@pytest.mark.parametrize(("name", "meant"), [("bbrv3", "bbr3"), ("SatPipe", "satpipe"), ("zz", "")])
def test_a_failed_run_says_which_sender_was_meant(name: str, meant: str, tmp_path: Path) -> None:
    axis = {"name": "cc", "key": "flow.0.cc", "values": [name]}
    (failure,) = run_study(load_study(content(axis=[axis], repeats=1)), tmp_path, jobs=1).failures
    hint = f" (did you mean {meant}?)" if meant else ""
    assert f'is called "{name}"{hint}; there are: ' in failure.error
