"""Access profiles and the terminal's end: from Python, on the command line, and in studies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Skyhop

import skyhop as sh
from skyhop import _core
from skyhop.cli.repeat_mark import Mark
from skyhop.data.scenarios import is_seedless, load_scenario, path_files
from skyhop.errors import InputError
from skyhop.study import load_study
from skyhop.study.conditions import conditions_of

_ENDS = {"from": "Victoria, CA", "to": "Seattle, US"}


def profile(floor_ms: float) -> str:
    """Return a profile with a constant round trip."""
    constant = [str(floor_ms)] * len(_core.access_ranks())
    none = ["0"] * len(constant)
    return (
        'description = "d"\nsource = "s"\nlicence = "l"\ndate = "2026"\n[round_trip]\n'
        f'floor_ms = {{ quantiles = [{", ".join(constant)}], every = "15 s" }}\n'
        f'wait_ms = {{ quantiles = [{", ".join(none)}], every = "15 s" }}\n'
    )


def study(path: dict[str, Any]) -> dict[str, Any]:
    scenario = {"path": path, "flow": [{"cc": "cubic"}], "run": {"duration": "3 s"}}
    return {"title": "T", "question": "?", "repeats": 2, "keep": "rows", "scenario": scenario}


def test_a_profile_gives_a_path_alone_or_over_satellites(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(profile(50), "utf-8")
    alone = sh.path(kind="access", access=str(file), duration="3 s")
    assert alone.frames["delay_ns"].to_list()[0] == 25_000_000
    assert (alone.header["access"], alone.header["dish"]) == ("mine", "from")
    plain, drawn = (
        sh.path(_ENDS["from"], _ENDS["to"], relay=relay, duration="40 s")
        for relay in ("access", "starlink")
    )
    assert "access" not in plain.header
    assert drawn.header["access"] == "starlink"
    assert drawn.frames["delay_ns"].median() > plain.frames["delay_ns"].median()
    turned = sh.path(_ENDS["to"], _ENDS["from"], relay="starlink", dish="to", duration="40 s")
    assert (turned.header["from"]["name"], turned.header["dish"]) == ("Seattle, US", "to")
    assert turned.frames["delay_ns"].equals(drawn.frames["delay_back_ns"])
    # The waits, which may differ between the directions, are on the terminal's link.
    assert turned.segments.drop("user_link_ns").equals(drawn.segments.drop("user_link_ns"))


def test_a_geostationary_link_keeps_one_capacity_in_a_run_and_draws_another_for_the_next() -> None:
    scenario = {
        "path": {"kind": "access", "profile": "viasat-2020", "dish": "to"},
        "flow": [{"kind": "probe", "interval": "1 s"}],
        "run": {"duration": "45 s"},
    }
    paths = [sh.sim(scenario, seed=seed).path for seed in range(1, 22)]
    frames = [path.frames for path in paths if path is not None]
    assert len(frames) == len(paths)
    mbps = [frame["rate_bps"].to_numpy() / 1e6 for frame in frames]
    assert all(rate.min() > 0.75 * rate.max() for rate in mbps)
    medians = sorted(float(np.median(rate)) for rate in mbps)
    assert medians[0] < 130 < medians[10] < 145
    for frame in frames:
        rtt_ms = (frame["delay_ns"] + frame["delay_back_ns"]).to_numpy() / 1e6
        assert rtt_ms.min() >= 564
        assert rtt_ms.max() <= 625
        assert rtt_ms.mean() == pytest.approx(597, abs=3)


def test_the_command_line_takes_profiles(skyhop: Skyhop, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(profile(50), "utf-8")
    alone = ["--kind", "access", "--access", "mine.toml", "--duration", "3 s"]
    done = skyhop("path", *alone, "-o", "p.parquet")
    assert done.returncode == 0, done.stderr
    assert "mean base RTT 50.0 ms" in done.stderr
    ends = ["--from", "Seattle, US", "--to", "Victoria, CA", "--duration", "3 s"]
    over = ["--relay", "starlink", "--access", "mine.toml", "--dish", "to"]
    done = skyhop("path", *ends, *over, "-o", "q.parquet")
    assert done.returncode == 0, done.stderr
    assert sh.read_path(tmp_path / "q.parquet").header["dish"] == "to"
    done = skyhop("path", *ends, "--access", "mine.toml", "-o", "r.parquet")
    assert done.returncode == 2
    assert 'path.access: has no effect with relay = "bent-pipe"; expected relay' in done.stderr
    done = skyhop("path", "--kind", "access", "--access", "starlnk", "-o", "r.parquet")
    assert done.returncode == 2
    assert "did you mean starlink?" in done.stderr
    done = skyhop("path", "compare", "access", "starlink", *ends)
    assert done.returncode == 0, done.stderr


def test_the_profiles_are_listed_with_their_sources(skyhop: Skyhop) -> None:
    listed = json.loads(skyhop("list", "access", "--json").stdout)
    assert "starlink" in [entry["name"] for entry in listed]
    assert all(entry["source"] for entry in listed)
    (one,) = [entry for entry in _core.list_access() if entry.name == "starlink"]
    shown = " ".join(skyhop("list", "access", "starlink").stdout.split())
    assert one.source in shown
    wrong = skyhop("list", "access", "starlnk")
    assert (wrong.returncode, "did you mean starlink?" in wrong.stderr) == (2, True)


def test_runs_depend_on_the_content_of_profiles(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    paths = [
        {"kind": "access", "profile": str(file)},
        {"relay": "starlink", "access": {"profile": str(file)}, **_ENDS},
    ]
    ids: list[set[str]] = []
    for floor_ms in (50, 60):
        file.write_text(profile(floor_ms), "utf-8")
        runs = [run for path in paths for run in load_study(study(path)).runs()]
        ids.append({run.run_id for run in runs})
        assert len({run.path_id for run in runs}) == len(runs), "each seed has a path of its own"
    assert not ids[0] & ids[1]


def test_runs_depend_on_the_profiles_that_come_with_skyhop(monkeypatch: pytest.MonkeyPatch) -> None:
    path = {"relay": "starlink", **_ENDS}
    before = [run.run_id for run in load_study(study(path)).runs()]
    # These profiles are a part of the core, so that another one makes another core.
    monkeypatch.setattr("skyhop.study.scenario_runs.core_digest", lambda: "another core")
    assert not set(before) & {run.run_id for run in load_study(study(path)).runs()}


def test_a_repeat_depends_on_the_content_of_profiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.toml").write_text(profile(50), "utf-8")
    scenario, output = tmp_path / "s.toml", tmp_path / "out"
    path = 'kind = "access"\nprofile = "mine.toml"'
    run = '[run]\nduration = "250 ms"'
    scenario.write_text(f'[path]\n{path}\n[[flow]]\ncc = "cubic"\n{run}\n', "utf-8")
    Mark(output, scenario, [])
    sh.sim(scenario, output / "seed-1", seed=1)
    assert Mark(output, scenario, []).is_done(1, output / "seed-1")
    (tmp_path / "mine.toml").write_text(profile(60), "utf-8")
    assert not Mark(output, scenario, []).is_done(1, output / "seed-1")
    sh.sim(scenario, output / "seed-1", seed=1, force=True)
    assert Mark(output, scenario, []).is_done(1, output / "seed-1")
    # A profile that comes with skyhop is a part of the core.
    monkeypatch.setattr("skyhop.study.run_ids.core_digest", lambda: "another core")
    assert not Mark(output, scenario, []).is_done(1, output / "seed-1")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ({"relay": "isl"}, True),
        ({"relay": "access"}, False),
        ({"relay": "access", "outage": "80 ms"}, True),
        ({"relay": "access", "outage": "none", "access": {"profile": "starlink"}}, False),
        ({"relay": "starlink"}, False),
        ({"relay": "isl", "jitter": {"above": "3 ms"}}, False),
    ],
)
def test_paths_that_are_drawn_depend_on_the_seed(path: dict[str, Any], expected: bool) -> None:
    loaded = load_scenario({"path": {**_ENDS, **path}})
    resolved = json.loads(loaded.to_json())["path"]
    assert is_seedless(resolved) is expected
    first, second = (
        sh.path(scenario={"path": {**_ENDS, **path}}, sets=[f"run.seed={seed}"], duration="3 min")
        for seed in (1, 2)
    )
    assert first.frames.equals(second.frames) is expected


def test_the_files_of_a_path_include_its_profile() -> None:
    loaded = load_scenario({"path": {**_ENDS, "relay": "access", "access": {"profile": "m.toml"}}})
    files = path_files(json.loads(loaded.to_json())["path"])
    assert files["access.profile"] == "m.toml"
    assert path_files({"kind": "access", "profile": "m.toml"}) == {"profile": "m.toml"}


def test_a_run_over_a_profile_runs_again_from_any_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.toml").write_text(profile(50), "utf-8")
    monkeypatch.chdir(tmp_path)
    for path in (
        {"kind": "access", "profile": "mine.toml"},
        {**_ENDS, "relay": "starlink", "access": {"profile": "mine.toml"}},
    ):
        scenario = {"path": path, "flow": [{"cc": "cubic"}], "run": {"duration": "2 s"}}
        first = sh.sim(scenario)
        (tmp_path / "elsewhere").mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert sh.sim(first.info["scenario"]).flows.equals(first.flows)
        monkeypatch.chdir(tmp_path)


def test_conditions_name_the_profile_and_what_it_may_replace() -> None:
    for path, expected in (
        ({"kind": "access", "profile": "starlink"}, "access profile starlink"),
        (
            {**_ENDS, "relay": "access", "access": {"profile": "starlink"}},
            "starlink-shell1, access, access profile starlink, Victoria, CA → Seattle, US",
        ),
    ):
        loaded = load_study(study(path))
        found = {one.name: one.value for one in conditions_of(loaded, list(loaded.runs()))}
        assert found["path"] == expected
        assert found["rate"] == "of the access profile, else 150 Mbit/s"


def test_imports_state_the_terminals_end_where_they_know_it(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"

    def dish(text: str, **options: str) -> str | None:
        log.write_text(text, "utf-8")
        found: str | None = sh.import_path(log, "csv", **options).header.get("dish")
        return found

    both = "ul_Mbps,dl_Mbps,ul_owd_ms,dl_owd_ms,ul_loss,dl_loss,t_ms\n4,40,20,20,0,0,0\n"
    assert dish(both) == "to"
    assert dish(both, direction="up") == "from"
    assert dish("time,dl_mbps\n1,40\n2,30\n") == "to"
    assert dish("time,upload_mbps\n1,4\n2,3\n") == "from"
    # A rate without a direction has the one that the user names.
    assert dish("time,rate_mbps\n1,40\n2,30\n") is None
    assert dish("time,rate_mbps\n1,40\n2,30\n", direction="down") == "to"
    assert dish("time,rate_mbps\n1,40\n2,30\n", direction="up") == "from"
    assert dish("time,rtt_ms\n1,40\n2,41\n") is None


def test_a_file_that_does_not_state_it_is_an_error_with_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "p.parquet"
    sh.path(kind="fixed", rtt="20 ms", duration="3 s").write(file)
    scenario = {"path": {"kind": "trace", "file": str(file), "dish": "to"}}
    with pytest.raises(InputError, match=r"path\.dish: the path file does not say .* import it"):
        sh.path(scenario=scenario)


def test_the_scenario_of_a_run_reproduces_it_over_paths_with_rates_of_their_own(
    tmp_path: Path,
) -> None:
    log = tmp_path / "rates.csv"
    log.write_text("t_s,mbps\n" + "".join(f"{s},{20 + 10 * (s % 2)}\n" for s in range(20)), "utf-8")
    sh.import_path(log, rtt="20 ms").write(tmp_path / "rates.parquet")
    measured = {"kind": "trace", "file": str(tmp_path / "rates.parquet")}
    for path in (measured, {"kind": "access", "profile": "lagos"}):
        run = sh.sim({"path": path, "flow": [{"cc": "cubic"}], "run": {"duration": "5 s"}})
        assert "rate" not in run.info["scenario"]["link"]
        again = sh.sim(run.info["scenario"])
        assert again.summary["flows"] == run.summary["flows"]
        assert again.info["scenario"] == run.info["scenario"]
        given = sh.sim(run.info["scenario"], sets=["link.rate=5 Mbit/s"])
        assert given.info["scenario"]["link"]["rate"] == "5 Mbit/s"
